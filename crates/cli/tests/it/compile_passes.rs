//! `monosplit compile` for methods that run the network many times.

use monosplit::Model;
use monosplit::catalogue::{MethodFamily, entries};
use monosplit::explain::Procedure;
use monosplit::graph::npy;
use monosplit_testing::{ScratchFolder, crates_folder};

use crate::compile::{compiled, map, samples, text};
use crate::inputs::fixture;
use crate::networks::{Small, numbers};
use crate::program::model;
use crate::reference::relative_error;

/// Each method of many passes that is a graph too, with options that make few passes of them and not the usual choices.
const CASES: [&str; 21] = [
    "integrated-gradients:steps=7",
    "integrated-gradients:steps=5,baseline=0.25",
    "integrated-gradients:steps=5,baseline=mean",
    "gradient-shap:samples=5,seed=3",
    "gradient-shap:samples=5,stdev=10%,baseline=-0.5",
    "smoothgrad:samples=5",
    "smoothgrad:samples=5,of=square,stdev=0.2,seed=9",
    "vargrad:samples=5",
    "occlusion:window=3,stride=2",
    "occlusion:window=2x4,stride=1x3,baseline=mean",
    "feature-ablation:parts=grid,cell=3",
    "feature-ablation:parts=grid,cell=3,baseline=0.5",
    "rise:samples=21,grid=3",
    "rise:samples=5,grid=2,open=0.3,measure=score,baseline=mean,seed=4",
    "scorecam",
    "scorecam:definition=paper",
    "scorecam:relu=no",
    "ablationcam",
    "ablationcam:relu=no",
    "deepshap",
    "image",
];

fn is_of_many_passes(name: &str) -> bool {
    let chosen = monosplit::catalogue::parse(name, &[]).unwrap();
    matches!(chosen.method.procedure(), Procedure::MultiPass(passes) if passes.unrolled().is_some())
}

#[test]
fn every_method_of_many_passes_that_is_a_graph_is_tried() {
    let entries = entries().filter(|entry| entry.family != MethodFamily::Attention);
    for entry in entries.filter(|entry| is_of_many_passes(entry.name)) {
        assert!(CASES.iter().any(|case| case.split(':').next() == Some(entry.name)), "{}", entry.name);
    }
    assert!(CASES.iter().all(|case| is_of_many_passes(case)));
}

/// The file, run by our engine, against the method as `explain` computes it: two ways that share no arithmetic but the
/// network's.
fn is_native(network: &str, x: &str, folder: &ScratchFolder, words: &[&str]) {
    for (precision, limit) in [("f32", 1e-4), ("f64", 1e-7)] {
        let words = [words, &["--precision", precision]].concat();
        let path = compiled(folder, network, &[&words[..], &["--copies", "4"]].concat());
        for class in [&[][..], &["--class", "1", "--class", "0", "--class", "2"]] {
            let native = map(folder, network, x, &[&words[..], class].concat());
            let error = relative_error(&map(folder, &path, x, class), &native);
            assert!(error < limit, "{network} {words:?} {class:?}: {error:e}");
        }
    }
}

#[test]
fn slow_compiled_passes_are_the_native_ones() {
    let folder = ScratchFolder::new();
    let (network, x) = (Small::default().save(&folder, "small.onnx"), samples(&folder));
    for method in CASES {
        is_native(&network, &x, &folder, &["--method", method]);
    }
    for (method, layer) in [
        ("integrated-gradients:steps=5", "conv:out"),
        ("integrated-gradients:steps=5,baseline=1", "relu:out"),
        ("occlusion:window=3,stride=2,baseline=0.5", "relu:out"),
        ("feature-ablation:parts=grid,cell=4", "conv:out"),
        ("rise:samples=9,grid=3", "relu:out"),
        ("ablationcam", "conv:out"),
        ("scorecam", "conv:out"),
    ] {
        is_native(&network, &x, &folder, &["--method", method, "--layer", layer]);
    }
}

/// One axis of positions, and features without neighbours.
#[test]
fn compiled_passes_of_series_and_tables_are_the_native_ones() {
    let folder = ScratchFolder::new();
    let series = text(&model("sequence/torchscript-13.onnx"));
    let table = text(&fixture("mlp.onnx"));
    let sounds = text(&folder.write("sounds.npy", npy::write(&numbers(&[3, 3, 21], 5))));
    let rows = text(&folder.write("rows.npy", npy::write(&numbers(&[3, 4], 6))));
    for method in ["occlusion:window=3,stride=2", "rise:samples=9,grid=3", "integrated-gradients:steps=3"] {
        is_native(&series, &sounds, &folder, &["--method", method]);
        is_native(&table, &rows, &folder, &["--method", method]);
    }
    for method in ["scorecam", "scorecam:definition=paper", "ablationcam"] {
        is_native(&series, &sounds, &folder, &["--method", method]);
    }
}

/// The first states of recurrent layers are constants for each sample, of which the last piece has fewer copies.
#[test]
fn compiled_passes_of_recurrent_networks_are_the_native_ones() {
    let folder = ScratchFolder::new();
    let network = text(&crates_folder().join("monosplit/tests/fixtures/inputs/recurrent.onnx"));
    let x = text(&folder.write("x.npy", npy::write(&numbers(&[3, 5, 3], 7))));
    is_native(&network, &x, &folder, &["--method", "integrated-gradients:steps=7"]);
}

/// Batch norms, blocks with shortcuts and pooling.
#[test]
fn slow_compiled_passes_of_a_deeper_network_are_the_native_ones() {
    let folder = ScratchFolder::new();
    let network = text(&model("resnet/torchscript-7.onnx"));
    let shape = Model::open(&network).unwrap().sample_shape().unwrap();
    let x = text(&folder.write("x.npy", npy::write(&numbers(&[&[3], &*shape].concat(), 5))));
    for method in [
        "integrated-gradients:steps=6",
        "smoothgrad:samples=5",
        "occlusion",
        "rise:samples=10",
        "scorecam",
        "ablationcam",
    ] {
        is_native(&network, &x, &folder, &["--method", method]);
    }
}
