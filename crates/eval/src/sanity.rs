//! The evaluator of the randomisation sanity check: it compares maps of the trained network with maps of a network whose last
//! layers are random. The less similar they are, the more the map depends on what those layers have learnt.

use monosplit_graph::{Error, Result};

use crate::candidate::Candidate;
use crate::compiled_group::CompiledGroup;
use crate::dataset::DatasetSample;
use crate::evaluated_model::EvaluatedModel;
use crate::metric::Undefined;
use crate::metric_evaluator::LoadedBatch;
use crate::similarity::Similarity;
use crate::sweep::{EvaluatedImage, Evaluator, Outcome};

/// The similarities of the paper, and the rank correlation of absolute values.
pub const SIMILARITIES: [Similarity; 4] =
    [Similarity::Hog, Similarity::Spearman, Similarity::SpearmanAbsolute, Similarity::Ssim];

/// Compares the maps of a trained network with those of a randomised one.
pub struct Sanity<'a> {
    trained: &'a EvaluatedModel<'a>,
    randomised: EvaluatedModel<'a>,
    compiled_groups: Option<[CompiledGroup; 2]>,
    loaded: [LoadedBatch; 2],
}

impl<'a> Sanity<'a> {
    /// Compares the maps of `trained` with those of `randomised`.
    pub fn new(trained: &'a EvaluatedModel<'a>, randomised: EvaluatedModel<'a>) -> Self {
        Sanity { trained, randomised, compiled_groups: None, loaded: Default::default() }
    }

    /// The name of a comparison in a store.
    pub fn name(similarity: Similarity, layers: usize, deviation: Option<f64>) -> String {
        let deviation = deviation.map_or(String::new(), |number| format!("deviation={number},"));
        format!("randomised-similarity:{deviation}layers={layers},similarity={}", similarity.name())
    }
}

impl Evaluator for Sanity<'_> {
    fn prepare(&mut self, group: &[&Candidate]) -> Result<()> {
        self.compiled_groups =
            Some([self.trained.compile_group(group)?, self.randomised.compile_group(group)?]);
        Ok(())
    }

    fn load(&mut self, samples: Vec<DatasetSample>, images: &[EvaluatedImage]) -> Result<()> {
        let [trained, randomised] =
            self.compiled_groups.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        self.loaded = [
            LoadedBatch::at(trained, samples.clone(), images, 0)?,
            LoadedBatch::at(randomised, samples, images, 0)?,
        ];
        Ok(())
    }

    fn evaluate(&mut self, metric: usize, image: usize, candidate: usize) -> Result<Outcome> {
        let compiled_groups =
            self.compiled_groups.as_ref().ok_or_else(|| Error::argument("no candidates were prepared"))?;
        let mut maps = Vec::new();
        for (compiled_group, loaded) in compiled_groups.iter().zip(&self.loaded) {
            match loaded.map(compiled_group, image, candidate)? {
                Some(map) => maps.push(map),
                None => return Ok(Err(Undefined("the image has no mask".into()))),
            }
        }
        let height = maps[0].shape()[0];
        Ok(SIMILARITIES[metric].of(&maps[0].to_f64(), &maps[1].to_f64(), height))
    }
}
