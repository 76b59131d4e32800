//! `monosplit verify` as a person uses it.

mod json;
mod networks;
mod program;

use json::assert_json;
use monosplit::graph::op::Unary;
use monosplit::graph::{Dim, Op};
use networks::{Small, images};
use program::{Folder, model, refuses, shared, succeeds};

const CLAIMS: usize = 9;

/// The verdicts before the table, by their first word.
fn verdicts(said: &str) -> Vec<&str> {
    said.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split("  ").next()).collect()
}

fn path(name: &str) -> String {
    model(name).to_str().unwrap().to_owned()
}

#[test]
fn every_claim_holds_on_piecewise_linear_networks() {
    let files = [
        "vgg/torchscript-17",
        "resnet/torchscript-7",
        "ceil_pools/torchscript-13",
        "densenet/torchscript-13",
        "inverted_residual/torchscript-13",
        "keras_valid/handmade-18",
        "sequence/torchscript-13",
    ];
    for file in files {
        let said = succeeds(["verify", &path(&format!("{file}.onnx"))]).out;
        assert_eq!(verdicts(&said), vec!["holds"; CLAIMS], "{file}: {said}");
        assert!(said.contains("recentre"), "{said}");
    }
}

#[test]
fn every_claim_holds_on_the_reference_networks() {
    for case in ["mlp", "tinyvgg", "tinyresnet", "mobile"] {
        let Some(folder) = shared(&format!("vectors/{case}")) else { return };
        let (network, x) = (folder.join("model.onnx"), folder.join("x.npy"));
        let said = succeeds([&"verify".into(), &network, &x]).out;
        assert_eq!(verdicts(&said), vec!["holds"; CLAIMS], "{case}: {said}");
    }
}

#[test]
fn smooth_networks_are_told_what_was_not_checked_and_why() {
    for (file, node) in [
        ("transformer/torchscript-17", "norm1"),
        ("squeeze_excite_hard/torchscript-14", "HardSwish"),
        ("caffe/handmade-13", "LRN"),
        ("softplus_mish_silu/torchscript-13", "Softplus"),
    ] {
        let said = succeeds(["verify", &path(&format!("{file}.onnx"))]).out;
        let first = said.lines().next().unwrap();
        assert!(first.starts_with("not checked  f = g − h, monotone, convex"), "{said}");
        assert!(first.contains("is not made of affine maps, ReLUs and maxima"), "{said}");
        assert!(first.to_lowercase().contains(&node.to_lowercase()), "{said}");
        for line in said.lines().skip(1).take(5) {
            let relevance = line.starts_with("not checked  SplitLRP conserves relevance");
            let why = relevance && line.contains("products of activations");
            let gradients = line.starts_with("not checked  stream gradients are not negative");
            assert!(line.starts_with("holds  ") || why || gradients, "{file}: {said}");
        }
    }
}

#[test]
fn networks_of_fixed_batch_size_and_those_that_end_in_a_softmax_are_checked() {
    let folder = Folder::new();
    let x = images(&folder, 1);
    let fixed = Small { samples: Dim::Fixed(3), ..Small::default() }.save(&folder, "fixed.onnx");
    let softmax =
        Small { end: Some(Op::Softmax { axis: 1 }), ..Small::default() }.save(&folder, "softmax.onnx");
    for network in [&fixed, &softmax] {
        for inputs in [&[][..], &[&x][..]] {
            let words = [
                &["verify".to_owned(), network.clone()][..],
                &inputs.iter().map(|x| x.to_string()).collect::<Vec<_>>(),
            ]
            .concat();
            let said = succeeds(words).out;
            assert_eq!(verdicts(&said), vec!["holds"; CLAIMS], "{said}");
        }
    }
}

#[test]
fn json_is_json_and_misuse_is_refused() {
    let folder = Folder::new();
    let network = Small::default().save(&folder, "small.onnx");
    let sigmoid =
        Small { end: Some(Op::Unary(Unary::Sigmoid)), ..Small::default() }.save(&folder, "sigmoid.onnx");
    for network in [&network, &sigmoid] {
        let said = succeeds(["verify", network, "--json"]).out;
        assert_json(&said);
        assert!(said.contains("\"verdict\": \"holds\"") && said.contains("\"log10_none\""), "{said}");
    }
    let x = images(&folder, 2);
    refuses(["verify", &network, &x, &x], &["one input"]);
    refuses(["verify", &network, &network], &["small.onnx"]);
    refuses(["verify"], &["no network given"]);
}
