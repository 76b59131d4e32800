//! The area under the ROC curve of a map as a classifier of object pixels.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};
use crate::similarity::ranks;

/// The chance that a pixel of the object has a higher value than one beside it, equal values counting half: the area under
/// the ROC curve.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalisationAuc {
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

impl Default for LocalisationAuc {
    fn default() -> Self {
        LocalisationAuc { normalisation: MapNormalisation::NORMALISED }
    }
}

impl LocalisationAuc {
    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        MetricPreset::read(options, MetricPreset::Paper)?;
        Ok(LocalisationAuc { normalisation: Self::default().normalisation.read(options)? })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let mask = arrays.mask()?;
        let inside = mask.iter().filter(|inside| **inside).count() as f64;
        let outside = mask.len() as f64 - inside;
        if outside == 0.0 {
            return Err(undefined("the mask covers the whole image"));
        }
        let ranks = ranks(&self.normalisation.of(&arrays.map));
        let sum: f64 = ranks.iter().zip(mask).filter(|(_, inside)| **inside).map(|(rank, _)| rank).sum();
        Ok((sum - inside * (inside + 1.0) / 2.0) / (inside * outside))
    }
}

impl Metric for LocalisationAuc {
    fn name(&self) -> &str {
        "auc"
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
