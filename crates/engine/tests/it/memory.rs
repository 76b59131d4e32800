//! The memory that programs plan, the budget they keep to, and what is refused because of it.

use monosplit_engine::{Cpu, Engine};
use monosplit_graph::op::{Reduction, Unary};
use monosplit_graph::{ErrorKind, Graph, Kind, Label, Op, Shape, Tensor};

use crate::networks::{conv, tensor};

#[test]
fn a_long_chain_needs_no_more_memory_than_a_short_one() {
    let chain = |depth: usize| {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[8, 16, 16]), Kind::Float);
        let mut y = x;
        for _ in 0..depth {
            y = conv(&mut g, y, [8, 8, 3, 3], 1, 1);
            y = g.add(Op::Unary(Unary::Tanh), &[y]).unwrap();
        }
        g.output("y", y);
        g
    };
    let (value, weights) = (8 * 16 * 16 * 4, 8 * 8 * 3 * 3 * 4);
    let x = [tensor(&[1, 8, 16, 16], 1)];
    for depth in [3, 100] {
        // Buffers and scratch memory, and the transformed weights of every convolution.
        let enough = Cpu::default().memory_limit(8 * value + 5 * depth * weights);
        enough.compile(&chain(depth)).unwrap().run(&x).unwrap();
        let error = Cpu::default().memory_limit(value).compile(&chain(depth)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Memory);
        let said = error.to_string();
        assert!(said.contains("most of it for 'Conv") && said.contains("memory budget of 8 KiB"), "{said}");
    }
}

/// What a batch holds grows with its samples: more of them than fit are run in chunks, to the same numbers.
#[test]
fn batches_beyond_the_budget_are_run_in_chunks_where_samples_are_independent() {
    let write = |mixes: bool| {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[8, 16, 16]), Kind::Float);
        let y = conv(&mut g, x, [8, 8, 3, 3], 1, 1);
        let axes: &[usize] = if mixes { &[0, 2, 3] } else { &[2, 3] };
        let y = g.reduced(Reduction::Mean, y, axes, true).unwrap();
        g.output("y", y);
        g
    };
    let x = [tensor(&[64, 8, 16, 16], 1)];
    let small = Cpu::default().memory_limit(512 << 10);
    let (whole, chunked) =
        (Cpu::default().compile(&write(false)).unwrap(), small.compile(&write(false)).unwrap());
    let (expected, found) = (whole.run(&x).unwrap().remove(0), chunked.run(&x).unwrap().remove(0));
    assert_eq!(found.shape(), [64, 8, 1, 1]);
    let distance =
        found.to_f64().iter().zip(&*expected.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(distance < 1e-5, "{distance}");
    let (_, profile) = chunked.run_profiled(&x).unwrap();
    assert!(profile.nodes.len() > 2 * whole.run_profiled(&x).unwrap().1.nodes.len());
    let error = small.compile(&write(true)).unwrap().run(&x).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
}

#[test]
#[cfg(feature = "onnxruntime")]
fn issue_35_onnx_runtime_keeps_to_the_memory_budget() {
    let Ok(engine) = monosplit_engine::OnnxRuntime::load() else {
        println!("ONNX Runtime is not here");
        return;
    };
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[8, 16, 16]), Kind::Float);
    let y = conv(&mut g, x, [8, 8, 3, 3], 1, 1);
    let y = g.reduced(Reduction::Mean, y, &[2, 3], true).unwrap();
    g.output("y", y);
    let x = [tensor(&[64, 8, 16, 16], 1)];
    let program = |limit: usize| engine.clone().memory_limit(limit).compile(&g);
    let whole = program(1 << 30).unwrap();
    let chunked = program(96 << 10).unwrap();
    assert!(chunked.samples_at_once(64, 0) < 64 && whole.samples_at_once(64, 0) == 64);
    let (expected, found) = (whole.run(&x).unwrap(), chunked.run(&x).unwrap());
    assert_eq!(found[0].shape(), [64, 8, 1, 1]);
    assert!(found[0].to_f64().iter().zip(&*expected[0].to_f64()).all(|(a, b)| (a - b).abs() < 1e-5));
    let error = program(4 << 10).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
}

/// Shorter addresses cannot even write these sizes down.
#[test]
#[cfg(target_pointer_width = "64")]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[1]), Kind::Float);
    let wide = Op::Expand {
        shape: Shape::new([monosplit_graph::Dim::Batch(1), monosplit_graph::Dim::Fixed(1 << 38)]),
    };
    let y = g.add_named(Label::named("wide"), wide, &[x]).unwrap();
    g.output("y", y);
    let named = |error: Option<monosplit_graph::Error>, name: &str| {
        let error = error.unwrap();
        assert!(error.kind() == ErrorKind::Memory && error.to_string().contains(name), "{error}");
    };
    named(Cpu::default().compile(&g).err(), "'wide'");
    let mut g = Graph::new();
    let c = g.constant(Tensor::scalar(1f32));
    let y = g.add_named(Label::named("flat"), Op::Expand { shape: Shape::fixed(&[1 << 38]) }, &[c]).unwrap();
    g.output("y", y);
    named(Cpu::default().compile(&g).err(), "'flat'");
}

#[test]
fn a_smaller_batch_can_use_the_memory_of_a_larger_one() {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[3]), Kind::Float);
    let y = g.add(Op::Unary(Unary::Abs), &[x]).unwrap();
    g.output("y", y);
    let program = Cpu::default().compile(&g).unwrap();
    for samples in [5, 2, 7] {
        let found = program.run(&[tensor(&[samples, 3], 4)]).unwrap();
        let expected: Vec<f64> = tensor(&[samples, 3], 4).to_f64().iter().map(|v| v.abs()).collect();
        assert_eq!((found[0].shape(), found[0].to_f64().to_vec()), ([samples, 3].as_slice(), expected));
        program.reclaim(found);
    }
}
