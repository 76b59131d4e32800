//! The materialised networks `g` and `h` on inputs they were not derived from.

use monosplit_engine::{Cpu, Engine, Precision, Program};
use monosplit_explain::{Pair, materialise};
use monosplit_graph::passes::fold_constants;
use monosplit_graph::{Graph, Kind, NodeId, Op, Shape, Tensor};

use super::agreement::{cases, images};
use super::network::{Menu, PIECEWISE_LINEAR, random_network};
use super::noise::Noise;

fn compiled(graph: &Graph) -> Box<dyn Program> {
    Cpu::default().threads(1).precision(Precision::F64).compile(graph).unwrap()
}

fn zipped(a: &Tensor, b: &Tensor, f: impl Fn(f64, f64) -> f64) -> Tensor {
    let values: Vec<f64> = a.to_f64().iter().zip(b.to_f64().iter()).map(|(&a, &b)| f(a, b)).collect();
    Tensor::new(a.shape(), values).unwrap()
}

/// `g` and `h` at `(x⁺, x⁻)`, one after the other.
fn at(both: &dyn Program, x: &[Tensor; 2]) -> Vec<f64> {
    both.run(x).unwrap().iter().flat_map(|t| t.to_f64().to_vec()).collect()
}

fn each_pair(test: impl Fn(u64, &mut Noise, &Graph, &Pair)) {
    for seed in 0..cases(80) as u64 {
        let mut noise = Noise::new(seed ^ 0x9A12);
        let graph = random_network(&mut noise, Menu { steps: (2, 6), ..PIECEWISE_LINEAR });
        let pair = materialise(&graph).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        test(seed, &mut noise, &graph, &pair);
    }
}

#[test]
fn the_difference_of_the_pair_is_the_network() {
    each_pair(|seed, noise, graph, pair| {
        let x = [images(noise, graph, 2), images(noise, graph, 2)];
        let f = compiled(graph).run(&[zipped(&x[0], &x[1], |p, m| p - m)]).unwrap();
        let (g, h) = (compiled(&pair.g).run(&x).unwrap(), compiled(&pair.h).run(&x).unwrap());
        let both = compiled(&pair.both).run(&x).unwrap();
        assert_eq!(
            (both[0].to_f64().to_vec(), both[1].to_f64().to_vec()),
            (g[0].to_f64().to_vec(), h[0].to_f64().to_vec())
        );
        let size = both.iter().flat_map(|t| t.to_f64().to_vec()).fold(1.0, |m: f64, v| m.max(v.abs()));
        for (f, (g, h)) in f[0].to_f64().iter().zip(g[0].to_f64().iter().zip(h[0].to_f64().iter())) {
            assert!((g - h - f).abs() <= 1e-12 * size, "seed {seed}: {g} − {h} is not {f}");
        }
    });
}

/// A token in front of all others is a constant repeated for every sample; its parts are not negative.
#[test]
fn a_repeated_constant_is_taken_apart_before_it_is_repeated() {
    let mut graph = Graph::new();
    let x = graph.input("x", Shape::batched(&[2, 3]), Kind::Float);
    let token = graph.constant(Tensor::new([1, 1, 3], vec![0.5f32, -2.0, 0.0]).unwrap());
    let shape = Shape::batched(&[1, 3]);
    let token = graph.add(Op::Expand { shape }, &[token]).unwrap();
    let tokens = graph.add(Op::Concat { axis: 1 }, &[token, x]).unwrap();
    let y = graph.rectified(tokens).unwrap();
    let y = graph.reshaped(y, Shape::batched(&[9])).unwrap();
    graph.output("y", y);
    let pair = materialise(&graph).unwrap();
    let x = [2.0, 1.0].map(|v| Tensor::new([2, 2, 3], vec![v; 12]).unwrap());
    for part in [&pair.g, &pair.h] {
        let folded = fold_constants(part, &|g: &Graph| compiled(g).run(&[])).unwrap();
        let constants = folded.nodes().filter_map(|(id, _)| folded.constant_value(id));
        assert!(constants.flat_map(|t| t.to_f64().to_vec()).all(|v| v >= 0.0));
    }
    let f = compiled(&graph).run(&[zipped(&x[0], &x[1], |p, m| p - m)]).unwrap()[0].to_f64().to_vec();
    let (g, h) = (compiled(&pair.g).run(&x).unwrap(), compiled(&pair.h).run(&x).unwrap());
    assert_eq!(zipped(&g[0], &h[0], |g, h| g - h).to_f64().to_vec(), f);
}

#[test]
fn both_networks_are_monotone_and_convex() {
    each_pair(|seed, noise, graph, pair| {
        let both = compiled(&pair.both);
        let (x, y) = ([(); 2].map(|_| images(noise, graph, 1)), [(); 2].map(|_| images(noise, graph, 1)));
        let larger = [0, 1].map(|i| zipped(&x[i], &y[i], |x, y| x + y.max(0.0)));
        let middle = [0, 1].map(|i| zipped(&x[i], &y[i], |x, y| (x + y) / 2.0));
        let (below, above) = (at(&*both, &x), at(&*both, &larger));
        let (left, right, between) = (at(&*both, &x), at(&*both, &y), at(&*both, &middle));
        let size = above.iter().chain(&right).fold(1.0, |m: f64, v| m.max(v.abs()));
        for i in 0..below.len() {
            assert!(above[i] >= below[i] - 1e-12 * size, "seed {seed}: not monotone");
            assert!(between[i] <= (left[i] + right[i]) / 2.0 + 1e-12 * size, "seed {seed}: not convex");
        }
    });
}

#[test]
fn no_weight_is_negative() {
    each_pair(|seed, noise, graph, pair| {
        let mut weighed = pair.both.clone();
        let constant = |id: &NodeId| pair.both.node(*id).is_constant();
        let multiplies = |op: &Op| ["Conv", "ConvTranspose", "MatMul", "Mul"].contains(&op.name());
        let mut weights = Vec::new();
        for (_, node) in pair.both.nodes().filter(|(_, node)| !node.is_constant()) {
            assert!(
                !["Sub", "Neg", "Min", "Div"].contains(&node.op.name()),
                "seed {seed}: {}",
                node.op.name()
            );
            if multiplies(&node.op) {
                weights.extend(node.inputs.iter().copied().filter(constant));
                assert!(node.inputs.iter().any(constant), "seed {seed}: a product of activations");
            }
        }
        weights.iter().for_each(|&id| weighed.output("weight", id));
        let found = compiled(&weighed).run(&[images(noise, graph, 1), images(noise, graph, 1)]).unwrap();
        assert!(found[2..].iter().all(|w| w.to_f64().iter().all(|&w| w >= 0.0)), "seed {seed}");
    });
}
