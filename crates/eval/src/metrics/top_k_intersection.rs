//! Top-K Intersection: how many of a map's highest values lie on the object.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::order::{MOST_PLACES, Ties, descending};
use super::preset::MetricPreset;
use super::relevance_rank_accuracy::ties;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, Metric, Undefined};

/// Of the `k` highest values of the map, the share that lies in the mask.
#[derive(Clone, Debug, PartialEq)]
pub struct TopKIntersection {
    /// The number `k`.
    pub k: usize,
    /// Whether the share is divided by the mask's share of the image.
    pub concept_influence: bool,
    /// Whether the share of an image with fewer than `k` pixels is one of `k`, as in Quantus 0.5; else of its pixels.
    pub of_k: bool,
    /// Which of two equal values ranks higher.
    pub ties: Ties,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

impl TopKIntersection {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        TopKIntersection {
            k: 1000,
            concept_influence: false,
            of_k: preset == MetricPreset::Quantus05,
            ties: ties(preset),
            normalisation: MapNormalisation::NORMALISED,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(TopKIntersection {
            k: options.count("k", preset.k, 1..=MOST_PLACES)?,
            concept_influence: options.flag("concept-influence", preset.concept_influence)?,
            normalisation: preset.normalisation.read(options)?,
            ..preset
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let mask = arrays.mask()?;
        let order = descending(&self.normalisation.of(&arrays.map), self.ties);
        let hits = order.iter().take(self.k).filter(|&&place| mask[place]).count();
        let share = hits as f64 / if self.of_k { self.k } else { self.k.min(mask.len()) } as f64;
        let size = mask.iter().filter(|inside| **inside).count() as f64 / mask.len() as f64;
        Ok(if self.concept_influence { share / size } else { share })
    }
}

impl Metric for TopKIntersection {
    fn name(&self) -> &str {
        "top-k-intersection"
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn needs_mask(&self) -> bool {
        true
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
