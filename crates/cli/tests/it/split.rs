//! `monosplit split` as a person uses it: the files are read again and run.

use std::path::Path;

use crate::networks::{Small, numbers};
use crate::program::{model, refuses, succeeds};
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::graph::onnx::{self, ImportOptions};
use monosplit::graph::op::Padding;
use monosplit::graph::{Graph, Kind, Op};
use monosplit::{Model, Tensor};
use monosplit_testing::{ScratchFolder, vectors};

/// Piecewise-linear networks with all kinds of pooling, padding, joining and layouts.
const NETWORKS: [&str; 7] = [
    "vgg/torchscript-17",
    "resnet/torchscript-7",
    "ceil_pools/torchscript-13",
    "densenet/torchscript-13",
    "keras_valid/handmade-18",
    "inverted_residual/torchscript-13",
    "sequence/torchscript-13",
];

fn run(graph: &Graph, inputs: &[Tensor]) -> Vec<f64> {
    let program = Cpu::default().precision(Precision::F64).compile(graph).unwrap();
    program.run(inputs).unwrap()[0].to_f64().to_vec()
}

fn assert_no_number_is_negative(graph: &Graph, name: &str) {
    for (_, node) in graph.nodes() {
        match &node.op {
            Op::Constant(tensor) if tensor.kind() == Kind::Float => {
                assert!(tensor.to_f64().iter().all(|&v| v >= 0.0), "{name}: {}", node.label.display());
            }
            Op::Pad { padding: Padding::Constant(fill), .. } => {
                assert!(*fill >= 0.0, "{name}: padded with {fill}")
            }
            _ => {}
        }
    }
}

/// Splits the network, reads the pair again and holds it against the network on inputs that are no halves of an image.
fn check(network: &Path) {
    let folder = ScratchFolder::new();
    let paths = ["g.onnx", "h.onnx"].map(|name| folder.path(name));
    let files = [network, &paths[0], &paths[1]].map(|path| path.to_str().unwrap());
    let said = succeeds(["split", files[0], "--out-g", files[1], "--out-h", files[2]]).out;
    assert_eq!(said.lines().filter(|line| line.contains("smallest weight 0")).count(), 2, "{said}");
    let source = Model::open(network).unwrap();
    let shape = [&[2], &source.sample_shape().unwrap()[..]].concat();
    let [g, h] = [0, 1].map(|i| onnx::open(&paths[i], &ImportOptions::default()).unwrap());
    for graph in [&g, &h] {
        let names: Vec<&str> =
            graph.inputs().iter().map(|&id| graph.node(id).label.tensor.as_str()).collect();
        assert_eq!(names, ["x_plus", "x_minus"]);
        assert_no_number_is_negative(graph, files[0]);
    }
    for seed in 1..4 {
        let [plus, minus] = [numbers(&shape, seed), numbers(&shape, seed + 40)];
        let difference: Vec<f64> =
            plus.to_f64().iter().zip(minus.to_f64().iter()).map(|(p, m)| p - m).collect();
        let f = run(source.graph(), &[Tensor::new(shape.clone(), difference).unwrap()]);
        let given = [plus, minus];
        let (g, h) = (run(&g, &given), run(&h, &given));
        // The files hold weights in single precision, so what cancels leaves its rounding.
        let size = g.iter().chain(&h).fold(1f64, |most, v| most.max(v.abs()));
        for ((f, g), h) in f.iter().zip(&g).zip(&h) {
            assert!((f - (g - h)).abs() <= 1e-6 * size, "{}: {f} is not {g} − {h}", files[0]);
        }
    }
}

#[test]
fn the_pair_is_the_network_and_holds_no_negative_number() {
    NETWORKS.iter().for_each(|name| check(&model(&format!("{name}.onnx"))));
}

/// Of the scores of `tinyvgg`, below one, nothing is left where its streams reach 3e7; those of a shallow network stay small.
#[test]
fn streams_that_outgrow_single_precision_are_warned_of() {
    let folder = ScratchFolder::new();
    let [g, h] = ["g.onnx", "h.onnx"].map(|name| folder.path(name).to_str().unwrap().to_owned());
    let quiet = Small::default().save(&folder, "quiet.onnx");
    let outcome = succeeds(["split", &quiet, "--out-g", &g, "--out-h", &h]);
    assert!(outcome.out.contains("g − h: largest error"), "{}", outcome.out);
    assert!(!outcome.errors.contains("outgrow"), "{}", outcome.errors);
    let loud = vectors("tinyvgg").join("model.onnx");
    let outcome = succeeds(["split", loud.to_str().unwrap(), "--out-g", &g, "--out-h", &h]);
    assert!(outcome.errors.contains("outgrow single precision"), "{}{}", outcome.out, outcome.errors);
}

/// Only what the class scores are computed from has to be made of affine maps and maxima.
#[test]
fn a_smooth_branch_to_another_output_does_not_matter() {
    let folder = ScratchFolder::new();
    check(Path::new(&Small { branch: true, ..Small::default() }.save(&folder, "branch.onnx")));
}

#[test]
fn the_reference_networks_are_split() {
    for case in ["mlp", "tinyvgg", "tinyresnet", "mobile"] {
        check(&vectors(case).join("model.onnx"));
    }
}

#[test]
fn what_cannot_be_split_or_written_is_refused_and_nothing_is_left() {
    let folder = ScratchFolder::new();
    let [g, h] = ["g.onnx", "h.onnx"].map(|name| folder.path(name).to_str().unwrap().to_owned());
    let smooth = model("transformer/torchscript-17.onnx");
    let smooth = smooth.to_str().unwrap();
    refuses(["split", smooth, "--out-g", &g, "--out-h", &h], &["norm1", "not made of affine maps"]);
    assert!(folder.names().is_empty());
    let network = Small::default().save(&folder, "small.onnx");
    let missing = folder.path("missing/g.onnx");
    refuses(
        ["split", &network, "--out-g", missing.to_str().unwrap(), "--out-h", &h],
        &["there is no folder"],
    );
    refuses(["split", &network, "--out-g", &g, "--out-h", &g], &["same file"]);
    refuses(["split", &network, "--out-g", &g], &["--out-h"]);
    refuses(["split", &network, "--out-g", &g, "--out-h", &h, "--opset", "3"], &["operator set 3"]);
    assert_eq!(folder.names(), ["small.onnx"]);
}
