//! The options that say how a network is computed.

use clap::{Args, ValueEnum};
use monosplit_engine::{Cpu, Engine};
use monosplit_graph::{Error, Result, Tensor};

/// How a network is computed on the processor.
#[derive(Args)]
pub(crate) struct ProcessorArgs {
    /// Compute in single (f32) or double (f64) precision.
    #[arg(long, value_name = "KIND", value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) precision: Precision,

    /// Compute convolutions as they are defined: slower, and with less rounding.
    #[arg(long)]
    accurate: bool,

    /// Use N threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
}

/// How and by what a network is computed.
#[derive(Args)]
pub(crate) struct ComputeArgs {
    #[command(flatten)]
    processor: ProcessorArgs,

    /// What computes: this program itself (cpu), or ONNX Runtime (onnxruntime), whose library is
    /// the one the environment variable MONOSPLIT_ONNXRUNTIME names.
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    engine: EngineName,

    /// Have ONNX Runtime compute with an execution provider: CUDA, TensorRT, CoreML, XNNPACK, …
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

/// The precision of real numbers.
#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
pub(crate) enum Precision {
    #[default]
    F32,
    F64,
}

impl From<Precision> for monosplit_engine::Precision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => monosplit_engine::Precision::F32,
            Precision::F64 => monosplit_engine::Precision::F64,
        }
    }
}

/// What computes.
#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
enum EngineName {
    #[default]
    Cpu,
    Onnxruntime,
}

impl ProcessorArgs {
    /// The processor, set up as asked.
    pub(crate) fn engine(&self) -> Cpu {
        let engine = Cpu::default().threads(self.threads()).precision(self.precision.into());
        engine.accurate(self.accurate)
    }

    fn threads(&self) -> usize {
        self.threads.unwrap_or(0) as usize
    }
}

impl ComputeArgs {
    /// The precision of real numbers.
    pub(crate) fn precision(&self) -> Precision {
        self.processor.precision
    }

    /// Numbers as they are written down.
    pub(crate) fn in_precision(&self, values: Tensor) -> Result<Tensor> {
        match self.precision() {
            Precision::F32 => Tensor::new(values.shape().to_vec(), values.to_f32().into_vec()),
            Precision::F64 => Tensor::new(values.shape().to_vec(), values.to_f64().into_vec()),
        }
    }

    /// What computes, set up as asked.
    pub(crate) fn engine(&self) -> Result<Box<dyn Engine>> {
        match (self.engine, &self.provider) {
            (EngineName::Cpu, None) => Ok(Box::new(self.processor.engine())),
            (EngineName::Cpu, Some(_)) => {
                Err(Error::argument("--provider is a choice of ONNX Runtime; add --engine onnxruntime"))
            }
            (EngineName::Onnxruntime, _) if self.precision() == Precision::F64 => Err(Error::argument(
                "ONNX Runtime has no convolutions in double precision; leave out --precision f64 or --engine",
            )),
            (EngineName::Onnxruntime, _) if self.processor.accurate => Err(Error::argument(
                "--accurate is a choice of the engine 'cpu'; leave out --accurate or --engine",
            )),
            (EngineName::Onnxruntime, provider) => {
                onnx_runtime(self.processor.threads(), provider.as_deref())
            }
        }
    }
}

#[cfg(feature = "onnxruntime")]
fn onnx_runtime(threads: usize, provider: Option<&str>) -> Result<Box<dyn Engine>> {
    let engine = monosplit_engine::OnnxRuntime::load()?.threads(threads);
    Ok(Box::new(match provider {
        Some(name) => engine.provider(name),
        None => engine,
    }))
}

#[cfg(not(feature = "onnxruntime"))]
fn onnx_runtime(_: usize, _: Option<&str>) -> Result<Box<dyn Engine>> {
    Err(Error::unsupported(
        "this program was built without the engine 'onnxruntime'; build it with --features onnxruntime, and name the \
         library with the environment variable MONOSPLIT_ONNXRUNTIME",
    ))
}
