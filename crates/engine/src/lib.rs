//! How a graph is run: compile it into a program once, run the program on many inputs.
//!
//! An [`Engine`] knows graphs and machines. It does not know what a graph is for.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fixed_batch;
mod footprint;
mod graph_info;
mod incremental;
mod memory_budget;
mod memory_ledger;
#[cfg(feature = "onnxruntime")]
mod onnxruntime;
mod plan;
mod profile;
mod profiled_engine;
mod schedule;
mod split_batch;

use monosplit_graph::{Graph, Result, Tensor};

pub use cpu::{Cpu, InstructionSet};
#[cfg(target_arch = "wasm32")]
pub use cpu::{lend_thread, wait_for_lent_threads};
#[cfg(feature = "cuda")]
pub use cuda::{Arithmetic, Cuda};
pub use fixed_batch::run_in_fixed_batches;
pub use incremental::{BaselineActivations, Change, FieldExtent, IncrementalProgram, receptive_field};
pub use memory_budget::{check_memory, memory_limit, set_memory_limit};
pub use memory_ledger::Reservation;
#[cfg(feature = "onnxruntime")]
pub use onnxruntime::{LIBRARY_VARIABLE, OnnxRuntime};
pub use profile::{NodeTime, Profile};
pub use profiled_engine::ProfiledEngine;
pub use split_batch::is_splittable;

/// The precision real numbers are computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Double precision.
    F64,
}

impl Precision {
    /// `f32` or `f64`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F64 => "f64",
        }
    }
}

/// How a graph is compiled. The default is the engine's own precision and runs of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CompileOptions {
    /// The precision of real numbers; the engine's own if none is given.
    pub precision: Option<Precision>,
    /// About how many samples a run has; 1 if none is given.
    pub batch_size: Option<usize>,
}

impl CompileOptions {
    /// Computes real numbers in this precision.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        CompileOptions { precision: Some(precision), ..self }
    }

    /// Expects runs of about this many samples. The program runs at every batch size; this one decides which kernels are
    /// chosen, and other kernels may round differently.
    #[must_use]
    pub fn batch_size(self, batch_size: usize) -> Self {
        CompileOptions { batch_size: Some(batch_size), ..self }
    }
}

/// What computes, as far as the last bits of results depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineIdentity {
    /// The name of the engine: `cpu`, `cuda`, `onnxruntime`; empty if it does not say.
    pub engine: String,
    /// The vector instructions, as [`InstructionSet::key`] writes them, or the name of the GPU; empty if unknown.
    pub instructions: String,
}

/// A machine that can run graphs.
pub trait Engine: Send + Sync {
    /// The precision this engine computes in unless the options of a compilation name another.
    fn native_precision(&self) -> Precision;

    /// Compiles `graph`: weights are packed and memory is planned here, once.
    fn compile_with(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Program>>;

    /// Compiles `graph` with the default options.
    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>> {
        self.compile_with(graph, &CompileOptions::default())
    }

    /// The batch size the engine runs most efficiently, if it prefers one: a batch of that size takes little longer than one
    /// of a few samples, and each further batch size costs preparation. `None` if the engine is as efficient with small
    /// batches.
    fn preferred_batch_size(&self) -> Option<usize> {
        None
    }

    /// What computes. Results of different engines and instructions may differ in their last bits.
    fn identity(&self) -> Result<EngineIdentity> {
        Ok(EngineIdentity::default())
    }

    /// Compiles `graph` for copies of its first input, an image, that are changed within a rectangle of at most this height and
    /// width, about `batch_size` copies at a time. `None` where computing everything again is as good, which is what an engine
    /// says that does not implement it.
    fn compile_incremental(
        &self,
        graph: &Graph,
        largest_change: [usize; 2],
        batch_size: usize,
    ) -> Result<Option<IncrementalProgram>> {
        let _ = (graph, largest_change, batch_size);
        Ok(None)
    }
}

/// A compiled graph.
pub trait Program: Send + Sync {
    /// Runs on one tensor per graph input, at whatever batch size they have, and returns one per graph output.
    ///
    /// The same inputs give the same bits at every call and at every number of threads.
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Takes back the outputs of a run, in their order, that nobody needs any more: the next run uses their memory
    /// again instead of asking for more.
    fn reclaim(&self, outputs: Vec<Tensor>) {
        drop(outputs);
    }

    /// The bytes that a run of so many samples takes besides what the program holds between runs, with its inputs in double
    /// precision and its outputs; 0 where that is not known.
    fn run_memory(&self, samples: usize) -> usize {
        let _ = samples;
        0
    }

    /// The bytes of the memory budget that nothing holds.
    fn memory_left(&self) -> usize {
        usize::MAX
    }

    /// Counts `bytes` that the caller is going to hold to the memory budget of this program, until the result is dropped.
    fn hold_memory(&self, bytes: usize) -> Reservation {
        let _ = bytes;
        Reservation::default()
    }

    /// How many of `samples` samples are best given to a run, so that it stays within the memory budget although the caller
    /// holds `bytes_each` for each of them; at least one.
    fn samples_at_once(&self, samples: usize, bytes_each: usize) -> usize {
        samples_within(samples, self.memory_left(), |samples| {
            self.run_memory(samples).saturating_add(bytes_each.saturating_mul(samples))
        })
    }

    /// Like [`Program::run`], timing every node.
    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)>;

    /// Makes the program stateful, beginning with `state`: what its last inputs are given first, and its last outputs
    /// are every time after that.
    fn into_stateful(self: Box<Self>, state: Vec<Tensor>) -> Result<Box<dyn StatefulProgram>>;
}

/// The most of `samples` samples, at least one, that take no more than `left` bytes.
pub(crate) fn samples_within(samples: usize, left: usize, bytes: impl Fn(usize) -> usize) -> usize {
    if bytes(samples) <= left {
        return samples;
    }
    let (mut enough, mut too_many) = (1, samples.max(2));
    while too_many - enough > 1 {
        let middle = enough + (too_many - enough) / 2;
        if bytes(middle) <= left { enough = middle } else { too_many = middle }
    }
    enough
}

/// A program that is run on its own results.
pub trait StatefulProgram: Send {
    /// Runs on `inputs` and the state, keeps the new state where it is computed, and returns the other outputs.
    fn step(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// The state as it is now.
    fn state(&mut self) -> Result<Vec<Tensor>>;

    /// Goes on from another state.
    fn set_state(&mut self, state: Vec<Tensor>) -> Result<()>;
}

/// Keeps the state in host memory between steps.
struct HostState {
    program: Box<dyn Program>,
    state: Vec<Tensor>,
}

impl StatefulProgram for HostState {
    fn step(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let all = [inputs, &self.state].concat();
        let mut outputs = self.program.run(&all)?;
        self.state = outputs.split_off(outputs.len().saturating_sub(self.state.len()));
        Ok(outputs)
    }

    fn state(&mut self) -> Result<Vec<Tensor>> {
        Ok(self.state.clone())
    }

    fn set_state(&mut self, state: Vec<Tensor>) -> Result<()> {
        self.state = state;
        Ok(())
    }
}
