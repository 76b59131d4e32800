//! Whatever is wrong with what a person gives: one line, exit code 2, nothing left behind.

use std::path::Path;

use crate::program::{chelsea, model, models, monosplit, refuses};
use monosplit::Tensor;
use monosplit::graph::npy;
use monosplit_testing::{ScratchFolder, crates_folder};

fn network() -> String {
    model("vgg/torchscript-17.onnx").to_str().unwrap().to_owned()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Runs the small network on `input` with more words.
fn refused(input: &Path, words: &[&str], expected: &[&str]) {
    let mut all = vec!["run".to_owned(), network(), text(input)];
    all.extend(words.iter().map(|&word| word.to_owned()));
    refuses(all, expected);
}

#[test]
fn networks_that_are_none() {
    let folder = ScratchFolder::new();
    let bytes = std::fs::read(network()).unwrap();
    let half = folder.write("half.onnx", &bytes[..bytes.len() / 2]);
    let words = folder.write("words.onnx", "this is not a network\n".repeat(40));
    let empty = folder.write("empty.onnx", "");
    let missing = folder.path("missing.onnx");
    for path in [&half, &words, &empty, &missing, &folder.path("")] {
        for command in ["inspect", "run"] {
            let mut arguments = vec![command.to_owned(), text(path)];
            arguments.extend((command == "run").then(|| text(&chelsea())));
            refuses(arguments, &[path.to_str().unwrap()]);
        }
    }
    refuses(["inspect", folder.path("").to_str().unwrap()], &["folder"]);
    let external = std::fs::read(model("vgg/dynamo-18.onnx")).unwrap();
    refuses(["inspect", &text(&folder.write("alone.onnx", external))], &[]);
}

#[test]
fn every_truncation_is_refused_or_read() {
    let folder = ScratchFolder::new();
    let bytes = std::fs::read(model("prelu_elu/torchscript-9.onnx")).unwrap();
    for end in (0..bytes.len()).step_by(bytes.len() / 40) {
        let outcome = monosplit(["inspect", &text(&folder.write("cut.onnx", &bytes[..end]))]);
        assert_eq!(outcome.code, 2, "{end} bytes: {}", outcome.out);
        assert_eq!(outcome.errors.lines().count(), 1, "{}", outcome.errors);
    }
}

#[test]
fn what_is_not_supported_is_listed_at_once() {
    let folder = ScratchFolder::new();
    let mut bytes = std::fs::read(network()).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - 4).filter(|&at| bytes[at..].starts_with(b"\x22\x04Relu")).collect();
    assert!(places.len() > 1);
    places.iter().for_each(|&at| bytes[at + 2..at + 6].copy_from_slice(b"Rolu"));
    let path = text(&folder.write("odd.onnx", bytes));
    let outcome = monosplit(["inspect", &path]);
    assert_eq!(outcome.code, 2);
    assert_eq!(outcome.out.matches("the op Rolu is not supported").count(), places.len(), "{}", outcome.out);
    assert!(
        outcome.out.contains("operator set 17") && outcome.out.contains("[N, 3, 16, 16]"),
        "{}",
        outcome.out
    );
    assert!(outcome.errors.contains("(Rolu)") && outcome.errors.lines().count() == 1, "{}", outcome.errors);
    let json = monosplit(["inspect", &path, "--json"]);
    assert_eq!((json.code, json.out.matches("\"reason\"").count()), (2, places.len()));
    refuses(["run", &path, &text(&chelsea())], &["Rolu", "more", "monosplit inspect"]);
}

#[test]
fn inputs_that_are_none() {
    let folder = ScratchFolder::new();
    refused(&folder.path("missing.jpg"), &[], &["missing.jpg"]);
    refused(&folder.path(""), &[], &["no pictures"]);
    refused(&folder.write("words.jpg", "not a picture"), &[], &["words.jpg", "JPEG"]);
    refused(&folder.write("empty.png", ""), &[], &["empty.png", "empty"]);
    refused(&folder.write("words.npy", "not an array"), &[], &["words.npy"]);
    let picture = std::fs::read(chelsea()).unwrap();
    refused(&folder.write("half.png", &picture[..picture.len() / 2]), &[], &["half.png"]);
    for bad in std::fs::read_dir(crates_folder().join("image/tests/fixtures/bad")).unwrap() {
        let path = bad.unwrap().path();
        refused(&path, &[], &[path.file_name().unwrap().to_str().unwrap()]);
    }
    refuses(["run", &network()], &["nothing to run"]);
    refuses(["run"], &["no network"]);
}

/// A PNG whose header says it is 0 pixels wide.
#[test]
fn a_picture_without_pixels() {
    let folder = ScratchFolder::new();
    let mut picture = std::fs::read(chelsea()).unwrap();
    picture[16..20].fill(0);
    refused(&folder.write("flat.png", picture), &[], &["flat.png"]);
}

#[test]
fn arrays_that_do_not_fit() {
    let folder = ScratchFolder::new();
    let array = |name: &str, shape: &[usize], values: Vec<f32>| {
        folder.write(name, npy::write(&Tensor::new(shape, values).unwrap()))
    };
    let size = 3 * 16 * 16;
    let wrong = array("wrong.npy", &[2, 3, 8, 8], vec![0.0; 384]);
    refused(&wrong, &[], &["wrong.npy", "'", "[N, 3, 16, 16]", "[2, 3, 8, 8]"]);
    refused(&array("none.npy", &[0, 3, 16, 16], vec![]), &[], &["none.npy", "no samples"]);
    for (name, value) in [("nan.npy", f32::NAN), ("inf.npy", f32::NEG_INFINITY)] {
        let mut values = vec![0.0; 2 * size];
        values[size + 17] = value;
        let path = array(name, &[2, 3, 16, 16], values);
        let raw = folder.path("raw.npy");
        refused(&path, &["--raw", raw.to_str().unwrap()], &[name, "sample 1", "[0, 1, 1]"]);
        assert!(!raw.exists());
    }
}

/// Finite inputs whose products are not.
#[test]
fn a_network_that_overflows() {
    let folder = ScratchFolder::new();
    let tensor = Tensor::new([1, 4], vec![f32::MAX; 4]).unwrap();
    let huge = text(&folder.write("huge.npy", npy::write(&tensor)));
    let network = text(&models().join("../inputs/mlp.onnx"));
    refuses(["run", &network, &huge], &["huge.npy[0]", "not finite", "--precision f64"]);
}

#[test]
fn a_failure_in_the_middle_leaves_no_file() {
    let folder = ScratchFolder::new();
    let bad = folder.write("bad.png", "no picture");
    let raw = folder.path("raw.npy");
    refuses(
        ["run", &network(), &text(&chelsea()), &text(&bad), "--strict", "--batch", "1", "--raw", &text(&raw)],
        &["bad.png"],
    );
    assert_eq!(folder.names(), ["bad.png"]);
    refused(&chelsea(), &["--raw", &text(&folder.path("nowhere/raw.npy"))], &["no folder"]);
    refused(&chelsea(), &["--raw", &text(&folder.path(""))], &["folder"]);
}

#[test]
fn labels_that_do_not_fit() {
    let folder = ScratchFolder::new();
    let few = folder.write("few.txt", "cat\ndog\n");
    refused(&chelsea(), &["--labels", &text(&few)], &["few.txt", "expected 7", "found 2"]);
    let binary = folder.write("binary.txt", [0xff, 0xfe, 0x00]);
    refused(&chelsea(), &["--labels", &text(&binary)], &["binary.txt", "no text"]);
    refused(&chelsea(), &["--labels", &text(&folder.path("missing.txt"))], &["missing.txt"]);
}

#[test]
fn architectures_and_weights_that_do_not_fit() {
    let folder = ScratchFolder::new();
    let picture = text(&chelsea());
    let weights = |path: &Path, arch: &str, expected: &[&str]| {
        refuses(["run", "--arch", arch, "--weights", &text(path), &picture], expected);
    };
    let missing = folder.path("missing.pth");
    weights(&missing, "resnet81", &["resnet81", "resnet18"]);
    weights(&missing, "resnet18", &["missing.pth"]);
    weights(&folder.write("words.pth", "no weights"), "resnet18", &["words.pth"]);
    weights(&folder.path(""), "resnet18", &["folder"]);
    let fixtures = crates_folder().join("graph/tests/fixtures/weights");
    let other = std::fs::read_dir(&fixtures).unwrap().map(|entry| entry.unwrap().path());
    let other = other.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).min();
    weights(&other.expect("a safetensors file"), "resnet18", &["resnet18"]);
    refuses(["run", "--arch", "resnet18", &picture], &["--weights"]);
    refuses(["inspect", &network(), "--arch", "resnet18", "--weights", "x.pth"], &["both"]);
}

#[test]
fn numbers_that_cannot_be_right() {
    for words in [
        ["--top", "0"],
        ["--top", "-3"],
        ["--top", "many"],
        ["--batch", "0"],
        ["--batch", "99999999999999999999"],
        ["--threads", "0"],
        ["--threads", "1e3"],
        ["--resize", "0"],
        ["--resize", "4000000000"],
        ["--crop", "7"],
        ["--crop", "4000000000"],
        ["--mean", "a,b,c"],
        ["--mean", "1,2"],
        ["--mean", "nan"],
        ["--mean", ""],
        ["--std", "0"],
        ["--std", "1,inf,1"],
        ["--std", "1e-45"],
        ["--input-shape", "3,0,16"],
        ["--input-shape", "3,16"],
        ["--input-shape", "3,4000000000,4000000000"],
        ["--preset", "imagnet"],
        ["--precision", "f16"],
        ["--nonsense", "1"],
    ] {
        refused(&chelsea(), &words, &[]);
    }
}

#[test]
fn what_a_file_is_called_cannot_write_on_the_terminal() {
    let said = refuses(["inspect", "a\u{1b}[2J\nb.onnx"], &["\\n"]);
    assert!(!said.contains('\u{1b}'));
}
