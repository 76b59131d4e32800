//! The reference vectors through the command line: maps computed the long way, with four explicit streams in double
//! precision. The library is compared with all of them; here every thirty-first array is asked for as a person would.

mod program;
mod reference;

use std::collections::BTreeMap;
use std::path::Path;

use monosplit::Tensor;
use monosplit::graph::npy;
use program::{Folder, shared, succeeds};
use reference::{array, relative_error};

/// The arrays of an `.npz` file: a zip archive of `.npy` files.
fn npz(path: &Path) -> BTreeMap<String, Tensor> {
    let bytes = std::fs::read(path).unwrap();
    let number = |at: usize, length: usize| (0..length).rev().fold(0, |n, i| n << 8 | bytes[at + i] as usize);
    let end = (0..bytes.len() - 21).rev().find(|&i| bytes[i..i + 4] == *b"PK\x05\x06").unwrap();
    let mut at = number(end + 16, 4);
    let mut arrays = BTreeMap::new();
    for _ in 0..number(end + 10, 2) {
        let (name, local) = (number(at + 28, 2), number(at + 42, 4));
        let key = String::from_utf8(bytes[at + 46..at + 46 + name].to_vec()).unwrap();
        let start = local + 30 + number(local + 26, 2) + number(local + 28, 2);
        let packed = &bytes[start..start + number(at + 20, 4)];
        let data = match number(at + 10, 2) {
            0 => packed.to_vec(),
            _ => miniz_oxide::inflate::decompress_to_vec(packed).unwrap(),
        };
        arrays.insert(key.trim_end_matches(".npy").to_owned(), npy::read(&data).unwrap());
        at += 46 + name + number(at + 30, 2) + number(at + 32, 2);
    }
    arrays
}

/// The command that asks for the map of a key, `stabiliser.pool.input_split.shift_at.alpha/method/layer/map`.
fn words(key: &str) -> Vec<&str> {
    let parts: Vec<&str> = key.splitn(4, '/').collect();
    let options: Vec<&str> = parts[0].splitn(5, '.').collect();
    let names = ["--stabiliser", "--pool", "--input-split", "--shift-at", "--alpha"];
    let mut words: Vec<&str> =
        names.into_iter().zip(options).flat_map(|(name, value)| [name, value]).collect();
    words.extend(["--method", parts[1], "--layer", parts[2]]);
    if parts[1] == "splitlrp" {
        words.extend(["--map", parts[3]]);
        return words;
    }
    let part = match parts[3].get(1..) {
        Some("+") => "plus",
        Some("-") => "minus",
        _ => "combined",
    };
    words.extend(["--stream", &parts[3][..1], "--part", part]);
    words
}

fn check(case: &str) {
    let Some(folder) = shared(&format!("vectors/{case}")) else { return };
    let expected = npz(&folder.join("expected.npz"));
    let (network, x) = (folder.join("model.onnx"), folder.join("x.npy"));
    let target = Folder::new();
    let (raw, out) = (target.path("raw.npy"), target.path("out"));
    let keys = expected.keys().filter(|key| key.contains('/')).step_by(31);
    let (mut worst, mut compared) = (0f64, 0);
    for key in keys {
        let files = [&network, &x, &raw, &out].map(|path| path.to_str().unwrap());
        let command = ["explain", files[0], files[1], "--raw", files[2], "--out", files[3]];
        succeeds(command.into_iter().chain(words(key)));
        let found = array(&raw);
        assert_eq!(found.shape(), expected[key].shape(), "{case} {key}");
        let error = relative_error(&found, &expected[key]);
        assert!(error <= 1e-4, "{case} {key}: {error:e}");
        worst = worst.max(error);
        compared += 1;
    }
    println!("{case}: {compared} maps, largest error {worst:.2e}");
    assert!(compared > 25, "{case}: only {compared} maps were compared");
}

#[test]
fn a_multilayer_perceptron_agrees() {
    check("mlp");
}

#[test]
fn convolutions_and_max_pooling_agree() {
    check("tinyvgg");
}

#[test]
fn a_residual_network_agrees() {
    check("tinyresnet");
}

#[test]
fn depthwise_grouped_and_dilated_convolutions_agree() {
    check("mobile");
}
