//! SplitLRP where relevance grows: deep networks, and elements that are constants.

use monosplit_engine::{Cpu, Precision};
use monosplit_explain::methods::{RelevanceMap, SplitLrp};
use monosplit_explain::{Class, Explainer, MapRequest, Settings, Split, Stabiliser, audit};
use monosplit_graph::op::{Binary, Padding, Unary, Window};
use monosplit_graph::{Graph, Kind, NodeId, Op, Shape, Tensor};
use monosplit_testing::SplitMix64;

/// Numbers between −1 and 1.
fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut random = SplitMix64::new(seed);
    (0..count).map(|_| (random.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
}

fn drawn(g: &mut Graph, shape: &[usize], spread: f32, seed: u64) -> NodeId {
    let values: Vec<f32> = random(seed, shape.iter().product()).iter().map(|v| v * spread).collect();
    g.constant(Tensor::new(shape, values).unwrap())
}

/// Blocks of two products each, with a connection past both.
fn residual(blocks: u64) -> Graph {
    let product = Op::MatMul { trans_a: false, trans_b: false };
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[6]), Kind::Float);
    let mut value = x;
    for block in 0..blocks {
        let (first, second) =
            (drawn(&mut g, &[6, 6], 0.8, 2 * block), drawn(&mut g, &[6, 6], 0.3, 2 * block + 1));
        let inner = g.add(product.clone(), &[value, first]).unwrap();
        let inner = g.unary(Unary::Relu, inner).unwrap();
        let inner = g.add(product.clone(), &[inner, second]).unwrap();
        let sum = g.binary(Binary::Add, value, inner).unwrap();
        value = g.unary(Unary::Relu, sum).unwrap();
    }
    let last = drawn(&mut g, &[6, 3], 0.5, 7);
    let scores = g.add(product, &[value, last]).unwrap();
    g.output("y", scores);
    g
}

fn input() -> Tensor {
    Tensor::new([1, 6], vec![0.3f32, -0.2, 0.9, 0.5, -0.7, 0.1]).unwrap()
}

/// Without a power of two of its own, relevance passes what single precision holds after some hundred layers, and what double
/// precision holds after some more.
#[test]
fn issue_35_relevance_of_deep_networks_is_finite() {
    for (blocks, stabiliser) in
        [(75, Stabiliser::Scale), (75, Stabiliser::None), (75, Stabiliser::Shift), (400, Stabiliser::Scale)]
    {
        let split = Split::default().stabiliser(stabiliser);
        let request = MapRequest::at_input(SplitLrp { split, map: RelevanceMap::Comb });
        let engine = Cpu::default().threads(1).precision(Precision::F64);
        let explainer = Explainer::new(&residual(blocks), &[request], &engine).unwrap();
        let found = explainer.explain(&input(), &Class::Top, &Settings::default()).unwrap();
        let map = &found.maps[0].values;
        assert!(map.to_f64().iter().all(|v| v.is_finite()), "{blocks} blocks, {stabiliser:?}: {map:?}");
        assert!(map.to_f64().iter().any(|v| *v != 0.0), "{blocks} blocks, {stabiliser:?}");
    }
}

#[test]
fn issue_35_relevance_of_deep_networks_is_conserved() {
    for blocks in [20, 150] {
        let found = audit(&residual(blocks), &input(), &Cpu::default().threads(1)).unwrap();
        assert!(found.relevance_loss.abs() < 1e-9, "{blocks} blocks: {}", found.relevance_loss);
        assert!(found.finite && found.relevance.default_gain.is_finite(), "{:?}", found.relevance);
    }
}

/// A convolution of what was padded by `c`, joined with constants, and bounded by one.
fn with_constants(c: f64) -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[2, 4, 4]), Kind::Float);
    let pads = vec![(0, 0), (0, 0), (1, 1), (2, 0)];
    let padded = g.add(Op::Pad { padding: Padding::Constant(c), pads }, &[x]).unwrap();
    let kernel = drawn(&mut g, &[3, 2, 3, 3], 1.0, 1);
    let bias = drawn(&mut g, &[3], 1.0, 2);
    let op = Op::Conv { window: Window::new([3, 3]), groups: 1 };
    let hidden = g.add(op, &[padded, kernel, bias]).unwrap();
    let least = g.number(0.1);
    let hidden = g.binary(Binary::Max, hidden, least).unwrap();
    let extra = drawn(&mut g, &[1, 1, 4, 4], 1.0, 3);
    let extra = g.add(Op::Expand { shape: Shape::batched(&[1, 4, 4]) }, &[extra]).unwrap();
    let joined = g.add(Op::Concat { axis: 1 }, &[hidden, extra]).unwrap();
    let flat = g.reshaped(joined, Shape::batched(&[64])).unwrap();
    let last = drawn(&mut g, &[64, 3], 0.5, 4);
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[flat, last]).unwrap();
    g.output("y", scores);
    g
}

#[test]
fn issue_35_constants_take_no_share_of_the_relevance_of_a_sum() {
    for c in [0.0, 0.7, -3.0] {
        let x = Tensor::new([1, 2, 4, 4], random(9, 32)).unwrap();
        let found = audit(&with_constants(c), &x, &Cpu::default().threads(1)).unwrap();
        assert!(found.relevance_loss.abs() < 1e-12, "padded by {c}: {}", found.relevance_loss);
    }
}
