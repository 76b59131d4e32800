//! Completeness: whether a map adds up to the difference of the output from that of the baseline.

use monosplit_graph::{Options, Result};

use super::baseline::PixelBaseline;
use super::map_normalisation::MapNormalisation;
use super::perturbed_copies::{self, MeasuredOutput};
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};

/// Compares `Σ_i a_i` with `f(x) − f(baseline)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Completeness {
    /// The baseline image.
    pub baseline: PixelBaseline,
    /// Whether only the first channel of the image is emptied, as Quantus 0.6 does for maps of one channel.
    pub first_channel: bool,
    /// Which output of the network is measured.
    pub output: MeasuredOutput,
    /// How the two are compared.
    pub verdict: CompletenessCriterion,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

/// How the sum of a map is compared with the difference of the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletenessCriterion {
    /// 1 if they are equal to the last bit, else 0, as Quantus does. Rounding makes this 0 almost always.
    Exact,
    /// `|Σ_i a_i − (f(x) − f(baseline))| / |f(x) − f(baseline)|`
    Error,
}

impl Completeness {
    /// The options of a published protocol. The paper does not use this metric; its preset is the relative error.
    pub fn preset(preset: MetricPreset) -> Self {
        let quantus = Completeness {
            baseline: PixelBaseline::Black,
            first_channel: preset == MetricPreset::Quantus06,
            output: MeasuredOutput::Probability,
            verdict: CompletenessCriterion::Exact,
            normalisation: MapNormalisation::NORMALISED,
        };
        match preset {
            MetricPreset::Paper => Completeness {
                baseline: PixelBaseline::Value(0.0),
                output: MeasuredOutput::Logit,
                verdict: CompletenessCriterion::Error,
                normalisation: MapNormalisation::default(),
                ..quantus
            },
            _ => quantus,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        let verdicts = [("exact", CompletenessCriterion::Exact), ("error", CompletenessCriterion::Error)];
        Ok(Completeness {
            baseline: preset.baseline.read(options)?,
            first_channel: preset.first_channel,
            output: preset.output.read(options)?,
            verdict: options.one_of("verdict", preset.verdict, &verdicts)?,
            normalisation: preset.normalisation.read(options)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let sum: f64 = self.normalisation.of(&arrays.map).iter().sum();
        let mut empty = arrays.image.to_vec();
        let levels = self.baseline.levels(&arrays, &arrays.image);
        let channels = if self.first_channel { 1 } else { arrays.channels };
        for (plane, level) in empty.chunks_mut(arrays.pixels()).zip(&levels).take(channels) {
            plane.fill(*level);
        }
        let read = |scores: &[f64]| self.output.of(scores, case.class);
        let explained = perturbed_copies::score(case, &arrays.image, &read)?
            - perturbed_copies::score(case, &empty, &read)?;
        match self.verdict {
            CompletenessCriterion::Exact => Ok(f64::from(u8::from(sum == explained))),
            CompletenessCriterion::Error if explained == 0.0 => {
                Err(undefined("the class is the same on the baseline: there is nothing to explain"))
            }
            CompletenessCriterion::Error => Ok((sum - explained).abs() / explained.abs()),
        }
    }
}

impl Metric for Completeness {
    fn name(&self) -> &str {
        "completeness"
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        self.output.needs_class_scores()
    }

    fn better(&self) -> Better {
        match self.verdict {
            CompletenessCriterion::Exact => Better::Higher,
            CompletenessCriterion::Error => Better::Lower,
        }
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
