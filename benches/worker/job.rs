//! The jobs: a forward pass, an explanation by a method, or a metric of explanations. Loading is not timed; a run is one call
//! of the library on a batch that is already in memory.

use std::path::Path;
use std::time::Duration;

use monosplit::engine::{Cpu, Engine, InstructionSet, Profile};
use monosplit::graph::npy;
use monosplit::{Error, Inference, Model, Result, Tensor};

use crate::Results;
use crate::{method, metric};

/// Work that can be repeated.
pub(crate) trait Job {
    /// One repeat.
    fn run(&mut self) -> Result<Results>;

    /// The profile of a repeat.
    fn profile(&mut self) -> Result<Profile> {
        Err(Error::argument("only methods are profiled"))
    }
}

/// The options of a job, each given once as `key=value`.
pub(crate) struct Options<'a>(&'a [&'a str]);

impl<'a> Options<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    }

    /// The options with other keys than `known`.
    pub(crate) fn others(&self, known: &[&str]) -> Vec<(String, String)> {
        let pairs = self.0.iter().filter_map(|option| option.split_once('='));
        let others = pairs.filter(|(key, _)| !known.contains(key));
        others.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    pub(crate) fn need(&self, key: &str) -> Result<&'a str> {
        self.get(key).ok_or_else(|| Error::argument(format!("the job needs {key}=")))
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<usize>> {
        let parse = |text: &str| {
            text.parse().map_err(|_| Error::argument(format!("{key}={text}: expected a whole number")))
        };
        self.get(key).map(parse).transpose()
    }
}

/// How long the GPU has computed so far.
pub(crate) type DeviceTime = Box<dyn Fn() -> Duration>;

/// The engine: the CPU with the vector instructions `simd=`, or the GPU if `engine=cuda`, with the arithmetic `precision=`.
fn engine(options: &Options<'_>) -> Result<(Box<dyn Engine>, Option<DeviceTime>)> {
    match options.get("engine") {
        None | Some("cpu") => {
            let engine = Cpu::default().threads(options.number("threads")?.unwrap_or(2));
            Ok((Box::new(limited(engine, options.get("simd"))?), None))
        }
        Some("cuda") => cuda(options.get("precision").unwrap_or("f32")),
        Some(other) => Err(Error::argument(format!("unknown engine {other}: cpu, cuda"))),
    }
}

/// The engine with the vector instructions of this name, if one is given.
fn limited(engine: Cpu, set: Option<&str>) -> Result<Cpu> {
    let set = match set {
        None => return Ok(engine),
        Some("portable") => InstructionSet::Portable,
        Some("neon") => InstructionSet::Neon,
        Some("avx2") => InstructionSet::Avx2,
        Some("avx512") => InstructionSet::Avx512,
        Some(other) => {
            return Err(Error::argument(format!("unknown simd {other}: portable, neon, avx2, avx512")));
        }
    };
    Ok(engine.instructions(set))
}

#[cfg(feature = "cuda")]
fn cuda(precision: &str) -> Result<(Box<dyn Engine>, Option<DeviceTime>)> {
    use monosplit::engine::{Arithmetic, Cuda};
    let arithmetic = match precision {
        "f32" => Arithmetic::F32,
        "tf32" => Arithmetic::Tf32,
        "bf16" => Arithmetic::Bf16,
        other => return Err(Error::argument(format!("unknown precision {other}: f32, tf32, bf16"))),
    };
    let engine = Cuda::open(0)?.arithmetic(arithmetic);
    Ok((Box::new(engine.clone()), Some(Box::new(move || engine.device_time()))))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &str) -> Result<(Box<dyn Engine>, Option<DeviceTime>)> {
    Err(Error::argument("the worker was built without the feature 'cuda'"))
}

/// A job, if its method exists, and the clock of the GPU, if it is used.
pub(crate) type Loaded = (Option<Box<dyn Job>>, Option<DeviceTime>);

/// Opens the network and compiles the job.
pub(crate) fn load(kind: &str, model: &str, options: &[&str]) -> Result<Loaded> {
    let options = Options(options);
    let model = Model::open(model)?;
    let (engine, clock) = engine(&options)?;
    let input = Path::new(options.need("input")?);
    let bytes = std::fs::read(input).map_err(|cause| Error::io(input, cause))?;
    let images = npy::read(&bytes)?;
    let job: Option<Box<dyn Job>> = match kind {
        "forward" => Some(Box::new(Forward { inference: Inference::new(&model, &*engine)?, images })),
        "method" => method::load(&model, images, engine, &options)?,
        "metric" => metric::load(&model, &images, engine, &options)?,
        _ => return Err(Error::argument(format!("unknown job {kind}: forward, method, metric"))),
    };
    Ok((job, clock))
}

struct Forward {
    inference: Inference,
    images: Tensor,
}

impl Job for Forward {
    fn run(&mut self) -> Result<Results> {
        let logits = self.inference.run(std::slice::from_ref(&self.images))?;
        Ok(vec![("logits".to_owned(), logits)])
    }
}
