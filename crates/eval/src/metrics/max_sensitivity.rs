//! Max Sensitivity: the largest change of an explanation under small random perturbations of the image.

use monosplit_graph::{Options, Result};

use super::map_normalisation::MapNormalisation;
use super::neighbourhood::{MAX_NOISE, Neighbourhood, NoiseDistribution};
use super::perturbed_copies;
use super::preset::MetricPreset;
use crate::case_arrays::{MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};

/// `max ‖a(x) − a(x')‖ / ‖a(x)‖` over random `x'` near `x`.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxSensitivity {
    /// The perturbed images.
    pub neighbourhood: Neighbourhood,
}

/// The default perturbations of both sensitivities.
pub(crate) fn neighbourhood(preset: MetricPreset) -> Neighbourhood {
    Neighbourhood {
        samples: if preset == MetricPreset::Paper { 25 } else { 200 },
        spread: NoiseDistribution::Uniform(0.2),
        first_stays: preset == MetricPreset::Quantus05,
        same_decision: false,
        normalisation: MapNormalisation { normalise: false, absolute: preset == MetricPreset::Paper },
        batch: None,
    }
}

/// Reads the options of both sensitivities.
pub(crate) fn read(options: &mut Options) -> Result<Neighbourhood> {
    let preset = neighbourhood(MetricPreset::read(options, MetricPreset::Paper)?);
    Ok(Neighbourhood {
        samples: options.count("samples", preset.samples, 1..=100_000)?,
        spread: NoiseDistribution::Uniform(options.number("radius", 0.2, f64::MIN_POSITIVE..=MAX_NOISE)?),
        first_stays: preset.first_stays,
        same_decision: options.flag("same-decision", preset.same_decision)?,
        normalisation: preset.normalisation.read(options)?,
        batch: perturbed_copies::batch(options)?,
    })
}

/// The relative distance of the explanation of each perturbed image.
pub(crate) fn relative(
    neighbourhood: &Neighbourhood,
    case: &Case<'_>,
    make: &dyn Fn(usize, &mut [f32]),
) -> Result<Vec<f64>, MeasureError> {
    let (distances, size) = neighbourhood.distances(case, make)?;
    if size == 0.0 {
        return Err(undefined("the map is zero everywhere"));
    }
    Ok(distances.iter().map(|distance| distance.maps / size).collect())
}

impl MaxSensitivity {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        MaxSensitivity { neighbourhood: neighbourhood(preset) }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        Ok(MaxSensitivity { neighbourhood: read(options)? })
    }

    pub(crate) fn value(
        &self,
        case: &Case<'_>,
        make: &dyn Fn(usize, &mut [f32]),
    ) -> Result<f64, MeasureError> {
        let found = relative(&self.neighbourhood, case, make)?;
        Ok(found.into_iter().fold(0.0, f64::max))
    }
}

impl Metric for MaxSensitivity {
    fn name(&self) -> &str {
        "max-sensitivity"
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
