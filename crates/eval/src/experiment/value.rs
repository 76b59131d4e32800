//! A TOML file as a tree in which every value knows its file and line, for error messages. A file may be based on another and
//! hold only the differences.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monosplit_graph::{Error, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nesting::{MAX_NESTING, too_deep};
use crate::path_suggestion::suggest_path;

/// The largest size of a description in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The largest number of files based on one another.
const MAX_DEPTH: usize = 8;

/// The file and line of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file.
    pub file: Arc<PathBuf>,
    /// The line, counted from 1.
    pub line: usize,
}

/// A value and its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its location.
    pub location: SourceLocation,
    /// The value.
    pub kind: ValueKind,
}

/// A value without its location.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueKind {
    /// A text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Real(f64),
    /// A truth value.
    Flag(bool),
    /// A list.
    List(Vec<Value>),
    /// A table, in the order of the file.
    Table(Vec<(String, Value)>),
}

impl ValueKind {
    /// The value in words, for errors.
    pub fn description(&self) -> String {
        match self {
            ValueKind::Text(text) => format!("\"{text}\""),
            ValueKind::Whole(number) => number.to_string(),
            ValueKind::Real(number) => number.to_string(),
            ValueKind::Flag(flag) => flag.to_string(),
            ValueKind::List(list) => format!("a list of {}", list.len()),
            ValueKind::Table(_) => "a table".into(),
        }
    }
}

impl SourceLocation {
    /// An error about this value.
    pub fn error(&self, description: impl std::fmt::Display) -> Error {
        Error::malformed(format!("{}, line {}: {description}", self.file.display(), self.line))
    }
}

impl Value {
    /// Reads a file and the files it is based on.
    pub fn open(path: &Path) -> Result<Value> {
        Value::open_within(path, 0)
    }

    /// Reads a TOML file that is based on no other; `base` is a key among others.
    pub fn open_alone(path: &Path) -> Result<Value> {
        let found = path.metadata().map_err(|cause| Error::io(path, cause))?;
        if !found.is_file() || found.len() > MAX_FILE {
            return Err(Error::argument(format!(
                "{}: expected a TOML file of at most 1 MiB",
                path.display()
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|cause| Error::io(path, cause))?;
        Value::parse(&text, path)
    }

    fn open_within(path: &Path, depth: usize) -> Result<Value> {
        let value = Value::open_alone(path)?;
        let Some(base) = value.get("base") else { return Ok(value) };
        let ValueKind::Text(name) = &base.kind else {
            return Err(base
                .location
                .error(format!("base: expected the name of a file, found {}", base.kind.description())));
        };
        if depth == MAX_DEPTH {
            return Err(base.location.error("base: files are based on one another in a circle, or too deep"));
        }
        let below = path.parent().unwrap_or(Path::new("")).join(name);
        if !below.is_file() {
            let (close, below) = (suggest_path(&below), below.display());
            return Err(base
                .location
                .error(format!("base: {close}expected a file to base this one on, found none at {below}")));
        }
        let below = Value::open_within(&below, depth + 1)?;
        Ok(below.overlaid(value))
    }

    /// Parses a text; errors name `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Value> {
        let file = Arc::new(path.to_owned());
        // Counted once: to count from the beginning for every value takes time quadratic in the file.
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let line = |at: usize| 1 + ends.partition_point(|end| *end < at);
        if let Some(at) = too_deep(text) {
            return Err(SourceLocation { file, line: line(at) }.error(format!(
                "lists and tables may stand in one another {MAX_NESTING} deep, these stand deeper"
            )));
        }
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line(span.start));
            SourceLocation { file: file.clone(), line }
                .error(error.message().lines().next().unwrap_or("this is no TOML"))
                .caused_by(error)
        })?;
        let kind = tree(&DeValue::Table(table.into_inner()), &|at| SourceLocation {
            file: file.clone(),
            line: line(at),
        });
        Ok(Value { location: SourceLocation { file: file.clone(), line: 1 }, kind })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match &self.kind {
            ValueKind::Table(table) => table.iter().find(|(known, _)| known == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// This value overridden by `above`. Tables are merged key by key, everything else is replaced.
    fn overlaid(mut self, above: Value) -> Value {
        let (ValueKind::Table(table), ValueKind::Table(_)) = (&mut self.kind, &above.kind) else {
            return above;
        };
        let ValueKind::Table(others) = above.kind else { return self };
        let places: HashMap<String, usize> =
            table.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
        for (key, value) in others {
            match places.get(&key) {
                Some(&place) => {
                    let known = &mut table[place].1;
                    *known = known.clone().overlaid(value);
                }
                None => table.push((key, value)),
            }
        }
        self
    }

    /// The same with the texts of some keys as whole paths. Relative paths start at the file that names them.
    pub(super) fn with_whole_paths(&self, keys: &[&str]) -> Value {
        let kind = match &self.kind {
            ValueKind::Table(table) => {
                let entry = |(key, value): &(String, Value)| {
                    let value = match &value.kind {
                        ValueKind::Text(text) if keys.contains(&key.as_str()) => value.whole_path(text),
                        ValueKind::Table(files) if keys.contains(&key.as_str()) => {
                            value.with_whole_paths(&named(files))
                        }
                        _ => value.with_whole_paths(keys),
                    };
                    (key.clone(), value)
                };
                ValueKind::Table(table.iter().map(entry).collect())
            }
            ValueKind::List(list) => {
                ValueKind::List(list.iter().map(|value| value.with_whole_paths(keys)).collect())
            }
            other => other.clone(),
        };
        Value { location: self.location.clone(), kind }
    }

    /// The same with another text under a key of a table.
    pub(super) fn with_text(mut self, table: &str, key: &str, text: &str) -> Value {
        let location = self.location.clone();
        let new = |kind: ValueKind| Value { location: location.clone(), kind };
        if let ValueKind::Table(tables) = &mut self.kind {
            if tables.iter().all(|(name, _)| name != table) {
                tables.push((table.to_owned(), new(ValueKind::Table(Vec::new()))));
            }
            let inner = tables.iter_mut().filter(|(name, _)| name == table);
            for entries in inner.filter_map(|(_, value)| match &mut value.kind {
                ValueKind::Table(entries) => Some(entries),
                _ => None,
            }) {
                entries.retain(|(name, _)| name != key);
                entries.push((key.to_owned(), new(ValueKind::Text(text.to_owned()))));
            }
        }
        self
    }

    fn whole_path(&self, text: &str) -> Value {
        let path = self.location.file.parent().unwrap_or(Path::new("")).join(text);
        let path = std::path::absolute(&path).unwrap_or(path);
        Value { location: self.location.clone(), kind: ValueKind::Text(path.display().to_string()) }
    }

    /// The complete tree as TOML.
    pub(super) fn to_toml(&self) -> String {
        let mut text = String::new();
        if let ValueKind::Table(table) = &self.kind {
            for (key, value) in table.iter().filter(|(key, _)| key != "base") {
                let _ = writeln!(text, "{} = {}", quoted(key), inline(value));
            }
        }
        text
    }
}

/// The keys of a table.
fn named(table: &[(String, Value)]) -> Vec<&str> {
    table.iter().map(|(key, _)| key.as_str()).collect()
}

fn tree(value: &DeValue<'_>, location: &dyn Fn(usize) -> SourceLocation) -> ValueKind {
    let at = |value: &Spanned<DeValue<'_>>| Value {
        location: location(value.span().start),
        kind: tree(value.get_ref(), location),
    };
    match value {
        DeValue::String(text) => ValueKind::Text(text.to_string()),
        DeValue::Integer(number) => {
            let whole = i64::from_str_radix(number.as_str(), number.radix());
            whole.map_or(ValueKind::Real(f64::INFINITY), ValueKind::Whole)
        }
        DeValue::Float(number) => ValueKind::Real(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => ValueKind::Flag(*flag),
        DeValue::Datetime(time) => ValueKind::Text(time.to_string()),
        DeValue::Array(list) => ValueKind::List(list.iter().map(at).collect()),
        DeValue::Table(table) => {
            // In the order of the file, which the parser's own table does not keep.
            let mut entries: Vec<(usize, String, Value)> = table
                .iter()
                .map(|(key, value)| {
                    let start = key.span().start;
                    (start, key.get_ref().to_string(), Value { location: location(start), ..at(value) })
                })
                .collect();
            entries.sort_by_key(|(start, ..)| *start);
            ValueKind::Table(entries.into_iter().map(|(_, key, value)| (key, value)).collect())
        }
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", letter as u32);
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn inline(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match &value.kind {
        ValueKind::Text(text) => quoted(text),
        ValueKind::Whole(number) => number.to_string(),
        ValueKind::Real(number) => format!("{number:?}"),
        ValueKind::Flag(flag) => flag.to_string(),
        ValueKind::List(list) => format!("[{}]", joined(list.iter().map(inline).collect())),
        ValueKind::Table(table) => {
            let entry = |(key, value): &(String, Value)| format!("{} = {}", quoted(key), inline(value));
            format!("{{{}}}", joined(table.iter().map(entry).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Value {
        Value::parse(text, Path::new("a.toml")).unwrap()
    }

    #[test]
    fn what_is_written_out_reads_the_same() {
        let text = "name = \"a \\\"b\\\" \\\\ \\u0007\"\nx = -3\ny = 0.5\nz = true\nl = [1, [\"ä\"]]\n[t.u]\nv = 1\n[[m]]\na = 1\n[[m]]\nb = 2\n";
        let flat = |value: &Value| inline(value);
        let once = parse(text);
        assert_eq!(flat(&parse(&once.to_toml())), flat(&once));
    }

    #[test]
    fn a_file_says_only_what_differs_from_its_base() {
        let below = parse("seed = 1\n[data]\nfolder = \"a\"\nimages = 5\n[[method]]\nm = 1\n");
        let above = parse("[data]\nimages = 2\n[[method]]\nm = 2\n");
        let merged = below.overlaid(above);
        assert_eq!(
            merged.to_toml(),
            "\"seed\" = 1\n\"data\" = {\"folder\" = \"a\", \"images\" = 2}\n\"method\" = [{\"m\" = 2}]\n"
        );
    }

    #[test]
    fn what_is_no_toml_is_refused_with_its_line() {
        let refused = Value::parse("a = 1\nb = = 2\n", Path::new("a.toml")).unwrap_err().to_string();
        assert!(refused.contains("a.toml, line 2"), "{refused}");
    }

    #[test]
    fn lines_are_counted_from_one() {
        let value = parse("a = 1\n\nb = [1,\n 2]\n[t]\nc = {d = 4}\n");
        let line = |value: Option<&Value>| value.unwrap().location.line;
        assert_eq!([line(value.get("a")), line(value.get("b")), line(value.get("t"))], [1, 3, 5]);
        assert_eq!(line(value.get("t").unwrap().get("c")), 6);
        let ValueKind::List(list) = &value.get("b").unwrap().kind else { panic!("a list") };
        assert_eq!([list[0].location.line, list[1].location.line], [3, 4]);
    }

    /// Quadratic time was 7 s for the keys and 13 s for the tables.
    #[test]
    fn very_many_keys_and_tables_are_read_in_linear_time() {
        let keys: String = (0..40_000).map(|i| format!("key{i} = {i}\n")).collect();
        let tables: String = (0..40_000).map(|i| format!("[t{i}]\na = 1\n")).collect();
        let dotted: String = (0..40_000).map(|i| format!("a.b{i}.c = 1\n")).collect();
        for text in [keys, tables, dotted] {
            let start = monosplit_testing::thread_seconds();
            let merged = parse(&text).overlaid(parse(&text));
            assert_eq!(merged.to_toml(), parse(&text).to_toml());
            let taken = monosplit_testing::thread_seconds() - start;
            assert!(taken < 3.0, "{taken} s");
        }
    }
}
