//! Dropout as in training, with a mask given from outside: the same mask acts on the network and on its streams.

use crate::split_map::SplitMap;
use monosplit_engine::Cpu;
use monosplit_explain::{Class, ExplainBatch, Explainer, MapRequest, Settings, Split, Stream, StreamPart};
use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::passes::mask_dropout;
use monosplit_graph::{Graph, Kind, Label, Op, Shape, Tensor};

/// Two affine layers with `between` them, weights of both signs.
fn network(between: impl Fn(&mut Graph, monosplit_graph::NodeId) -> monosplit_graph::NodeId) -> Graph {
    let weights = |rows: usize, columns: usize, step: f32| {
        let values: Vec<f32> = (0..rows * columns).map(|i| ((i as f32 * step).sin()) * 0.7).collect();
        Tensor::new([rows, columns], values).unwrap()
    };
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[5]), Kind::Float);
    let (w1, w2) = (g.constant(weights(6, 5, 1.7)), g.constant(weights(3, 6, 2.3)));
    let linear = Op::MatMul { trans_a: false, trans_b: true };
    let z = g.add_named(Label::named("first"), linear.clone(), &[x, w1]).unwrap();
    let a = g.add(Op::Unary(Unary::Relu), &[z]).unwrap();
    let dropped = between(&mut g, a);
    let y = g.add_named(Label::named("second"), linear, &[dropped, w2]).unwrap();
    g.output("logits", y);
    g
}

fn dropout(g: &mut Graph, a: monosplit_graph::NodeId) -> monosplit_graph::NodeId {
    g.add_named(Label::named("drop"), Op::Dropout { ratio: 0.5 }, &[a]).unwrap()
}

fn requests() -> Vec<MapRequest> {
    let methods = [
        SplitMap::SplitCam(Stream::G, StreamPart::Plus),
        SplitMap::SplitGrad(Stream::H, StreamPart::Combined),
        SplitMap::SplitCam(Stream::G, StreamPart::Combined),
    ];
    methods.into_iter().map(|method| method.at(Split::default(), "first")).collect()
}

fn maps(g: &Graph, given: &[(&str, Tensor)], alpha: f64) -> Vec<Vec<f32>> {
    let explainer = Explainer::new(g, &requests(), &Cpu::default()).unwrap();
    let x = Tensor::new([1, 5], vec![0.3f32, -1.0, 0.8, 0.1, -0.4]).unwrap();
    let settings = Settings::default().alpha(alpha);
    let explained = explainer
        .explain_batch(&ExplainBatch {
            other_inputs: given,
            ..ExplainBatch::new(&x, &Class::Index(1), &settings)
        })
        .unwrap();
    explained.maps.iter().map(|map| map.values.to_f32().to_vec()).collect()
}

#[test]
fn a_given_mask_acts_like_the_same_constant() {
    let mask = vec![2.0f32, 0.0, 2.0, 0.0, 2.0, 2.0];
    let masked = mask_dropout(&network(dropout)).unwrap();
    let found = maps(&masked, &[("drop.mask", Tensor::new([1, 6], mask.clone()).unwrap())], 0.0);
    let constant = network(|g, a| {
        let mask = g.constant(Tensor::new([1, 6], mask.clone()).unwrap());
        g.add(Op::Binary(Binary::Mul), &[a, mask]).unwrap()
    });
    assert_eq!(found, maps(&constant, &[], 0.0));
    assert!(found.iter().flatten().any(|&v| v != 0.0));
}

#[test]
fn a_mask_that_drops_nothing_is_no_dropout() {
    let ones = Tensor::new([1, 6], vec![1f32; 6]).unwrap();
    let masked = mask_dropout(&network(dropout)).unwrap();
    assert_eq!(maps(&masked, &[("drop.mask", ones)], 0.35), maps(&network(dropout), &[], 0.35));
}

#[test]
fn a_mask_that_is_not_given_is_named() {
    let masked = mask_dropout(&network(dropout)).unwrap();
    let explainer = Explainer::new(&masked, &requests(), &Cpu::default()).unwrap();
    let x = Tensor::new([1, 5], vec![0f32; 5]).unwrap();
    let error = explainer.explain(&x, &Class::Top, &Settings::default()).unwrap_err().to_string();
    assert!(error.contains("drop.mask"), "{error}");
}
