//! Faithfulness Correlation: whether removing features with larger attributions lowers the output more.

use monosplit_graph::{Noise, Options, Result};

use super::baseline::PixelBaseline;
use super::feature_removal::FeatureUnit;
use super::map_normalisation::MapNormalisation;
use super::order::MOST_PLACES;
use super::perturbed_copies::{self, MeasuredOutput, each};
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured, undefined};
use crate::metric::{Better, Case, CaseShape, Metric, Undefined};
use crate::similarity::pearson;

/// Pearson's correlation, over random subsets of features, of the map's sum in the subset with the drop of the output when
/// the subset is removed.
#[derive(Clone, Debug, PartialEq)]
pub struct FaithfulnessCorrelation {
    /// Subsets drawn.
    pub runs: usize,
    /// Features in each.
    pub subset: usize,
    /// What a feature is.
    pub unit: FeatureUnit,
    /// What replaces removed features.
    pub baseline: PixelBaseline,
    /// Which output of the network is measured.
    pub output: MeasuredOutput,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// The batch size; the one the engine prefers if none is given.
    pub batch: Option<usize>,
}

impl FaithfulnessCorrelation {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        FaithfulnessCorrelation {
            runs: 100,
            subset: 224,
            unit: if preset == MetricPreset::Quantus05 { FeatureUnit::Pixel } else { FeatureUnit::Value },
            baseline: PixelBaseline::Black,
            output: MeasuredOutput::Probability,
            normalisation: MapNormalisation::NORMALISED,
            batch: None,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(FaithfulnessCorrelation {
            runs: options.count("runs", preset.runs, 2..=100_000)?,
            subset: options.count("subset", preset.subset, 1..=MOST_PLACES)?,
            unit: options.one_of(
                "unit",
                preset.unit,
                &[("pixel", FeatureUnit::Pixel), ("value", FeatureUnit::Value)],
            )?,
            baseline: preset.baseline.read(options)?,
            output: preset.output.read(options)?,
            normalisation: preset.normalisation.read(options)?,
            batch: perturbed_copies::batch(options)?,
        })
    }

    fn features(&self, arrays: &CaseArrays<'_>) -> usize {
        arrays.pixels() * if self.unit == FeatureUnit::Value { arrays.channels } else { 1 }
    }

    /// Subset number `run` of a case.
    fn drawn(&self, seed: u64, run: usize, features: usize) -> Vec<usize> {
        let noise = Noise::new(seed).stream("subsets").numbered(run as u64);
        let mut order = noise.permutation(features);
        order.truncate(self.subset);
        order
    }

    pub(crate) fn value(&self, case: &Case<'_>, draw: Option<&[Vec<usize>]>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let (features, pixels) = (self.features(&arrays), arrays.pixels());
        if self.subset > features {
            return Err(undefined(format!("subsets of {} features are larger than the image", self.subset)));
        }
        let map = self.normalisation.of(&arrays.map);
        let subsets: Vec<Vec<usize>> = match draw {
            Some(given) => given.to_vec(),
            None => (0..self.runs).map(|run| self.drawn(case.seed, run, features)).collect(),
        };
        let sums: Vec<f64> =
            subsets.iter().map(|subset| subset.iter().map(|&place| map[place % pixels]).sum()).collect();
        let levels = self.baseline.levels(&arrays, &arrays.image);
        let remove = |run: usize, copy: &mut [f32]| {
            for &place in &subsets[run] {
                match self.unit {
                    FeatureUnit::Value => copy[place] = levels[place / pixels],
                    FeatureUnit::Pixel => {
                        (0..levels.len()).for_each(|c| copy[c * pixels + place] = levels[c])
                    }
                }
            }
        };
        let read = |scores: &[f64]| self.output.of(scores, case.class);
        let untouched = perturbed_copies::score(case, &arrays.image, &read)?;
        let outputs = each(case, &arrays.image, subsets.len(), self.batch, &remove, &mut |copies| {
            copies.scores(&read)
        })?;
        let drops: Vec<f64> = outputs.iter().map(|output| untouched - output).collect();
        pearson(&sums, &drops).ok_or_else(|| undefined("the map's sums or the drops do not vary"))
    }
}

impl Metric for FaithfulnessCorrelation {
    fn name(&self) -> &str {
        "faithfulness-correlation"
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        self.output.needs_class_scores()
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn check(&self, frame: &CaseShape) -> Result<()> {
        let features = frame.pixels() * if self.unit == FeatureUnit::Value { frame.channels } else { 1 };
        frame.holds((self.name(), "subset"), self.subset, features)
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case, None))
    }
}
