//! What the portable form and the matrix form of a graph compute is what the graph computes, in the engine's double
//! precision.

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_graph::op::{Divisor, Window};
use monosplit_graph::passes::{matrix_form, portable};
use monosplit_graph::{Graph, Kind, Noise, Op, Result, Shape, Tensor};

fn random(noise: Noise, shape: &[usize], steps: f64) -> Tensor {
    // Few distinct values, so that maxima are often tied.
    let value = |i: usize| ((noise.uniform(i as u64) * 2.0 - 1.0) * steps).round() / steps;
    Tensor::new(shape.to_vec(), (0..shape.iter().product()).map(value).collect::<Vec<f64>>()).unwrap()
}

fn window(noise: Noise) -> Window {
    let pick = |i: u64, most: u64| (noise.bits(i) % most) as usize;
    let mut window = Window::new([1 + pick(0, 4), 1 + pick(1, 4)]);
    for axis in 0..2 {
        window.stride[axis] = 1 + pick(2 + axis as u64, 4);
        let most = window.kernel[axis] as u64;
        window.pad[axis] = (pick(4 + axis as u64, most), pick(6 + axis as u64, most));
    }
    window.ceil = pick(8, 2) == 1;
    window
}

/// Runs a graph and its portable form, in which none of `gone` is left, and compares their outputs.
fn compare(graph: &Graph, inputs: &[Tensor], gone: &[&str], what: &str) {
    compare_after(portable, graph, inputs, gone, what);
}

/// The same for any pass.
fn compare_after(
    pass: impl Fn(&Graph) -> Result<Graph>,
    graph: &Graph,
    inputs: &[Tensor],
    gone: &[&str],
    what: &str,
) {
    let engine = Cpu::default().threads(1).precision(Precision::F64);
    let other = pass(graph).unwrap();
    for (_, node) in other.nodes() {
        assert!(!gone.contains(&node.op.name()), "{what}: {} is left", node.op.name());
    }
    let expected = engine.compile(graph).unwrap().run(inputs).unwrap();
    let found = engine.compile(&other).unwrap().run(inputs).unwrap();
    for (e, f) in expected.iter().zip(&found) {
        assert_eq!(e.shape(), f.shape(), "{what}");
        for (e, f) in e.to_f64().iter().zip(f.to_f64().iter()) {
            assert!((e - f).abs() <= 1e-12 * (1.0 + e.abs()), "{what}: {e} {f}");
        }
    }
}

#[test]
fn winners_are_found_by_comparison() {
    for seed in 0..300 {
        let noise = Noise::new(seed);
        let window = window(noise);
        let mut g = Graph::new();
        let a = g.input("a", Shape::batched(&[3, 7, 9]), Kind::Float);
        let s = g.input("s", Shape::batched(&[3, 7, 9]), Kind::Float);
        let Ok(pooled) = g.add(Op::MaxPool(window.clone()), &[a]) else { continue };
        let gathered = g.add(Op::WinnerGather(window.clone()), &[a, s]).unwrap();
        let y = g.times(pooled, gathered).unwrap();
        let scattered = g.add(Op::WinnerScatter(window.clone()), &[a, y]).unwrap();
        g.output("gathered", gathered);
        g.output("scattered", scattered);
        let inputs = ["a", "s"].map(|name| random(noise.stream(name), &[2, 3, 7, 9], 2.0));
        compare(&g, &inputs, &["WinnerGather", "WinnerScatter"], &format!("{seed} {window:?}"));
    }
}

/// Maxima over whole maps and axes, however long: no node is written for each of the places.
#[test]
fn the_winner_of_a_single_window_is_found_by_its_number() {
    for (seed, lengths) in
        [vec![49], vec![1], vec![300], vec![7, 9], vec![1, 5], vec![2, 3, 4]].into_iter().enumerate()
    {
        let noise = Noise::new(seed as u64);
        let window = Window::new(lengths.clone());
        let shape = [vec![3], lengths].concat();
        let mut g = Graph::new();
        let a = g.input("a", Shape::batched(&shape), Kind::Float);
        let s = g.input("s", Shape::batched(&shape), Kind::Float);
        let gathered = g.add(Op::WinnerGather(window.clone()), &[a, s]).unwrap();
        let scattered = g.add(Op::WinnerScatter(window.clone()), &[a, gathered]).unwrap();
        g.output("gathered", gathered);
        g.output("scattered", scattered);
        let inputs = ["a", "s"].map(|name| random(noise.stream(name), &[&[5], &*shape].concat(), 2.0));
        compare(&g, &inputs, &["WinnerGather", "WinnerScatter", "Slice"], &format!("{window:?}"));
        assert!(portable(&g).unwrap().len() < 20);
    }
}

#[test]
fn input_gradients_of_stride_one_are_convolutions() {
    for seed in 0..200 {
        let noise = Noise::new(seed);
        let mut window = window(noise);
        (window.stride, window.ceil) = (vec![1, 1], false);
        window.dilation = vec![1 + (noise.bits(20) % 2) as usize, 1];
        let groups = 1 + (noise.bits(21) % 2) as usize;
        let mut g = Graph::new();
        let y = g.input("y", Shape::batched(&[4, 6, 5]), Kind::Float);
        let w = random(noise.stream("w"), &[4, 3, window.kernel[0], window.kernel[1]], 100.0);
        let w = g.constant(w);
        let op = Op::ConvTranspose { window: window.clone(), groups, output_padding: vec![0, 0] };
        let Ok(x) = g.add(op, &[y, w]) else { continue };
        g.output("x", x);
        let inputs = [random(noise.stream("y"), &[2, 4, 6, 5], 100.0)];
        compare(&g, &inputs, &["ConvTranspose"], &format!("{seed} {window:?} {groups}"));
    }
}

#[test]
fn a_pool_over_whole_maps_spreads_evenly() {
    for divisor in [Divisor::One, Divisor::Covered, Divisor::Padded] {
        let mut g = Graph::new();
        let y = g.input("y", Shape::batched(&[3, 1, 1]), Kind::Float);
        let op = Op::AveragePoolTranspose { window: Window::new([4, 6]), divisor, spatial: vec![4, 6] };
        let x = g.add(op, &[y]).unwrap();
        g.output("x", x);
        let inputs = [random(Noise::new(1), &[2, 3, 1, 1], 100.0)];
        compare(&g, &inputs, &["AveragePoolTranspose"], &format!("{divisor:?}"));
    }
}

#[test]
fn convolutions_of_any_window_are_matrix_products() {
    for seed in 0..300 {
        let noise = Noise::new(seed);
        let pick = |i: u64, most: u64| (noise.bits(i) % most) as usize;
        let mut window = window(noise);
        window.ceil = false;
        window.dilation = vec![1 + pick(20, 2), 1 + pick(21, 3)];
        let groups = 1 + pick(22, 2);
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[4, 9, 8]), Kind::Float);
        let shape = [6, 4 / groups, window.kernel[0], window.kernel[1]];
        let w = g.constant(random(noise.stream("w"), &shape, 100.0));
        let b = g.constant(random(noise.stream("b"), &[6], 100.0));
        let Ok(y) = g.add(Op::Conv { window: window.clone(), groups }, &[x, w, b]) else { continue };
        g.output("y", y);
        let rest = (0..2).map(|axis| {
            let room = [9, 8][axis] + window.pad[axis].0 + window.pad[axis].1 - window.span(axis).unwrap();
            room % window.stride[axis]
        });
        let output_padding = rest.collect();
        let back = Op::ConvTranspose { window: window.clone(), groups, output_padding };
        let x = g.add(back, &[y, w]).unwrap();
        g.output("x", x);
        let inputs = [random(noise.stream("x"), &[2, 4, 9, 8], 100.0)];
        let what = format!("{seed} {window:?} {groups}");
        compare_after(matrix_form, &g, &inputs, &["Conv", "ConvTranspose"], &what);
    }
}

/// Laid out at every pixel, the taps of a patch are as many times the picture.
#[test]
fn windows_side_by_side_are_tiles_no_larger_than_the_picture() {
    for (kernel, pad, output_padding, tiles) in
        [([3, 2], 0, 0, true), ([4, 4], 0, 0, true), ([3, 3], 1, 1, false), ([2, 2], 0, 1, false)]
    {
        let mut window = Window::new(kernel);
        window.stride = kernel.to_vec();
        window.pad = vec![(pad, 0); 2];
        let mut g = Graph::new();
        let y = g.input("y", Shape::batched(&[4, 3, 5]), Kind::Float);
        let w = g.constant(random(Noise::new(1), &[4, 2, kernel[0], kernel[1]], 100.0));
        let b = g.constant(random(Noise::new(2), &[2], 100.0));
        let output_padding = vec![output_padding; 2];
        let op = Op::ConvTranspose { window, groups: 1, output_padding };
        let x = g.add(op, &[y, w, b]).unwrap();
        g.output("x", x);
        let inputs = [random(Noise::new(3), &[2, 4, 3, 5], 100.0)];
        compare_after(matrix_form, &g, &inputs, &["ConvTranspose"], &format!("{kernel:?} {pad}"));
        let size = |shape: &Shape| shape.at(1).map_or(0, |lengths| lengths.iter().product::<usize>());
        let picture = size(&g.node(x).shape);
        let written = matrix_form(&g).unwrap();
        let largest = written.nodes().filter(|(_, n)| !n.is_constant()).map(|(_, n)| size(&n.shape)).max();
        assert_eq!(largest <= Some(picture), tiles, "{kernel:?} {pad}");
    }
}

#[test]
fn averages_under_any_window_are_sums() {
    for seed in 0..300 {
        let noise = Noise::new(seed);
        let window = window(noise);
        let divisor = [Divisor::One, Divisor::Covered, Divisor::Padded][(noise.bits(20) % 3) as usize];
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3, 9, 7]), Kind::Float);
        let op = Op::AveragePool { window: window.clone(), divisor };
        let Ok(y) = g.add(op, &[x]) else { continue };
        g.output("y", y);
        let op = Op::AveragePoolTranspose { window: window.clone(), divisor, spatial: vec![9, 7] };
        let x = g.add(op, &[y]).unwrap();
        g.output("x", x);
        let inputs = [random(noise.stream("x"), &[2, 3, 9, 7], 100.0)];
        let what = format!("{seed} {window:?} {divisor:?}");
        compare_after(matrix_form, &g, &inputs, &["AveragePool", "AveragePoolTranspose"], &what);
    }
}
