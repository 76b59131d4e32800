//! The engine for ordinary processors.

mod effort;
mod fusion;
mod kernels;
mod plan;
mod program;
mod real;
mod run;
mod schedule;
mod value;

use std::sync::{Arc, OnceLock};

use monosplit_graph::{Error, Graph, Result};
use rayon::ThreadPool;

use crate::{Engine, Precision};
use program::CpuProgram;

/// Largest memory a run may ask for unless told otherwise.
const DEFAULT_MEMORY_LIMIT: usize = 16 << 30;

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
    memory_limit: usize,
    threads: usize,
    pool: Arc<OnceLock<Arc<ThreadPool>>>,
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu {
            precision: Precision::default(),
            memory_limit: DEFAULT_MEMORY_LIMIT,
            threads: 0,
            pool: Arc::default(),
        }
    }
}

impl Cpu {
    /// Uses `threads` threads of its own, shared by all programs compiled with this engine and its clones;
    /// 0, the default, shares one thread per core with the rest of the process.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Cpu { threads, pool: Arc::default(), ..self }
    }

    /// Computes real numbers in this precision.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        Cpu { precision, ..self }
    }

    /// Refuses runs whose values would take more than `bytes` at once, weights and the scratch memory of
    /// kernels not counted. The default is 16 GiB.
    #[must_use]
    pub fn memory_limit(self, bytes: usize) -> Self {
        Cpu { memory_limit: bytes, ..self }
    }

    fn pool(&self) -> Result<Option<Arc<ThreadPool>>> {
        if self.threads == 0 {
            return Ok(None);
        }
        if let Some(pool) = self.pool.get() {
            return Ok(Some(pool.clone()));
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads).build().map_err(|e| {
            Error::argument(format!("{} threads could not be started ({e}); ask for fewer", self.threads))
        })?;
        Ok(Some(self.pool.get_or_init(|| Arc::new(pool)).clone()))
    }
}

impl Engine for Cpu {
    fn native_precision(&self) -> Precision {
        self.precision
    }

    fn compile_in(&self, graph: &Graph, precision: Precision) -> Result<Box<dyn crate::Program>> {
        let pool = self.pool()?;
        Ok(match precision {
            Precision::F32 => Box::new(CpuProgram::<f32>::compile(graph, pool, self.memory_limit)?),
            Precision::F64 => Box::new(CpuProgram::<f64>::compile(graph, pool, self.memory_limit)?),
        })
    }
}
