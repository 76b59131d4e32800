//! ROAD: whether the network still predicts the class when the most important pixels are imputed from the others.

use std::cell::RefCell;

use monosplit_graph::{Error, Noise, Options, Result};

use super::imputation::Imputation;
use super::map_normalisation::MapNormalisation;
use super::neighbourhood::best;
use super::order::{Ties, descending};
use super::perturbed_copies::{self, each};
use super::preset::MetricPreset;
use super::relevance_rank_accuracy::ties;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};
use crate::parallel::each_mut;

/// The share of removed percentages at which the network still predicts the class. Each removed pixel becomes the mean of
/// its neighbours, known and filled in alike, plus a little noise, all channels at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Road {
    /// The lowest percentage removed.
    pub first: usize,
    /// The highest percentage removed, below 100.
    pub last: usize,
    /// The step from one percentage to the next.
    pub every: usize,
    /// Standard deviation of the noise.
    pub noise: f64,
    /// Which of two equal pixels is removed first.
    pub ties: Ties,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// The batch size; the one the engine prefers if none is given.
    pub batch: Option<usize>,
}

impl Road {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        Road {
            first: 1,
            last: 99,
            every: 2,
            noise: 0.01,
            ties: ties(preset),
            normalisation: MapNormalisation::NORMALISED,
            batch: None,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        let road = Road {
            first: options.count("first", preset.first, 0..=99)?,
            last: options.count("last", preset.last, 0..=99)?,
            every: options.count("every", preset.every, 1..=99)?,
            noise: options.number("noise", preset.noise, 0.0..=f64::from(f32::MAX))?,
            ties: preset.ties,
            normalisation: preset.normalisation.read(options)?,
            batch: perturbed_copies::batch(options)?,
        };
        match road.first <= road.last {
            true => Ok(road),
            false => Err(Error::argument(format!(
                "road: option 'first' is at most 'last', found first={} and last={}",
                road.first, road.last
            ))),
        }
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let percentages: Vec<usize> = (self.first..=self.last.min(99)).step_by(self.every.max(1)).collect();
        if percentages.is_empty() {
            return Err(undefined("no percentage lies between the first and the last"));
        }
        let order = descending(&self.normalisation.of(&arrays.map), self.ties);
        // The solution at one percentage is close to the next, so the solver starts from it.
        let planes: RefCell<Vec<Vec<f64>>> = RefCell::new(
            arrays.image.chunks(arrays.pixels()).map(|p| p.iter().map(|&v| f64::from(v)).collect()).collect(),
        );
        let make = |index: usize, copy: &mut [f32]| {
            let removed = &order[..order.len() * percentages[index] / 100];
            let imputation = Imputation::new(removed.to_vec(), arrays.height, arrays.width);
            let mut planes = planes.borrow_mut();
            each_mut(&mut planes, |plane| imputation.fill(plane));
            let noise = Noise::new(case.seed).stream("imputation").numbered(index as u64);
            for (channel, plane) in planes.iter().enumerate() {
                for &place in removed {
                    let at = channel * arrays.pixels() + place;
                    copy[at] = (plane[place] + self.noise * noise.gaussian(at as u64)) as f32;
                }
            }
        };
        let stays = |scores: &[f64]| f64::from(u8::from(best(scores) == case.class));
        let kept = each(case, &arrays.image, percentages.len(), self.batch, &make, &mut |copies| {
            copies.scores(&stays)
        })?;
        Ok(kept.iter().sum::<f64>() / kept.len() as f64)
    }
}

impl Metric for Road {
    fn name(&self) -> &str {
        "road"
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        Some("counts how often the explained class stays the best, and a target has no classes; leave it out")
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
