//! The default layers of small networks of torchvision's families, as both of PyTorch's exporters write them, are the values
//! that PyTorch's own forward hooks see. `scripts/make_default_layers.py` makes the files.

use std::path::PathBuf;

use monosplit::engine::{Cpu, Engine};
use monosplit::explain::{DefaultLayer, chosen_layer};
use monosplit::graph::{LayerName, Output};
use monosplit::{Model, Tensor};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/default_layers")
}

/// A value that PyTorch saw.
struct Expected {
    family: String,
    place: DefaultLayer,
    shape: Vec<usize>,
    sum: f64,
    largest: f64,
}

fn expected() -> Vec<Expected> {
    let text = std::fs::read_to_string(folder().join("expected.txt")).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Expected {
            family: words[0].into(),
            place: match words[1] {
                "features" => DefaultLayer::LastFeatures,
                _ => DefaultLayer::LastMixingInput,
            },
            shape: words[2].split('x').map(|length| length.parse().unwrap()).collect(),
            sum: words[3].parse().unwrap(),
            largest: words[4].parse().unwrap(),
        }
    };
    text.lines().map(line).collect()
}

/// The value of the default layer for the picture `sin(0.37 i)`, and the layer's name.
fn value_at_default(model: &Model, place: DefaultLayer) -> (Tensor, String) {
    let layer = chosen_layer(model.graph(), place).expect("a layer of the network");
    let mut graph = model.graph().clone();
    let node = LayerName::parse(&layer.name).value(&graph).unwrap();
    graph.set_outputs(vec![Output { name: "value".into(), node }]);
    let picture: Vec<f32> = (0..3 * 64 * 64).map(|i| (0.37 * f64::from(i)).sin() as f32).collect();
    let picture = Tensor::new([1, 3, 64, 64], picture).unwrap();
    let value = Cpu::default().compile(&graph).unwrap().run(&[picture]).unwrap().remove(0);
    (value, layer.name)
}

#[test]
fn issue_27_default_layers_do_not_depend_on_the_exporter() {
    let mut wrong = Vec::new();
    for want in expected() {
        for exporter in ["torchscript", "dynamo"] {
            let model = Model::open(folder().join(format!("{}-{exporter}.onnx", want.family))).unwrap();
            let (value, name) = value_at_default(&model, want.place);
            let elements = value.to_f64();
            let sum: f64 = elements.iter().sum();
            let largest = elements.iter().fold(0f64, |most, x| most.max(x.abs()));
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-4 * want.largest.max(b.abs());
            let same = value.shape()[1..] == want.shape && near(sum, want.sum) && near(largest, want.largest);
            if !same {
                let found = format!("{:?} {sum:.4e} {largest:.4e}", &value.shape()[1..]);
                let (shape, place) = (&want.shape, want.place);
                wrong.push(format!(
                    "{} {exporter} {place:?} '{name}': {found}, expected {shape:?} {:.4e} {:.4e}",
                    want.family, want.sum, want.largest
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
