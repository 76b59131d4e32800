//! Tables of results, with the best of each column marked: as HTML, as Markdown and as LaTeX.

use crate::html::escape;
use crate::number::number;
use crate::text::clean;

/// Which number of a column is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Best {
    /// None: the column holds words, or numbers without an order.
    #[default]
    None,
    /// The largest.
    Highest,
    /// The smallest.
    Lowest,
}

/// One entry of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum TableEntry {
    /// Words.
    Words(String),
    /// Words, and behind them, smaller, how sure they are.
    Judged(String, String),
    /// A number.
    Number(f64),
    /// A number with half the width of its confidence interval.
    Interval(f64, f64),
    /// A number with the ends of its confidence interval.
    Range(f64, f64, f64),
    /// Nothing is known.
    Absent,
}

impl TableEntry {
    fn number(&self) -> Option<f64> {
        match self {
            TableEntry::Number(value) | TableEntry::Interval(value, _) | TableEntry::Range(value, ..) => {
                Some(*value).filter(|v| v.is_finite())
            }
            TableEntry::Words(_) | TableEntry::Judged(..) | TableEntry::Absent => None,
        }
    }

    /// The number and what is known about it, as text.
    fn parts(&self) -> (String, String) {
        match self {
            TableEntry::Words(words) => (words.clone(), String::new()),
            TableEntry::Judged(words, about) => (words.clone(), about.clone()),
            TableEntry::Number(value) => (number(*value), String::new()),
            TableEntry::Interval(value, half) => (number(*value), format!("± {}", number(*half))),
            TableEntry::Range(value, low, high) => {
                (rounded(*value), format!("{} … {}", rounded(*low), rounded(*high)))
            }
            TableEntry::Absent => ("–".into(), String::new()),
        }
    }

    fn html(&self) -> String {
        let minus = |text: &str| text.replace('-', "−");
        match (self, self.parts()) {
            (TableEntry::Words(words), _) => escape(words),
            (TableEntry::Judged(words, about), _) => {
                format!("{} <small>{}</small>", minus(&escape(words)), minus(&escape(about)))
            }
            (_, (value, about)) if about.is_empty() => minus(&value),
            (_, (value, about)) => format!("{} <small>{}</small>", minus(&value), minus(&about)),
        }
    }
}

/// Three digits after the point, as tables of results have them; small numbers as they are.
fn rounded(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 { number(value) } else { format!("{value:.3}") }
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Words above the table.
    pub caption: String,
    /// The name of each column and which of its numbers is the best.
    pub columns: Vec<(String, Best)>,
    /// The entries; what a row lacks is absent, what it has too much is left out.
    pub rows: Vec<Vec<TableEntry>>,
    /// Words over the rows from a certain one on.
    pub headings: Vec<(usize, String)>,
    /// Rows that take no part in who is best.
    pub unranked: Vec<usize>,
    /// Words below the table.
    pub note: String,
}

/// With so many columns a table is wider than a telephone, and with so many than a small screen.
const WIDER: usize = 4;
const WIDEST: usize = 6;

impl Table {
    /// The best number of `column`, by the column's own order.
    fn best(&self, column: usize) -> Option<f64> {
        let ranked = self.rows.iter().enumerate().filter(|(row, _)| !self.unranked.contains(row));
        let numbers = ranked.filter_map(|(_, row)| row.get(column).and_then(TableEntry::number));
        match self.columns.get(column)?.1 {
            Best::None => None,
            Best::Highest => numbers.max_by(f64::total_cmp),
            Best::Lowest => numbers.min_by(f64::total_cmp),
        }
    }

    /// The table as HTML. The best of a column is bold and underlined, and so are its equals.
    pub fn to_html(&self) -> String {
        let class = match self.columns.len() {
            WIDEST.. => "table widest",
            WIDER.. => "table wider",
            _ => "table",
        };
        let mut html = format!("<div class=\"{class}\"><div class=\"scrolled\" tabindex=\"0\">\n<table>\n");
        if !self.caption.is_empty() {
            line(&mut html, &format!("<caption><span>{}</span></caption>", escape(&self.caption)));
        }
        let head = self.columns.iter().map(|(name, best)| {
            let arrow = match best {
                Best::None => "",
                // Never alone on a line.
                Best::Highest => "\u{a0}↑",
                Best::Lowest => "\u{a0}↓",
            };
            let side = if *best == Best::None { "" } else { " class=\"number\"" };
            format!("<th scope=\"col\"{side}>{}{arrow}</th>", escape(name))
        });
        line(&mut html, &format!("<thead><tr>{}</tr></thead>\n<tbody>", head.collect::<String>()));
        let best: Vec<Option<f64>> = (0..self.columns.len()).map(|column| self.best(column)).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for words in self.headings_at(index) {
                let across = format!("<th colspan=\"{}\" scope=\"rowgroup\">", self.columns.len());
                line(
                    &mut html,
                    &format!("<tr class=\"heading\">{across}<span>{}</span></th></tr>", escape(words)),
                );
            }
            let ranked = !self.unranked.contains(&index);
            let entries = best.iter().enumerate().map(|(column, best)| {
                let entry = row.get(column).unwrap_or(&TableEntry::Absent);
                let content = entry.html();
                match entry {
                    TableEntry::Words(_) if column == 0 => format!("<th scope=\"row\">{content}</th>"),
                    TableEntry::Words(_) | TableEntry::Judged(..) => format!("<td>{content}</td>"),
                    _ if ranked && best.is_some() && entry.number() == *best => {
                        format!("<td class=\"number\"><strong>{content}</strong></td>")
                    }
                    _ => format!("<td class=\"number\">{content}</td>"),
                }
            });
            let entries: String = entries.collect();
            line(&mut html, &format!("<tr>{entries}</tr>"));
        }
        html.push_str("</tbody>\n</table>\n</div>\n");
        if !self.note.is_empty() {
            line(&mut html, &format!("<p class=\"note\">{}</p>", escape(&self.note)));
        }
        html.push_str("</div>\n");
        html
    }

    fn headings_at(&self, row: usize) -> impl Iterator<Item = &str> {
        self.headings.iter().filter(move |(at, _)| *at == row).map(|(_, words)| words.as_str())
    }

    fn head(&self, up: &str, down: &str) -> Vec<String> {
        let title = |(name, best): &(String, Best)| match best {
            Best::None => name.clone(),
            Best::Highest => format!("{name} {up}"),
            Best::Lowest => format!("{name} {down}"),
        };
        self.columns.iter().map(title).collect()
    }

    /// Every entry of a row as text, marked by `strong` where it is the best of its column.
    fn texts(&self, index: usize, best: &[Option<f64>], strong: impl Fn(&str) -> String) -> Vec<String> {
        let ranked = !self.unranked.contains(&index);
        let text = |(column, best): (usize, &Option<f64>)| {
            let entry = self.rows[index].get(column).unwrap_or(&TableEntry::Absent);
            let (value, about) = entry.parts();
            let value = match ranked && best.is_some() && entry.number() == *best {
                true => strong(&value),
                false => value,
            };
            if about.is_empty() { value } else { format!("{value} [{about}]") }
        };
        best.iter().enumerate().map(text).collect()
    }

    /// The table as Markdown; the best of a column is bold.
    pub fn to_markdown(&self) -> String {
        let clean = markdown;
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = String::new();
        if !self.caption.is_empty() {
            text.push_str(&format!("{}\n\n", clean(&self.caption)));
        }
        text.push_str(&row(self.head("↑", "↓").iter().map(|title| clean(title)).collect()));
        let rule = |(_, best): &(String, Best)| if *best == Best::None { "---" } else { "---:" }.to_owned();
        text.push_str(&row(self.columns.iter().map(rule).collect()));
        let best: Vec<Option<f64>> = (0..self.columns.len()).map(|column| self.best(column)).collect();
        for index in 0..self.rows.len() {
            for words in self.headings_at(index) {
                let mut cells = vec![String::new(); self.columns.len()];
                if let Some(first) = cells.first_mut() {
                    *first = format!("*{}*", clean(words));
                }
                text.push_str(&row(cells));
            }
            let cells = self.texts(index, &best, |value| format!("**{value}**"));
            text.push_str(&row(cells.iter().map(|cell| clean(cell)).collect()));
        }
        if !self.note.is_empty() {
            text.push_str(&format!("\n{}\n", clean(&self.note)));
        }
        text
    }

    /// The table as LaTeX, for `booktabs`; the best of a column is bold.
    pub fn to_latex(&self) -> String {
        let row = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
        let sides: String =
            self.columns.iter().map(|(_, best)| if *best == Best::None { 'l' } else { 'r' }).collect();
        let mut text = format!("\\begin{{tabular}}{{{sides}}}\n\\toprule\n");
        let head = self.head("UPARROW", "DOWNARROW");
        let head = head.iter().map(|title| {
            let title = latex(title);
            title.replace("UPARROW", "$\\uparrow$").replace("DOWNARROW", "$\\downarrow$")
        });
        text.push_str(&row(head.collect()));
        text.push_str("\\midrule\n");
        let best: Vec<Option<f64>> = (0..self.columns.len()).map(|column| self.best(column)).collect();
        for index in 0..self.rows.len() {
            for words in self.headings_at(index) {
                if index > 0 {
                    text.push_str("\\midrule\n");
                }
                let across = self.columns.len();
                text.push_str(&format!(
                    "\\multicolumn{{{across}}}{{l}}{{\\textit{{{}}}}} \\\\\n",
                    latex(words)
                ));
            }
            let cells = self.texts(index, &best, |value| format!("\u{1}{value}\u{2}"));
            text.push_str(&row(cells.iter().map(|cell| latex(cell)).collect()));
        }
        text.push_str("\\bottomrule\n\\end{tabular}\n");
        if !self.note.is_empty() {
            text.push_str(&format!("\n\\parbox{{\\linewidth}}{{\\footnotesize {}}}\n", latex(&self.note)));
        }
        text
    }
}

/// A text as it stands in a cell of Markdown, where it is neither HTML nor a link nor the end of the cell. Asterisks stay: they
/// mark what is best.
fn markdown(text: &str) -> String {
    let mut out = String::new();
    for letter in clean(text).chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '(' if out.ends_with(']') => out.push_str("\\("),
            '\\' | '|' | '`' => {
                out.push('\\');
                out.push(letter);
            }
            other => out.push(other),
        }
    }
    out
}

/// A text as it stands in LaTeX; the marks around what is best become a command.
fn latex(text: &str) -> String {
    let marked: String = text
        .chars()
        .map(|letter| match letter {
            '\u{1}' => '\u{e000}',
            '\u{2}' => '\u{e001}',
            other => other,
        })
        .collect();
    let mut out = String::new();
    for letter in clean(&marked).chars() {
        match letter {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(letter);
            }
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            'α' => out.push_str("$\\alpha$"),
            'γ' => out.push_str("$\\gamma$"),
            '±' => out.push_str("$\\pm$"),
            '×' => out.push_str("$\\times$"),
            '…' => out.push_str("\\,--\\,"),
            '–' => out.push_str("--"),
            '\u{e000}' => out.push_str("\\textbf{"),
            '\u{e001}' => out.push('}'),
            other => out.push(other),
        }
    }
    out
}

fn line(html: &mut String, words: &str) {
    html.push_str(words);
    html.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_a_column_is_marked_and_so_are_its_equals() {
        let table = |best, values: &[f64]| {
            let rows = values
                .iter()
                .map(|v| vec![TableEntry::Words("name".into()), TableEntry::Number(*v)])
                .collect();
            let columns = vec![("method".into(), Best::Highest), ("score".into(), best)];
            Table { columns, rows, ..Table::default() }.to_html()
        };
        let marked = |html: &str| {
            html.match_indices("<strong>")
                .map(|(at, _)| html[at + 8..].split('<').next().unwrap().to_string())
                .collect::<Vec<_>>()
        };
        let values = [0.5, 0.75, f64::NAN, -1.0, 0.75, f64::INFINITY];
        assert_eq!(marked(&table(Best::Highest, &values)), ["0.75", "0.75"]);
        assert_eq!(marked(&table(Best::Lowest, &values)), ["−1"]);
        assert!(marked(&table(Best::None, &values)).is_empty());
        assert!(marked(&table(Best::Highest, &[f64::NAN])).is_empty());
    }

    fn results() -> Table {
        let row = |name: &str, value| vec![TableEntry::Words(name.into()), value];
        Table {
            columns: vec![("method_a".into(), Best::None), ("50 % |x|".into(), Best::Highest)],
            rows: vec![
                row("a", TableEntry::Range(0.5, 0.4, 0.625)),
                row("b", TableEntry::Range(-0.25, -0.5, 0.0)),
                row("control", TableEntry::Number(1.0)),
            ],
            headings: vec![(0, "Split".into()), (2, "Controls".into())],
            unranked: vec![2],
            ..Table::default()
        }
    }

    #[test]
    fn words_below_and_how_sure_a_verdict_is_are_in_every_format() {
        let table = Table {
            columns: vec![("a".into(), Best::None)],
            rows: vec![vec![TableEntry::Judged("lost -0.5".into(), "-0.75 … -0.25".into())]],
            note: "50 % & more".into(),
            ..Table::default()
        };
        let (html, markdown, latex) = (table.to_html(), table.to_markdown(), table.to_latex());
        assert!(html.contains("<td>lost −0.5 <small>−0.75 … −0.25</small></td>"), "{html}");
        assert!(html.contains("50 % &amp; more"), "{html}");
        assert!(markdown.ends_with("| lost -0.5 [-0.75 … -0.25] |\n\n50 % & more\n"), "{markdown}");
        assert!(latex.contains("lost -0.5 [-0.75 \\,--\\, -0.25] \\\\\n"), "{latex}");
        assert!(latex.ends_with("{\\footnotesize 50 \\% \\& more}\n"), "{latex}");
    }

    #[test]
    fn tables_that_are_wider_than_a_screen_say_so_there() {
        let class = |columns: usize| {
            let table = Table { columns: vec![("a".into(), Best::None); columns], ..Table::default() };
            table.to_html().split('"').nth(1).unwrap().to_owned()
        };
        assert_eq!(
            [3, 4, 5, 6, 9].map(class),
            ["table", "table wider", "table wider", "table widest", "table widest"]
        );
    }

    #[test]
    fn issue_35_names_in_markdown_are_neither_html_nor_links_nor_cells() {
        let name = "<script>x</script> [a](javascript:b) c\\|d `e`";
        let found = markdown(name);
        assert_eq!(found, "&lt;script>x&lt;/script> [a]\\(javascript:b) c\\\\\\|d \\`e\\`");
        let mut table = results();
        table.rows[0][0] = TableEntry::Words(name.into());
        table.caption = name.into();
        table.note = name.into();
        let text = table.to_markdown();
        assert!(!text.contains("<script") && !text.contains("](") && text.contains("**"), "{text}");
    }

    #[test]
    fn markdown_has_a_cell_for_every_column_and_one_best() {
        let text = results().to_markdown();
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        assert!(text.lines().all(|line| bars(line) == 3), "{text}");
        assert_eq!(text.matches("**").count(), 2);
        assert!(text.contains("**0.500** [0.400 … 0.625]") && text.contains("| 1 |"), "{text}");
    }

    #[test]
    fn latex_is_escaped_and_balanced() {
        let text = results().to_latex();
        assert!(text.contains("\\textbf{0.500} [0.400 \\,--\\, 0.625]"), "{text}");
        assert!(text.contains("method\\_a") && text.contains("50 \\% |x| $\\uparrow$"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        assert_eq!(text.matches("\\textbf").count(), 1, "a control is not the best");
    }
}
