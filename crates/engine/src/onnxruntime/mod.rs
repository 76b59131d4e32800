//! The engine over ONNX Runtime: a graph is written as an ONNX model in memory, which the library loads. The library is loaded
//! at run time and is not needed to build the engine.

mod budget;
mod library;

use std::path::PathBuf;

use monosplit_graph::onnx::{ExportOptions, write};
use monosplit_graph::passes::portable;
use monosplit_graph::{Error, Graph, Output, Result, Tensor};

use crate::memory_budget::limit_beside;
use crate::split_batch::run_in_chunks;
use crate::{
    CompileOptions, Cpu, Engine, EngineIdentity, HostState, IncrementalProgram, Precision, Profile, Program,
    StatefulProgram,
};
use budget::RunBudget;
use library::{Library, Session};

/// The environment variable with the path of the library.
pub const LIBRARY_VARIABLE: &str = "MONOSPLIT_ONNXRUNTIME";

/// The file name of the library.
const LIBRARY_NAME: &str = if cfg!(windows) {
    "onnxruntime.dll"
} else if cfg!(target_os = "macos") {
    "libonnxruntime.dylib"
} else {
    "libonnxruntime.so"
};

/// Runs graphs with ONNX Runtime, in single precision. The library has no convolutions in double precision, so [`Cpu`] runs
/// programs in double precision.
///
/// The library fuses nodes depending on the graph. Scores that are computed with an explanation may therefore differ in their
/// last bits from those computed without.
#[derive(Clone)]
pub struct OnnxRuntime {
    library: &'static Library,
    threads: usize,
    provider: Option<String>,
    memory_limit: Option<usize>,
    double: Cpu,
}

impl OnnxRuntime {
    /// Loads the library that [`LIBRARY_VARIABLE`] names, or the one the system finds.
    pub fn load() -> Result<Self> {
        let named = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
        let file = named.unwrap_or_else(|| PathBuf::from(LIBRARY_NAME));
        let library = Library::load(&file).map_err(|cause| {
            Error::argument(format!(
                "ONNX Runtime could not be loaded ({cause}); set {LIBRARY_VARIABLE} to the path of {LIBRARY_NAME}, \
                 which ONNX Runtime's releases have in lib/ and its Python package in onnxruntime/capi/"
            ))
        })?;
        let library = Box::leak(Box::new(library));
        log::info!("engine onnxruntime: version {}, {}", library.version(), file.display());
        Ok(OnnxRuntime { library, threads: 0, provider: None, memory_limit: None, double: Cpu::default() })
    }

    /// Uses `threads` threads. With 0, the default, the library chooses their number.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        OnnxRuntime { threads, double: self.double.threads(threads), ..self }
    }

    /// Uses an execution provider for the nodes it supports, and the CPU for the others: `CUDA`, `TensorRT`, `CoreML`,
    /// `XNNPACK` or another that the library was built with.
    #[must_use]
    pub fn provider(self, name: impl Into<String>) -> Self {
        OnnxRuntime { provider: Some(name.into()), ..self }
    }

    /// Refuses programs that would hold more than `bytes`, as [`Cpu::memory_limit`] does, by the same estimate. Batches that would
    /// are run in chunks of samples where samples are independent.
    #[must_use]
    pub fn memory_limit(self, bytes: usize) -> Self {
        OnnxRuntime { memory_limit: Some(bytes), double: self.double.memory_limit(bytes), ..self }
    }

    /// The version of the library.
    pub fn version(&self) -> &str {
        self.library.version()
    }

    /// Adds the available providers to an error, if a provider was requested.
    fn with_providers(&self, error: Error) -> Error {
        match (&self.provider, self.library.providers()) {
            (Some(provider), Ok(known)) => Error::argument(format!(
                "with the execution provider '{provider}': {error}; this library has {}",
                known.join(", ")
            )),
            _ => error,
        }
    }
}

impl Engine for OnnxRuntime {
    fn identity(&self) -> Result<EngineIdentity> {
        Ok(EngineIdentity { engine: "onnxruntime".to_owned(), instructions: String::new() })
    }

    fn native_precision(&self) -> Precision {
        Precision::F32
    }

    fn compile_with(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Program>> {
        if options.precision == Some(Precision::F64) {
            return self.double.compile_with(graph, options);
        }
        let mut graph = portable(graph)?;
        // Outputs are identified by their positions; an ONNX model needs distinct names.
        let outputs = graph.outputs().iter().enumerate();
        let outputs = outputs.map(|(index, output)| Output { name: format!("output {index}"), ..*output });
        graph.set_outputs(outputs.collect());
        let budget = RunBudget::new(&graph, self.memory_limit.unwrap_or_else(|| limit_beside(0)))?;
        let model = write(&graph, &ExportOptions::default())?;
        let session = self.library.session(&model, self.threads, self.provider.as_deref());
        let session = session.map_err(|error| self.with_providers(error))?;
        Ok(Box::new(RuntimeProgram { session, budget }))
    }

    fn compile_incremental(
        &self,
        graph: &Graph,
        largest_change: [usize; 2],
        batch_size: usize,
    ) -> Result<Option<IncrementalProgram>> {
        IncrementalProgram::compile(graph, largest_change, batch_size, self, self.double.pool()?)
    }
}

/// A graph loaded by ONNX Runtime.
struct RuntimeProgram {
    session: Session,
    budget: RunBudget,
}

impl Program for RuntimeProgram {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let batch = self.budget.info.batch(inputs)?;
        match self.budget.samples(batch)? {
            all if all == batch => self.session.run(inputs),
            some => run_in_chunks(&self.budget.info, (batch, some), inputs, |_, part| self.session.run(part)),
        }
    }

    fn run_memory(&self, samples: usize) -> usize {
        self.budget.run_bytes(samples)
    }

    fn memory_left(&self) -> usize {
        self.budget.bytes_left()
    }

    fn run_profiled(&self, _: &[Tensor]) -> Result<(Vec<Tensor>, Profile)> {
        Err(Error::unsupported("ONNX Runtime does not time single nodes; profile with the engine 'cpu'"))
    }

    fn into_stateful(self: Box<Self>, state: Vec<Tensor>) -> Result<Box<dyn StatefulProgram>> {
        Ok(Box::new(HostState { program: self, state }))
    }
}
