//! Complexity: how evenly a map is spread over the image.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};

/// The entropy `−Σ_i p_i·ln(p_i + ε)` of the map's shares `p_i = |a_i| / Σ_j |a_j|`.
#[derive(Clone, Debug, PartialEq)]
pub struct Complexity {
    /// Added inside the logarithm. If it is 0, zero shares add nothing.
    pub stabiliser: f64,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

impl Complexity {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        let stabiliser = if preset == MetricPreset::Quantus05 { 0.0 } else { 1e-12 };
        Complexity { stabiliser, normalisation: MapNormalisation::ABSOLUTE }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(Complexity {
            stabiliser: options.number("stabiliser", preset.stabiliser, 0.0..=1.0)?,
            normalisation: preset.normalisation.read(options)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let map = self.normalisation.of(&arrays.map);
        let sum: f64 = map.iter().map(|value| value.abs()).sum();
        if sum == 0.0 {
            return Err(undefined("the map is zero everywhere"));
        }
        if map.iter().any(|value| *value < 0.0) {
            return Err(undefined("negative shares have no entropy; leave abs on"));
        }
        let term = |share: f64| if share == 0.0 { 0.0 } else { -share * (share + self.stabiliser).ln() };
        Ok(map.iter().map(|value| term(value / sum)).sum())
    }
}

impl Metric for Complexity {
    fn name(&self) -> &str {
        "complexity"
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
