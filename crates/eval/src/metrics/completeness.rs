//! Completeness: whether a map adds up to the difference of the output from that of the baseline.

use monosplit_graph::{Options, Result};

use super::baseline::Baseline;
use super::map_normalisation::MapNormalisation;
use super::perturbed_copies::{self, Output};
use super::preset::Preset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};

/// Compares `Σ_i a_i` with `f(x) − f(baseline)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Completeness {
    /// The baseline image.
    pub baseline: Baseline,
    /// Whether only the first channel of the image is emptied, as Quantus 0.6 does for maps of one channel.
    pub first_channel: bool,
    /// Which output of the network is measured.
    pub output: Output,
    /// How the two are compared.
    pub verdict: Verdict,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
}

/// How the sum of a map is compared with the difference of the outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// 1 if they are equal to the last bit, else 0, as Quantus does. Rounding makes this 0 almost always.
    Exact,
    /// `|Σ_i a_i − (f(x) − f(baseline))| / |f(x) − f(baseline)|`
    Error,
}

impl Completeness {
    /// The options of a published protocol. The paper does not use this metric; its preset is the relative error.
    pub fn preset(preset: Preset) -> Self {
        let quantus = Completeness {
            baseline: Baseline::Black,
            first_channel: preset == Preset::Quantus06,
            output: Output::Probability,
            verdict: Verdict::Exact,
            normalisation: MapNormalisation::NORMALISED,
        };
        match preset {
            Preset::Paper => Completeness {
                baseline: Baseline::Value(0.0),
                output: Output::Logit,
                verdict: Verdict::Error,
                normalisation: MapNormalisation::default(),
                ..quantus
            },
            _ => quantus,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(Preset::read(options, Preset::Paper)?);
        let verdicts = [("exact", Verdict::Exact), ("error", Verdict::Error)];
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
            Verdict::Exact => Ok(f64::from(u8::from(sum == explained))),
            Verdict::Error if explained == 0.0 => {
                Err(undefined("the class is the same on the baseline: there is nothing to explain"))
            }
            Verdict::Error => Ok((sum - explained).abs() / explained.abs()),
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
            Verdict::Exact => Better::Higher,
            Verdict::Error => Better::Lower,
        }
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
