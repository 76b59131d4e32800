//! How a graph is run: compile it into a program once, run the program on many inputs.
//!
//! An [`Engine`] knows graphs and machines. It does not know what a graph is for.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod effort;
#[cfg(feature = "onnxruntime")]
mod onnxruntime;
mod outline;
mod plan;
mod profile;
mod schedule;

use monosplit_graph::{Graph, Result, Tensor};

pub use cpu::{Cpu, Crew, settle_threads};
#[cfg(feature = "cuda")]
pub use cuda::{Arithmetic, Cuda};
#[cfg(feature = "onnxruntime")]
pub use onnxruntime::{LIBRARY_VARIABLE, OnnxRuntime};
pub use profile::{NodeTime, Profile};

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

/// A machine that can run graphs.
pub trait Engine: Send + Sync {
    /// The precision this engine computes in unless told otherwise.
    fn native_precision(&self) -> Precision;

    /// Prepares `graph` to be run in `precision`: weights are laid out and memory is planned here, once.
    fn compile_in(&self, graph: &Graph, precision: Precision) -> Result<Box<dyn Program>>;

    /// How many samples at once keep the engine busy, if it is a wide one: one that takes little longer for them than for a
    /// few, and would rather compute everything again than be asked for small parts of it. Other batch sizes cost it
    /// preparation.
    fn breadth(&self) -> Option<usize> {
        None
    }

    /// Prepares `graph` to be run in the engine's own precision.
    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>> {
        self.compile_in(graph, self.native_precision())
    }

    /// Like [`Engine::compile`], for runs of about so many samples at a time: other kernels may be the fastest then, which
    /// may round differently.
    fn compile_many(&self, graph: &Graph, samples: usize) -> Result<Box<dyn Program>> {
        let _ = samples;
        self.compile(graph)
    }

    /// The threads the engine computes on, for what is to be done between runs; if it has none of its own, those that all
    /// share.
    fn crew(&self) -> Result<Crew> {
        Ok(Crew::default())
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

    /// Like [`Program::run`], timing every node.
    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)>;

    /// Makes a loop of the program that begins with `state`: what its last inputs are given first, and its last outputs
    /// are every time after that.
    fn into_loop(self: Box<Self>, state: Vec<Tensor>) -> Result<Box<dyn Loop>>;
}

/// A program that is run on its own results.
pub trait Loop: Send {
    /// Runs on `inputs` and the state, keeps the new state where it is computed, and returns the other outputs.
    fn step(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// The state as it is now.
    fn state(&mut self) -> Result<Vec<Tensor>>;

    /// Goes on from another state.
    fn set_state(&mut self, state: Vec<Tensor>) -> Result<()>;
}

/// A loop whose state is handed back and forth.
struct Handed {
    program: Box<dyn Program>,
    state: Vec<Tensor>,
}

impl Loop for Handed {
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
