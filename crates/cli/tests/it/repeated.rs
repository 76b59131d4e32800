//! Methods that ask the network many times, as a person asks for them.

use std::path::Path;

use crate::program::{chelsea, model, refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::graph::npy;
use monosplit::image::{Pixels, encode_png};
use monosplit::{Model, Tensor};
use monosplit_testing::ScratchFolder;

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A small network for pictures, and the side of what it sees.
fn network() -> (String, usize) {
    let file = model("vgg/torchscript-17.onnx");
    let opened = Model::open(file.clone()).unwrap();
    let graph = opened.graph();
    (text(&file), graph.node(graph.inputs()[0]).shape.fixed_at(2).unwrap())
}

fn map(folder: &ScratchFolder, method: &str) -> Tensor {
    let (raw, out) = (text(&folder.path("raw.npy")), text(&folder.path("pictures")));
    succeeds(["explain", &network().0, &text(&chelsea()), "--out", &out, "--raw", &raw, "--method", method]);
    array(&folder.path("raw.npy"))
}

#[test]
fn every_method_that_asks_many_times_draws_a_map_in_its_own_words() {
    let folder = ScratchFolder::new();
    let methods = [
        "integrated-gradients:steps=8,quadrature=trapezoid,baseline=mean",
        "smoothgrad:samples=3,stdev=10%,of=magnitude",
        "vargrad:samples=3,seed=5",
        "gradient-shap:samples=3,stdev=0.1",
        "scorecam:definition=paper",
        "ablationcam:relu=no",
        "occlusion:window=8x4,stride=4",
        "feature-ablation:segments=9",
        "rise:samples=20,open=0.4,measure=score",
        "lime:samples=30,parts=grid,cell=16",
        "kernel-shap:samples=40,segments=6",
        "random:seed=3",
        "image",
    ];
    for method in methods {
        let found = map(&folder, method);
        assert_eq!(found.shape()[0], 1, "{method}");
        assert!(found.to_f64().iter().all(|v| v.is_finite()), "{method}");
    }
}

#[test]
fn what_a_method_measured_of_itself_is_printed() {
    let folder = ScratchFolder::new();
    let (network, out) = (network().0, text(&folder.path("pictures")));
    let said =
        succeeds(["explain", &network, &text(&chelsea()), "--out", &out, "--method", "integrated-gradients"])
            .out;
    assert!(said.contains("completeness gap"), "{said}");
}

#[test]
fn masks_and_parts_come_from_files() {
    let folder = ScratchFolder::new();
    let side = network().1;
    let halves: Vec<u8> = (0..side * side).map(|at| if at % side < side / 2 { 255 } else { 0 }).collect();
    let rgb: Vec<u8> = halves.iter().flat_map(|&v| [v; 3]).collect();
    let png = encode_png(side, side, Pixels::Rgb(&rgb)).unwrap();
    let mask = map(&folder, &format!("mask:file={}", text(&folder.write("mask.png", png))));
    let expected: Vec<f32> = halves.iter().map(|&v| f32::from(v) / 255.0).collect();
    assert_eq!(mask.to_f32()[..], expected[..]);

    let numbers: Vec<i64> = (0..side * side).map(|at| (at / side / 8 * 100 + at % side / 8) as i64).collect();
    let file = folder.write("parts.npy", npy::write(&Tensor::new([side, side], numbers).unwrap()));
    let by_file = map(&folder, &format!("feature-ablation:parts={}", text(&file)));
    let by_grid = map(&folder, "feature-ablation:parts=grid,cell=8");
    assert!(relative_error(&by_file, &by_grid) < 1e-6);
}

#[test]
fn options_that_cannot_be_right_are_refused() {
    let (network, picture) = (network().0, text(&chelsea()));
    let asks = |method: &str, words: &[&str]| {
        refuses(["explain", &network, &picture, "--method", method], words);
    };
    asks("occlusion:window=0", &["window", "'0'"]);
    asks("occlusion:window=100000", &["100000"]);
    asks("integrated-gradients:steps=10001", &["steps", "10000"]);
    asks("smoothgrad:stdev=-1", &["stdev"]);
    asks("lime:parts=stars", &["parts", "stars"]);
    asks("mask", &["mask"]);
    asks("mask:file=nowhere.png", &["nowhere.png"]);
    asks("rise:samples=0", &["samples"]);
    asks("kernel-shap:samples=10", &["10 samples"]);
}
