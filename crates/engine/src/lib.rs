//! How a graph is run: compile it into a program once, run the program on many inputs.
//!
//! An [`Engine`] knows graphs and machines. It does not know what a graph is for.

mod cpu;
#[cfg(feature = "onnxruntime")]
mod onnxruntime;
mod profile;

use monosplit_graph::{Graph, Result, Tensor};

pub use cpu::Cpu;
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

    /// Prepares `graph` to be run in the engine's own precision.
    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>> {
        self.compile_in(graph, self.native_precision())
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
}
