//! A network written down in training mode: its batch norms take mean and variance of the batch, which are part of the graph.
//! Scores and gradients are held against PyTorch (`scripts/make_training_mode.py`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::program::{refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::engine::{Cpu, Precision};
use monosplit::eval::EvaluatedModel;
use monosplit::explain::methods::{Gradient, InputXGradient, SplitCam, SplitGrad};
use monosplit::explain::{ChannelReduction, Class, Explainer, Finish, MapRequest, Method, Settings};
use monosplit::graph::op::Reduction;
use monosplit::graph::{Graph, Kind, Shape};
use monosplit::{Inference, Model, Tensor};
use monosplit_testing::ScratchFolder;

const FILES: [&str; 2] = ["network-12.onnx", "network-17.onnx"];
const CLASSES: [&str; 10] = ["--class", "0", "--class", "1", "--class", "2", "--class", "3", "--class", "0"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/training_mode").join(name)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The numbers a command writes about the batch, and what it says to a person.
fn raw(folder: &ScratchFolder, command: &str, network: &Path, words: &[&str]) -> (Tensor, String) {
    let (out, raw) = (text(&folder.path("pictures")), text(&folder.path("raw.npy")));
    let (network, x) = (text(network), text(&fixture("x.npy")));
    let mut all = vec![command, &network, &x, "--raw", &raw];
    all.extend(if command == "explain" { vec!["--out", &out] } else { vec![] });
    all.extend(words);
    let said = succeeds(all).errors;
    (array(Path::new(&raw)), said)
}

#[test]
fn scores_and_gradients_are_those_of_the_batch() {
    let folder = ScratchFolder::new();
    for file in FILES.map(fixture) {
        let (scores, said) = raw(&folder, "run", &file, &["--precision", "f64"]);
        assert!(said.contains("depend on each other") && said.contains("up to 8 together"), "{said}");
        assert!(relative_error(&scores, &array(&fixture("scores.npy"))) < 1e-12);
        let words = ["--method", "gradient", "--channels", "keep", "--precision", "f64", "--batch", "5"];
        let (gradient, said) = raw(&folder, "explain", &file, &[&words[..], &CLASSES].concat());
        assert!(said.contains("depend on each other") && said.contains("up to 5 together"), "{said}");
        assert!(relative_error(&gradient, &array(&fixture("gradient.npy"))) < 1e-10);
        let (alone, _) = raw(&folder, "run", &file, &["--precision", "f64", "--batch", "1"]);
        assert!(relative_error(&alone, &scores) > 1e-2, "a batch of one has other statistics");
    }
}

fn model(file: &str) -> Model {
    Model::open(fixture(file)).unwrap()
}

/// At α = ½ the two streams meet in the gradient, which PyTorch knows.
#[test]
fn split_methods_pass_the_statistics() {
    let keep = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
    let methods: [(Arc<dyn Method>, f64); 4] = [
        (Arc::new(SplitGrad::default()), 2.0),
        (Arc::new(SplitCam::default()), 2.0),
        (Arc::new(Gradient), 1.0),
        (Arc::new(InputXGradient), 1.0),
    ];
    let requests: Vec<MapRequest> =
        methods.iter().map(|(method, _)| MapRequest::of(method.clone(), None).finish(keep)).collect();
    let engine = Cpu::default().precision(Precision::F64);
    let settings = Settings { alpha: vec![0.5], ..Settings::default() };
    let class = Class::PerSample(vec![0, 1, 2, 3, 0]);
    let (x, slope) = (array(&fixture("x.npy")), array(&fixture("gradient.npy")));
    let product = x.to_f64().iter().zip(slope.to_f64().iter()).map(|(x, s)| x * s).collect::<Vec<f64>>();
    let product = Tensor::new(slope.shape().to_vec(), product).unwrap();
    for file in FILES {
        let explainer = Explainer::new(model(file).graph(), &requests, &engine).unwrap();
        let explained = explainer.explain(&x, &class, &settings).unwrap();
        for (index, ((_, factor), map)) in methods.iter().zip(&explained.maps).enumerate() {
            let each = map.values.len() / map.exponents.len();
            let size = |i: usize| factor * f64::from(map.exponents[i / each]).exp2();
            let values: Vec<f64> = map.values.to_f64().iter().enumerate().map(|(i, v)| v * size(i)).collect();
            let found = Tensor::new(map.values.shape().to_vec(), values).unwrap();
            let expected = if index % 2 == 0 { &slope } else { &product };
            assert!(relative_error(&found, expected) < 1e-9, "{file} {index}");
        }
    }
}

#[test]
fn every_split_method_is_written_into_files_that_say_the_same() {
    let folder = ScratchFolder::new();
    let network = fixture(FILES[1]);
    let explained = folder.path("explained.onnx");
    for words in [
        &["splitcam"][..],
        &["splitgrad", "--set", "stream=h"],
        &["splitlrp"],
        &["splitstream"],
        &["lrp"],
        &["gradient"],
    ] {
        let method = [&["--method"], words, &["--precision", "f64", "--layer", "/2/Relu"]].concat();
        let (native, _) = raw(&folder, "explain", &network, &[&method[..], &["--batch", "5"]].concat());
        let values = native.to_f64();
        assert!(values.iter().all(|v| v.is_finite()) && values.iter().any(|v| *v != values[0]), "{words:?}");
        succeeds([&["compile", &text(&network), "-o", &text(&explained)], &method[..]].concat());
        let (compiled, said) = raw(&folder, "explain", &explained, &["--precision", "f64", "--batch", "5"]);
        assert!(said.contains("depend on each other"), "{said}");
        assert!(relative_error(&compiled, &native) < 1e-9, "{words:?}");
    }
    succeeds(["verify", &text(&network), &text(&fixture("x.npy"))]);
    succeeds(["verify", &text(&network), &text(&fixture("x.npy")), "--piecewise", "32"]);
}

#[test]
fn what_takes_samples_for_independent_is_refused() {
    let (network, x) = (text(&fixture(FILES[1])), text(&fixture("x.npy")));
    for method in ["occlusion", "integrated-gradients", "smoothgrad", "rise"] {
        refuses(["explain", &network, &x, "--method", method], &["depend on each other", "evaluation mode"]);
    }
    let model = model(FILES[1]);
    assert!(EvaluatedModel::new(model.graph(), &Cpu::default()).is_err());
}

/// A sample repeated to fill up a batch would have a part in what is said of the others.
#[test]
fn a_batch_of_fixed_size_is_not_filled_up() {
    let mut graph = Graph::new();
    let x = graph.input("x", Shape::fixed(&[2, 3]), Kind::Float);
    let mean = graph.reduced(Reduction::Mean, x, &[0], true).unwrap();
    let scores = graph.times(x, mean).unwrap();
    graph.output("scores", scores);
    let model = Model::options().open_graph("made here", graph).unwrap();
    let mut inference = Inference::new(&model, &Cpu::default()).unwrap();
    let explainer =
        Explainer::new(model.graph(), &[MapRequest::at_input(Gradient)], &Cpu::default()).unwrap();
    let batch = |samples: usize| {
        let numbers: Vec<f64> = (0..samples * 3).map(|i| i as f64).collect();
        Tensor::new([samples, 3], numbers).unwrap()
    };
    let mut asked = |samples: usize| {
        let explained = explainer.explain(&batch(samples), &Class::Top, &Settings::default());
        let refused = [inference.run(&[batch(samples)]).err(), explained.err()];
        refused.map(|error| error.map(|error| error.to_string()))
    };
    assert_eq!(asked(4), [None, None]);
    for said in asked(3) {
        assert!(said.unwrap().contains("give a multiple of 2"));
    }
}
