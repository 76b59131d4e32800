//! Graphs as networks of neurons, against the engine that runs graphs.

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_graph::op::{Binary, Divisor, Reduction, Unary, Window};
use monosplit_graph::{ErrorKind, Graph, Kind, Label, NodeId, Op, Result, Shape, Tensor};
use monosplit_maxout::{Counts, Inputs, Rational, SplitOptions, from_graph, split};

fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let number = |i: usize| (((i + seed) * 7919 + 104_729 * seed) % 2003) as f32 / 1001.0 - 1.0;
    Tensor::new(shape.to_vec(), (0..count).map(number).collect::<Vec<_>>()).unwrap()
}

fn graph(shape: &[usize], build: impl Fn(&mut Graph, NodeId) -> Result<NodeId>) -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(shape), Kind::Float);
    let y = build(&mut g, x).unwrap();
    g.output("y", y);
    g
}

/// The network of a graph gives the engine's numbers, and its split the network's, exactly.
fn check(shape: &[usize], build: impl Fn(&mut Graph, NodeId) -> Result<NodeId>) -> Counts {
    let g = graph(shape, build);
    let network = from_graph(&g).unwrap();
    let program = Cpu::default().precision(Precision::F64).compile(&g).unwrap();
    let pair = split(&network, &SplitOptions::default().inputs(Inputs::Shifted(Rational::from(1)))).unwrap();
    for seed in 1..4 {
        let x = numbers(&[&[1], shape].concat(), seed);
        let expected = program.run(std::slice::from_ref(&x)).unwrap()[0].to_f64();
        let found = network.evaluate(&x.to_f64()).unwrap();
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected.iter()) {
            assert!((a - b).abs() <= 1e-10 * (1.0 + b.abs()), "{a} is not {b}\n{network}");
        }
        let exact: Vec<Rational> = x.to_f64().iter().map(|&v| Rational::from_f64(v).unwrap()).collect();
        assert_eq!(pair.difference(&exact).unwrap(), network.evaluate(&exact).unwrap());
    }
    Counts::of(&network)
}

fn dense(g: &mut Graph, x: NodeId, inputs: usize, outputs: usize, seed: usize) -> Result<NodeId> {
    let (w, b) = (g.constant(numbers(&[outputs, inputs], seed)), g.constant(numbers(&[outputs], seed + 1)));
    g.add(Op::MatMul { trans_a: false, trans_b: true }, &[x, w, b])
}

#[test]
fn elements_picked_by_known_indices_are_moved() {
    check(&[3, 2], |g, x| {
        let indices = g.constant(Tensor::new([2], vec![2i64, -3]).unwrap());
        let picked = g.add(Op::Gather { axis: 1 }, &[x, indices])?;
        g.rectified(picked)
    });
    check(&[3], |g, x| {
        let index = g.constant(Tensor::scalar(1i64));
        g.add(Op::Gather { axis: 1 }, &[x, index])
    });
}

#[test]
fn dense_layers_with_relu_are_neurons_of_rank_two() {
    let counts = check(&[3], |g, x| {
        let z = dense(g, x, 3, 4, 1)?;
        let z = g.unary(Unary::Relu, z)?;
        let z = dense(g, z, 4, 2, 3)?;
        g.unary(Unary::LeakyRelu { slope: 0.25 }, z)
    });
    assert_eq!((counts.additions, counts.multiplications, counts.rank), (6, 0, 2));
}

#[test]
fn maxout_is_a_reshaped_maximum() {
    let counts = check(&[3], |g, x| {
        let z = dense(g, x, 3, 6, 1)?;
        let z = g.reshaped(z, Shape::batched(&[2, 3]))?;
        g.reduced(Reduction::Max, z, &[2], false)
    });
    assert_eq!((counts.additions, counts.rank), (2, 3));
}

#[test]
fn convolutions_and_pools_follow_their_windows() {
    let mut padded = Window::new([3, 2]);
    (padded.pad, padded.stride, padded.dilation) = (vec![(1, 2), (0, 1)], vec![2, 1], vec![1, 2]);
    check(&[2, 5, 5], |g, x| {
        let (w, b) = (g.constant(numbers(&[4, 1, 3, 2], 1)), g.constant(numbers(&[4], 2)));
        let z = g.add(Op::Conv { window: padded.clone(), groups: 2 }, &[x, w, b])?;
        g.unary(Unary::Relu, z)
    });
    let mut pool = Window::new([2, 3]);
    (pool.pad, pool.stride, pool.ceil) = (vec![(1, 0), (1, 1)], vec![2, 2], true);
    check(&[2, 4, 5], |g, x| g.add(Op::MaxPool(pool.clone()), &[x]));
    for divisor in [Divisor::Covered, Divisor::Padded, Divisor::One] {
        check(&[2, 4, 5], |g, x| g.add(Op::AveragePool { window: pool.clone(), divisor }, &[x]));
    }
}

#[test]
fn products_of_activations_are_multiplication_neurons() {
    let gated = check(&[3], |g, x| {
        let value = dense(g, x, 3, 2, 1)?;
        let gate = dense(g, x, 3, 2, 5)?;
        let gate = g.unary(Unary::Relu, gate)?;
        g.times(value, gate)
    });
    assert_eq!(gated.multiplications, 2);
    let attention = check(&[2, 2], |g, x| {
        let scores = g.add(Op::MatMul { trans_a: false, trans_b: true }, &[x, x])?;
        g.add(Op::MatMul { trans_a: false, trans_b: false }, &[scores, x])
    });
    assert_eq!(attention.multiplications, 8 + 8);
    check(&[3], |g, x| {
        let three = g.number(3.0);
        let cube = g.binary(Binary::Pow, x, three)?;
        let two = g.number(2.0);
        g.binary(Binary::Div, cube, two)
    });
}

#[test]
fn elements_are_moved_where_they_belong() {
    check(&[2, 3, 4], |g, x| {
        let y = g.add(Op::Transpose { axes: vec![0, 3, 1, 2] }, &[x])?;
        let y = g.add(Op::Slice { axis: 1, start: 3, step: -2, length: 2 }, &[y])?;
        let z = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[y])?;
        let joined = g.add(Op::Concat { axis: 1 }, &[y, z])?;
        let mean = g.reduced(Reduction::Mean, joined, &[1, 3], true)?;
        let sum = g.reduced(Reduction::Sum, joined, &[2], true)?;
        let spread = g.add(Op::Expand { shape: Shape::batched(&[3, 2, 3]) }, &[mean])?;
        g.minus(spread, sum)
    });
}

#[test]
fn limits_minima_and_sizes_are_written_as_maxima() {
    check(&[4], |g, x| {
        let y = g.unary(Unary::Clip { min: -0.5, max: 0.25 }, x)?;
        let z = g.unary(Unary::Abs, x)?;
        let both = g.binary(Binary::Min, y, z)?;
        g.binary(Binary::Max, both, x)
    });
}

#[test]
fn what_is_smooth_is_refused_by_name() {
    let g = graph(&[3], |g, x| g.add_named(Label::named("gate"), Op::Unary(Unary::Sigmoid), &[x]));
    let error = from_graph(&g).unwrap_err();
    assert_eq!((error.kind(), error.node()), (ErrorKind::Unsupported, Some("gate")));
    assert!(error.to_string().contains("Sigmoid"));
    let g = graph(&[3], |g, x| g.add_named(Label::named("share"), Op::Binary(Binary::Div), &[x, x]));
    assert_eq!(from_graph(&g).unwrap_err().node(), Some("share"));
}

#[test]
fn what_is_large_is_refused_before_it_is_made() {
    let g = graph(&[3, 1 << 10, 1 << 10], |g, x| g.unary(Unary::Relu, x));
    assert_eq!(from_graph(&g).unwrap_err().kind(), ErrorKind::Unsupported);
    let g = graph(&[200], |g, x| {
        let y = dense(g, x, 200, 200, 1)?;
        let z = dense(g, y, 200, 200, 2)?;
        g.binary(Binary::Max, y, z)
    });
    assert!(from_graph(&g).unwrap_err().to_string().contains("too large"));
}
