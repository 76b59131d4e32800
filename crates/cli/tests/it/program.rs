//! The program as a person runs it, and the files the tests give it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use monosplit_testing::crates_folder;

/// What a run left behind.
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl Outcome {
    /// Expects exit code 2 and one line that holds all of `words`.
    pub(crate) fn refused(self, words: &[&str]) -> String {
        let said = self.errors;
        assert_eq!(self.code, 2, "{said}{}", self.out);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("monosplit: "), "{said}");
        for word in words {
            assert!(said.contains(word), "'{word}' is not in: {said}");
        }
        said
    }
}

pub(crate) fn monosplit<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Outcome {
    monosplit_with(&[], arguments)
}

/// Runs with environment variables set.
pub(crate) fn monosplit_with<S: AsRef<OsStr>>(
    variables: &[(&str, &OsStr)],
    arguments: impl IntoIterator<Item = S>,
) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_monosplit"))
        .args(arguments)
        .env("MONOSPLIT_CONFIG", "")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    Outcome {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("the output is text"),
        errors: String::from_utf8(output.stderr).expect("the errors are text"),
    }
}

/// Runs and expects success.
pub(crate) fn succeeds<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Outcome {
    let outcome = monosplit(arguments);
    assert_eq!(outcome.code, 0, "{}", outcome.errors);
    outcome
}

/// Runs and expects exit code 2 and one line that holds all of `words`.
pub(crate) fn refuses<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, words: &[&str]) -> String {
    monosplit(arguments).refused(words)
}

pub(crate) fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models")
}

pub(crate) fn model(name: &str) -> PathBuf {
    models().join(name)
}

pub(crate) fn op_case(name: &str) -> PathBuf {
    crates_folder().join("engine/tests/fixtures/ops").join(name)
}

pub(crate) fn chelsea() -> PathBuf {
    crates_folder().join("monosplit/assets/chelsea.png")
}
