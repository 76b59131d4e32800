//! Whole programs: the same bits at any number of threads and at every run, the same maps, profiles and clear errors, on every engine
//! there is.

use monosplit_engine::{CompileOptions, Cpu, Engine, Precision, Program};
use monosplit_graph::op::{Binary, Divisor, Reduction, Unary, Window};
use monosplit_graph::{ErrorKind, Graph, Kind, Label, NodeId, Op, Shape, Tensor};

/// Reproducible numbers in `[-1, 1)`.
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

pub(crate) fn tensor(shape: &[usize], seed: u64) -> Tensor {
    Tensor::new(shape, numbers(shape.iter().product(), seed)).unwrap()
}

pub(crate) fn window(kernel: usize, stride: usize, pad: usize) -> Window {
    Window { stride: vec![stride; 2], pad: vec![(pad, pad); 2], ..Window::new([kernel, kernel]) }
}

pub(crate) fn conv(g: &mut Graph, x: NodeId, shape: [usize; 4], stride: usize, groups: usize) -> NodeId {
    let weight = tensor(&shape, shape.iter().sum::<usize>() as u64);
    let (w, b) = (g.constant(weight), g.constant(tensor(&[shape[0]], 1)));
    let window = window(shape[2], stride, shape[2] / 2);
    g.add(Op::Conv { window, groups }, &[x, w, b]).unwrap()
}

/// A small network with a bit of everything whose work is shared out.
fn network() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3, 61, 53]), Kind::Float);
    let a = conv(&mut g, x, [32, 3, 3, 3], 1, 1);
    let a = g.add(Op::Unary(Unary::Gelu), &[a]).unwrap();
    let a = conv(&mut g, a, [32, 1, 3, 3], 2, 32);
    let a = conv(&mut g, a, [70, 32, 1, 1], 1, 1);
    let a = g.add(Op::Unary(Unary::Relu), &[a]).unwrap();
    let pooled = g.add(Op::MaxPool(window(3, 2, 1)), &[a]).unwrap();
    let c = conv(&mut g, pooled, [70, 35, 3, 3], 1, 2);
    let sum = g.add(Op::Binary(Binary::Add), &[c, pooled]).unwrap();
    let w = g.constant(tensor(&[70, 20, 3, 3], 5));
    let up = Op::ConvTranspose { window: window(3, 2, 1), groups: 1, output_padding: vec![1, 1] };
    let up = g.add(up, &[sum, w]).unwrap();
    let mean = Op::AveragePool { window: window(4, 3, 1), divisor: Divisor::Padded };
    let mean = g.add(mean, &[up]).unwrap();
    let flat: usize = g.node(mean).shape.dims()[1..].iter().map(|d| d.fixed().unwrap()).product();
    let flat_shape = Shape::batched(&[flat]);
    let y = g.add(Op::Reshape { shape: flat_shape }, &[mean]).unwrap();
    let w = g.constant(tensor(&[300, flat], 6));
    let y = g.add(Op::MatMul { trans_a: false, trans_b: true }, &[y, w]).unwrap();
    let p = g.add(Op::Softmax { axis: 1 }, &[y]).unwrap();
    g.output("probabilities", p);
    g.output("features", up);
    g
}

pub(crate) fn run(cpu: Cpu, graph: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
    cpu.compile(graph).unwrap().run(inputs).unwrap()
}

/// What runs programs here.
pub(crate) fn engines() -> Vec<Box<dyn Engine>> {
    #[allow(unused_mut)]
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(Cpu::default())];
    #[cfg(feature = "cuda")]
    match monosplit_engine::Cuda::open(0) {
        Ok(gpu) => engines.push(Box::new(gpu)),
        Err(why) => println!("only the processor is tested: {why}"),
    }
    engines
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads_or_the_run() {
    let graph = network();
    for precision in [Precision::F32, Precision::F64] {
        for batch in [1, 3] {
            let x = [tensor(&[batch, 3, 61, 53], 9)];
            let expected = run(Cpu::default().precision(precision).threads(1), &graph, &x);
            for threads in [2, 3, 7, 0] {
                let program = Cpu::default().precision(precision).threads(threads).compile(&graph).unwrap();
                for _ in 0..3 {
                    assert_eq!(program.run(&x).unwrap(), expected, "{threads} threads");
                }
            }
        }
    }
}

#[test]
fn single_and_double_precision_agree() {
    let graph = network();
    let x = [tensor(&[2, 3, 61, 53], 9)];
    let exact = run(Cpu::default().precision(Precision::F64), &graph, &x);
    for engine in engines() {
        for (precision, bound) in [(Precision::F32, 2e-5), (Precision::F64, 1e-12)] {
            let found = engine
                .compile_with(&graph, &CompileOptions::default().precision(precision))
                .unwrap()
                .run(&x)
                .unwrap();
            for (a, b) in found.iter().zip(&exact) {
                let (a, b) = (a.to_f64(), b.to_f64());
                let scale = b.iter().fold(0f64, |m, v| m.max(v.abs()));
                let worst = a.iter().zip(b.iter()).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
                assert!(worst < bound * scale, "{worst} of {scale}");
            }
        }
    }
}

#[test]
fn every_run_gives_the_same_bits() {
    let graph = network();
    for engine in engines() {
        for batch in [1, 3] {
            let x = [tensor(&[batch, 3, 61, 53], 9)];
            let expected = engine.compile(&graph).unwrap().run(&x).unwrap();
            let program = engine.compile(&graph).unwrap();
            for _ in 0..4 {
                assert_eq!(program.run(&x).unwrap(), expected);
            }
        }
    }
}

#[test]
fn every_sample_of_a_batch_is_computed_as_if_alone() {
    let graph = network();
    for engine in engines() {
        let program = engine.compile(&graph).unwrap();
        let x = tensor(&[3, 3, 61, 53], 9);
        let together = program.run(std::slice::from_ref(&x)).unwrap();
        for sample in 0..3 {
            let size = x.len() / 3;
            let one = x.to_f32()[sample * size..(sample + 1) * size].to_vec();
            let alone = program.run(&[Tensor::new([1, 3, 61, 53], one).unwrap()]).unwrap();
            for (all, one) in together.iter().zip(&alone) {
                let part = one.len();
                let all = &all.to_f32()[sample * part..(sample + 1) * part];
                let worst = all.iter().zip(one.to_f32().iter()).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
                assert!(worst < 1e-4 * one.to_f32().iter().fold(0f32, |m, v| m.max(v.abs())));
            }
        }
    }
}

#[test]
fn wrong_inputs_are_named() {
    let mut g = Graph::new();
    let a = g.input("image", Shape::batched(&[3, 4]), Kind::Float);
    let b = g.input("mask", Shape::batched(&[1, 1]), Kind::Float);
    let y = g.add(Op::Binary(Binary::Mul), &[a, b]).unwrap();
    g.output("y", y);
    for engine in engines() {
        let program = engine.compile(&g).unwrap();
        let said = |inputs: &[Tensor]| {
            let error = program.run(inputs).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Shape | ErrorKind::Argument));
            error.to_string()
        };
        let (image, mask) = (tensor(&[2, 3, 4], 1), tensor(&[2, 1, 1], 1));
        assert!(program.run(&[image.clone(), mask.clone()]).is_ok());
        assert!(said(std::slice::from_ref(&image)).contains("image, mask"));
        let wrong = said(&[tensor(&[2, 3, 5], 1), mask.clone()]);
        assert!(
            wrong.contains("'image'") && wrong.contains("[N, 3, 4]") && wrong.contains("[2, 3, 5]"),
            "{wrong}"
        );
        assert!(said(&[image.clone(), tensor(&[3, 1, 1], 1)]).contains("batch size so far is 2"));
        let ints = Tensor::new([2, 1, 1], vec![1i64, 2]).unwrap();
        assert!(said(&[image, ints]).contains("'mask'"));
        let empty = [
            Tensor::new([0, 3, 4], Vec::<f32>::new()).unwrap(),
            Tensor::new([0, 1, 1], Vec::<f32>::new()).unwrap(),
        ];
        assert_eq!(program.run(&empty).unwrap()[0].shape(), &[0, 3, 4]);
    }
}

#[test]
fn an_index_out_of_range_names_the_node() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::fixed(&[4]), Kind::Float);
    let i = g.input("i", Shape::fixed(&[2]), Kind::Int);
    let y = g.add_named(Label::named("lookup"), Op::Gather { axis: 0 }, &[x, i]).unwrap();
    g.output("y", y);
    for engine in engines() {
        let program = engine.compile(&g).unwrap();
        let at = |i: i64| program.run(&[tensor(&[4], 1), Tensor::vector(vec![0, i])]);
        assert!(at(-4).is_ok());
        assert_eq!(at(4).unwrap_err().node(), Some("lookup"));
    }
}

#[test]
fn a_graph_without_inputs_keeps_its_constants_precision() {
    let mut g = Graph::new();
    let a = g.constant(Tensor::vector(vec![0.1f64, 0.2]));
    let b = g.constant(Tensor::vector(vec![0.3f64, 0.4]));
    let y = g.add(Op::Binary(Binary::Add), &[a, b]).unwrap();
    let same = g.add(Op::Identity, &[a]).unwrap();
    g.output("y", y);
    g.output("a", same);
    let outputs = run(Cpu::default().precision(Precision::F64), &g, &[]);
    assert_eq!(outputs, [Tensor::vector(vec![0.1 + 0.3, 0.2 + 0.4]), Tensor::vector(vec![0.1f64, 0.2])]);
    let outputs = run(Cpu::default(), &g, &[]);
    assert_eq!(outputs[0], Tensor::vector(vec![0.1f32 + 0.3, 0.2 + 0.4]));
}

#[test]
fn a_constant_expanded_to_the_batch_follows_the_batch() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[2]), Kind::Float);
    let c = g.constant(Tensor::new([1, 1], vec![5f32]).unwrap());
    let token = g.add(Op::Expand { shape: Shape::batched(&[1]) }, &[c]).unwrap();
    let y = g.add(Op::Concat { axis: 1 }, &[token, x]).unwrap();
    g.output("y", y);
    for engine in engines() {
        let program = engine.compile(&g).unwrap();
        for batch in [3, 1, 4] {
            let y = &program.run(&[tensor(&[batch, 2], 1)]).unwrap()[0];
            assert_eq!(y.shape(), &[batch, 3]);
            assert!(y.to_f32().chunks(3).all(|row| row[0] == 5.0));
        }
    }
}

#[test]
fn outputs_may_be_inputs_constants_renames_and_duplicates() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[2, 3]), Kind::Float);
    let c = g.constant(Tensor::vector(vec![1f32]));
    let y = g.add(Op::Unary(Unary::Neg), &[x]).unwrap();
    let flat = g.add(Op::Reshape { shape: Shape::batched(&[6]) }, &[y]).unwrap();
    let z = g.add(Op::Unary(Unary::Neg), &[flat]).unwrap();
    for (name, id) in [("x", x), ("c", c), ("y", y), ("flat", flat), ("y2", y), ("z", z)] {
        g.output(name, id);
    }
    let input = tensor(&[2, 2, 3], 3);
    for engine in engines() {
        let program = engine.compile(&g).unwrap();
        for _ in 0..2 {
            let o = program.run(std::slice::from_ref(&input)).unwrap();
            assert_eq!(o[0], input);
            assert_eq!(o[1].to_f32()[0], 1.0);
            assert_eq!(o[2], o[4]);
            assert_eq!(o[3].shape(), &[2, 6]);
            assert_eq!(o[3].to_f32(), o[2].to_f32());
            assert_eq!(o[5].to_f32(), input.to_f32());
        }
    }
}

#[test]
fn a_profile_names_the_kernels_in_order() {
    let graph = network();
    let program = Cpu::default().compile(&graph).unwrap();
    let (_, profile) = program.run_profiled(&[tensor(&[1, 3, 61, 53], 9)]).unwrap();
    assert!(profile.nodes.is_sorted_by_key(|n| n.node));
    assert!(profile.nodes.iter().any(|n| n.kernel.contains("GEMM")));
    assert!(profile.total().as_nanos() > 0);
}

/// A convolution to small planes reads padded planes of one image, and packs the patches of several images side by side.
#[test]
fn a_profile_names_the_algorithm_that_the_batch_size_asks_for() {
    let mut graph = Graph::new();
    let x = graph.input("x", Shape::batched(&[8, 13, 13]), Kind::Float);
    let w = graph.constant(tensor(&[4, 8, 3, 3], 3));
    let window = Window { stride: vec![2, 2], pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
    let y = graph.add(Op::Conv { window, groups: 1 }, &[x, w]).unwrap();
    graph.output("y", y);
    let program = Cpu::default().compile(&graph).unwrap();
    for (images, kernel) in [(1, "conv, implicit GEMM"), (3, "conv, im2col GEMM across images")] {
        let (_, profile) = program.run_profiled(&[tensor(&[images, 8, 13, 13], 4)]).unwrap();
        assert_eq!(profile.nodes[0].kernel, kernel);
    }
}

#[test]
fn programs_run_concurrently() {
    for engine in engines() {
        let program: Box<dyn Program> = engine.compile(&network()).unwrap();
        // Threads with numbers of their own, and batch sizes that displace each other.
        let inputs: Vec<[Tensor; 1]> =
            (0..6).map(|i| [tensor(&[1 + i % 4, 3, 61, 53], 9 + i as u64)]).collect();
        let expected: Vec<Vec<Tensor>> = inputs.iter().map(|x| program.run(x).unwrap()).collect();
        std::thread::scope(|scope| {
            for (x, expected) in inputs.iter().zip(&expected) {
                let program = &program;
                scope.spawn(move || (0..20).for_each(|_| assert_eq!(program.run(x).unwrap(), *expected)));
            }
        });
    }
}

/// `⟨Wx, d⟩ = ⟨x, Wᵀd⟩` for constant weights, whichever kernels the two directions get.
#[test]
fn transposed_convolutions_are_adjoint_in_whole_programs() {
    let cases = [
        (24, 24, 3, 1, 1, 19),
        (24, 40, 3, 1, 1, 7),
        (20, 33, 3, 2, 1, 23),
        (8, 8, 3, 2, 8, 23),
        (8, 8, 5, 1, 8, 12),
        (3, 18, 7, 2, 1, 31),
        (30, 17, 1, 1, 1, 9),
        (30, 18, 1, 2, 6, 10),
    ];
    for (inputs, outputs, kernel, stride, groups, side) in cases {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[inputs, side, side]), Kind::Float);
        let w = g.constant(tensor(&[outputs, inputs / groups, kernel, kernel], 3));
        let window = window(kernel, stride, kernel / 2);
        let y = g.add(Op::Conv { window: window.clone(), groups }, &[x, w]).unwrap();
        let d = g.input("d", g.node(y).shape.clone(), Kind::Float);
        let out = g.node(y).shape.fixed_at(2).unwrap();
        let extra = side + 2 * (kernel / 2) - ((out - 1) * stride + kernel);
        let op = Op::ConvTranspose { window, groups, output_padding: vec![extra; 2] };
        let back = g.add(op, &[d, w]).unwrap();
        g.output("y", y);
        g.output("back", back);
        for batch in [1, 3] {
            let values = [tensor(&[batch, inputs, side, side], 5), tensor(&[batch, outputs, out, out], 6)];
            let exact = run(Cpu::default().precision(Precision::F64), &g, &values);
            let inner = |a: &Tensor, b: &Tensor| -> f64 {
                let (a, b) = (a.to_f64(), b.to_f64());
                a.iter().zip(b.iter()).map(|(a, b)| a * b).sum()
            };
            let (left, right) = (inner(&exact[0], &values[1]), inner(&exact[1], &values[0]));
            assert!((left - right).abs() < 1e-9 * left.abs().max(1.0), "{left} {right}");
            let single = engines()
                .iter()
                .map(|engine| engine.compile(&g).unwrap().run(&values).unwrap())
                .collect::<Vec<_>>();
            for (single, exact) in single.iter().flat_map(|found| found.iter().zip(&exact)) {
                let (single, exact) = (single.to_f64(), exact.to_f64());
                let scale = exact.iter().fold(0f64, |m, v| m.max(v.abs()));
                let error = single.iter().zip(exact.iter()).map(|(a, b)| (a - b).abs());
                assert!(error.fold(0f64, f64::max) < 1e-5 * scale, "{kernel} {stride} {groups}");
            }
        }
    }
}

/// Maps of several layers: values that only sums read, with operands of all kinds, beside a chain that goes on.
fn maps() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3, 14, 10]), Kind::Float);
    let scale = g.input("scale", Shape::batched(&[1, 1, 1]), Kind::Float);
    let mut value = x;
    for (layer, channels) in [3, 40, 5].into_iter().enumerate() {
        let slope = g.constant(tensor(&[channels, 1, 1], layer as u64));
        let half = g.number(0.5);
        let a = g.times(value, slope).unwrap();
        let a = g.times(a, scale).unwrap();
        let b = g.times(a, half).unwrap();
        let reduce = |reduction, keep| Op::Reduce { reduction, axes: vec![1], keep };
        let sum = g.add(reduce(Reduction::Sum, false), &[a]).unwrap();
        let mean = g.add(reduce(Reduction::Mean, true), &[b]).unwrap();
        let most = g.add(reduce(Reduction::Max, false), &[b]).unwrap();
        for map in [sum, mean, most] {
            g.output(format!("map {layer}"), map);
        }
        let next = [40, 5, 4][layer];
        value = conv(&mut g, value, [next, channels, 3, 3], 1, 1);
        value = g.rectified(value).unwrap();
        let tiles = g.add(Op::MaxPool(window(2, 2, 0)), &[value]).unwrap();
        let spread = g.add(Op::WinnerScatter(window(2, 2, 0)), &[value, tiles]).unwrap();
        value = g.plus(value, spread).unwrap();
    }
    let w = g.constant(tensor(&[4, 3, 3, 3], 9));
    let picture = Op::ConvTranspose { window: window(3, 1, 1), groups: 1, output_padding: vec![0, 0] };
    let wide = conv(&mut g, value, [8, 4, 3, 3], 1, 1);
    let few = g.constant(tensor(&[8, 3, 3, 3], 10));
    let folded = g.add(picture.clone(), &[wide, few]).unwrap();
    let plain = g.add(picture, &[value, w]).unwrap();
    g.output("folded", folded);
    g.output("plain", plain);
    g
}

#[test]
fn all_engines_agree_on_the_maps_of_all_layers() {
    let graph = maps();
    for batch in [1, 3] {
        let inputs = [tensor(&[batch, 3, 14, 10], 3), tensor(&[batch, 1, 1, 1], 4)];
        let expected = run(Cpu::default().precision(Precision::F64), &graph, &inputs);
        for engine in engines() {
            let program =
                engine.compile_with(&graph, &CompileOptions::default().precision(Precision::F64)).unwrap();
            for found in [program.run(&inputs).unwrap(), program.run(&inputs).unwrap()] {
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found.shape(), expected.shape());
                    let (found, expected) = (found.to_f64(), expected.to_f64());
                    let size = expected.iter().fold(1.0, |most: f64, v| most.max(v.abs()));
                    let worst = found.iter().zip(&*expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(worst < 1e-12 * size, "{worst} of {size}");
                }
            }
        }
    }
}

#[test]
fn planes_and_channels_may_be_missing() {
    let ones = |window: Window, x: [usize; 3], w: [usize; 4], transposed: bool| {
        let mut g = Graph::new();
        let input = g.input("x", Shape::batched(&x), Kind::Float);
        let weight = g.constant(tensor(&w, 5));
        let op = match transposed {
            true => Op::ConvTranspose { window, groups: 1, output_padding: vec![0, 0] },
            false => Op::Conv { window, groups: 1 },
        };
        let y = g.add(op, &[input, weight]).unwrap();
        g.output("y", y);
        (g, tensor(&[&[2], x.as_slice()].concat(), 6))
    };
    let far = Window { pad: vec![(1, 90); 2], ..Window::new([5, 5]) };
    for (graph, x) in [
        ones(window(3, 1, 1), [0, 40, 40], [4, 0, 3, 3], false),
        ones(window(3, 1, 2), [3, 0, 40], [4, 3, 3, 3], false),
        ones(window(3, 1, 40), [3, 40, 0], [4, 3, 3, 3], false),
        ones(window(3, 2, 0), [0, 20, 20], [0, 4, 3, 3], true),
    ] {
        let y = run(Cpu::default(), &graph, &[x]);
        assert!(!y[0].is_empty() && y[0].to_f64().iter().all(|&v| v == 0.0));
    }
    // Nearly all of what is read is padding.
    let (graph, x) = ones(far, [3, 1, 2], [4, 3, 5, 5], false);
    let [single, double] = [Precision::F32, Precision::F64]
        .map(|precision| run(Cpu::default().precision(precision), &graph, std::slice::from_ref(&x)));
    let (single, double) = (single[0].to_f64(), double[0].to_f64());
    let mut pairs = single.iter().zip(double.iter());
    assert!(double.iter().any(|&v| v != 0.0) && pairs.all(|(a, b)| (a - b).abs() < 1e-6));
}

#[test]
fn a_convolution_that_alone_reads_another_gives_the_same_bits() {
    for channels in [1, 2, 33] {
        let build = |keep: bool| {
            let mut g = Graph::new();
            let x = g.input("x", Shape::batched(&[5, 30, 17]), Kind::Float);
            let first = conv(&mut g, x, [channels, 5, 1, 1], 1, 1);
            let then = conv(&mut g, first, [channels, 1, 3, 3], 2, channels);
            g.output("y", then);
            if keep {
                g.output("between", first);
            }
            g
        };
        let x = tensor(&[3, 5, 30, 17], 9);
        let [together, apart] =
            [false, true].map(|keep| run(Cpu::default(), &build(keep), std::slice::from_ref(&x)));
        assert_eq!(together[0].to_f64(), apart[0].to_f64());
    }
}

#[test]
fn weights_that_are_also_added_are_kept() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::fixed(&[4, 4, 1, 1]), Kind::Float);
    let w = g.constant(tensor(&[4, 4, 1, 1], 3));
    let product = g.add(Op::Conv { window: Window::new([1, 1]), groups: 1 }, &[x, w]).unwrap();
    let sum = g.add(Op::Binary(Binary::Add), &[product, w]).unwrap();
    g.output("y", sum);
    let (x, w) = (tensor(&[4, 4, 1, 1], 2).to_f64(), tensor(&[4, 4, 1, 1], 3).to_f64());
    let y = run(Cpu::default(), &g, &[tensor(&[4, 4, 1, 1], 2)]);
    for (at, y) in y[0].to_f64().iter().enumerate() {
        let (row, column) = (at / 4, at % 4);
        let expected: f64 = (0..4).map(|k| x[row * 4 + k] * w[column * 4 + k]).sum::<f64>() + w[at];
        assert!((y - expected).abs() < 1e-6);
    }
}
