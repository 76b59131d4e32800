//! The engine for NVIDIA cards. The driver, cuDNN, cuBLASLt and the run-time compiler are looked for when the engine is
//! made; nothing of them is needed to build it.

#![allow(unsafe_code)]

mod cache;
mod command;
mod convolution;
mod device;
mod dock;
mod elementwise;
mod instance;
mod lanes;
mod layout;
mod lowering;
mod multiplication;
mod order;
mod pieces;
mod product;
mod program;
mod resident;
mod translator;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use monosplit_graph::{Graph, Result};

use crate::{CompileOptions, Engine, Precision, Program};
use device::Device;
use program::CudaProgram;

/// How convolutions and products of single precision numbers are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// In single precision.
    #[default]
    F32,
    /// On tensor cores, factors rounded to 10 bits after the point and sums in single precision.
    Tf32,
    /// On tensor cores, factors rounded to 7 bits after the point and sums in single precision; results of convolutions are
    /// rounded so as well.
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

/// Runs graphs on an NVIDIA card.
///
/// What the fastest algorithm for a convolution is, is found out once and kept in a folder for caches (`MONOSPLIT_CACHE`, or
/// the system's own). As long as it is there, the same inputs give the same bits at every run on one machine.
#[derive(Clone)]
pub struct Cuda {
    device: Arc<Device>,
    precision: Precision,
    arithmetic: Arithmetic,
}

impl Cuda {
    /// Opens the card with this number, counted from 0.
    pub fn open(number: usize) -> Result<Self> {
        let device = Device::open(number)?;
        Ok(Cuda { device, precision: Precision::default(), arithmetic: Arithmetic::default() })
    }

    /// Computes real numbers in this precision.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        Cuda { precision, ..self }
    }

    /// How single precision numbers are multiplied.
    #[must_use]
    pub fn arithmetic(self, arithmetic: Arithmetic) -> Self {
        Cuda { arithmetic, ..self }
    }

    /// How long the card has computed, the ways of numbers to and from it not counted.
    pub fn time_on_card(&self) -> Duration {
        Duration::from_nanos(self.device.busy.load(Ordering::Relaxed))
    }

    /// What the card is called.
    pub fn name(&self) -> &str {
        self.device.name()
    }
}

/// A batch that occupies a card with images of 224×224 pixels.
const PREFERRED_BATCH_SIZE: usize = 48;

impl Engine for Cuda {
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
