//! Tables as input files: comma-separated numbers, a sample a row, and perhaps the names of the columns on the first line.

use std::path::Path;

use monosplit_graph::{CsvRecord, Error, Result, Tensor, open_csv, shown};

/// A table that was read.
#[derive(Debug)]
pub(crate) struct TableFile {
    /// The names of the columns, where the first line has any.
    pub(crate) columns: Option<Vec<String>>,
    /// `[rows, columns]`
    pub(crate) rows: Tensor,
}

/// Whether the name of a file ends as that of a table.
pub(crate) fn is_table_name(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"))
}

impl TableFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        TableFile::of(open_csv(path)?).map_err(|error| error.context(path.display()))
    }

    /// The first line holds names unless all of its cells are numbers.
    fn of(mut records: Vec<CsvRecord>) -> Result<Self> {
        let is_number = |cell: &String| cell.parse::<f64>().is_ok();
        let columns = match records.first() {
            Some(first) if !first.cells.iter().all(is_number) => Some(records.remove(0).cells),
            _ => None,
        };
        let Some(width) = columns.as_ref().or(records.first().map(|first| &first.cells)).map(Vec::len) else {
            return Err(Error::malformed("the table is empty"));
        };
        if records.is_empty() {
            return Err(Error::malformed("the table has no row behind the names of its columns"));
        }
        let mut numbers: Vec<f64> = Vec::with_capacity(records.len() * width);
        for CsvRecord { line, cells } in &records {
            if cells.len() != width {
                let found = cells.len();
                return Err(Error::malformed(format!("line {line}: expected {width} cells, found {found}")));
            }
            for (column, cell) in cells.iter().enumerate() {
                let name = columns.as_ref().and_then(|names| names.get(column));
                let name = name.map_or_else(|| (column + 1).to_string(), |name| format!("'{}'", shown(name)));
                numbers.push(cell.parse().map_err(|_| {
                    let cell = shown(cell);
                    Error::malformed(format!("line {line}, column {name}: expected a number, found '{cell}'"))
                })?);
            }
        }
        Ok(TableFile { columns, rows: Tensor::new([records.len(), width], numbers)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monosplit_graph::read_csv;

    fn table(text: &str) -> Result<TableFile> {
        TableFile::of(read_csv(text)?)
    }

    #[test]
    fn the_first_line_may_name_the_columns() {
        let named = table("age,\"income, net\"\n31,2.5e3\n\n40,-1\n").unwrap();
        assert_eq!(named.columns.unwrap(), ["age", "income, net"]);
        assert_eq!(
            (named.rows.shape(), &*named.rows.to_f64()),
            (&[2, 2][..], &[31.0, 2500.0, 40.0, -1.0][..])
        );
        let bare = table("1,2,3\n4,5,6\n").unwrap();
        assert!(bare.columns.is_none());
        assert_eq!(bare.rows.shape(), [2, 3]);
    }

    #[test]
    fn what_is_no_number_is_named() {
        let refused = |text: &str| table(text).unwrap_err().to_string();
        assert!(refused("a,b\n1,2\n3,x\n").contains("line 3, column 'b': expected a number, found 'x'"));
        assert!(refused("1,2\n3,\n").contains("line 2, column 2: expected a number, found ''"));
        assert!(refused("a,b\n1\n").contains("line 2: expected 2 cells, found 1"));
        assert!(refused("").contains("the table is empty"));
        assert!(refused("a,b\n").contains("no row"));
    }
}
