//! JSON output for programs. Every command with `--json` has a structure of its own for what it prints.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;

/// Prints a value, indented. Numbers that are not finite are null: JSON has none.
pub(crate) fn print(value: &impl Serialize, out: &mut dyn Write) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
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
