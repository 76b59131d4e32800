//! Relevance Mass Accuracy: the share of a map's signed sum that lies on the object.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::preset::Preset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};

/// `Σ_{i in the mask} a_i / Σ_i a_i`, also where that is below 0 or above 1.
#[derive(Clone, Debug, PartialEq)]
pub struct RelevanceMassAccuracy {
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

impl Default for RelevanceMassAccuracy {
    fn default() -> Self {
        RelevanceMassAccuracy { normalisation: MapNormalisation::NORMALISED }
    }
}

impl RelevanceMassAccuracy {
    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        Preset::read(options, Preset::Paper)?;
        Ok(RelevanceMassAccuracy { normalisation: Self::default().normalisation.read(options)? })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let mask = arrays.mask()?;
        let map = self.normalisation.of(&arrays.map);
        let inside: f64 = map.iter().zip(mask).filter(|(_, inside)| **inside).map(|(value, _)| value).sum();
        let total: f64 = map.iter().sum();
        if total == 0.0 {
            return Err(undefined("the map adds up to nothing"));
        }
        Ok(inside / total)
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
