//! Text tables with aligned columns, and numbers in readable form.

use monosplit::graph::escaped;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells under a header.
pub(crate) struct TextTable {
    columns: Vec<(String, Align, usize)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table without rows. Each column has a title, an alignment and a largest width, beyond which texts are shortened.
    /// Numbers are never shortened.
    pub(crate) fn new(columns: &[(&str, Align, usize)]) -> Self {
        let columns = columns.iter().map(|&(title, align, width)| (title.to_owned(), align, width)).collect();
        TextTable { columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().zip(&self.columns).map(|(cell, &(_, align, most))| match align {
            Align::Left => shortened(&cell, most),
            Align::Right => printable(&cell),
        });
        self.rows.push(cells.collect());
    }

    /// The lines, the header first unless all titles are empty.
    pub(crate) fn lines(&self) -> Vec<String> {
        let titles: Vec<String> = self.columns.iter().map(|(title, ..)| title.clone()).collect();
        let header = titles.iter().any(|title| !title.is_empty()).then_some(&titles);
        let all: Vec<&Vec<String>> = header.into_iter().chain(&self.rows).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        all.into_iter().map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cells =
            row.iter().zip(widths).zip(&self.columns).map(|((cell, &width), (_, align, _))| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

/// A text of at most `most` characters on one line. A longer text keeps its end, where names differ.
fn shortened(text: &str, most: usize) -> String {
    let text = printable(text);
    match text.chars().count().checked_sub(most) {
        None | Some(0) => text,
        Some(surplus) => std::iter::once('…').chain(text.chars().skip(surplus + 1)).collect(),
    }
}

/// A text in which nothing controls the terminal or turns the direction of writing.
pub(crate) fn printable(text: &str) -> String {
    escaped(text).into_owned()
}

/// A whole number with commas between thousands.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A whole number in three digits and a unit.
pub(crate) fn rounded(number: usize) -> String {
    const UNITS: [&str; 6] = ["", " k", " M", " G", " T", " P"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", UNITS[unit])
}

/// A number of things: `1 node`, `2 nodes`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_letters() {
        let mut table = TextTable::new(&[("name", Align::Left, 6), ("n", Align::Right, 9)]);
        table.row(["müller".into(), "1".into()]);
        table.row(["layer4.conv2".into(), "1,000,000,000".into()]);
        assert_eq!(
            table.lines(),
            ["name                n", "müller              1", "…conv2  1,000,000,000"]
        );
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!([0, 999, 1000, 11_689_512].map(grouped), ["0", "999", "1,000", "11,689,512"]);
        assert_eq!(
            [0, 999, 1000, 1_814_073_344, 999_960, usize::MAX].map(rounded),
            ["0", "999", "1.00 k", "1.81 G", "1.00 M", "18447 P"]
        );
    }

    #[test]
    fn names_cannot_write_on_the_terminal() {
        assert_eq!(printable("a\n\u{1b}[2J"), "a\\n\\u{1b}[2J");
    }
}
