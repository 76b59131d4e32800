//! `monosplit verify` as a person uses it.

use std::path::Path;

use crate::json::assert_json;
use crate::networks::{Small, images};
use crate::program::{model, refuses, succeeds};
use monosplit::graph::onnx::{self, ExportOptions};
use monosplit::graph::op::Unary;
use monosplit::graph::{Dim, Graph, Kind, Label, Op, Shape, Tensor, npy};
use monosplit_testing::{ScratchFolder, vectors};

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
        // Issue 35: padded by a number other than zero.
        "pad_constant/torchscript-11",
        "every_style/handmade-13",
    ];
    for file in files {
        let said = succeeds(["verify", &path(&format!("{file}.onnx"))]).out;
        assert_eq!(verdicts(&said), vec!["holds"; CLAIMS], "{file}: {said}");
        assert!(said.contains("recentre"), "{said}");
    }
}

/// Single precision holds no product of these weights: nothing can be said of the network, least of all that it fails.
#[test]
fn issue_35_weights_that_overflow_are_not_said_to_fail() {
    let folder = ScratchFolder::new();
    let mut network = Graph::new();
    let x = network.input("x", Shape::batched(&[2]), Kind::Float);
    let product = Op::MatMul { trans_a: false, trans_b: false };
    let weights = network.constant(Tensor::new([2, 2], vec![1e30f32, -1e30, 2e30, 1e30]).unwrap());
    let mut value = x;
    for layer in 0..12 {
        value = network
            .add_named(Label::named(format!("layer{layer}")), product.clone(), &[value, weights])
            .unwrap();
        value = network.unary(Unary::Relu, value).unwrap();
    }
    network.output("y", value);
    let (path, input) = (folder.path("large.onnx"), folder.path("x.npy"));
    std::fs::write(&path, onnx::write(&network, &ExportOptions::default()).unwrap()).unwrap();
    std::fs::write(&input, npy::write(&Tensor::new([1, 2], vec![1f32, 0.5]).unwrap())).unwrap();
    let said = succeeds([Path::new("verify"), &path, &input]).out;
    assert!(!said.contains("FAILS"), "{said}");
    assert!(said.contains("not checked") && said.contains("not finite"), "{said}");
}

#[test]
fn every_claim_holds_on_the_reference_networks() {
    for case in ["mlp", "tinyvgg", "tinyresnet", "mobile"] {
        let folder = vectors(case);
        let (network, x) = (folder.join("model.onnx"), folder.join("x.npy"));
        let said = succeeds([&"verify".into(), &network, &x]).out;
        assert_eq!(verdicts(&said), vec!["holds"; CLAIMS], "{case}: {said}");
    }
}

#[test]
fn smooth_networks_are_told_what_does_not_apply_and_why() {
    for (file, node) in [
        ("transformer/torchscript-17", "norm1"),
        ("caffe/handmade-13", "LRN"),
        ("softplus_mish_silu/torchscript-13", "Softplus"),
    ] {
        let said = succeeds(["verify", &path(&format!("{file}.onnx"))]).out;
        let first = said.lines().next().unwrap();
        assert!(first.starts_with("does not apply  f = g − h, monotone, convex"), "{said}");
        assert!(first.contains("is not made of affine maps, ReLUs, maxima and products"), "{said}");
        assert!(first.to_lowercase().contains(&node.to_lowercase()), "{said}");
        for line in said.lines().skip(1).take(5) {
            let relevance = line.starts_with("does not apply  SplitLRP conserves relevance");
            let why = relevance && line.contains("products of activations");
            assert!(line.starts_with("holds  ") || why, "{file}: {said}");
        }
    }
}

#[test]
fn networks_with_products_are_checked_where_no_input_is_negative() {
    let said = succeeds(["verify", &path("squeeze_excite_hard/torchscript-14.onnx")]).out;
    let verdicts = verdicts(&said);
    assert_eq!(verdicts.len(), CLAIMS, "{said}");
    for (line, verdict) in said.lines().zip(&verdicts) {
        let claim = line[16..].trim_start();
        let expected = match claim {
            c if c.starts_with("SplitLRP") => &["does not apply"][..],
            c if c.starts_with("f = g − h, the networks") => &["holds", "not checked"],
            _ => &["holds"],
        };
        assert!(expected.contains(verdict), "{said}");
    }
    assert!(said.contains("none below zero"), "{said}");
}

#[test]
fn piecewise_networks_hold_exactly_and_say_how_far_they_are_from_the_network() {
    for file in ["transformer/torchscript-17", "softplus_mish_silu/torchscript-13"] {
        let said = succeeds(["verify", &path(&format!("{file}.onnx")), "--piecewise", "32"]);
        assert!(said.errors.contains("replaced, 32 knots each"), "{}", said.errors);
        let verdicts = verdicts(&said.out);
        assert_eq!(verdicts[0], "holds", "{}", said.out);
        assert!(said.out.starts_with("holds           f = g − h "), "{}", said.out);
        assert_eq!(verdicts.last(), Some(&"up to error"), "{}", said.out);
        assert!(!verdicts.contains(&"FAILS"), "{}", said.out);
    }
}

#[test]
fn networks_of_fixed_batch_size_and_those_that_end_in_a_softmax_are_checked() {
    let folder = ScratchFolder::new();
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
    let folder = ScratchFolder::new();
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
