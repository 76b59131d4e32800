//! The options that say how a network is computed.

use clap::{Args, ValueEnum};
use monosplit_engine::Cpu;

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
    /// The processor, set up as asked.
    pub(crate) fn engine(&self) -> Cpu {
        Cpu::default().threads(self.threads.unwrap_or(0) as usize).precision(match self.precision {
            Precision::F32 => monosplit_engine::Precision::F32,
            Precision::F64 => monosplit_engine::Precision::F64,
        })
    }
}
