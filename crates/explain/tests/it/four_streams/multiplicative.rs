//! Gated, normalised and attention blocks made multiplicative Maxout networks: their smooth functions replaced by
//! straight lines, and the pair of networks of what is left.

use monosplit_engine::{Cpu, Engine, Precision, Program};
use monosplit_explain::{audit_pair, materialise};
use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::passes::{
    Observation, PiecewiseOptions, PiecewiseReport, multiplicative_form, piecewise,
};
use monosplit_graph::{Graph, Kind, NodeId, Op, Shape, Tensor};

use super::agreement::{cases, images};
use super::network::{EVERYTHING, Writer, writer};
use super::noise::Noise;

fn double() -> Cpu {
    Cpu::default().threads(1).precision(Precision::F64)
}

impl Writer<'_> {
    fn weight(&mut self, rows: usize, columns: usize) -> NodeId {
        let values = self.noise.numbers(rows * columns, 1.0 / (rows as f64).sqrt());
        self.constant(&[rows, columns], values)
    }

    /// `x W`, over the last axis.
    fn mapped(&mut self, x: NodeId, columns: usize) -> NodeId {
        let rows = *self.shape(x).last().unwrap();
        let w = self.weight(rows, columns);
        self.add(Op::MatMul { trans_a: false, trans_b: false }, &[x, w])
    }

    fn normalised(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        let width = *shape.last().unwrap();
        let (scale, bias) = (self.noise.positive(width), self.noise.numbers(width, 0.2));
        let (scale, bias) = (self.constant(&[width], scale), self.constant(&[width], bias));
        self.add(Op::LayerNorm { axis: shape.len() - 1, epsilon: 1e-3 }, &[x, scale, bias])
    }

    fn attended(&mut self, x: NodeId) -> NodeId {
        let width = *self.shape(x).last().unwrap();
        let [q, k, v] = [(); 3].map(|()| self.mapped(x, width));
        let scores = self.add(Op::MatMul { trans_a: false, trans_b: true }, &[q, k]);
        let weights = self.add(Op::Softmax { axis: 2 }, &[scores]);
        self.add(Op::MatMul { trans_a: false, trans_b: false }, &[weights, v])
    }

    fn ended(&mut self, x: NodeId) -> Graph {
        let pooled = self.add(Op::Reduce { reduction: Reduction::Mean, axes: vec![1], keep: false }, &[x]);
        let logits = self.mapped(pooled, 3);
        self.graph.output("logits", logits);
        self.graph.clone()
    }
}

const BLOCKS: [&str; 5] = ["attention", "norm", "gate", "hard gate", "transformer"];

/// A small network around one of [`BLOCKS`], over four tokens of three features.
fn block(name: &str, noise: &mut Noise) -> Graph {
    let mut w = writer(noise, EVERYTHING);
    let x = w.graph.input("x", Shape::batched(&[4, 3]), Kind::Float);
    let y = match name {
        "attention" => w.attended(x),
        "norm" => {
            let y = w.mapped(x, 4);
            w.normalised(y)
        }
        "gate" | "hard gate" => {
            let all = w.add(Op::Reduce { reduction: Reduction::Mean, axes: vec![1], keep: true }, &[x]);
            let gate = w.mapped(all, 3);
            let hard = Unary::HardSigmoid { alpha: 0.2, beta: 0.5 };
            let function = if name == "gate" { Unary::Sigmoid } else { hard };
            let gate = w.add(Op::Unary(function), &[gate]);
            let y = w.add(Op::Binary(Binary::Mul), &[x, gate]);
            w.add(Op::Unary(if name == "gate" { Unary::Relu } else { Unary::HardSwish }), &[y])
        }
        _ => {
            let y = w.normalised(x);
            let y = w.attended(y);
            let x = w.add(Op::Binary(Binary::Add), &[x, y]);
            let y = w.normalised(x);
            let y = w.mapped(y, 5);
            let y = w.add(Op::Unary(Unary::Gelu), &[y]);
            let y = w.mapped(y, 3);
            w.add(Op::Binary(Binary::Add), &[x, y])
        }
    };
    w.ended(y)
}

/// The network with straight lines fitted to `seen`.
fn rewritten(graph: &Graph, seen: &Tensor, knots: usize) -> (Graph, Vec<PiecewiseReport>) {
    let spelled_out = multiplicative_form(graph).unwrap();
    let observation = Observation::new(&spelled_out).unwrap();
    let mut options = PiecewiseOptions::default().knots(knots);
    let values = double().compile(&observation.graph).unwrap().run(std::slice::from_ref(seen)).unwrap();
    observation.widen(&values, &mut options.ranges);
    piecewise(&spelled_out, &options).unwrap()
}

fn scores(graph: &Graph, x: &Tensor) -> Vec<f64> {
    double().compile(graph).unwrap().run(std::slice::from_ref(x)).unwrap()[0].to_f64().to_vec()
}

fn each_block(count: usize, test: impl Fn(&str, &mut Noise, &Graph)) {
    for seed in 0..cases(count) as u64 {
        for name in BLOCKS {
            let mut noise = Noise::new(seed ^ 0x3A17);
            let graph = block(name, &mut noise);
            test(name, &mut noise, &graph);
        }
    }
}

#[test]
fn the_rewritten_network_nears_the_network_with_the_square_of_the_knots() {
    each_block(4, |name, noise, graph| {
        let x = images(noise, graph, 6);
        let exact = scores(graph, &x);
        let size = exact.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let apart = |knots| {
            let (new, reports) = rewritten(graph, &x, knots);
            let worst = reports.iter().fold(0.0f64, |m, r| m.max(r.error_in_range));
            let found = scores(&new, &x);
            (found.iter().zip(&exact).fold(0.0f64, |m, (a, b)| m.max((a - b).abs())) / size, worst)
        };
        let ((few, few_worst), (many, many_worst)) = (apart(32), apart(256));
        assert!(few < 0.1 && many < 2e-3, "{name}: {few:e} {many:e}");
        assert!(many_worst <= few_worst / 20.0, "{name}: {few_worst:e} {many_worst:e}");
    });
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, v| m.max(v.abs()))
}

/// The errors of single functions bound those of what is made of them.
#[test]
fn softmax_and_norms_are_no_farther_off_than_reported() {
    for seed in 0..20 {
        let mut noise = Noise::new(seed);
        let mut w = writer(&mut noise, EVERYTHING);
        let x = w.graph.input("x", Shape::batched(&[7]), Kind::Float);
        let spread = w.graph.scaled(4.0, x).unwrap();
        let y = w.add(Op::Softmax { axis: 1 }, &[spread]);
        w.graph.output("y", y);
        let graph = w.graph.clone();
        let x = images(&mut noise, &graph, 10);
        let (new, reports) = rewritten(&graph, &x, 24);
        let [exp, reciprocal] = [0, 1].map(|i| (reports[i].function, reports[i].error_in_range));
        assert_eq!((exp.0, reciprocal.0, reports.len()), ("Exp", "Reciprocal", 2));
        // The reciprocal of a sum from 1 on moves no more than the sum, which moves by seven exponentials.
        let bound = exp.1 + reciprocal.1 + 7.0 * exp.1;
        let distance = apart(&scores(&graph, &x), &scores(&new, &x));
        assert!(distance <= bound && distance > 0.0, "softmax: {distance:e} of {bound:e}");

        let mut w = writer(&mut noise, EVERYTHING);
        let x = w.graph.input("x", Shape::batched(&[5]), Kind::Float);
        let y = w.normalised(x);
        w.graph.output("y", y);
        let graph = w.graph.clone();
        let x = images(&mut noise, &graph, 10);
        let (new, reports) = rewritten(&graph, &x, 24);
        assert_eq!((reports.len(), reports[0].function), (1, "ReciprocalRoot"));
        let scale = graph.constant_value(graph.node(y).inputs[1]).unwrap().to_f64().to_vec();
        // No element is farther from the mean than the elements are from each other.
        let bound = 2.0 * largest(&x.to_f64()) * largest(&scale) * reports[0].error_in_range;
        let distance = apart(&scores(&graph, &x), &scores(&new, &x));
        assert!(distance <= bound && distance > 0.0, "norm: {distance:e} of {bound:e}");
    }
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    largest(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
}

#[test]
fn the_pair_is_the_rewritten_network_and_monotone_and_convex_where_inputs_are_not_negative() {
    each_block(6, |name, noise, graph| {
        let x = images(noise, graph, 1);
        let (new, _) = rewritten(graph, &x, 12);
        let found = audit_pair(&new, &x, 4, &double(), |_, _| {}).unwrap();
        assert!(found.products, "{name}");
        assert!(found.relative_difference <= 1e-9, "{name}: {found:?}");
        if name == "transformer" {
            // Seven products one after the other: the streams themselves pass what doubles hold.
            return;
        }
        assert!(found.plain_difference <= 1e-12 * found.magnitude, "{name}: {found:?}");
        assert!(found.decrease <= 1e-12 && found.excess <= 1e-12, "{name}: {found:?}");
        assert!(found.magnitude.is_finite(), "{name}: {found:?}");
    });
}

#[test]
fn on_any_segment_between_inputs_that_are_not_negative_the_streams_sag() {
    each_block(6, |name, noise, graph| {
        if name == "transformer" {
            return;
        }
        let seen = images(noise, graph, 1);
        let (new, _) = rewritten(graph, &seen, 12);
        let both = double().compile(&materialise(&new).unwrap().both).unwrap();
        let mut point = || {
            [(); 2].map(|()| {
                let x = images(noise, graph, 1);
                Tensor::new(x.shape(), x.to_f64().iter().map(|v| v.max(0.0)).collect::<Vec<f64>>()).unwrap()
            })
        };
        let (a, b) = (point(), point());
        let middle = [0, 1].map(|i| {
            let (a, b) = (a[i].to_f64(), b[i].to_f64());
            let mean: Vec<f64> = a.iter().zip(b.iter()).map(|(a, b)| (a + b) / 2.0).collect();
            Tensor::new(seen.shape(), mean).unwrap()
        });
        let [a, b, middle] = [a, b, middle].map(|x| both_at(&*both, &x));
        for ((a, b), middle) in a.iter().zip(&b).zip(&middle) {
            let size = a.abs().max(b.abs());
            assert!(size.is_finite(), "{name}");
            assert!(*middle <= (a + b) / 2.0 + 1e-12 * size, "{name}: {middle} between {a} and {b}");
        }
    });
}

fn both_at(both: &dyn Program, x: &[Tensor; 2]) -> Vec<f64> {
    both.run(x).unwrap().iter().flat_map(|t| t.to_f64().to_vec()).collect()
}

/// Hard gates are products of clipped lines: nothing has to be replaced.
#[test]
fn hard_gates_have_an_exact_pair_as_they_are() {
    for seed in 0..10 {
        let mut noise = Noise::new(seed);
        let graph = block("hard gate", &mut noise);
        let x = images(&mut noise, &graph, 1);
        let found = audit_pair(&graph, &x, 4, &double(), |_, _| {}).unwrap();
        assert!(found.relative_difference <= 1e-9 && found.decrease <= 1e-12 && found.excess <= 1e-12);
    }
}
