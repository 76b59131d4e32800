//! The engine for ordinary processors.

mod core_affinity;
mod execution;
mod fusion;
mod gates;
mod handover;
pub(crate) mod kernels;
#[cfg(any(target_arch = "wasm32", test))]
mod lent_threads;
mod preparation;
mod program;
pub(crate) mod real;
mod run_memory;
mod sync;
pub(crate) mod thread_pool;
mod threads;
pub(crate) mod unwinding;
mod value;

use std::sync::{Arc, Mutex, PoisonError};

use monosplit_graph::{Graph, Result};

use crate::memory_ledger::MemoryLedger;
use crate::{CompileOptions, Engine, EngineIdentity, IncrementalProgram, Precision};
use kernels::conv_plan::PlanSettings;
pub use kernels::simd_level::InstructionSet;
use kernels::simd_level::SimdLevel;
use program::CpuProgram;
use thread_pool::ThreadPool;

/// Runs graphs on the processor, on all its cores unless told otherwise.
///
/// ```
/// use monosplit_engine::{Cpu, Engine, Precision};
/// use monosplit_graph::op::Unary;
/// use monosplit_graph::{Graph, Kind, Op, Shape, Tensor};
///
/// let mut graph = Graph::new();
/// let x = graph.input("x", Shape::batched(&[2]), Kind::Float);
/// let y = graph.add(Op::Unary(Unary::Relu), &[x])?;
/// graph.output("y", y);
/// let program = Cpu::default().threads(1).precision(Precision::F64).compile(&graph)?;
/// let outputs = program.run(&[Tensor::new([1, 2], vec![-1f64, 3.0])?])?;
/// assert_eq!(&*outputs[0].to_f64(), &[0.0, 3.0]);
/// # Ok::<(), monosplit_graph::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cpu {
    precision: Precision,
    settings: Settings,
    threads: usize,
    flush_denormals: bool,
    instructions: Option<InstructionSet>,
    /// Started when first used; shared by all clones.
    pool: Arc<Mutex<Option<Arc<ThreadPool>>>>,
    /// What its programs hold; shared by all clones.
    ledger: Arc<MemoryLedger>,
}

/// Lends the calling thread to the engines of the process, and never returns. WebAssembly starts no threads itself: engines that
/// are made while two or more are lent compute on them, others on the thread that calls them.
#[cfg(target_arch = "wasm32")]
pub fn lend_thread() -> ! {
    lent_threads::LENT.lend()
}

/// Waits until so many threads have been lent and are idle.
#[cfg(target_arch = "wasm32")]
pub fn wait_for_lent_threads(count: usize) {
    lent_threads::LENT.wait_for(count);
}

/// The largest batch size that convolutions are planned for.
const MAX_BATCH_SIZE: usize = 4096;

/// The settings of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Bytes that it may hold at once; a share of what is free if none are given.
    pub(crate) memory_limit: Option<usize>,
    pub(crate) convolutions: PlanSettings,
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu {
            precision: Precision::default(),
            settings: Settings {
                memory_limit: None,
                convolutions: PlanSettings { accurate: false, batch_size: 1 },
            },
            threads: 0,
            flush_denormals: false,
            instructions: None,
            pool: Arc::default(),
            ledger: Arc::default(),
        }
    }
}

impl Cpu {
    /// Uses this many threads; 0, the default, uses one per core. The threads belong to the engine, its clones and the programs
    /// they compile. They start when the first program is compiled and end with the last of these.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Cpu { threads, pool: Arc::default(), ..self }
    }

    /// Treats denormal numbers, which are slow to compute with, as zero, where the machine can. This is a property of the
    /// engine's threads: programs of other engines are not affected, wherever they are called from.
    #[must_use]
    pub fn flush_denormals(self, flush: bool) -> Self {
        Cpu { flush_denormals: flush, pool: Arc::default(), ..self }
    }

    /// Computes with these vector instructions instead of the best that the machine has: what a smaller machine would do, at its
    /// speed. Compiling fails if the machine does not have them. Results may differ in their last digits from set to set.
    #[must_use]
    pub fn instructions(self, set: InstructionSet) -> Self {
        Cpu { instructions: Some(set), pool: Arc::default(), ..self }
    }

    /// Runs `work` on the engine's threads, where `rayon`'s parallel iterators use them. Threads and engines that `work` itself
    /// starts may use all cores of the process.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.pool()?.install_released(work))
    }

    /// Computes real numbers in this precision.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        Cpu { precision, ..self }
    }

    /// Refuses programs that would hold more than `bytes` at once, together with the others of this engine and its clones: values,
    /// what is computed or packed of weights, and the scratch memory of kernels. Batches that would are run in chunks of samples
    /// where samples are independent. The default is [`memory_limit`](crate::memory_limit) at the time of compilation.
    #[must_use]
    pub fn memory_limit(self, bytes: usize) -> Self {
        let settings = Settings { memory_limit: Some(bytes), ..self.settings };
        Cpu { settings, ledger: Arc::default(), ..self }
    }

    /// Computes convolutions as they are defined. Single precision transforms their windows otherwise (Winograd), which takes
    /// fewer multiplications and rounds more.
    #[must_use]
    pub fn accurate(self, accurate: bool) -> Self {
        let convolutions = PlanSettings { accurate, ..self.settings.convolutions };
        Cpu { settings: Settings { convolutions, ..self.settings }, ..self }
    }

    /// The threads that programs run on.
    pub(crate) fn pool(&self) -> Result<Arc<ThreadPool>> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = &*pool {
            return Ok(started.clone());
        }
        let level = self.instructions.map_or_else(|| Ok(SimdLevel::current()), SimdLevel::of)?;
        let started = Arc::new(ThreadPool::start_with(self.threads, self.flush_denormals, level)?);
        Ok(pool.insert(started).clone())
    }
}

impl Engine for Cpu {
    fn native_precision(&self) -> Precision {
        self.precision
    }

    fn identity(&self) -> Result<EngineIdentity> {
        let level = self.instructions.map_or_else(|| Ok(SimdLevel::current()), SimdLevel::of)?;
        Ok(EngineIdentity { engine: "cpu".to_owned(), instructions: level.set().key().to_owned() })
    }

    fn compile_with(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn crate::Program>> {
        let batch_size = options.batch_size.unwrap_or(1).clamp(1, MAX_BATCH_SIZE);
        let convolutions = PlanSettings { batch_size, ..self.settings.convolutions };
        let (pool, settings) = (self.pool()?, Settings { convolutions, ..self.settings });
        let ledger = self.ledger.clone();
        Ok(match options.precision.unwrap_or(self.precision) {
            Precision::F32 => Box::new(CpuProgram::<f32>::compile(graph, pool, settings, ledger)?),
            Precision::F64 => Box::new(CpuProgram::<f64>::compile(graph, pool, settings, ledger)?),
        })
    }

    fn compile_incremental(
        &self,
        graph: &Graph,
        largest_change: [usize; 2],
        batch_size: usize,
    ) -> Result<Option<IncrementalProgram>> {
        let program = IncrementalProgram::compile(graph, largest_change, batch_size, self, self.pool()?)?;
        if let Some(program) = &program {
            let scratch = Arc::downgrade(program.scratch());
            self.ledger.add_idle(scratch);
        }
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Unary, Window};
    use monosplit_graph::{Kind, NodeId, Noise, Op, Shape, Tensor};

    use super::*;

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn numbers_too_small_to_be_normal_are_zero_where_asked_for() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::fixed(&[2]), Kind::Float);
        let squared = graph.times(x, x).unwrap();
        graph.output("y", squared);
        let squares = |engine: Cpu| {
            let program = engine.compile(&graph).unwrap();
            program.run(&[Tensor::vector(vec![1e-21f32, 2.0])]).unwrap()[0].to_f32().to_vec()
        };
        for threads in [0, 2] {
            let engine = Cpu::default().threads(threads);
            assert!(squares(engine.clone())[0] > 0.0);
            assert_eq!(squares(engine.flush_denormals(true)), [0.0, 4.0]);
        }
    }

    /// In every set that the machine has, a network of a convolution, a product and functions has the values it has in double
    /// precision, and its profile names the set. A set of another kind of machine is refused.
    #[test]
    fn every_instruction_set_computes_the_same() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[32, 9, 7]), Kind::Float);
        let y = convolved(&mut graph, x);
        let gate = graph.unary(Unary::Sigmoid, y).unwrap();
        let y = graph.times(y, gate).unwrap();
        let noise = Noise::new(8);
        let w = graph.constant(
            Tensor::new([7, 5], (0..35).map(|i| noise.gaussian(i) as f32).collect::<Vec<_>>()).unwrap(),
        );
        let y = graph.add(Op::MatMul { trans_a: false, trans_b: false }, &[y, w]).unwrap();
        let y = graph.add(Op::Softmax { axis: 3 }, &[y]).unwrap();
        graph.output("y", y);
        let image = (0..32 * 9 * 7).map(|i| noise.gaussian(100 + i) as f32).collect::<Vec<_>>();
        let image = [Tensor::new([1, 32, 9, 7], image).unwrap()];
        let exact = Cpu::default().precision(Precision::F64).compile(&graph).unwrap().run(&image).unwrap();
        let exact = exact[0].to_f64();
        for level in SimdLevel::all() {
            let set = [
                InstructionSet::Portable,
                InstructionSet::Neon,
                InstructionSet::Avx2,
                InstructionSet::Avx512,
                InstructionSet::Simd128,
            ];
            let set = set.into_iter().find(|set| set.name() == level.name()).unwrap();
            let program = Cpu::default().threads(2).accurate(true).instructions(set).compile(&graph).unwrap();
            let (found, profile) = program.run_profiled(&image).unwrap();
            let error = found[0].to_f64().iter().zip(&*exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(error < 1e-4, "{set:?}: {error}");
            assert!(profile.nodes.iter().all(|node| node.instructions == set.name()));
        }
        let foreign = if cfg!(target_arch = "x86_64") { InstructionSet::Neon } else { InstructionSet::Avx2 };
        let refused = Cpu::default().instructions(foreign).compile(&graph).err().unwrap().to_string();
        assert!(refused.contains(foreign.name()) && refused.contains("portable"), "{refused}");
    }

    /// Two convolutions of what is read from `x`, wide enough to be transformed.
    fn convolved(graph: &mut Graph, x: NodeId) -> NodeId {
        let noise = Noise::new(5);
        let kernel = (0..32 * 32 * 9).map(|i| noise.gaussian(i) as f32).collect::<Vec<_>>();
        let kernel = graph.constant(Tensor::new([32, 32, 3, 3], kernel).unwrap());
        let window = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
        let inner = graph.add(Op::Conv { window: window.clone(), groups: 1 }, &[x, kernel]).unwrap();
        graph.add(Op::Conv { window, groups: 1 }, &[inner, kernel]).unwrap()
    }

    #[test]
    fn accurate_convolutions_round_less() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[32, 24, 24]), Kind::Float);
        let y = convolved(&mut graph, x);
        graph.output("y", y);
        let noise = Noise::new(6);
        let image = (0..32 * 24 * 24).map(|i| noise.gaussian(i) as f32).collect::<Vec<_>>();
        let image = Tensor::new([1, 32, 24, 24], image).unwrap();
        let run = |engine: Cpu| {
            engine.compile(&graph).unwrap().run(std::slice::from_ref(&image)).unwrap()[0].to_f64().to_vec()
        };
        let exact = run(Cpu::default().precision(Precision::F64));
        let error =
            |found: Vec<f64>| found.iter().zip(&exact).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
        let (accurate, fast) = (error(run(Cpu::default().accurate(true))), error(run(Cpu::default())));
        assert!(accurate < 0.5 * fast, "{accurate} against {fast}");
    }

    #[test]
    fn an_even_image_that_is_known_gives_values_that_tie() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[32, 24, 24]), Kind::Float);
        let grey = graph.number(0.3);
        let even = graph.add(Op::Expand { shape: Shape::batched(&[32, 24, 24]) }, &[grey]).unwrap();
        let (one, other) = (convolved(&mut graph, even), convolved(&mut graph, x));
        graph.output("even", one);
        graph.output("x", other);
        let image = Tensor::new([2, 32, 24, 24], vec![0.1f32; 2 * 32 * 24 * 24]).unwrap();
        let found = Cpu::default().compile(&graph).unwrap().run(&[image]).unwrap()[0].to_f32();
        for plane in found.chunks(24 * 24) {
            let inside = (2..22).flat_map(|y| (2..22).map(move |x| plane[y * 24 + x]));
            assert!(inside.clone().all(|value| value == plane[2 * 24 + 2]));
        }
    }
}
