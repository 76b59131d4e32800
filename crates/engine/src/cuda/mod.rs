//! The engine for NVIDIA GPUs. The driver, cuDNN, cuBLASLt and the run-time compiler (NVRTC) are loaded when the engine is
//! opened; none of them is needed to build it.

#![allow(unsafe_code)]

mod buffer;
mod cache;
mod chunked_batch;
mod command;
mod compiler;
mod convolution;
mod device;
mod device_memory;
mod elementwise;
mod event;
mod expression;
mod generated_kernels;
mod instance;
mod kernel_parameters;
mod lowering;
mod memory_format;
mod multiplication;
mod product;
mod program;
mod resident;
mod staging;
mod streams;
mod transfer;
mod translator;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use monosplit_graph::{Graph, Result};

use crate::{CompileOptions, Engine, EngineIdentity, Precision, Program};
use device::Device;
use program::CudaProgram;

/// How convolutions and matrix products of single precision numbers are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// In single precision.
    #[default]
    F32,
    /// On tensor cores, with factors rounded to 10 mantissa bits and sums in single precision.
    Tf32,
    /// On tensor cores, with factors rounded to 7 mantissa bits and sums in single precision. Results of convolutions are
    /// rounded to 7 mantissa bits, too.
    Bf16,
}

/// How real numbers are stored and multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Math {
    F32,
    Tf32,
    Bf16,
    F64,
}

impl Math {
    /// Whether products are computed on tensor cores.
    fn on_tensor_cores(self) -> bool {
        matches!(self, Math::Tf32 | Math::Bf16)
    }

    /// Bytes of a real number.
    fn bytes(self) -> usize {
        if self == Math::F64 { 8 } else { 4 }
    }
}

/// Runs graphs on an NVIDIA GPU.
///
/// The fastest algorithm of each convolution is measured once and stored in a cache folder (`MONOSPLIT_CACHE`, or
/// `monosplit` in the user's cache folder). As long as that folder is kept, the same inputs give the same bits at every run
/// on one machine.
#[derive(Clone)]
pub struct Cuda {
    device: Arc<Device>,
    precision: Precision,
    arithmetic: Arithmetic,
}

impl Cuda {
    /// Opens the GPU with this number, counted from 0.
    pub fn open(number: usize) -> Result<Self> {
        let device = Device::open(number)?;
        Ok(Cuda { device, precision: Precision::default(), arithmetic: Arithmetic::default() })
    }

    /// Computes real numbers in this precision.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        Cuda { precision, ..self }
    }

    /// Sets how single precision numbers are multiplied.
    #[must_use]
    pub fn arithmetic(self, arithmetic: Arithmetic) -> Self {
        Cuda { arithmetic, ..self }
    }

    /// How long the GPU has computed, without transfers.
    pub fn device_time(&self) -> Duration {
        Duration::from_nanos(self.device.compute_time.load(Ordering::Relaxed))
    }

    /// The name of the GPU.
    pub fn name(&self) -> &str {
        self.device.name()
    }
}

/// A batch that fills a GPU with images of 224×224 pixels.
const PREFERRED_BATCH_SIZE: usize = 48;

impl Engine for Cuda {
    fn identity(&self) -> Result<EngineIdentity> {
        Ok(EngineIdentity { engine: "cuda".to_owned(), instructions: self.name().to_owned() })
    }

    fn preferred_batch_size(&self) -> Option<usize> {
        Some(PREFERRED_BATCH_SIZE)
    }

    fn native_precision(&self) -> Precision {
        self.precision
    }

    fn compile_with(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Program>> {
        let math = match (options.precision.unwrap_or(self.precision), self.arithmetic) {
            (Precision::F64, _) => Math::F64,
            (_, Arithmetic::F32) => Math::F32,
            (_, Arithmetic::Tf32) => Math::Tf32,
            (_, Arithmetic::Bf16) => Math::Bf16,
        };
        Ok(Box::new(CudaProgram::compile(graph, &self.device, math)?))
    }
}
