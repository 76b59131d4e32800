//! The jobs: a network run forward, explained by a method, or its explanations judged by a metric. Loading is not timed; a run is one call of the library
//! on a batch that is already in memory.

use std::path::Path;

use monosplit::engine::Cpu;
use monosplit::graph::npy;
use monosplit::{Error, Inference, Model, ModelOptions, Origin, Result, Tensor};

use crate::Results;
use crate::{method, metric};

/// Something that can be repeated.
pub(crate) trait Job {
    /// One repeat.
    fn run(&mut self) -> Result<Results>;
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

/// Opens the network and compiles what is asked for; `None` if the method asked for is not built.
pub(crate) fn load(kind: &str, model: &str, options: &[&str]) -> Result<Option<Box<dyn Job>>> {
    let options = Options(options);
    let model = Model::open(Origin::onnx(model), &ModelOptions::default())?;
    let engine = Cpu::default().threads(options.number("threads")?.unwrap_or(2));
    let input = Path::new(options.need("input")?);
    let bytes = std::fs::read(input).map_err(|cause| Error::io(input, &cause))?;
    let images = npy::read(&bytes)?;
    match kind {
        "forward" => Ok(Some(Box::new(Forward { inference: Inference::new(&model, &engine)?, images }))),
        "method" => method::load(&model, images, &engine, &options),
        "metric" => metric::load(&model, &images, &engine, &options),
        _ => Err(Error::argument(format!("unknown job {kind}: forward, method, metric"))),
    }
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
