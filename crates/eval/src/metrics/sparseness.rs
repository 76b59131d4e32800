//! Sparseness: how unequally a map is spread over the image.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};

/// Added to every value, so that a map of zeros counts as uniform; Quantus's value.
const LEAST: f64 = 1e-7;

/// The Gini index of the map: `Σ_i (2i − n − 1)·a_i / (n·Σ_i a_i)` over its values in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Sparseness {
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

impl Default for Sparseness {
    fn default() -> Self {
        Sparseness { normalisation: MapNormalisation::ABSOLUTE }
    }
}

impl Sparseness {
    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        MetricPreset::read(options, MetricPreset::Paper)?;
        Ok(Sparseness { normalisation: Self::default().normalisation.read(options)? })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let mut map = self.normalisation.of(&arrays.map);
        if map.iter().any(|value| *value < 0.0) {
            return Err(undefined("negative values have no Gini index; leave abs on"));
        }
        map.iter_mut().for_each(|value| *value += LEAST);
        map.sort_by(f64::total_cmp);
        let (count, sum) = (map.len() as f64, map.iter().sum::<f64>());
        if sum == 0.0 {
            return Err(undefined("the map adds up to nothing"));
        }
        let weighted = map.iter().enumerate().map(|(i, value)| (2.0 * (i + 1) as f64 - count - 1.0) * value);
        Ok(weighted.sum::<f64>() / (count * sum))
    }
}

impl Metric for Sparseness {
    fn name(&self) -> &str {
        "sparseness"
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
