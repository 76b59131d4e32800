//! Where the files are that tests read.

use std::path::{Path, PathBuf};

/// The folder `crates` of the workspace.
pub fn crates_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The kept part of the reference vectors of the split methods: `model.onnx`, `x.npy` and `expected.npz` of one of the four
/// networks `mlp`, `tinyvgg`, `tinyresnet` and `mobile`.
pub fn vectors(network: &str) -> PathBuf {
    crates_folder().join("explain/tests/fixtures/vectors").join(network)
}

/// A file or folder of `../shared`, which lies beside the repository and is not part of it; the environment variable
/// `MONOSPLIT_SHARED` names it where it lies elsewhere.
///
/// `None` where it is absent. The test then prints `skipped: …` and returns.
///
/// # Panics
///
/// If it is absent and `CI` is `true`: a check that counts has all files.
pub fn shared(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("MONOSPLIT_SHARED")
        .map_or_else(|| crates_folder().join("../../shared"), PathBuf::from);
    let required = std::env::var_os("CI").is_some_and(|value| value == "true");
    find(&folder, path, required)
}

fn find(folder: &Path, path: &str, required: bool) -> Option<PathBuf> {
    let found = folder.join(path);
    if found.exists() {
        return Some(found);
    }
    let absent = format!("there is no {}", found.display());
    assert!(!required, "{absent}, and with CI=true no test is skipped; MONOSPLIT_SHARED names the folder");
    println!("skipped: {absent}");
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScratchFolder;

    #[test]
    fn a_file_that_is_there_is_found() {
        let folder = ScratchFolder::new();
        let file = folder.write("model.onnx", "");
        for required in [false, true] {
            assert_eq!(find(folder.root(), "model.onnx", required), Some(file.clone()));
        }
    }

    #[test]
    fn an_absent_file_is_skipped() {
        assert_eq!(find(ScratchFolder::new().root(), "model.onnx", false), None);
    }

    #[test]
    #[should_panic(expected = "with CI=true no test is skipped")]
    fn an_absent_file_fails_where_files_are_required() {
        find(ScratchFolder::new().root(), "model.onnx", true);
    }

    #[test]
    fn the_kept_vectors_are_complete() {
        for network in ["mlp", "tinyvgg", "tinyresnet", "mobile"] {
            for file in ["model.onnx", "x.npy", "expected.npz"] {
                assert!(vectors(network).join(file).is_file(), "{network}/{file}");
            }
        }
    }
}
