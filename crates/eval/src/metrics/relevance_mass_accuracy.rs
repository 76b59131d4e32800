//! Relevance Mass Accuracy: how much of a map lies on the object, sign and all.

use monosplit_graph::{Options, Result};

use super::preset::Preset;
use super::treatment::Treatment;
use crate::metric::{Better, Case, Metric, Silence};
use crate::subject::{Stop, Subject, settled, silent};

/// `Σ_{i in the mask} a_i / Σ_i a_i`, whatever that is.
#[derive(Clone, Debug, PartialEq)]
pub struct RelevanceMassAccuracy {
    /// What is done to the map.
    pub treatment: Treatment,
}

impl Default for RelevanceMassAccuracy {
    fn default() -> Self {
        RelevanceMassAccuracy { treatment: Treatment::NORMALISED }
    }
}

impl RelevanceMassAccuracy {
    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        Preset::read(options, Preset::Paper)?;
        Ok(RelevanceMassAccuracy { treatment: Self::default().treatment.read(options)? })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, Stop> {
        let subject = Subject::of(case)?;
        let mask = subject.mask()?;
        let map = self.treatment.of(&subject.map);
        let inside: f64 = map.iter().zip(mask).filter(|(_, inside)| **inside).map(|(value, _)| value).sum();
        let total: f64 = map.iter().sum();
        if total == 0.0 {
            return Err(silent("the map adds up to nothing"));
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

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Silence>> {
        settled(self.value(case))
    }
}
