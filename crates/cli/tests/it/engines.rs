//! `--engine`: the same command on another engine, and what is said where there is none. Without the feature `onnxruntime`
//! or without its library, what needs them is skipped.

use std::path::Path;

use crate::networks::{SIDE, Small, numbers};
use crate::program::{monosplit, monosplit_with, refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::graph::npy;
use monosplit_testing::ScratchFolder;

const ENGINE: [&str; 2] = ["--engine", "onnxruntime"];

struct Case {
    folder: ScratchFolder,
    network: String,
    x: String,
}

impl Case {
    fn new() -> Self {
        let folder = ScratchFolder::new();
        let network = Small::default().save(&folder, "small.onnx");
        let x = folder.write("x.npy", npy::write(&numbers(&[3, 3, SIDE, SIDE], 17)));
        Case { network, x: x.to_str().unwrap().to_owned(), folder }
    }

    /// `None`, and why, where there is no engine.
    fn with_engine() -> Option<Self> {
        let case = Case::new();
        let tried = monosplit([&["run", &case.network, &case.x], &ENGINE[..]].concat());
        if tried.code != 0 {
            println!("skipped: {}", tried.errors);
            return None;
        }
        Some(case)
    }

    fn map(&self, words: &[&str]) -> monosplit::Tensor {
        let path = |name: &str| self.folder.path(name).to_str().unwrap().to_owned();
        let (out, raw) = (path("pictures"), path("raw.npy"));
        succeeds([&["explain", &self.network, &self.x, "--out", &out, "--raw", &raw], words].concat());
        array(Path::new(&raw))
    }
}

#[test]
fn what_is_missing_is_said() {
    let case = Case::new();
    let refused = |words: &[&str], said: &[&str]| {
        refuses([&["run", &case.network, &case.x], words].concat(), said);
    };
    refused(&["--engine", "gpu"], &["cpu", "onnxruntime"]);
    refused(&["--provider", "CUDA"], &["--engine onnxruntime"]);
    refused(&["--engine", "onnxruntime", "--precision", "f64"], &["double precision"]);
}

/// A library that is not there, a file that is no library, a folder, and a library of something else. Without the
/// feature, none of them is looked at.
#[test]
fn a_library_that_cannot_be_loaded_is_said() {
    let case = Case::new();
    let text = case.folder.write("libonnxruntime.so", "no library");
    let mut libraries = vec![case.folder.path("missing.so"), text, case.folder.path(".")];
    if cfg!(target_os = "linux") {
        libraries.push("libc.so.6".into());
    }
    for library in libraries {
        let variables = [("MONOSPLIT_ONNXRUNTIME", library.as_os_str())];
        let words: &[&str] = if cfg!(feature = "onnxruntime") {
            &["could not be loaded", library.to_str().unwrap(), "set MONOSPLIT_ONNXRUNTIME to the path"]
        } else {
            &["built without the engine 'onnxruntime'", "--features onnxruntime", "MONOSPLIT_ONNXRUNTIME"]
        };
        for command in ["run", "explain"] {
            let given = [&[command, &case.network, &case.x], &ENGINE[..]].concat();
            monosplit_with(&variables, given).refused(words);
        }
    }
}

#[test]
fn onnx_runtime_explains_as_the_processor_does() {
    let Some(case) = Case::with_engine() else { return };
    for method in ["splitcam", "splitlrp", "gradient", "lrp", "occlusion", "integrated-gradients"] {
        let words = ["--method", method];
        let found = case.map(&[&words[..], &ENGINE].concat());
        let error = relative_error(&found, &case.map(&words));
        assert!(error < 1e-4, "{method}: {error:e}");
    }
}

#[test]
fn onnx_runtime_predicts_as_the_processor_does() {
    let Some(case) = Case::with_engine() else { return };
    let said = |words: &[&str]| succeeds([&["run", &case.network, &case.x], words].concat()).out;
    assert_eq!(said(&ENGINE), said(&[]));
    assert_eq!(said(&[&ENGINE[..], &["--provider", "cpu"]].concat()), said(&[]));
}

#[test]
fn what_onnx_runtime_cannot_do_is_said() {
    let Some(case) = Case::with_engine() else { return };
    let base = [&["run", &case.network, &case.x], &ENGINE[..]].concat();
    refuses([&base[..], &["--provider", "nonsense"]].concat(), &["nonsense", "this library has"]);
    refuses([&base[..], &["--profile"]].concat(), &["cpu"]);
}
