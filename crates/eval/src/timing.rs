//! The evaluator of run times: how long one map of one image takes, and how long a method takes to prepare.

use std::time::Instant;

use monosplit_graph::{Error, Result};

use crate::candidate::Candidate;
use crate::compiled_group::CompiledGroup;
use crate::dataset::DatasetSample;
use crate::evaluated_model::EvaluatedModel;
use crate::metric::Better;
use crate::sweep::{EvaluatedImage, Evaluator, Outcome};

/// How often a map is computed. The shortest time counts, because disturbances only make it longer.
const REPEATS: usize = 3;

/// Measures the time of maps, one image and one method at a time.
pub struct Timing<'a> {
    evaluated_model: &'a EvaluatedModel<'a>,
    compiled_group: Option<CompiledGroup>,
    prepared: f64,
    samples: Vec<DatasetSample>,
    classes: Vec<usize>,
}

impl<'a> Timing<'a> {
    /// What is measured, in seconds.
    pub const METRICS: [(&'static str, Better); 2] =
        [("seconds-per-map", Better::Lower), ("seconds-to-prepare", Better::Lower)];

    /// Measures the maps of `evaluated_model`.
    pub fn new(evaluated_model: &'a EvaluatedModel<'a>) -> Self {
        Timing {
            evaluated_model,
            compiled_group: None,
            prepared: 0.0,
            samples: Vec::new(),
            classes: Vec::new(),
        }
    }
}

impl Evaluator for Timing<'_> {
    fn prepare(&mut self, group: &[&Candidate]) -> Result<()> {
        let begun = Instant::now();
        self.compiled_group = Some(self.evaluated_model.compile_group(group)?);
        self.prepared = begun.elapsed().as_secs_f64();
        Ok(())
    }

    fn load(&mut self, samples: Vec<DatasetSample>, images: &[EvaluatedImage]) -> Result<()> {
        self.samples = samples;
        self.classes = images.iter().map(|image| image.class).collect();
        Ok(())
    }

    fn evaluate(&mut self, metric: usize, image: usize, _: usize) -> Result<Outcome> {
        let compiled_group =
            self.compiled_group.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        if metric == 1 {
            return Ok(Ok(self.prepared));
        }
        let mut shortest = f64::INFINITY;
        for _ in 0..REPEATS {
            let begun = Instant::now();
            compiled_group.maps(&self.samples[image].tensor, &[self.classes[image]])?;
            shortest = shortest.min(begun.elapsed().as_secs_f64());
            // Long times are not disturbed by milliseconds.
            if shortest > 1.0 {
                break;
            }
        }
        Ok(Ok(shortest))
    }
}
