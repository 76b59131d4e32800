//! Batch norm as it is in training: mean and variance of the batch are part of the graph, so every image has a part in the
//! map of every other. The literal algorithm takes the whole batch for one sample with as many seeds as images.

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::{Class, Explainer, MapRequest, Settings, Split, Stabiliser};
use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::{Graph, Kind, NodeId, Op, Shape, Tensor};

use super::agreement::{DOUBLE, cases, departure, layer, methods};
use super::literal::{Literal, Numbers, Pair};
use super::literal_map::map;
use super::network::{EVERYTHING, Writer, writer};
use super::noise::Noise;
use super::relevance::Jitter;
use super::rule::shape;
use crate::split_map::SplitMap;

const SAMPLES: usize = 3;
const FEATURES: usize = 6;
const CLASSES: usize = 4;

impl Writer<'_> {
    /// `(x − mean)/√(variance + ε)·scale + bias` with the statistics of the batch.
    fn trained_norm(&mut self, x: NodeId) -> NodeId {
        let axes: Vec<usize> = (0..self.shape(x).len()).filter(|&axis| axis != 1).collect();
        let mean = || Op::Reduce { reduction: Reduction::Mean, axes: axes.clone(), keep: true };
        let of_batch = self.add(mean(), &[x]);
        let centred = self.add(Op::Binary(Binary::Sub), &[x, of_batch]);
        let squared = self.add(Op::Binary(Binary::Mul), &[centred, centred]);
        let variance = self.add(mean(), &[squared]);
        let epsilon = self.constant(&[], vec![1e-2]);
        let variance = self.add(Op::Binary(Binary::Add), &[variance, epsilon]);
        let deviation = self.add(Op::Unary(Unary::Sqrt), &[variance]);
        let inverse = self.add(Op::Unary(Unary::Reciprocal), &[deviation]);
        let normal = self.add(Op::Binary(Binary::Mul), &[centred, inverse]);
        let channels = self.shape(x)[1];
        let (scale, bias) = (self.noise.numbers(channels, 1.0), self.noise.numbers(channels, 0.4));
        let mut each = vec![1; axes.len() + 1];
        each[1] = channels;
        let (scale, bias) = (self.constant(&each, scale), self.constant(&each, bias));
        let scaled = self.add(Op::Binary(Binary::Mul), &[normal, scale]);
        self.add(Op::Binary(Binary::Add), &[scaled, bias])
    }
}

/// Features normalised one by one, then as channels of feature maps, and a head.
fn network(noise: &mut Noise) -> Graph {
    let mut w = writer(noise, EVERYTHING);
    let x = w.graph.input("x", Shape::fixed(&[SAMPLES, FEATURES]), Kind::Float);
    let x = w.linear(x, 5);
    let x = w.trained_norm(x);
    let x = w.add(Op::Unary(Unary::Relu), &[x]);
    let x = w.linear(x, 12);
    let x = w.add(Op::Reshape { shape: Shape::fixed(&[SAMPLES, 2, 3, 2]) }, &[x]);
    let x = w.trained_norm(x);
    let x = w.add(Op::Unary(Unary::Relu), &[x]);
    let x = w.add(Op::Reduce { reduction: Reduction::Max, axes: vec![3], keep: false }, &[x]);
    let x = w.add(Op::Reshape { shape: Shape::fixed(&[SAMPLES, 6]) }, &[x]);
    let logits = w.linear(x, CLASSES);
    w.graph.output("logits", logits);
    w.graph
}

/// The activations of the whole batch, by node.
fn activations(graph: &Graph, images: &Tensor) -> Vec<Vec<f64>> {
    let mut all = graph.clone();
    let ids: Vec<NodeId> = graph.nodes().filter(|(_, node)| !node.is_constant()).map(|(id, _)| id).collect();
    ids.iter().for_each(|id| all.output(id.to_string(), *id));
    let program = Cpu::default().threads(1).precision(Precision::F64).compile(&all).unwrap();
    let outputs = program.run(std::slice::from_ref(images)).unwrap();
    let mut found = vec![Vec::new(); graph.len()];
    for (tensor, id) in outputs.iter().skip(graph.outputs().len()).zip(&ids) {
        found[id.index()] = tensor.to_f64().into_vec();
    }
    found
}

/// What arrives at a value from all seeds together.
fn joined(parts: impl Iterator<Item = Pair>) -> Pair {
    let mut parts = parts;
    let mut sum = parts.next().unwrap();
    parts.for_each(|part| sum.add(&part));
    sum
}

fn check(seed: u64, stabiliser: Stabiliser) {
    let mut noise = Noise::new(seed ^ 0xBA7C);
    let graph = network(&mut noise);
    let images = Tensor::new([SAMPLES, FEATURES], noise.numbers(SAMPLES * FEATURES, 1.0)).unwrap();
    let classes: Vec<usize> = (0..SAMPLES).map(|_| noise.below(CLASSES)).collect();
    let split = Split::default().stabiliser(stabiliser);
    let numbers = Numbers { alpha: vec![0.3], theta: 0.1, limit: 10.0 };
    let is_read = |id: &NodeId| graph.node(*id).shape.rank() == 2 && graph.node(*id).op.name() == "MatMul";
    let mut layers: Vec<NodeId> = graph.nodes().map(|(id, _)| id).filter(is_read).collect();
    layers.push(graph.inputs()[0]);
    let split_map: Vec<(SplitMap, NodeId)> =
        layers.iter().flat_map(|&id| methods().into_iter().map(move |method| (method, id))).collect();
    let requests: Vec<MapRequest> = split_map.iter().map(|&(m, id)| m.at(split, layer(&graph, id))).collect();
    let engine = Cpu::default().threads(1).precision(Precision::F64);
    let explainer = Explainer::new(&graph, &requests, &engine).unwrap();
    let settings = Settings {
        alpha: numbers.alpha.clone(),
        theta: numbers.theta,
        limit: numbers.limit,
        ..Settings::default()
    };
    let explained = explainer.explain(&images, &Class::PerSample(classes.clone()), &settings).unwrap();
    let literal = Literal::new(&graph, &split, &numbers);
    let sample = literal.forward(activations(&graph, &images));
    if sample.margin < 1e-9 {
        return;
    }
    let seeds: Vec<usize> = classes.iter().enumerate().map(|(n, class)| n * CLASSES + class).collect();
    let four: Vec<_> = seeds.iter().map(|&seed| literal.backward(&sample, seed)).collect();
    let relevance = |jitter: &mut Jitter| {
        seeds.iter().map(|&s| literal.relevance(&sample, s, jitter)).collect::<Vec<_>>()
    };
    let exact = relevance(&mut Jitter::none());
    let disturbed: Vec<_> =
        (0..4).map(|seed| relevance(&mut Jitter { noise: Noise::new(seed), share: 1e-12 })).collect();
    for ((method, id), found) in split_map.iter().zip(&explained.maps) {
        let at = id.index();
        let g = joined(four.iter().map(|four| four[at].as_ref().unwrap().0.clone()));
        let h = joined(four.iter().map(|four| four[at].as_ref().unwrap().1.clone()));
        let nothing = Pair::zero(sample.original[at].len());
        let total = |all: &[Vec<Option<Pair>>]| {
            joined(all.iter().map(|one| one[at].clone().unwrap_or_else(|| nothing.clone())))
        };
        let read = |r: &Pair| map(*method, &shape(&graph, *id), &sample, at, &(g.clone(), h.clone()), r);
        let mut expected = read(&total(&exact));
        if let SplitMap::SplitLrp(_) = method {
            expected.allow_for(disturbed.iter().map(|all| read(&total(all))));
        }
        let each = found.values.len() / SAMPLES;
        let values = found.values.to_f64();
        let values: Vec<f64> =
            values.iter().enumerate().map(|(i, v)| v * f64::from(found.exponents[i / each]).exp2()).collect();
        let apart = departure(&values, &expected, DOUBLE);
        assert!(apart <= 1.0, "{seed} {stabiliser:?}: {method:?} at {id} is {apart:.1e} tolerances off");
    }
}

#[test]
fn streams_pass_the_statistics_of_a_batch() {
    for seed in 0..cases(15) as u64 {
        for stabiliser in [Stabiliser::None, Stabiliser::Scale, Stabiliser::Shift, Stabiliser::Recentre] {
            check(seed, stabiliser);
        }
    }
}
