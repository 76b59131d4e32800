//! The jobs: a network run forward, explained by a method, or its explanations judged by a metric. Loading is not timed; a run is one call of the library
//! on a batch that is already in memory.

use std::path::Path;
use std::time::Duration;

use monosplit::engine::{Cpu, Engine, Profile};
use monosplit::graph::npy;
use monosplit::{Error, Inference, Model, Result, Tensor};

use crate::Results;
use crate::{method, metric};

/// Something that can be repeated.
pub(crate) trait Job {
    /// One repeat.
    fn run(&mut self) -> Result<Results>;

    /// Where the time of a repeat goes.
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

    /// What is left besides some keys.
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

/// How long a card has computed so far.
pub(crate) type CardTime = Box<dyn Fn() -> Duration>;

/// What computes: the processor, or the card if `engine=cuda`, with the arithmetic `precision=`.
fn engine(options: &Options<'_>) -> Result<(Box<dyn Engine>, Option<CardTime>)> {
    match options.get("engine") {
        None | Some("cpu") => {
            Ok((Box::new(Cpu::default().threads(options.number("threads")?.unwrap_or(2))), None))
        }
        Some("cuda") => card(options.get("precision").unwrap_or("f32")),
        Some(other) => Err(Error::argument(format!("unknown engine {other}: cpu, cuda"))),
    }
}

#[cfg(feature = "cuda")]
fn card(precision: &str) -> Result<(Box<dyn Engine>, Option<CardTime>)> {
    use monosplit::engine::{Arithmetic, Cuda};
    let arithmetic = match precision {
        "f32" => Arithmetic::F32,
        "tf32" => Arithmetic::Tf32,
        "bf16" => Arithmetic::Bf16,
        other => return Err(Error::argument(format!("unknown precision {other}: f32, tf32, bf16"))),
    };
    let card = Cuda::open(0)?.arithmetic(arithmetic);
    Ok((Box::new(card.clone()), Some(Box::new(move || card.device_time()))))
}

#[cfg(not(feature = "cuda"))]
fn card(_: &str) -> Result<(Box<dyn Engine>, Option<CardTime>)> {
    Err(Error::argument("the worker was built without the feature 'cuda'"))
}

/// A job, if what is asked for is built, and the card's own clock.
pub(crate) type Loaded = (Option<Box<dyn Job>>, Option<CardTime>);

/// Opens the network and compiles what is asked for.
pub(crate) fn load(kind: &str, model: &str, options: &[&str]) -> Result<Loaded> {
    let options = Options(options);
    let model = Model::open(model)?;
    let (engine, clock) = engine(&options)?;
    let input = Path::new(options.need("input")?);
    let bytes = std::fs::read(input).map_err(|cause| Error::io(input, cause))?;
    let images = npy::read(&bytes)?;
    let job: Option<Box<dyn Job>> = match kind {
        "forward" => Some(Box::new(Forward { inference: Inference::new(&model, &*engine)?, images })),
        "method" => method::load(&model, images, &*engine, &options)?,
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
