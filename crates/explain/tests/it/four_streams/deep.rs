//! Networks of two hundred layers, unstabilised and unshifted: single precision overflows within the first thirty, a
//! double holds them to the end, so the literal algorithm still says what the maps should be.

use monosplit_engine::{Cpu, Precision};
use monosplit_explain::{Class, Explainer, MapRequest, Settings, Split, Stabiliser, Stream, StreamPart};
use monosplit_graph::op::{Binary, Unary, Window};
use monosplit_graph::{Graph, Kind, NodeId, Op, Shape};

use super::agreement::{
    SINGLE, activations, departure, disturbed_relevances, images, layer, methods, sample_of,
};
use super::literal::{Literal, Numbers, Pair};
use super::literal_map::map;
use super::network::{PIECEWISE_LINEAR, writer};
use super::noise::Noise;
use super::relevance::Jitter;
use super::rule::shape;
use crate::split_map::SplitMap;

const LAYERS: usize = 200;

fn perceptron(noise: &mut Noise) -> Graph {
    let mut writer = writer(noise, PIECEWISE_LINEAR);
    let mut value = writer.graph.input("x", Shape::batched(&[6]), Kind::Float);
    for _ in 0..LAYERS {
        value = writer.linear(value, 6);
        value = writer.add(Op::Unary(Unary::Relu), &[value]);
    }
    let logits = writer.linear(value, 3);
    writer.graph.output("logits", logits);
    writer.graph
}

/// Convolutions with residual branches, which keep the activations themselves alive, and a max pool now and then.
fn convolutional(noise: &mut Noise) -> Graph {
    let mut writer = writer(noise, PIECEWISE_LINEAR);
    let mut value = writer.graph.input("x", Shape::batched(&[2, 4, 4]), Kind::Float);
    for step in 0..LAYERS {
        let mut window = Window::new([3, 3]);
        window.pad = vec![(1, 1); 2];
        let branch = writer.convolved(value, window.clone(), 1, 2);
        let branch = writer.add(Op::Unary(Unary::Relu), &[branch]);
        value = match step % 20 {
            19 => writer.add(Op::MaxPool(window), &[branch]),
            k if k % 2 == 0 => writer.add(Op::Binary(Binary::Sub), &[branch, value]),
            _ => branch,
        };
    }
    let flat = writer.add(Op::Reshape { shape: Shape::batched(&[32]) }, &[value]);
    let logits = writer.linear(flat, 3);
    writer.graph.output("logits", logits);
    writer.graph
}

fn check(graph: &Graph, noise: &mut Noise) {
    let split = Split::default().stabiliser(Stabiliser::None);
    let nodes: Vec<NodeId> = graph.nodes().filter(|(_, n)| !n.is_constant()).map(|(id, _)| id).collect();
    let layers = [nodes[0], nodes[nodes.len() / 2], nodes[nodes.len() - 3]];
    let split_map: Vec<(SplitMap, NodeId)> =
        layers.iter().flat_map(|&id| methods().into_iter().map(move |method| (method, id))).collect();
    let requests: Vec<MapRequest> = split_map.iter().map(|&(m, id)| m.at(split, layer(graph, id))).collect();
    let images = images(noise, graph, 2);
    let explainer = Explainer::new(graph, &requests, &Cpu::default().threads(1)).unwrap();
    let settings = Settings::default().alpha(0.0);
    let explained = explainer.explain(&images, &Class::PerSample(vec![0, 2]), &settings).unwrap();
    let literal = Literal::new(graph, &split, &Numbers { alpha: vec![0.0], theta: 0.1, limit: 10.0 });
    let mut largest = 0;
    for (n, original) in activations(graph, &images, Precision::F32).into_iter().enumerate() {
        let sample = literal.forward(original);
        let four = literal.backward(&sample, [0, 2][n]);
        let relevance = literal.relevance(&sample, [0, 2][n], &mut Jitter::none());
        let disturbed = disturbed_relevances(&literal, &sample, [0, 2][n], SINGLE);
        for ((method, id), found) in split_map.iter().zip(&explained.maps) {
            let (at, shape) = (id.index(), shape(graph, *id));
            let nothing = Pair::zero(sample.original[at].len());
            let (four, r) = (four[at].as_ref().unwrap(), relevance[at].as_ref().unwrap_or(&nothing));
            let read = |r: &Pair| map(*method, &shape, &sample, at, four, r);
            let mut expected = read(r);
            if let SplitMap::SplitLrp(_) = method {
                expected.allow_for(disturbed.iter().map(|all| read(all[at].as_ref().unwrap_or(&nothing))));
            }
            let values = sample_of(found, n, 2);
            assert!(found.values.to_f64().iter().all(|v| v.is_finite()), "{method:?} overflows");
            largest = largest.max(found.exponents[n]);
            let apart = departure(&values, &expected, SINGLE);
            assert!(apart <= 1.0, "{method:?} at {} is {apart:e} tolerances off", graph.node(*id).label.node);
        }
    }
    assert!(
        largest > 127,
        "the network is meant to outgrow single precision, its largest exponent was {largest}"
    );
}

#[test]
fn two_hundred_linear_layers_do_not_overflow() {
    let mut noise = Noise::new(1);
    let graph = perceptron(&mut noise);
    check(&graph, &mut noise);
}

#[test]
fn two_hundred_convolutions_do_not_overflow() {
    let mut noise = Noise::new(2);
    let graph = convolutional(&mut noise);
    check(&graph, &mut noise);
}

#[test]
fn half_alpha_is_the_gradient_at_any_depth() {
    let mut noise = Noise::new(3);
    let graph = convolutional(&mut noise);
    let images = images(&mut noise, &graph, 1);
    let at = layer(&graph, graph.inputs()[0]);
    let requests = [SplitMap::Gradient, SplitMap::SplitGrad(Stream::G, StreamPart::Combined)]
        .map(|method| method.at(Split::default(), at.clone()));
    let explainer = Explainer::new(&graph, &requests, &Cpu::default().threads(1)).unwrap();
    let explained = explainer.explain(&images, &Class::Index(1), &Settings::default().alpha(0.5)).unwrap();
    let halves: Vec<f64> = sample_of(&explained.maps[0], 0, 1).iter().map(|d| 0.5 * d).collect();
    assert_eq!(sample_of(&explained.maps[1], 0, 1), halves);
}
