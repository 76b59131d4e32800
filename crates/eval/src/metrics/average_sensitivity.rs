//! Average Sensitivity: the mean change of an explanation under small random perturbations of the image.

use monosplit_graph::{Options, Result};

use super::max_sensitivity::{self, relative};
use super::neighbourhood::Neighbourhood;
use super::preset::MetricPreset;
use crate::case_arrays::{MeasureError, measured};
use crate::metric::{Better, Case, Metric, Undefined};

/// The mean of `‖a(x) − a(x')‖ / ‖a(x)‖` over random `x'` near `x`.
#[derive(Clone, Debug, PartialEq)]
pub struct AverageSensitivity {
    /// The perturbed images.
    pub neighbourhood: Neighbourhood,
}

impl AverageSensitivity {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        AverageSensitivity { neighbourhood: max_sensitivity::neighbourhood(preset) }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        Ok(AverageSensitivity { neighbourhood: max_sensitivity::read(options)? })
    }

    pub(crate) fn value(
        &self,
        case: &Case<'_>,
        make: &dyn Fn(usize, &mut [f32]),
    ) -> Result<f64, MeasureError> {
        let found = relative(&self.neighbourhood, case, make)?;
        Ok(found.iter().sum::<f64>() / found.len() as f64)
    }
}

impl Metric for AverageSensitivity {
    fn name(&self) -> &str {
        "average-sensitivity"
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    fn recomputes_maps(&self) -> bool {
        true
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        let make = |sample: usize, copy: &mut [f32]| self.neighbourhood.make(case.seed, sample, copy);
        measured(self.value(case, &make))
    }
}
