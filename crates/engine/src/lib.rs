//! How a graph is run: compile it into a program once, run the program on many inputs.
//!
//! An [`Engine`] knows graphs and machines. It does not know what a graph is for.

mod cpu;
mod profile;

use monosplit_graph::{Graph, Result, Tensor};

pub use cpu::Cpu;
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

/// A machine that can run graphs.
pub trait Engine: Send + Sync {
    /// Prepares `graph` to be run: weights are laid out and memory is planned here, once.
    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>>;
}

/// A compiled graph.
pub trait Program: Send + Sync {
    /// Runs on one tensor per graph input, at whatever batch size they have, and returns one per graph output.
    ///
    /// The same inputs give the same bits at every call and at every number of threads.
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Like [`Program::run`], timing every node.
    fn run_profiled(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile)>;
}
