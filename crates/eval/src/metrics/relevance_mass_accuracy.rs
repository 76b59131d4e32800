//! Relevance Mass Accuracy: the share of a map's signed sum that lies on the object.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use super::share_rule::ShareRule;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, Metric, Undefined};

/// `Σ_{i in the mask} a_i / Σ_i a_i`, where the share rule defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct RelevanceMassAccuracy {
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// Where the quotient is defined.
    pub rule: ShareRule,
}

impl RelevanceMassAccuracy {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        let rule = if preset == MetricPreset::Paper { ShareRule::Share } else { ShareRule::Ratio };
        RelevanceMassAccuracy { normalisation: MapNormalisation::NORMALISED, rule }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(RelevanceMassAccuracy {
            normalisation: preset.normalisation.read(options)?,
            rule: preset.rule.read(options)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let mask = arrays.mask()?;
        let map = self.normalisation.of(&arrays.map);
        let inside: f64 = map.iter().zip(mask).filter(|(_, inside)| **inside).map(|(value, _)| value).sum();
        self.rule.quotient(inside, map.iter().sum())
    }
}

impl Metric for RelevanceMassAccuracy {
    fn name(&self) -> &str {
        "relevance-mass-accuracy"
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
