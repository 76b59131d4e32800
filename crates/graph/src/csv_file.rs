//! Comma-separated values, by one rule for all files that are read and written: RFC 4180 with the line ends of text files. A cell
//! in quotes may hold commas, and a doubled quote in it is a quote.

use std::io::Read;
use std::path::Path;

use crate::{Error, Result, open_regular};

/// A line of a list that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvRecord {
    /// The number of the line, from 1.
    pub line: u64,
    /// The cells without the spaces around them.
    pub cells: Vec<String>,
}

/// The largest list in bytes, and the largest number of cells on a line: a file of millions of empty cells is none.
const MAX_LIST: u64 = 64 << 20;
const MAX_CELLS: usize = 1000;

/// The lines of a file, see [`read_csv`].
pub fn open_csv(path: &Path) -> Result<Vec<CsvRecord>> {
    let about = |error: Error| error.context(path.display());
    let mut bytes = Vec::new();
    let read = open_regular(path)?.take(MAX_LIST + 1).read_to_end(&mut bytes);
    if read.map_err(|cause| Error::io(path, cause))? as u64 > MAX_LIST {
        let limit = MAX_LIST >> 20;
        return Err(about(Error::malformed(format!(
            "the list is too long, the limit is {limit} MiB; split it"
        ))));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        about(Error::malformed("expected text, found bytes that are none; save the list as UTF-8"))
    })?;
    read_csv(&text).map_err(about)
}

/// The lines of a list, which may have different numbers of cells. Empty lines and a byte order mark are skipped. A cell ends on its
/// line: a list names files and classes, and a quote that is never closed would swallow the lines after it.
pub fn read_csv(text: &str) -> Result<Vec<CsvRecord>> {
    let crowded = text.lines().position(|line| line.matches(',').count() >= MAX_CELLS);
    if let Some(index) = crowded {
        return Err(Error::malformed(format!("line {}: there are more than {MAX_CELLS} cells", index + 1)));
    }
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let (mut records, mut row) = (Vec::new(), csv::StringRecord::new());
    let (mut line, mut counted) = (1, 0);
    while reader.read_record(&mut row).map_err(|cause| Error::malformed(cause.to_string()))? {
        // The position of a record is that of the empty lines before it.
        let start = row.position().map_or(0, |position| position.byte() as usize).min(text.len());
        let skipped = text.as_bytes()[start..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
        let passed = &text.as_bytes()[counted..start + skipped];
        line += passed.iter().filter(|&&byte| byte == b'\n').count() as u64;
        counted = start + skipped;
        if row.iter().any(|cell| cell.contains(['\n', '\r'])) {
            return Err(Error::malformed(format!(
                "line {line}: a quote is opened and not closed on the line"
            )));
        }
        records.push(CsvRecord { line, cells: row.iter().map(str::to_owned).collect() });
    }
    Ok(records)
}

/// A cell that is written.
#[derive(Clone, Debug, PartialEq)]
pub enum CsvCell {
    /// A text. Programs for tables would compute one that begins with `=`, `+`, `-` or `@`; unless it is a number, an apostrophe is
    /// put before it, which they do not show.
    Text(String),
    /// A number or a word of ours, as it is.
    Plain(String),
    /// No value.
    Empty,
}

impl CsvCell {
    /// A number, written with the digits that tell it from its neighbours.
    pub fn number(number: impl ToString) -> Self {
        CsvCell::Plain(number.to_string())
    }

    fn text(self) -> String {
        match self {
            CsvCell::Text(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => {
                if text.parse::<f64>().is_ok() { text } else { format!("'{text}") }
            }
            CsvCell::Text(text) | CsvCell::Plain(text) => text,
            CsvCell::Empty => String::new(),
        }
    }
}

/// A table as text: the names of the columns, then the rows.
pub fn write_csv(columns: &[&str], rows: impl IntoIterator<Item = Vec<CsvCell>>) -> Result<String> {
    let failed =
        |cause: &dyn std::fmt::Display| Error::argument(format!("the table cannot be written: {cause}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns).map_err(|cause| failed(&cause))?;
    for row in rows {
        writer.write_record(row.into_iter().map(CsvCell::text)).map_err(|cause| failed(&cause))?;
    }
    let bytes = writer.into_inner().map_err(|cause| failed(&cause))?;
    String::from_utf8(bytes).map_err(|cause| failed(&cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<(u64, Vec<String>)> {
        read_csv(text).unwrap().into_iter().map(|record| (record.line, record.cells)).collect()
    }

    #[test]
    fn a_quoted_cell_holds_commas_and_quotes() {
        assert_eq!(read_csv(r#"a,"b, ""c"".jpg", 3 "#).unwrap()[0].cells, ["a", r#"b, "c".jpg"#, "3"]);
    }

    #[test]
    fn lines_are_counted_as_editors_count_them() {
        let found = cells("\u{feff}file,class\r\n\r\n\na.png,1\nb.png\n");
        let lines: Vec<u64> = found.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 4, 5]);
        assert_eq!(found[0].1, ["file", "class"]);
        assert_eq!(found[2].1, ["b.png"]);
        assert!(cells("").is_empty() && cells("\n\n").is_empty());
    }

    #[test]
    fn a_quote_that_is_not_closed_is_refused_with_its_line() {
        let refused = read_csv("a,1\n\"b,2\nc,3\n").unwrap_err().to_string();
        assert!(refused.contains("line 2"), "{refused}");
    }

    #[test]
    fn a_line_of_a_million_cells_is_refused() {
        let refused = read_csv(&format!("a,1\n{}", ",".repeat(1 << 20))).unwrap_err().to_string();
        assert!(refused.contains("line 2") && refused.contains("1000"), "{refused}");
    }

    #[test]
    fn what_is_written_is_read() {
        let texts = ["plain", "a, b", "say \"hi\"", "ä 猫", "", "-0.5", "1e-3"];
        let row = texts.map(|text| CsvCell::Text(text.into())).to_vec();
        let text = write_csv(&["a", "b", "c", "d", "e", "f", "g"], [row]).unwrap();
        assert_eq!(cells(&text)[1].1, texts);
    }

    #[test]
    fn texts_are_not_computed_and_numbers_stay_numbers() {
        let row = [
            CsvCell::Text("=1+1".into()),
            CsvCell::Text("@a".into()),
            CsvCell::Text("-2".into()),
            CsvCell::number(-0.5),
            CsvCell::Empty,
        ];
        let text = write_csv(&["a", "b", "c", "d", "e"], [row.to_vec()]).unwrap();
        assert_eq!(text, "a,b,c,d,e\n'=1+1,'@a,-2,-0.5,\n");
    }
}
