//! Pixel Flipping: the output while pixels are removed from the most to the least important.

use monosplit_graph::{Options, Result};

use super::baseline::PixelBaseline;
use super::feature_removal::{FeatureRemoval, FeatureUnit, Parts, area};
use super::map_normalisation::MapNormalisation;
use super::order::{MOST_PLACES, Ties, descending};
use super::perturbed_copies::{self, MeasuredOutput};
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, Metric, Undefined};

/// The area under the curve of the class's output while pixels are removed in the order of the map.
///
/// As a score, the area is that of the outputs after each step, one apart, the unchanged image left out: Quantus's number,
/// small for a good map. As a drop, it is that of `f(x) − f(x without the first pixels)` over the fraction removed, from
/// nothing removed on: the paper's number, large for a good map.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelFlipping {
    /// Features removed in one step.
    pub step: usize,
    /// What a feature is.
    pub unit: FeatureUnit,
    /// What replaces them.
    pub baseline: PixelBaseline,
    /// Which output of the network is measured.
    pub output: MeasuredOutput,
    /// Which curve the area is under.
    pub curve: Curve,
    /// Percentage of the features after which the curve ends.
    pub auc: f64,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// The batch size; the one the engine prefers if none is given.
    pub batch: Option<usize>,
}

/// Which curve the area is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// The output after each step.
    Score,
    /// How far it has dropped, over the fraction removed.
    Drop,
}

impl PixelFlipping {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        let quantus = PixelFlipping {
            step: 1,
            unit: FeatureUnit::Value,
            baseline: PixelBaseline::Black,
            output: MeasuredOutput::Probability,
            curve: Curve::Score,
            auc: 100.0,
            normalisation: MapNormalisation::NORMALISED,
            batch: None,
        };
        match preset {
            MetricPreset::Quantus06 => quantus,
            MetricPreset::Quantus05 => PixelFlipping { unit: FeatureUnit::Pixel, ..quantus },
            MetricPreset::Paper => PixelFlipping {
                step: 112,
                unit: FeatureUnit::Pixel,
                baseline: PixelBaseline::Mean,
                output: MeasuredOutput::Logit,
                curve: Curve::Drop,
                ..quantus
            },
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(PixelFlipping {
            step: options.count("step", preset.step, 1..=MOST_PLACES)?,
            unit: options.one_of(
                "unit",
                preset.unit,
                &[("pixel", FeatureUnit::Pixel), ("value", FeatureUnit::Value)],
            )?,
            baseline: preset.baseline.read(options)?,
            output: preset.output.read(options)?,
            curve: options.one_of(
                "curve",
                preset.curve,
                &[("score", Curve::Score), ("drop", Curve::Drop)],
            )?,
            auc: options.number("auc", preset.auc, f64::MIN_POSITIVE..=100.0)?,
            normalisation: preset.normalisation.read(options)?,
            batch: perturbed_copies::batch(options)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let map = self.normalisation.of(&arrays.map);
        let map = if self.unit == FeatureUnit::Value { arrays.spread(&map) } else { map };
        let features = map.len();
        let step = self.step.clamp(1, features);
        let end = features as f64 * self.auc.clamp(0.0, 100.0) / 100.0;
        let parts = Parts::of(descending(&map, Ties::EarlierFirst), step, self.unit);
        // A curve that ends between two steps needs the step after its end.
        let steps = ((end / step as f64).ceil() as usize).min(parts.len());
        if steps == 0 {
            return Err(undefined("the curve ends before the first pixel is removed"));
        }
        let read = |scores: &[f64]| self.output.of(scores, case.class);
        let removal = FeatureRemoval::new(&arrays, &parts, self.baseline, steps);
        let curve = removal.curve(self.batch, &read)?;
        if self.curve == Curve::Score {
            return Ok(area(&curve[1..]));
        }
        let removed = |steps: usize| (steps * step).min(features) as f64;
        let drop = |(steps, output): (usize, &f64)| (removed(steps), curve[0] - output);
        let points: Vec<(f64, f64)> = curve.iter().enumerate().map(drop).collect();
        Ok(area_until(&points, end) / features as f64)
    }
}

/// The area under the line through points, from the first on to where `end` is reached.
fn area_until(points: &[(f64, f64)], end: f64) -> f64 {
    let piece = |pair: &[(f64, f64)]| {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        let share = ((end - from) / (to - from)).clamp(0.0, 1.0);
        let reached = before + share * (after - before);
        (before + reached) / 2.0 * share * (to - from)
    };
    points.windows(2).map(piece).sum()
}

impl Metric for PixelFlipping {
    fn name(&self) -> &str {
        "pixel-flipping"
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        self.output.needs_class_scores()
    }

    fn better(&self) -> Better {
        match self.curve {
            Curve::Score => Better::Lower,
            Curve::Drop => Better::Higher,
        }
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_ends_where_it_is_told_to() {
        let line = [(0.0, 0.0), (2.0, 2.0), (4.0, 4.0)];
        for end in [0.0, 0.5, 2.0, 3.0, 4.0] {
            assert!((area_until(&line, end) - end * end / 2.0).abs() < 1e-12);
        }
    }
}
