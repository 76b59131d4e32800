//! The options that say how a network is computed.

use clap::{Args, ValueEnum};
use monosplit_engine::Cpu;
use monosplit_graph::{Result, Tensor};

/// How a network is computed.
#[derive(Args)]
pub(crate) struct ComputeArgs {
    /// Compute in single (f32) or double (f64) precision.
    #[arg(long, value_name = "KIND", value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) precision: Precision,

    /// Use N threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

/// The precision of real numbers.
#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
pub(crate) enum Precision {
    #[default]
    F32,
    F64,
}

impl ComputeArgs {
    /// Numbers as they are written down.
    pub(crate) fn in_precision(&self, values: Tensor) -> Result<Tensor> {
        match self.precision {
            Precision::F32 => Tensor::new(values.shape().to_vec(), values.to_f32().into_vec()),
            Precision::F64 => Tensor::new(values.shape().to_vec(), values.to_f64().into_vec()),
        }
    }

    /// The processor, set up as asked.
    pub(crate) fn engine(&self) -> Cpu {
        Cpu::default().threads(self.threads.unwrap_or(0) as usize).precision(match self.precision {
            Precision::F32 => monosplit_engine::Precision::F32,
            Precision::F64 => monosplit_engine::Precision::F64,
        })
    }
}
