//! The options that say how a network is computed, and by what.

use clap::{Args, ValueEnum};
use monosplit::engine::{Cpu, Engine, InstructionSet};
use monosplit::graph::{Error, Result, Tensor};

/// How and by what a network is computed.
#[derive(Args)]
pub(crate) struct ComputeArgs {
    /// Compute in single (f32) or double (f64) precision; on a GPU also with factors rounded to
    /// 10 (tf32) or 7 (bf16) bits after the point, as its tensor cores take them.
    #[arg(
        long,
        value_name = "KIND",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        verbatim_doc_comment
    )]
    precision: Precision,

    /// Compute convolutions as they are defined: slower, and with less rounding.
    #[arg(long)]
    accurate: bool,

    /// Use N threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,

    /// Compute with these vector instructions of the processor: portable, neon, avx2 or avx512
    /// [default: the best that it has].
    #[arg(long, value_name = "SET", value_enum, hide_possible_values = true, verbatim_doc_comment)]
    simd: Option<Simd>,

    /// What computes: this program itself on the processor (cpu) or on an NVIDIA GPU (cuda), or
    /// ONNX Runtime (onnxruntime), whose library is the one the environment variable
    /// MONOSPLIT_ONNXRUNTIME names.
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

    /// Compute on the GPU with this number, with --engine cuda [default: 0].
    #[arg(long, value_name = "N")]
    device: Option<usize>,
}

/// The precision of real numbers.
#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
pub(crate) enum Precision {
    #[default]
    F32,
    F64,
    Tf32,
    Bf16,
}

impl From<Precision> for monosplit::engine::Precision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F64 => monosplit::engine::Precision::F64,
            Precision::F32 | Precision::Tf32 | Precision::Bf16 => monosplit::engine::Precision::F32,
        }
    }
}

impl Precision {
    /// The name, if it is not the default.
    pub(crate) fn other_name(self) -> Option<String> {
        let named = self.to_possible_value().filter(|_| self != Precision::default());
        named.map(|value| value.get_name().to_owned())
    }
}

/// Vector instructions.
#[derive(Clone, Copy, ValueEnum)]
enum Simd {
    Portable,
    Neon,
    Avx2,
    Avx512,
}

impl From<Simd> for InstructionSet {
    fn from(simd: Simd) -> Self {
        match simd {
            Simd::Portable => InstructionSet::Portable,
            Simd::Neon => InstructionSet::Neon,
            Simd::Avx2 => InstructionSet::Avx2,
            Simd::Avx512 => InstructionSet::Avx512,
        }
    }
}

/// What computes.
#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
enum EngineName {
    #[default]
    Cpu,
    Cuda,
    Onnxruntime,
}

impl ComputeArgs {
    /// The precision of real numbers.
    pub(crate) fn precision(&self) -> Precision {
        self.precision
    }

    /// A tensor in the precision in which numbers are written to files.
    pub(crate) fn in_precision(&self, values: Tensor) -> Result<Tensor> {
        match self.precision {
            Precision::F64 => Tensor::new(values.shape().to_vec(), values.to_f64().into_vec()),
            _ => Tensor::new(values.shape().to_vec(), values.to_f32().into_vec()),
        }
    }

    /// Threads of the processor; 0 for one per core.
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or(0) as usize
    }

    /// The CPU engine with these options.
    pub(crate) fn processor(&self) -> Cpu {
        let engine = Cpu::default().threads(self.threads()).precision(self.precision.into());
        let engine = engine.accurate(self.accurate);
        self.simd.map_or(engine.clone(), |simd| engine.instructions(simd.into()))
    }

    /// The engine with these options.
    pub(crate) fn engine(&self) -> Result<Box<dyn Engine>> {
        self.check()?;
        match self.engine {
            EngineName::Cpu => Ok(Box::new(self.processor())),
            EngineName::Cuda => cuda(self.device.unwrap_or(0), self.precision),
            EngineName::Onnxruntime => onnx_runtime(self.threads(), self.provider.as_deref()),
        }
    }

    /// Whether a GPU computes.
    pub(crate) fn is_gpu(&self) -> bool {
        self.engine == EngineName::Cuda
    }

    /// An error if an option was given that training does not have.
    pub(crate) fn check_training(&self) -> Result<()> {
        self.check()?;
        let refused = |message: &str| Err(Error::argument(message));
        match self.engine {
            EngineName::Onnxruntime => refused("networks are trained with --engine cpu or cuda"),
            _ if self.precision == Precision::F64 => {
                refused("networks are trained in single precision; leave out --precision f64")
            }
            _ if self.simd.is_some() => {
                refused("networks are trained with the best instructions of the processor; leave out --simd")
            }
            _ if self.accurate => refused("--accurate changes nothing in training; leave it out"),
            _ => Ok(()),
        }
    }

    /// An error if an option was given that the engine does not have.
    fn check(&self) -> Result<()> {
        let refused = |message: &str| Err(Error::argument(message));
        match self.engine {
            engine if self.provider.is_some() && engine != EngineName::Onnxruntime => {
                refused("--provider is a choice of ONNX Runtime; add --engine onnxruntime")
            }
            engine if self.device.is_some() && engine != EngineName::Cuda => {
                refused("--device is a choice of the engine 'cuda'; add --engine cuda")
            }
            engine
                if matches!(self.precision, Precision::Tf32 | Precision::Bf16)
                    && engine != EngineName::Cuda =>
            {
                refused(
                    "--precision tf32 and bf16 are arithmetic of a GPU; add --engine cuda, or leave them out",
                )
            }
            engine if self.simd.is_some() && engine != EngineName::Cpu => {
                refused("--simd is a choice of the engine 'cpu'; leave out --simd or --engine")
            }
            engine if self.accurate && engine != EngineName::Cpu => {
                refused("--accurate is a choice of the engine 'cpu'; leave out --accurate or --engine")
            }
            EngineName::Onnxruntime if self.precision == Precision::F64 => refused(
                "ONNX Runtime has no convolutions in double precision; leave out --precision f64 or --engine",
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda(device: usize, precision: Precision) -> Result<Box<dyn Engine>> {
    use monosplit::engine::{Arithmetic, Cuda};
    let arithmetic = match precision {
        Precision::Tf32 => Arithmetic::Tf32,
        Precision::Bf16 => Arithmetic::Bf16,
        Precision::F32 | Precision::F64 => Arithmetic::F32,
    };
    Ok(Box::new(Cuda::open(device)?.precision(precision.into()).arithmetic(arithmetic)))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: usize, _: Precision) -> Result<Box<dyn Engine>> {
    Err(Error::unsupported(
        "this program was built without the engine 'cuda'; build it with --features cuda, which needs nothing of CUDA",
    ))
}

#[cfg(feature = "onnxruntime")]
fn onnx_runtime(threads: usize, provider: Option<&str>) -> Result<Box<dyn Engine>> {
    let engine = monosplit::engine::OnnxRuntime::load()?.threads(threads);
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
