//! JSON output for programs.

use std::fmt::{self, Write};
use std::path::Path;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl From<bool> for Json {
    fn from(flag: bool) -> Self {
        Json::Flag(flag)
    }
}

impl From<usize> for Json {
    fn from(number: usize) -> Self {
        i64::try_from(number).map_or(Json::Real(number as f64), Json::Whole)
    }
}

impl From<f64> for Json {
    fn from(number: f64) -> Self {
        Json::Real(number)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Json::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Json::Text(text)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Json::Null, Into::into)
    }
}

impl<T: Into<Json>> FromIterator<T> for Json {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Json::List(values.into_iter().map(Into::into).collect())
    }
}

impl Json {
    /// The files a command has written.
    pub(crate) fn files<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Json {
        paths.into_iter().map(|path| path.as_ref().display().to_string()).collect()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Flag(flag) => write!(f, "{flag}"),
            Json::Whole(number) => write!(f, "{number}"),
            // JSON has no NaN and no infinities.
            Json::Real(number) if !number.is_finite() => f.write_str("null"),
            Json::Real(number) => write!(f, "{number:?}"),
            Json::Text(text) => quoted(f, text),
            Json::List(values) if values.iter().all(Json::is_plain) => {
                f.write_str("[")?;
                for (position, value) in values.iter().enumerate() {
                    f.write_str(if position == 0 { "" } else { ", " })?;
                    value.write(f, depth)?;
                }
                f.write_str("]")
            }
            Json::List(values) => block(f, depth, ['[', ']'], values, |f, value| value.write(f, depth + 1)),
            Json::Object(entries) => block(f, depth, ['{', '}'], entries, |f, (key, value)| {
                quoted(f, key)?;
                f.write_str(": ")?;
                value.write(f, depth + 1)
            }),
        }
    }

    fn is_plain(&self) -> bool {
        !matches!(self, Json::List(_) | Json::Object(_))
    }
}

fn block<T>(
    f: &mut fmt::Formatter<'_>,
    depth: usize,
    [open, close]: [char; 2],
    entries: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_char(open)?;
    for (position, entry) in entries.iter().enumerate() {
        write!(f, "{}\n{:indent$}", if position == 0 { "" } else { "," }, "", indent = 2 * (depth + 1))?;
        write(f, entry)?;
    }
    write!(f, "\n{:indent$}{close}", "", indent = 2 * depth)
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for letter in text.chars() {
        match letter {
            '"' | '\\' => write!(f, "\\{letter}")?,
            c if c < ' ' || c == '\u{7f}' => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_cannot_say_is_escaped_or_null() {
        let value = Json::Object(vec![
            ("text", "a \"b\" \\ \n".into()),
            ("numbers", [1.0, f64::NAN, 1e300].into_iter().collect()),
            ("nothing", Option::<usize>::None.into()),
        ]);
        let expected = "{\n  \"text\": \"a \\\"b\\\" \\\\ \\u000a\",\n  \"numbers\": [1.0, null, 1e300],\n  \"nothing\": null\n}";
        assert_eq!(value.to_string(), expected);
    }
}
