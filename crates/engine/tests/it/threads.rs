//! The same inputs give the same bits at every number of threads, for every mix of engines in one process.

use monosplit_engine::{Cpu, Engine, Precision, Program};
use monosplit_graph::op::{Binary, Unary, Window};
use monosplit_graph::{Graph, Kind, Noise, Op, Shape, Tensor};

const CHANNELS: usize = 24;
const SIDE: usize = 12;

/// Numbers of which many are denormal in single precision, or become denormal when multiplied.
fn denormal_rich(seed: u64, count: usize) -> Vec<f32> {
    let noise = Noise::new(seed);
    let scales = [1.0, 1e-19, 1e-22, 1e-38, 1e-41, 3e-45];
    (0..count).map(|i| (noise.gaussian(i as u64) * scales[i * i % 6]) as f32).collect()
}

/// Convolutions by every algorithm, a matrix product, elementwise steps and constants that are computed when compiled.
fn network() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", Shape::batched(&[CHANNELS, SIDE, SIDE]), Kind::Float);
    let constant = |g: &mut Graph, seed: u64, shape: &[usize]| {
        let values = denormal_rich(seed, shape.iter().product());
        g.constant(Tensor::new(shape.to_vec(), values).unwrap())
    };
    let padded = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
    let strided = Window { stride: vec![2, 2], ..padded.clone() };
    let w = constant(&mut g, 1, &[CHANNELS, CHANNELS, 3, 3]);
    let doubled = g.binary(Binary::Add, w, w).unwrap();
    let winograd = g.add(Op::Conv { window: padded.clone(), groups: 1 }, &[x, doubled]).unwrap();
    let w = constant(&mut g, 2, &[CHANNELS, 1, 3, 3]);
    let depthwise = g.add(Op::Conv { window: padded.clone(), groups: CHANNELS }, &[x, w]).unwrap();
    let sum = g.binary(Binary::Add, winograd, depthwise).unwrap();
    let product = g.binary(Binary::Mul, sum, x).unwrap();
    let w = constant(&mut g, 3, &[CHANNELS, CHANNELS, 1, 1]);
    let window = Window::new([1, 1]);
    let pointwise = g.add(Op::Conv { window, groups: 1 }, &[product, w]).unwrap();
    let squashed = g.unary(Unary::Tanh, pointwise).unwrap();
    let w = constant(&mut g, 4, &[CHANNELS, CHANNELS, 3, 3]);
    let back = Op::ConvTranspose { window: strided, groups: 1, output_padding: vec![1, 1] };
    let wide = g.add(back, &[squashed, w]).unwrap();
    let flat = g.reshaped(squashed, Shape::batched(&[CHANNELS * SIDE * SIDE])).unwrap();
    let w = constant(&mut g, 5, &[CHANNELS * SIDE * SIDE, 10]);
    let scores = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[flat, w]).unwrap();
    for (name, id) in [("x", sum), ("product", product), ("wide", wide), ("scores", scores)] {
        g.output(name, id);
    }
    g
}

/// To be called on a thread that keeps denormals.
fn bits(tensors: &[Tensor]) -> Vec<Vec<u64>> {
    tensors.iter().map(|tensor| tensor.to_f64().iter().map(|v| v.to_bits()).collect()).collect()
}

/// An input in double precision, so that single precision converts it.
fn input() -> Tensor {
    let count = 2 * CHANNELS * SIDE * SIDE;
    let values: Vec<f64> = denormal_rich(9, count).into_iter().map(f64::from).collect();
    Tensor::new([2, CHANNELS, SIDE, SIDE], values).unwrap()
}

fn is_denormal(bits: &u64) -> bool {
    let value = f64::from_bits(*bits) as f32;
    value != 0.0 && value.is_subnormal()
}

/// An engine, a program of it, and the bits that the program gives where nothing else runs.
struct Case {
    engine: Cpu,
    program: Box<dyn Program>,
    expected: Vec<Vec<u64>>,
}

/// For both denormal modes, the expected bits by one thread, and programs on one to three threads.
fn cases(graph: &Graph) -> Vec<Case> {
    let mut cases = Vec::new();
    for flush in [false, true] {
        let alone = Cpu::default().threads(1).flush_denormals(flush);
        let expected = bits(&alone.compile(graph).unwrap().run(&[input()]).unwrap());
        for threads in [1, 2, 3] {
            let engine = Cpu::default().threads(threads).flush_denormals(flush);
            let program = engine.compile(graph).unwrap();
            cases.push(Case { engine, program, expected: expected.clone() });
        }
    }
    assert!(cases[0].expected.iter().flatten().any(is_denormal), "no output is denormal");
    assert!(cases[0].expected != cases[5].expected, "flushing changes nothing");
    cases
}

#[test]
fn engines_of_both_denormal_modes_keep_their_bits_beside_each_other() {
    let cases = cases(&network());
    std::thread::scope(|scope| {
        for caller in 0..3 {
            let cases = &cases;
            scope.spawn(move || {
                for round in 0..12 {
                    let Case { program, expected, .. } = &cases[(caller + round) % cases.len()];
                    assert!(bits(&program.run(&[input()]).unwrap()) == *expected, "{caller} {round}");
                }
            });
        }
    });
}

#[test]
fn engines_of_both_denormal_modes_keep_their_bits_within_each_other() {
    let graph = network();
    let cases = cases(&graph);
    for outer in &cases {
        for inner in &cases {
            let inputs = [input()];
            let outputs = outer.engine.install(|| inner.program.run(&inputs)).unwrap().unwrap();
            assert!(bits(&outputs) == inner.expected, "{:?} within {:?}", inner.engine, outer.engine);
        }
    }
}

#[test]
fn an_engine_started_on_a_thread_that_flushes_denormals_keeps_its_own_mode() {
    let graph = network();
    let cases = cases(&graph);
    let flushing = Cpu::default().threads(2).flush_denormals(true);
    for (flush, threads) in [(false, 1), (false, 3), (true, 2)] {
        let inputs = [input()];
        let compile_and_run = || {
            let engine = Cpu::default().threads(threads).flush_denormals(flush);
            engine.compile(&graph)?.run(&inputs)
        };
        let outputs = flushing.install(compile_and_run).unwrap().unwrap();
        let expected = &cases[if flush { 5 } else { 0 }].expected;
        assert!(bits(&outputs) == *expected, "{flush} {threads}");
    }
}

/// rayon's global pool, which belongs to the embedding program, starts when it is first used, and can be configured only until
/// then. No test of this file uses it.
#[test]
fn the_pool_of_the_embedding_program_is_never_used() {
    for precision in [Precision::F32, Precision::F64] {
        let program = Cpu::default().precision(precision).compile(&network()).unwrap();
        program.run(&[input()]).unwrap();
        program.run_profiled(&[input()]).unwrap();
    }
    assert!(rayon::ThreadPoolBuilder::new().num_threads(1).build_global().is_ok());
}

/// An engine with a thread for every core pins its threads. What is started on one of them is not confined to its core.
#[test]
fn threads_started_within_an_engine_may_use_all_cores() {
    let cores = || std::thread::available_parallelism().unwrap().get();
    let (engine, all, program) = (Cpu::default(), cores(), Cpu::default().compile(&network()).unwrap());
    let spawned = || std::thread::spawn(cores).join().unwrap();
    let (before, nested, after) = engine
        .install(|| {
            let before = spawned();
            let nested = engine.install(spawned).unwrap();
            program.run(&[input()]).unwrap();
            engine.compile(&network()).unwrap().run(&[input()]).unwrap();
            (before, nested, spawned())
        })
        .unwrap();
    assert_eq!((before, nested, after), (all, all, all));
    assert_eq!(engine.install(rayon::current_num_threads).unwrap(), all);
}
