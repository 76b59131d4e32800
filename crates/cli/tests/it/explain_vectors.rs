//! The reference vectors through the command line: maps computed from the definition, with four explicit streams in double
//! precision. The library's tests compare all of them; here every fifth that is kept is asked for as a person would.

use std::collections::BTreeMap;
use std::path::Path;

use crate::program::succeeds;
use crate::reference::{array, relative_error};
use monosplit::Tensor;
use monosplit::graph::npy;
use monosplit_testing::{ScratchFolder, read_npz, vectors};

fn npz(path: &Path) -> BTreeMap<String, Tensor> {
    read_npz(path).into_iter().map(|(name, bytes)| (name, npy::read(&bytes).unwrap())).collect()
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
    let folder = vectors(case);
    let expected = npz(&folder.join("expected.npz"));
    let (network, x) = (folder.join("model.onnx"), folder.join("x.npy"));
    let target = ScratchFolder::new();
    let (raw, out) = (target.path("raw.npy"), target.path("out"));
    let keys = expected.keys().filter(|key| key.contains('/')).step_by(5);
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
