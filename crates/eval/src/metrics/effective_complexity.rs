//! Effective Complexity: how many values of a map exceed a threshold.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, Metric, Undefined};

/// How many values of the map are above a threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveComplexity {
    /// The threshold.
    pub threshold: f64,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

impl Default for EffectiveComplexity {
    fn default() -> Self {
        EffectiveComplexity { threshold: 1e-5, normalisation: MapNormalisation::ABSOLUTE }
    }
}

impl EffectiveComplexity {
    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        MetricPreset::read(options, MetricPreset::Paper)?;
        let default = Self::default();
        Ok(EffectiveComplexity {
            threshold: options.number("threshold", default.threshold, f64::MIN..=f64::MAX)?,
            normalisation: default.normalisation.read(options)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let map = self.normalisation.of(&arrays.map);
        Ok(map.iter().filter(|value| **value > self.threshold).count() as f64)
    }
}

impl Metric for EffectiveComplexity {
    fn name(&self) -> &str {
        "effective-complexity"
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
