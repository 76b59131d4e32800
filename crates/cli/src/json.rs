//! JSON output for programs. Every command with `--json` has a structure of its own for what it prints.

use std::io::Write;
use std::path::Path;

use monosplit::graph::is_disturbing;
use serde::Serialize;

use crate::failure::Failure;

/// Prints a value, indented. Numbers that are not finite are null: JSON has none. Names from files may hold characters that a
/// terminal obeys; they are written out, which changes no value.
pub(crate) fn print(value: &impl Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
    // Line feeds are those between values: within strings they are written out already.
    let is_obeyed = |c: char| c != '\n' && is_disturbing(c);
    let mut rest = text.as_str();
    while let Some(at) = rest.find(is_obeyed) {
        let (before, from) = rest.split_at(at);
        let obeyed = from.chars().next().unwrap_or_default();
        out.write_all(before.as_bytes())?;
        for unit in obeyed.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}")?;
        }
        rest = &from[obeyed.len_utf8()..];
    }
    writeln!(out, "{rest}")?;
    Ok(())
}

/// The files a command has written.
#[derive(Serialize)]
pub(crate) struct WrittenFiles {
    files: Vec<String>,
}

impl WrittenFiles {
    pub(crate) fn new<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        WrittenFiles { files: paths.into_iter().map(|path| path.as_ref().display().to_string()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_cannot_say_is_escaped_or_null() {
        #[derive(Serialize)]
        struct Printed {
            text: &'static str,
            numbers: [f64; 3],
            nothing: Option<usize>,
        }
        let mut printed = Vec::new();
        let value = Printed { text: "a \"b\" \\ \n", numbers: [1.0, f64::NAN, 1e300], nothing: None };
        print(&value, &mut printed).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&printed).unwrap();
        assert_eq!(
            read,
            serde_json::json!({ "text": "a \"b\" \\ \n", "numbers": [1.0, null, 1e300], "nothing": null })
        );
    }

    #[test]
    fn issue_35_names_in_json_cannot_write_on_the_terminal() {
        let name = "a\u{1b}[2J\u{9b}31m\u{202e}gnp\u{e0041}é\n\u{7f}漢";
        let mut printed = Vec::new();
        print(&[name], &mut printed).unwrap();
        let text = String::from_utf8(printed).unwrap();
        assert!(text.chars().all(|c| c == '\n' || !is_disturbing(c)), "{text:?}");
        assert_eq!(text.lines().count(), 3, "{text:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [name]);
    }

    #[test]
    fn a_closed_pipe_is_told_from_other_failures() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let failed = print(&[1, 2], &mut Closed).unwrap_err();
        assert!(matches!(failed, Failure::Output(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe));
    }
}
