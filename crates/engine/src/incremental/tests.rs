//! Incremental runs against computing everything again.

use monosplit_graph::batch::{rows as rows_of, stack};
use monosplit_graph::op::{Binary, Divisor, Reduction, Unary, Window};
use monosplit_graph::{Dim, Graph, Kind, NodeId, Noise, Op, Shape, Tensor};

use super::tiling::TilingPlanner;
use super::{Change, IncrementalProgram};
use crate::{Cpu, Engine, Precision};

const SIZE: [usize; 2] = [61, 47];

fn random(shape: &[usize], seed: u64) -> Tensor {
    let noise = Noise::new(seed);
    let values: Vec<f64> =
        (0..shape.iter().product::<usize>() as u64).map(|i| 0.4 * noise.gaussian(i)).collect();
    Tensor::new(shape, values).unwrap()
}

fn window(kernel: usize, stride: usize, pad: (usize, usize)) -> Window {
    Window { stride: vec![stride; 2], pad: vec![pad; 2], ..Window::new([kernel; 2]) }
}

fn conv(g: &mut Graph, x: NodeId, from: usize, to: usize, window: Window) -> NodeId {
    let w = g.constant(random(&[to, from, window.kernel[0], window.kernel[1]], from as u64));
    let b = g.constant(random(&[to], 9));
    let y = g.add(Op::Conv { window, groups: 1 }, &[x, w, b]).unwrap();
    g.add(Op::Unary(Unary::Softplus), &[y]).unwrap()
}

/// Convolutions with strides and uneven pads, a residual sum, branches that are joined, pools that end beyond the image, and
/// a padded pool with averages by this divisor.
fn features(g: &mut Graph, x: NodeId, divisor: Divisor) -> NodeId {
    let a = conv(g, x, 2, 6, window(5, 2, (2, 1)));
    let inner = conv(g, a, 6, 6, window(3, 1, (1, 1)));
    let a = g.add(Op::Binary(Binary::Add), &[a, inner]).unwrap();
    let pool = Window { ceil: true, ..window(3, 2, (0, 0)) };
    let a = g.add(Op::MaxPool(pool), &[a]).unwrap();
    let left = conv(g, a, 6, 4, window(1, 1, (0, 0)));
    let average = Op::AveragePool { window: window(3, 1, (1, 1)), divisor };
    let right = g.add(average, &[a]).unwrap();
    let a = g.add(Op::Concat { axis: 1 }, &[left, right]).unwrap();
    conv(g, a, 10, 5, window(3, 1, (1, 1)))
}

fn scores(g: &mut Graph, features: NodeId) -> NodeId {
    let mean = g.reduced(Reduction::Mean, features, &[2, 3], false).unwrap();
    let head = g.constant(random(&[3, 5], 4));
    g.add(Op::MatMul { trans_a: false, trans_b: true }, &[mean, head]).unwrap()
}

fn network(divisor: Divisor) -> Graph {
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[2, SIZE[0], SIZE[1]]), Kind::Float);
    let features = features(&mut g, x, divisor);
    let scores = scores(&mut g, features);
    g.output("scores", scores);
    g
}

fn engine() -> Cpu {
    Cpu::default().precision(Precision::F64)
}

/// Sets a region of a sample to a number.
fn filled(sample: usize, [top, left]: [usize; 2], [height, width]: [usize; 2], value: f64) -> Change {
    let values = Tensor::new([2, height, width], vec![value; 2 * height * width]).unwrap();
    Change { sample, region: [top..top + height, left..left + width], values }
}

/// Makes a change in images of two channels.
fn apply(change: &Change, images: &mut [f64]) {
    let Change { sample, region: [rows, columns], values } = change;
    for (plane, values) in values.to_f64().chunks(rows.len() * columns.len()).enumerate() {
        for (row, values) in rows.clone().zip(values.chunks(columns.len())) {
            let line = ((sample * 2 + plane) * SIZE[0] + row) * SIZE[1];
            images[line + columns.start..line + columns.end].copy_from_slice(values);
        }
    }
}

fn images(values: Vec<f64>) -> Tensor {
    Tensor::new([values.len() / (2 * SIZE[0] * SIZE[1]), 2, SIZE[0], SIZE[1]], values).unwrap()
}

fn distance(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    a.to_f64().iter().zip(&*b.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn at_every_node_a_change_leaves_what_computing_everything_again_leaves() {
    let counts = [Divisor::Padded, Divisor::Covered].map(|divisor| {
        let graph = network(divisor);
        graph.nodes().filter(|&(id, _)| id > graph.inputs()[0] && tiles_are_right(&graph, id)).count()
    });
    // An average over covered positions cannot be computed at the border from a tile.
    assert_eq!(counts, [12, 8]);
}

/// Whether a node can be computed tile by tile; panics unless the tiles give what computing everything again gives.
fn tiles_are_right(graph: &Graph, last: NodeId) -> bool {
    let mut graph = graph.clone();
    let output = graph.add(Op::Identity, &[last]).unwrap();
    graph.set_outputs(Vec::new());
    graph.output("value", output);
    let (engine, largest) = (engine(), [5, 4]);
    let planner = TilingPlanner::new(&graph, graph.inputs()[0], largest);
    let threads = engine.pool().unwrap();
    let program = IncrementalProgram::up_to(last, &planner, 8, &engine, threads).unwrap();
    let Some(program) = program else { return false };
    let whole = engine.compile(&graph).unwrap();
    let unchanged = random(&[2, 2, SIZE[0], SIZE[1]], 7);
    let baseline = program.baseline(std::slice::from_ref(&unchanged)).unwrap();
    for at in [[0, 0], [56, 43], [0, 43], [56, 0], [20, 17], [31, 30], [55, 41], [3, 1]] {
        let changes = [0, 1].map(|sample| filled(sample, at, largest, 3.0));
        let mut changed = unchanged.to_f64().to_vec();
        changes.iter().for_each(|change| apply(change, &mut changed));
        let found = program.run(&baseline, &changes).unwrap().remove(0);
        let apart = distance(&found, &whole.run(&[images(changed)]).unwrap()[0]);
        assert!(apart < 1e-12, "{last:?} {at:?}: {apart}");
        assert!(distance(&found, &whole.run(std::slice::from_ref(&unchanged)).unwrap()[0]) > 1e-6);
    }
    true
}

/// Groups, dilation, padded pools, a stride beyond the kernel, sums instead of averages, a value with itself, and a channel
/// scaled by what is everywhere in it.
#[test]
fn unusual_windows_are_tiled_and_what_is_scaled_by_everything_is_not() {
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[2, SIZE[0], SIZE[1]]), Kind::Float);
    let grouped = Window { dilation: vec![2; 2], ..window(3, 1, (2, 5)) };
    let w = g.constant(random(&[4, 1, 3, 3], 1));
    let a = g.add(Op::Conv { window: grouped, groups: 2 }, &[x, w]).unwrap();
    let a = g.add(Op::MaxPool(Window { ceil: true, ..window(3, 2, (1, 1)) }), &[a]).unwrap();
    let a = g.add(Op::Binary(Binary::Mul), &[a, a]).unwrap();
    let w = g.constant(random(&[5, 4, 1, 1], 2));
    let a = g.add(Op::Conv { window: window(1, 2, (0, 0)), groups: 1 }, &[a, w]).unwrap();
    let sums = Op::AveragePool { window: window(2, 1, (1, 0)), divisor: Divisor::One };
    let a = g.add(sums, &[a]).unwrap();
    let [height, width] = [2, 3].map(|axis| g.node(a).shape.fixed_at(axis).unwrap());
    let all = Op::AveragePool { window: Window::new([height, width]), divisor: Divisor::Covered };
    let scale = g.add(all, &[a]).unwrap();
    let scaled = g.add(Op::Binary(Binary::Mul), &[a, scale]).unwrap();
    let mean = g.reduced(Reduction::Mean, scaled, &[2, 3], false).unwrap();
    g.output("scores", mean);
    let nodes = g.nodes().filter(|&(id, _)| id > x && tiles_are_right(&g, id));
    let names: Vec<&str> = nodes.map(|(_, node)| node.op.name()).collect();
    assert_eq!(names, ["Conv", "MaxPool", "Mul", "Conv", "SumPool", "AveragePool"]);
}

/// A convolution whose stride exceeds its kernel does not read some changes at all.
#[test]
fn changes_that_nothing_reads_leave_the_outputs_as_they_are() {
    let mut g = Graph::new();
    let x = g.input("image", Shape::batched(&[2, SIZE[0], SIZE[1]]), Kind::Float);
    let a = conv(&mut g, x, 2, 5, window(1, 3, (0, 0)));
    let a = conv(&mut g, a, 5, 5, window(3, 1, (1, 1)));
    let scores = scores(&mut g, a);
    g.output("scores", scores);
    let planner = TilingPlanner::new(&g, x, [1, 1]);
    let (engine, last) = (engine(), a);
    let program =
        IncrementalProgram::up_to(last, &planner, 4, &engine, engine.pool().unwrap()).unwrap().unwrap();
    let whole = engine.compile(&g).unwrap();
    let unchanged = random(&[1, 2, SIZE[0], SIZE[1]], 7);
    let baseline = program.baseline(std::slice::from_ref(&unchanged)).unwrap();
    for at in [[1, 1], [3, 3], [60, 46], [2, 0], [0, 0]] {
        let change = filled(0, at, [1, 1], 5.0);
        let mut changed = unchanged.to_f64().to_vec();
        apply(&change, &mut changed);
        let found = program.run(&baseline, &[change]).unwrap().remove(0);
        assert!(distance(&found, &whole.run(&[images(changed)]).unwrap()[0]) < 1e-12, "{at:?}");
    }
}

#[test]
fn changes_that_add_up_leave_what_computing_everything_again_leaves() {
    let (graph, engine) = (network(Divisor::Padded), engine());
    let program = engine.compile_incremental(&graph, [5, 4], 64).unwrap().unwrap();
    let image = random(&[1, 2, SIZE[0], SIZE[1]], 7);
    let corners = [[0, 0], [3, 2], [56, 43], [20, 17], [22, 19], [31, 30], [55, 41], [3, 1], [0, 0], [30, 7]];
    let sized = |step: usize| if step % 3 == 2 { [2, 3] } else { [5, 4] };
    let changes = corners.iter().enumerate().map(|(step, &at)| filled(0, at, sized(step), step as f64));
    let changes: Vec<Change> = changes.collect();
    let whole = engine.compile(&graph).unwrap();
    let mut changed = image.to_f64().to_vec();
    let mut expected = whole.run(std::slice::from_ref(&image)).unwrap();
    for change in &changes {
        apply(change, &mut changed);
        expected.push(whole.run(&[images(changed.clone())]).unwrap().remove(0));
    }
    let expected = stack(&expected, Kind::Float).unwrap();
    for batch_size in [1, 2, 4, 20] {
        let baseline = program.baseline(std::slice::from_ref(&image)).unwrap();
        let found = program.run_cumulative(baseline, &changes, batch_size).unwrap().remove(0);
        let apart = distance(&found, &expected);
        assert!(apart < 1e-12, "batch size {batch_size}: {apart}");
    }
}

/// Every output is computed, values of other inputs that pass the tiles by are those of the changed sample, and a fixed
/// batch size is filled up.
#[test]
fn graphs_with_other_inputs_several_outputs_or_a_fixed_batch_size_are_computed_too() {
    for samples in [Dim::Batch(1), Dim::Fixed(2)] {
        let mut g = Graph::new();
        let dims = |rest: &[usize]| {
            Shape::new([&[samples], &*rest.iter().map(|&n| Dim::Fixed(n)).collect::<Vec<_>>()].concat())
        };
        let x = g.input("image", dims(&[2, SIZE[0], SIZE[1]]), Kind::Float);
        let shift = g.input("shift", dims(&[3]), Kind::Float);
        let features = features(&mut g, x, Divisor::Padded);
        let scores = scores(&mut g, features);
        let shifted = g.plus(scores, shift).unwrap();
        g.output("shifted", shifted);
        g.output("scores", scores);
        let engine = engine();
        let program = engine.compile_incremental(&g, [5, 4], 4).unwrap().unwrap();
        let (unchanged, shifts) = (random(&[2, 2, SIZE[0], SIZE[1]], 7), random(&[2, 3], 8));
        let baseline = program.baseline(&[unchanged.clone(), shifts.clone()]).unwrap();
        let changes = [
            filled(1, [2, 3], [5, 4], 1.0),
            filled(0, [40, 30], [4, 4], 2.0),
            filled(1, [9, 9], [1, 1], 3.0),
        ];
        let found = program.run(&baseline, &changes).unwrap();
        let whole = engine.compile(&g).unwrap();
        for (row, change) in changes.iter().enumerate() {
            let mut changed = unchanged.to_f64().to_vec();
            apply(change, &mut changed);
            let expected = whole.run(&[images(changed), shifts.clone()]).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                let expected = rows_of(expected, [change.sample].into_iter()).unwrap();
                assert!(distance(&rows_of(found, [row].into_iter()).unwrap(), &expected) < 1e-12);
            }
        }
        assert_eq!(found.iter().map(|output| output.shape().to_vec()).collect::<Vec<_>>(), [[3, 3], [3, 3]]);
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    let graph = network(Divisor::Padded);
    let changes = [[0, 0], [30, 20], [56, 43]].map(|at| filled(0, at, [5, 4], 1.0));
    let [one, three] = [1, 3].map(|threads| {
        let program =
            Cpu::default().threads(threads).compile_incremental(&graph, [5, 4], 3).unwrap().unwrap();
        let baseline = program.baseline(&[random(&[1, 2, SIZE[0], SIZE[1]], 7)]).unwrap();
        program.run(&baseline, &changes).unwrap()
    });
    assert_eq!(one, three);
}

#[test]
fn a_change_of_almost_everything_is_computed_as_a_whole() {
    assert!(Cpu::default().compile_incremental(&network(Divisor::Padded), [60, 46], 8).unwrap().is_none());
}

#[test]
fn changes_that_do_not_fit_are_refused() {
    let program = engine().compile_incremental(&network(Divisor::Padded), [5, 4], 2).unwrap().unwrap();
    let baseline = program.baseline(&[random(&[1, 2, SIZE[0], SIZE[1]], 7)]).unwrap();
    let short =
        Change { values: Tensor::new([2, 1, 1], vec![0.0; 2]).unwrap(), ..filled(0, [0, 0], [2, 2], 0.0) };
    for change in [
        filled(0, [0, 0], [6, 4], 0.0),
        filled(0, [58, 0], [5, 4], 0.0),
        filled(1, [0, 0], [5, 4], 0.0),
        short,
    ] {
        assert!(program.run(&baseline, std::slice::from_ref(&change)).is_err(), "{change:?}");
        assert!(program.run_cumulative(baseline.clone(), &[change], 2).is_err());
    }
    assert!(program.run(&baseline, &[]).is_err());
}
