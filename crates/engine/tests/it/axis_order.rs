//! The order of the axes in memory, which engines choose between convolutions, changes no number.

use monosplit_engine::{Cpu, Precision};
use monosplit_graph::op::{Binary, Divisor, Padding, Reduction, Unary};
use monosplit_graph::{Graph, Kind, NodeId, Op, Shape, Tensor};

use crate::networks::{engines, numbers, run, window};

/// Numbers with few bits: their products are exact in any arithmetic.
fn coarse(shape: &[usize], seed: u64) -> Tensor {
    let count = shape.iter().product();
    let rounded: Vec<f32> = numbers(count, seed).iter().map(|n| (n * 4.0).round() / 4.0).collect();
    Tensor::new(shape, rounded).unwrap()
}

/// Values rounded to few bits.
fn rounded(g: &mut Graph, x: NodeId) -> NodeId {
    let (four, quarter) = (g.number(4.0), g.number(0.25));
    let x = g.times(x, four).unwrap();
    let x = g.add(Op::Unary(Unary::Round), &[x]).unwrap();
    let x = g.times(x, quarter).unwrap();
    g.add(Op::Unary(Unary::Clip { min: -2.0, max: 2.0 }), &[x]).unwrap()
}

/// Everything that stands between convolutions, and what leaves from there; every value has few bits.
fn between_convolutions() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3, 14, 10]), Kind::Float);
    let convolved = |g: &mut Graph, x: NodeId, shape: [usize; 4], stride: usize| {
        let w = g.constant(coarse(&shape, shape.iter().sum::<usize>() as u64));
        let b = g.constant(coarse(&[shape[0]], 1));
        let y = g
            .add(Op::Conv { window: window(shape[2], stride, shape[2] / 2), groups: 1 }, &[x, w, b])
            .unwrap();
        rounded(g, y)
    };
    let wide = convolved(&mut g, x, [40, 3, 3, 3], 1);
    g.output("leaves", wide);
    let positive = g.rectified(wide).unwrap();
    let mut pooled = Vec::new();
    for (kernel, stride, pad) in [(2, 2, 0), (3, 2, 1)] {
        let pool = window(kernel, stride, pad);
        let most = g.add(Op::MaxPool(pool.clone()), &[positive]).unwrap();
        let at_winners = g.add(Op::WinnerGather(pool.clone()), &[positive, wide]).unwrap();
        let both = g.plus(most, at_winners).unwrap();
        pooled.push(rounded(&mut g, both));
        let spread = g.add(Op::WinnerScatter(pool.clone()), &[positive, both]).unwrap();
        let mean =
            g.add(Op::AveragePool { window: pool.clone(), divisor: Divisor::Covered }, &[wide]).unwrap();
        let spatial = vec![14, 10];
        let back = Op::AveragePoolTranspose { window: pool, divisor: Divisor::Covered, spatial };
        let back = g.add(back, &[mean]).unwrap();
        let sum = g.plus(spread, back).unwrap();
        let sum = g.times(sum, positive).unwrap();
        let map = g.reduced(Reduction::Sum, sum, &[1], false).unwrap();
        g.output(format!("map of {kernel}"), map);
        let alone = g.reduced(Reduction::Max, spread, &[1], true).unwrap();
        g.output(format!("most of {kernel}"), alone);
    }
    let joined = g.add(Op::Concat { axis: 1 }, &pooled).unwrap();
    let some = g.add(Op::Slice { axis: 1, start: 3, step: 2, length: 30 }, &[joined]).unwrap();
    let pads = vec![(0, 0), (0, 0), (1, 0), (2, 1)];
    let padded = g.add(Op::Pad { padding: Padding::Reflect, pads }, &[some]).unwrap();
    let deep = convolved(&mut g, padded, [17, 30, 3, 3], 1);
    let zero = g.number(0.0);
    let mask = g.add(Op::Binary(Binary::Greater), &[deep, zero]).unwrap();
    let gate = g.reduced(Reduction::Mean, deep, &[2, 3], true).unwrap();
    let gate = rounded(&mut g, gate);
    let place = g.reduced(Reduction::Max, deep, &[1], true).unwrap();
    let gated = g.times(deep, gate).unwrap();
    let gated = g.plus(gated, place).unwrap();
    let chosen = g.add(Op::Where, &[mask, gated, deep]).unwrap();
    let chosen = rounded(&mut g, chosen);
    let largest = g.reduced(Reduction::Max, chosen, &[1, 2, 3], false).unwrap();
    g.output("largest", largest);
    let few = convolved(&mut g, chosen, [6, 17, 1, 1], 2);
    let shape: usize = g.node(few).shape.dims()[1..].iter().map(|d| d.fixed().unwrap()).product();
    let flat = g.reshaped(few, Shape::batched(&[shape])).unwrap();
    g.output("flat", flat);
    let back = |channels: [usize; 2], stride: usize| {
        let (window, extra) = (window(3, stride, 1), vec![stride - 1; 2]);
        let seed = channels[0] as u64;
        (
            Op::ConvTranspose { window, groups: 1, output_padding: extra },
            coarse(&[channels[0], channels[1], 3, 3], seed),
        )
    };
    let (up, w) = back([6, 9], 2);
    let w = g.constant(w);
    let first = g.add(up.clone(), &[few, w]).unwrap();
    let turned = g.unary(Unary::Neg, few).unwrap();
    let second = g.add(up, &[turned, w]).unwrap();
    let sum = g.plus(first, second).unwrap();
    g.output("nothing", sum);
    let first = rounded(&mut g, first);
    let (picture, w) = back([9, 3], 1);
    let w = g.constant(w);
    // One comes from a convolution, the other from a product.
    let spatial: Vec<usize> = g.node(first).shape.dims()[2..].iter().map(|d| d.fixed().unwrap()).collect();
    let places: usize = spatial.iter().product();
    let matrix = g.constant(coarse(&[shape, 9 * places], 11));
    let spread = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[flat, matrix]).unwrap();
    let spread = rounded(&mut g, spread);
    let spread = g.reshaped(spread, Shape::batched(&[9, spatial[0], spatial[1]])).unwrap();
    for (name, value) in [("picture", first), ("another", spread)] {
        let picture = g.add(picture.clone(), &[value, w]).unwrap();
        g.output(name, picture);
    }
    // Values that lie the same way in both orders, transposed.
    let single = convolved(&mut g, wide, [1, 40, 1, 1], 1);
    let mean = g.reduced(Reduction::Mean, wide, &[2, 3], true).unwrap();
    let mean = rounded(&mut g, mean);
    let point = convolved(&mut g, mean, [12, 40, 1, 1], 1);
    for (name, value, axes) in [
        ("turned", single, vec![0, 1, 3, 2]),
        ("last", single, vec![0, 2, 3, 1]),
        ("point", point, vec![0, 2, 3, 1]),
    ] {
        let transposed = g.add(Op::Transpose { axes }, &[value]).unwrap();
        g.output(name, transposed);
    }
    g
}

#[test]
fn the_order_of_axes_in_memory_changes_nothing() {
    let graph = between_convolutions();
    #[allow(unused_mut)]
    let mut engines = engines();
    #[cfg(feature = "cuda")]
    if let Ok(gpu) = monosplit_engine::Cuda::open(0) {
        use monosplit_engine::Arithmetic::{Bf16, Tf32};
        engines.extend(
            [Tf32, Bf16]
                .map(|how| Box::new(gpu.clone().arithmetic(how)) as Box<dyn monosplit_engine::Engine>),
        );
    }
    for batch in [1, 3] {
        let inputs = [coarse(&[batch, 3, 14, 10], 3)];
        let expected = run(Cpu::default().precision(Precision::F64), &graph, &inputs);
        assert!(expected.iter().any(|output| output.to_f64().iter().any(|v| *v != 0.0)));
        for (number, engine) in engines.iter().enumerate() {
            let found = engine.compile(&graph).unwrap().run(&inputs).unwrap();
            for (found, (expected, output)) in found.iter().zip(expected.iter().zip(graph.outputs())) {
                assert_eq!(found.shape(), expected.shape());
                let (found, expected) = (found.to_f64(), expected.to_f64());
                let worst = found.iter().zip(&*expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst < 1e-4, "engine {number}, {}: {worst}", output.name);
            }
        }
    }
}
