//! Random perturbations of an image and their explanations: the core of the robustness metrics.

use monosplit_graph::{Noise, Result};

use super::map_normalisation::MapNormalisation;
use super::perturbed_copies::{self, PerturbedCopies, each};
use crate::case_arrays::{CaseArrays, MeasureError, undefined};
use crate::metric::Case;

/// The largest noise that options may ask for.
pub(super) const MAX_NOISE: f64 = 1e6;

/// The noise that is added to every value of the image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoiseDistribution {
    /// Uniform between minus and plus this.
    Uniform(f64),
    /// Normal with this standard deviation.
    Gaussian(f64),
}

impl NoiseDistribution {
    fn draw(self, noise: Noise, index: u64) -> f64 {
        match self {
            NoiseDistribution::Uniform(radius) => radius * (2.0 * noise.uniform(index) - 1.0),
            NoiseDistribution::Gaussian(deviation) => deviation * noise.gaussian(index),
        }
    }
}

/// How perturbed images are drawn and explained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbourhood {
    /// The number of perturbed images.
    pub samples: usize,
    /// The noise that is added.
    pub spread: NoiseDistribution,
    /// Whether the first value of the image is left unchanged, as in Quantus 0.5.
    pub first_stays: bool,
    /// Whether the metric is undefined if the predicted class changes for one of them.
    pub same_decision: bool,
    /// How the maps are normalised.
    pub normalisation: MapNormalisation,
    /// The batch size; the one the engine prefers if none is given.
    pub batch: Option<usize>,
}

/// The distances of a perturbed image and its explanation from the original ones.
pub(crate) struct Distance {
    /// ‖a − a'‖
    pub(crate) maps: f64,
    /// ‖x − x'‖
    pub(crate) images: f64,
}

impl Neighbourhood {
    /// Turns a copy of the image into perturbed image `sample`.
    pub(crate) fn make(&self, seed: u64, sample: usize, copy: &mut [f32]) {
        let noise = Noise::new(seed).stream("neighbours").numbered(sample as u64);
        for (index, value) in copy.iter_mut().enumerate().skip(usize::from(self.first_stays)) {
            *value = (f64::from(*value) + self.spread.draw(noise, index as u64)) as f32;
        }
    }

    /// The distances of each perturbed image made by `make`, and ‖a‖.
    pub(crate) fn distances(
        &self,
        case: &Case<'_>,
        make: &dyn Fn(usize, &mut [f32]),
    ) -> Result<(Vec<Distance>, f64), MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let map = self.normalisation.of(&arrays.map);
        let before = self.same_decision.then(|| decision(&arrays)).transpose()?;
        let mut changed = false;
        let mut load = |copies: &mut PerturbedCopies<'_>| -> Result<Vec<Distance>> {
            if let Some(before) = before {
                let decisions = copies.scores(&|scores| best(scores) as f64)?;
                changed |= decisions.iter().any(|&decision| decision != before);
            }
            let maps = copies.maps()?;
            let distance = |(index, other): (usize, Vec<f64>)| Distance {
                maps: apart(map.iter().zip(&self.normalisation.of(&other)).map(|(a, b)| a - b)),
                images: apart(
                    arrays.image.iter().zip(copies.copy(index).iter()).map(|(a, b)| f64::from(a - b)),
                ),
            };
            Ok(maps.into_iter().enumerate().map(distance).collect())
        };
        let distances = each(case, &arrays.image, self.samples.max(1), self.batch, make, &mut load)?;
        if changed {
            return Err(undefined("the network decides otherwise near the image"));
        }
        if distances.iter().any(|distance| !distance.maps.is_finite()) {
            return Err(undefined("a map near the image holds numbers that are not finite"));
        }
        Ok((distances, apart(map.iter().copied())))
    }
}

fn decision(arrays: &CaseArrays<'_>) -> Result<f64> {
    perturbed_copies::score(arrays.case, &arrays.image, &|scores| best(scores) as f64)
}

/// The class with the highest score, the first of several.
pub(crate) fn best(scores: &[f64]) -> usize {
    (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best })
}

/// The Euclidean norm.
fn apart(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}
