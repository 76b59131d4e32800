//! Readings of the paper that can be chosen, in `explain` and in experiments.

use crate::evaluate::Bench;
use crate::program::{model, refuses, succeeds};
use crate::reference::{array, relative_error};
use monosplit::Tensor;
use monosplit::eval::store::{RowFilter, Store};
use monosplit_testing::ScratchFolder;

/// A residual network whose file has its batch norms, and its input.
fn residual() -> (String, String) {
    let path = |name: &str| model(&format!("resnet/{name}")).display().to_string();
    (path("torchscript-raw-13.onnx"), path("x.npy"))
}

fn map(folder: &ScratchFolder, words: &[&str]) -> Tensor {
    let (network, input) = residual();
    let raw = folder.path("raw.npy");
    let out = folder.path("pictures");
    let mut all = vec![
        "explain",
        &*network,
        &*input,
        "--method",
        "splitgrad",
        "--precision",
        "f64",
        "--layer",
        "4.conv1",
    ];
    all.extend(["--out", out.to_str().unwrap(), "--raw", raw.to_str().unwrap()]);
    all.extend(words);
    succeeds(all);
    array(&raw)
}

#[test]
fn batch_norms_that_stay_shift_as_convolutions_do_that_shift_twice() {
    let folder = ScratchFolder::new();
    let kept = map(&folder, &["--alpha", "0.3", "--batch-norms", "keep"]);
    let twice = map(&folder, &["--alpha", "0.3", "--alpha-at", "convolutions=0.42"]);
    let once = map(&folder, &["--alpha", "0.3"]);
    assert!(relative_error(&twice, &kept) < 1e-5, "{}", relative_error(&twice, &kept));
    assert!(relative_error(&once, &kept) > 1e-3, "{}", relative_error(&once, &kept));
}

#[test]
fn an_alpha_that_fits_no_layer_is_refused_with_the_layers_there_are() {
    let (network, input) = residual();
    let refused = |words: &[&str], said: &[&str]| {
        let mut all = vec!["explain", &*network, &*input];
        all.extend(words);
        refuses(all, said);
    };
    refused(&["--alpha-at", "layer9.*=0.3"], &["alpha-at", "layer9.*", "convolutions"]);
    refused(&["--alpha-at", "layer1"], &["PATTERN=ALPHA", "layer1"]);
    refused(&["--alpha-at", "*=1.5"], &["alpha-at", "0 to 1", "1.5"]);
    refused(&["--alpha", "0.3/0.4"], &["2 numbers", "shifted layers"]);
    refused(&["--set", "stabiliser=shift", "--set", "repeat=yes"], &["repeat", "stabiliser scale"]);
}

#[test]
fn nearest_maps_are_blocks_of_the_layers_numbers() {
    let folder = ScratchFolder::new();
    let layer = map(&folder, &[]);
    let nearest = map(&folder, &["--size", "input", "--upsampling", "nearest"]);
    let (rows, columns) = (layer.shape()[1], layer.shape()[2]);
    let (height, width) = (nearest.shape()[1], nearest.shape()[2]);
    let (small, large) = (layer.to_f64(), nearest.to_f64());
    for y in 0..height {
        for x in 0..width {
            let expected = small[y * rows / height * columns + x * columns / width];
            assert_eq!(large[y * width + x], expected, "{y}, {x}");
        }
    }
}

const EXPERIMENT: &str = r#"
name = "readings"
[model]
file = "MODEL"
preset = "imagenet"
fit = "squash"
batch-norms = "keep"
[data]
folder = "data"
label-column = "class"
test = "test"
[comparison]
metrics = ["sparseness", "pointing-game:constant=hit"]
[[method]]
title = "own"
method = "splitgrad"
layers = "layer3.0.conv2"
[[method]]
title = "mean"
method = "splitgrad:channels=mean"
layers = "layer3.0.conv2"
[[method]]
title = "nearest"
method = "splitgrad:upsampling=nearest"
layers = "layer3.0.conv2"
[[method]]
title = "absolute channels"
method = "splitgrad:abs=channels"
layers = "layer3.0.conv2"
[[method]]
title = "absolute channels, absolute"
method = "splitgrad:abs=channels"
layers = "layer3.0.conv2"
absolute = "yes"
[[method]]
title = "behind the ReLU"
method = "gradcam"
layers = "convolutions"
side = "activation"
at-most = 2
[[ablation]]
vary = "alpha-at"
values = ["layer3=0.4", "layer3=0.1"]
metrics = ["sparseness"]
of = [{ title = "by layer", method = "splitgrad", layers = "layer2.0.conv1" }]
[sanity]
randomise = 1
deviation = 0.01
of = [{ title = "own", method = "splitgrad", layers = "layer3.0.conv2" }]
"#;

#[test]
fn slow_readings_of_an_experiment_are_measured_and_stored_by_their_names() {
    let bench = Bench::new();
    let network = monosplit_testing::crates_folder().join("monosplit/assets/pets-small.onnx");
    let text = EXPERIMENT.replace("MODEL", &network.canonicalize().unwrap().display().to_string());
    let (file, store) = (bench.path("readings.toml"), bench.path("readings.sqlite"));
    std::fs::write(&file, text).unwrap();
    succeeds(["evaluate", file.to_str().unwrap(), "--store", store.to_str().unwrap()]);
    let rows = Store::read(&store).unwrap().rows(&RowFilter::default()).unwrap();
    let values = |title: &str, metric: &str| {
        let of = rows.iter().filter(|row| row.title == title && row.metric.starts_with(metric));
        let mut values: Vec<(String, f64)> = of.map(|row| (row.image.clone(), row.value.unwrap())).collect();
        values.sort_by(|a, b| a.0.cmp(&b.0));
        values
    };
    assert_eq!(values("own", "sparseness").len(), 3);
    assert_eq!(values("own", "sparseness"), values("mean", "sparseness"));
    assert_ne!(values("own", "sparseness"), values("nearest", "sparseness"));
    assert_ne!(values("own", "sparseness"), values("absolute channels", "sparseness"));
    assert_eq!(
        values("absolute channels", "sparseness"),
        values("absolute channels, absolute", "sparseness")
    );
    let options = |title: &str| rows.iter().find(|row| row.title == title).unwrap().options.clone();
    assert_eq!(options("nearest"), "upsampling=nearest");
    let layers = |title: &str| {
        let mut layers: Vec<&str> =
            rows.iter().filter(|row| row.title == title).map(|row| &*row.layer).collect();
        layers.dedup();
        layers.len()
    };
    assert!(layers("behind the ReLU") >= 2);
    let of_alpha: Vec<&str> =
        rows.iter().filter(|row| row.title == "by layer").map(|row| &*row.options).collect();
    assert!(of_alpha.contains(&"alpha-at=layer3=0.1"), "{of_alpha:?}");
    assert!(rows.iter().any(|row| row.metric.starts_with("randomised-similarity:deviation=0.01,layers=1")));
}

#[test]
fn a_compiled_file_keeps_the_alpha_of_every_layer() {
    let folder = ScratchFolder::new();
    let (network, input) = residual();
    let (file, raw) = (folder.path("compiled.onnx"), folder.path("compiled.npy"));
    let method = "splitgrad:alpha=0.4,alpha-at=5=0.2@4.conv1";
    let file = file.to_str().unwrap();
    succeeds(["compile", &network, "--methods", method, "-o", file]);
    let out = folder.path("maps");
    let paths = ["--out", out.to_str().unwrap(), "--raw", raw.to_str().unwrap()];
    succeeds([&["explain", file, &*input][..], &paths].concat());
    let (found, expected) = (array(&raw), map(&folder, &["--alpha-at", "5=0.2"]));
    assert!(relative_error(&found, &expected) < 1e-4, "{}", relative_error(&found, &expected));
}
