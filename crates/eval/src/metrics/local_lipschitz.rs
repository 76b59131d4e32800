//! Local Lipschitz estimate: the steepest change of an explanation near the image.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::neighbourhood::{MAX_NOISE, Neighbourhood, NoiseDistribution};
use super::perturbed_copies;
use super::preset::MetricPreset;
use crate::case_arrays::{MeasureError, measured};
use crate::metric::{Better, Case, Metric, Undefined};

/// Keeps the quotient finite where a perturbed image equals the image; Quantus's value.
const LEAST_DISTANCE: f64 = 1e-10;

/// `max ‖a(x) − a(x')‖ / ‖x − x'‖` over random `x'` near `x`.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalLipschitz {
    /// The perturbed images.
    pub neighbourhood: Neighbourhood,
}

impl LocalLipschitz {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        LocalLipschitz {
            neighbourhood: Neighbourhood {
                samples: 200,
                spread: NoiseDistribution::Gaussian(0.1),
                first_stays: preset == MetricPreset::Quantus05,
                same_decision: false,
                normalisation: MapNormalisation::NORMALISED,
                batch: None,
            },
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?).neighbourhood;
        Ok(LocalLipschitz {
            neighbourhood: Neighbourhood {
                samples: options.count("samples", preset.samples, 1..=100_000)?,
                spread: NoiseDistribution::Gaussian(options.number(
                    "deviation",
                    0.1,
                    f64::MIN_POSITIVE..=MAX_NOISE,
                )?),
                first_stays: preset.first_stays,
                same_decision: options.flag("same-decision", preset.same_decision)?,
                normalisation: preset.normalisation.read(options)?,
                batch: perturbed_copies::batch(options)?,
            },
        })
    }

    pub(crate) fn value(
        &self,
        case: &Case<'_>,
        make: &dyn Fn(usize, &mut [f32]),
    ) -> Result<f64, MeasureError> {
        let (distances, _) = self.neighbourhood.distances(case, make)?;
        Ok(distances.iter().map(|d| d.maps / (d.images + LEAST_DISTANCE)).fold(0.0, f64::max))
    }
}

impl Metric for LocalLipschitz {
    fn name(&self) -> &str {
        "local-lipschitz"
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
