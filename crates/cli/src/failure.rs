//! Errors as one line on the error stream and an exit code.

use std::io::{self, ErrorKind};

use monosplit::graph::{Error, Hint, shortened, shown};
use serde::Serialize;

use crate::commands::progress::interrupted;
use crate::exit_status::ExitStatus;
use crate::output_style::is_quiet;
use crate::shell_word::quoted;
use crate::table::printable;

/// The longest line on the error stream in characters. Names from files may be of any length.
const LONGEST_LINE: usize = 2100;

/// The exit code of all failures.
pub(crate) const FAILED: u8 = 2;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the library or of the options.
    Error(Error),
    /// The output could not be written.
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

impl Failure {
    /// Prints the failure and returns the exit code.
    pub(crate) fn report(&self) -> ExitStatus {
        match self {
            // The reader closed the pipe, which is not a failure.
            Failure::Output(cause) if cause.kind() == ErrorKind::BrokenPipe => ExitStatus::SUCCESS,
            Failure::Output(cause) => complain(&format!("the output could not be written: {cause}")),
            Failure::Error(error) => complain(&text(error)),
        }
    }
}

/// The text of an error, with its hint in terms of commands and options.
pub(crate) fn text(error: &Error) -> String {
    error.text(hint_in_options)
}

/// A failure as programs read it in place of a result.
#[derive(Serialize)]
pub(crate) struct FailureOutput<'a> {
    error: FailureStatement<'a>,
}

#[derive(Serialize)]
struct FailureStatement<'a> {
    kind: &'a str,
    message: &'a str,
    hint: Option<String>,
}

impl<'a> FailureOutput<'a> {
    pub(crate) fn new(kind: &'a str, message: &'a str, hint: Option<String>) -> Self {
        FailureOutput { error: FailureStatement { kind, message, hint } }
    }
}

/// The hint of an error in terms of commands and options.
pub(crate) fn hint(error: &Error) -> Option<String> {
    error.hint_text(hint_in_options)
}

fn hint_in_options(hint: &Hint) -> Option<String> {
    let words = match hint.code {
        "class-output" => {
            // A name that cannot be printed as it is cannot be copied either.
            let name = hint.value.as_deref().filter(|name| shown(name) == **name).unwrap_or("NAME");
            return Some(format!("--output {} holds one for each, or name a --target", quoted(name)));
        }
        "classes" => "give a class name as `monosplit run` prints it, a number, or top1",
        "evaluate" => "`monosplit evaluate` makes one",
        "fixed-batch" => "give the shape of the whole batch, --input-shape 1,3,224,224",
        "input-shape" => {
            let shape = hint.value.as_deref().unwrap_or("3,224,224");
            return Some(format!("give --input-shape {shape}"));
        }
        "given-inputs" => {
            let name = hint.value.as_deref().filter(|name| shown(name) == **name).unwrap_or("NAME");
            return Some(format!("--input {}=FILE gives one", quoted(name)));
        }
        "labels" => "give --labels FILE, or a number",
        "layer-apart" => {
            let layer = hint.value.as_deref().unwrap_or("NAME");
            return Some(format!("a layer is named apart: --layer {layer}"));
        }
        "layers" | "import report" => "`monosplit inspect` lists all",
        "mask-file" => "name its file: mask:file=mask.png",
        "memory" => "give fewer samples at once (--batch), smaller ones, or more memory (--memory)",
        "methods" => "`monosplit methods` lists them",
        "model" => "or --model FILE",
        "model-instead" => "--model names another",
        "not-piecewise" => "leave out --piecewise if it was given",
        "output" => "-o says where results are written",
        "operators" => "`monosplit ops` lists what is supported",
        "piecewise" => {
            "--piecewise replaces exp, 1/x, 1/√x and the usual activations first, and nothing else"
        }
        "outputs" => "`monosplit inspect` lists them",
        "target" => {
            let target = hint.value.as_deref().unwrap_or("sum:OUTPUT");
            return Some(format!("--target {target} for example; `monosplit inspect` lists what suits it"));
        }
        "precision" => "try --precision f64, or another method or layer",
        "recursive" => "--recursive looks into the folders in it",
        _ => return None,
    };
    Some(words.to_owned())
}

/// Prints one line on the error stream.
pub(crate) fn complain(message: &str) -> ExitStatus {
    say(message);
    ExitStatus::from(FAILED)
}

/// Prints one line on the error stream without failing, unless only errors are wanted there.
pub(crate) fn note(message: &str) {
    if !is_quiet() {
        say(message);
    }
}

/// Prints one line on the error stream, whether only errors are wanted there or not.
pub(crate) fn say(message: &str) {
    use io::Write;
    // A closed error stream cannot be reported anywhere.
    let message = printable(message);
    let message = shortened(&message, LONGEST_LINE);
    let _ = interrupted(|| writeln!(io::stderr(), "monosplit: {message}"));
}

#[cfg(test)]
mod tests {
    use monosplit::catalogue::MethodChoice;
    use monosplit::{Labels, Tensor};

    use super::*;

    #[test]
    fn hints_of_the_libraries_name_commands_and_options() {
        let hinted = |hint: Hint| Error::argument("this is wrong").hint(hint);
        let cases = [
            (hinted(Hint::INPUT_SHAPE), "--input-shape 3,224,224"),
            (hinted(Hint::FIXED_BATCH), "--input-shape 1,3,224,224"),
            (hinted(Hint::LAYERS), "`monosplit inspect`"),
            (hinted(Hint::OPERATORS), "`monosplit ops`"),
            (hinted(Hint::IMPORT_REPORT), "`monosplit inspect`"),
            (MethodChoice::parse("splitcam@conv1", &[]).err().unwrap(), "--layer conv1"),
            (MethodChoice::parse("none such", &[]).err().unwrap(), "`monosplit methods`"),
            (Labels::from_text("").find("cat", 3).err().unwrap(), "--labels FILE"),
            (Labels::from_text("a\nb\nc").find("zebra", 3).err().unwrap(), "`monosplit run`"),
        ];
        for (error, words) in cases {
            assert!(text(&error).contains(words), "{}", text(&error));
            assert!(!error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn an_error_without_a_hint_reads_as_it_is() {
        let error = Tensor::new([2, 2], vec![0f32; 3]).unwrap_err();
        assert_eq!(text(&error), error.to_string());
    }
}
