//! The program as a person runs it, and the files the tests give it.

#![allow(dead_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

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

pub(crate) fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models")
}

pub(crate) fn model(name: &str) -> PathBuf {
    models().join(name)
}

pub(crate) fn op_case(name: &str) -> PathBuf {
    crates().join("engine/tests/fixtures/ops").join(name)
}

pub(crate) fn chelsea() -> PathBuf {
    crates().join("monosplit/assets/chelsea.png")
}

/// `../shared/…` beside the repository, or where `MONOSPLIT_SHARED` says (a worktree lies elsewhere); says so where it is
/// not there.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("MONOSPLIT_SHARED").map_or_else(beside, PathBuf::from);
    let found = folder.join(path);
    if !found.exists() {
        println!("skipped: there is no ../shared/{path}");
        return None;
    }
    Some(found)
}

/// A folder that goes when the test does.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("monosplit-{}-{serial}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
