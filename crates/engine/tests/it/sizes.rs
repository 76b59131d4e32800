//! Sizes at which engines compute in another way: many matrices, long sums, and nothing at all. All numbers have so few bits
//! that every engine must give exactly what the definition gives, in any order of sums.

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, Kind, Op, Shape, Tensor};

/// Halves in `[-1, 1]`: exact in any arithmetic, and so are their products and sums.
fn halves(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as i64 % 5 - 2
    };
    let count: usize = shape.iter().product();
    Tensor::new(shape, (0..count).map(|_| next() as f32 / 2.0).collect::<Vec<f32>>()).unwrap()
}

/// What runs programs here, by name.
fn engines() -> Vec<(&'static str, Box<dyn Engine>)> {
    let single: Box<dyn Engine> = Box::new(Cpu::default());
    let double: Box<dyn Engine> = Box::new(Cpu::default().precision(Precision::F64));
    #[allow(unused_mut)]
    let mut engines = vec![("cpu", single), ("cpu f64", double)];
    #[cfg(feature = "cuda")]
    match monosplit_engine::Cuda::open(0) {
        Ok(gpu) => {
            use monosplit_engine::Arithmetic::{Bf16, Tf32};
            engines.extend([
                ("gpu", Box::new(gpu.clone()) as Box<dyn Engine>),
                ("gpu tf32", Box::new(gpu.clone().arithmetic(Tf32))),
                ("gpu bf16", Box::new(gpu.clone().arithmetic(Bf16))),
                ("gpu f64", Box::new(gpu.precision(Precision::F64))),
            ]);
        }
        Err(why) => println!("only the processor is tested: {why}"),
    }
    engines
}

/// Runs a graph on every engine, often enough for what an engine records or keeps from run to run.
fn every_engine_gives(graph: &Graph, inputs: &[Tensor], expected: &[Vec<f64>], what: &str) {
    for (name, engine) in engines() {
        let program = engine.compile(graph).unwrap();
        for run in 0..3 {
            let found = program.run(inputs).unwrap();
            for (output, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert_eq!(found.len(), expected.len(), "{what} on {name}");
                let wrong =
                    found.to_f64().iter().zip(expected).position(|(found, expected)| found != expected);
                assert_eq!(wrong, None, "output {output} of {what} on {name}, run {run}");
            }
        }
    }
}

/// The product of matrices by its definition, each of them repeated where the other has more.
fn multiplied(a: &Tensor, b: &Tensor, transposed: [bool; 2]) -> Vec<f64> {
    let split = |shape: &[usize], transposed: bool| {
        let (outer, matrix) = shape.split_at(shape.len() - 2);
        (outer.to_vec(), if transposed { [matrix[1], matrix[0]] } else { [matrix[0], matrix[1]] })
    };
    let (outer_a, [rows, inner]) = split(a.shape(), transposed[0]);
    let (outer_b, [_, columns]) = split(b.shape(), transposed[1]);
    let rank = outer_a.len().max(outer_b.len());
    let length = |outer: &[usize], axis: usize| match (axis + outer.len()).checked_sub(rank) {
        Some(own) => outer[own],
        None => 1,
    };
    let both = |axis: usize| match (length(&outer_a, axis), length(&outer_b, axis)) {
        (1, other) => other,
        (own, _) => own,
    };
    let outer: Vec<usize> = (0..rank).map(both).collect();
    let own = |of: &[usize], sample: usize| {
        let (mut rest, mut at, mut step) = (sample, 0, 1);
        for axis in (0..rank).rev() {
            at += (rest % outer[axis]) % length(of, axis) * step;
            step *= length(of, axis);
            rest /= outer[axis];
        }
        at
    };
    let (x, y) = (a.to_f64(), b.to_f64());
    let mut product = Vec::new();
    for sample in 0..outer.iter().product() {
        let (x, y) =
            (&x[own(&outer_a, sample) * rows * inner..], &y[own(&outer_b, sample) * inner * columns..]);
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let left = |k: usize| if transposed[0] { x[k * rows + row] } else { x[row * inner + k] };
            let right =
                |k: usize| if transposed[1] { y[column * inner + k] } else { y[k * columns + column] };
            product.push((0..inner).map(|k| left(k) * right(k)).sum());
        }
    }
    product
}

#[test]
fn slow_products_of_all_shapes_are_what_they_are_defined_to_be() {
    let cases: [(&[usize], &[usize]); 16] = [
        (&[5, 7], &[7, 9]),
        (&[64, 128], &[128, 32]),
        (&[1, 4096], &[4096, 1000]),
        (&[33, 500], &[500, 1]),
        (&[1, 3000], &[3000, 1]),
        (&[3, 20_000], &[20_000, 4]),
        (&[2_200_000, 2], &[2, 2]),
        (&[2, 2], &[2, 2_200_000]),
        (&[4, 5, 7], &[7, 9]),
        (&[5, 7], &[4, 7, 9]),
        (&[4, 5, 7], &[4, 7, 9]),
        (&[2, 1, 5, 7], &[3, 7, 9]),
        (&[3, 1, 2, 5, 7], &[2, 1, 7, 3]),
        (&[70_000, 2, 3], &[70_000, 3, 1]),
        (&[3, 5, 0], &[0, 9]),
        (&[0, 5, 7], &[7, 9]),
    ];
    for (a, b) in cases {
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            let stored = |shape: &[usize], transposed: bool| {
                let (mut shape, rank) = (shape.to_vec(), shape.len());
                if transposed {
                    shape.swap(rank - 2, rank - 1);
                }
                shape
            };
            let inputs = [halves(&stored(a, transposed[0]), 1), halves(&stored(b, transposed[1]), 2)];
            let mut graph = Graph::new();
            let [x, y] = [0, 1].map(|i| graph.input("x", Shape::fixed(inputs[i].shape()), Kind::Float));
            let op = Op::MatMul { trans_a: transposed[0], trans_b: transposed[1] };
            let product = graph.add(op, &[x, y]).unwrap();
            graph.output("y", product);
            let expected = multiplied(&inputs[0], &inputs[1], transposed);
            every_engine_gives(&graph, &inputs, &[expected], &format!("{a:?} · {b:?} {transposed:?}"));
        }
    }
}

/// A reduction over some axes by its definition.
fn reduced(x: &Tensor, gone: &[usize], reduction: Reduction) -> Vec<f64> {
    let shape = x.shape();
    let kept: Vec<usize> = (0..shape.len()).filter(|axis| !gone.contains(axis)).collect();
    let (start, join): (f64, fn(f64, f64) -> f64) = match reduction {
        Reduction::Sum | Reduction::Mean => (0.0, |a, b| a + b),
        Reduction::Max => (f64::NEG_INFINITY, f64::max),
        Reduction::Min => (f64::INFINITY, f64::min),
        Reduction::Product => (1.0, |a, b| a * b),
    };
    let results: usize = kept.iter().map(|&axis| shape[axis]).product();
    let mut found = vec![start; results];
    for (place, &value) in x.to_f64().iter().enumerate() {
        let along = |axis: usize| place / shape[axis + 1..].iter().product::<usize>() % shape[axis];
        let at = kept.iter().fold(0, |at, &axis| at * shape[axis] + along(axis));
        found[at] = join(found[at], value);
    }
    let count = (x.len() / results) as f64;
    found.iter().map(|&value| if reduction == Reduction::Mean { value / count } else { value }).collect()
}

#[test]
fn long_reductions_are_what_they_are_defined_to_be() {
    use Reduction::{Max, Mean, Min, Product, Sum};
    // A mean is exact where as many are added up as a power of two.
    let cases: [(&[usize], &[usize], &[Reduction]); 5] = [
        (&[3, 1 << 20], &[1], &[Sum, Mean, Max, Min]),
        (&[1_500_007], &[0], &[Sum, Max]),
        (&[2, 20, 3, 30_011], &[1, 3], &[Sum, Min]),
        (&[300, 17_000], &[1], &[Sum, Max]),
        (&[16, 2, 1 << 16], &[0, 2], &[Mean, Min]),
    ];
    for (shape, gone, reductions) in cases {
        let real = halves(shape, 3);
        let whole =
            Tensor::new(shape, real.to_f64().iter().map(|v| (v * 2.0) as i64).collect::<Vec<_>>()).unwrap();
        let signs = real.to_f32().iter().map(|v| if *v < 0.0 { -1.0 } else { 1.0 }).collect::<Vec<f32>>();
        let inputs = [real, whole, Tensor::new(shape, signs).unwrap()];
        let of_whole: Vec<Reduction> = reductions.iter().copied().filter(|&r| r != Mean).collect();
        let asked = [(Kind::Float, reductions), (Kind::Int, &of_whole), (Kind::Float, &[Product])];
        let (mut graph, mut expected) = (Graph::new(), Vec::new());
        for (input, (kind, reductions)) in inputs.iter().zip(asked) {
            let x = graph.input("x", Shape::fixed(shape), kind);
            for &reduction in reductions {
                let y = graph.reduced(reduction, x, gone, false).unwrap();
                graph.output("y", y);
                expected.push(reduced(input, gone, reduction));
            }
        }
        every_engine_gives(&graph, &inputs, &expected, &format!("{shape:?} over {gone:?}"));
    }
}

/// Hostile networks add up axes without elements that are not neighbours; `2_110_tile` of the shared hostile files was one.
#[test]
fn sums_over_axes_without_elements_are_those_of_nothing() {
    for (shape, gone) in [(&[2, 0, 3, 4][..], &[1, 3][..]), (&[0, 5, 0], &[0, 2]), (&[3, 0], &[1])] {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::fixed(shape), Kind::Float);
        let reductions = [Reduction::Sum, Reduction::Product];
        let outputs = reductions.map(|reduction| graph.reduced(reduction, x, gone, false).unwrap());
        outputs.iter().for_each(|&y| {
            graph.output("y", y);
        });
        let input = halves(shape, 4);
        let expected = reductions.map(|reduction| reduced(&input, gone, reduction));
        every_engine_gives(&graph, &[input], &expected, &format!("{shape:?} over {gone:?}"));
    }
}
