//! Relevance Rank Accuracy: how many of a map's highest values lie on the object.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::order::{Ties, descending};
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, Metric, Undefined};

/// Of the `k` highest values of the map, the share that lies in the mask, `k` the size of the mask.
#[derive(Clone, Debug, PartialEq)]
pub struct RelevanceRankAccuracy {
    /// Which of two equal values ranks higher.
    pub ties: Ties,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

/// Which of two equal values ranks higher.
pub(crate) fn ties(preset: MetricPreset) -> Ties {
    if preset == MetricPreset::Quantus05 { Ties::LaterFirst } else { Ties::EarlierFirst }
}

impl RelevanceRankAccuracy {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        RelevanceRankAccuracy { ties: ties(preset), normalisation: MapNormalisation::NORMALISED }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(RelevanceRankAccuracy { normalisation: preset.normalisation.read(options)?, ..preset })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let mask = arrays.mask()?;
        let size = mask.iter().filter(|inside| **inside).count();
        let order = descending(&self.normalisation.of(&arrays.map), self.ties);
        Ok(order.iter().take(size).filter(|&&place| mask[place]).count() as f64 / size as f64)
    }
}

impl Metric for RelevanceRankAccuracy {
    fn name(&self) -> &str {
        "relevance-rank-accuracy"
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
