//! Region Perturbation: the drop of the output while patches are removed.

use monosplit_graph::{Options, Result};

use super::baseline::PixelBaseline;
use super::feature_removal::{FeatureRemoval, area};
use super::map_normalisation::MapNormalisation;
use super::order::MOST_PLACES;
use super::patches::{Order, Tiling, ordered};
use super::perturbed_copies::{self, MeasuredOutput};
use super::preset::MetricPreset;
use super::selectivity::tiling;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, CaseShape, Metric, Undefined};

/// The drop `f(x) − f(x without the first k patches)` for `k = 1, …`, as the area under its curve or as its mean, which is
/// the area over the perturbation curve of Samek et al. without the untouched image.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionPerturbation {
    /// Side of a patch in pixels.
    pub patch: usize,
    /// The largest number of removed patches.
    pub regions: usize,
    /// Where patches lie.
    pub tiling: Tiling,
    /// The order of the patches.
    pub order: Order,
    /// What replaces removed pixels.
    pub baseline: PixelBaseline,
    /// Which output of the network is measured.
    pub output: MeasuredOutput,
    /// Whether the value is the mean of the curve; else it is the area, points one apart.
    pub mean: bool,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// The batch size; the one the engine prefers if none is given.
    pub batch: Option<usize>,
}

impl RegionPerturbation {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        RegionPerturbation {
            patch: 8,
            regions: 100,
            tiling: if preset == MetricPreset::Quantus05 { Tiling::Greedy } else { Tiling::Grid },
            order: Order::MostFirst,
            baseline: PixelBaseline::Black,
            output: MeasuredOutput::Probability,
            mean: false,
            normalisation: MapNormalisation::NORMALISED,
            batch: None,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        let orders = [("morf", Order::MostFirst), ("lerf", Order::LeastFirst)];
        Ok(RegionPerturbation {
            patch: options.count("patch", preset.patch, 1..=1 << 16)?,
            regions: options.count("regions", preset.regions, 1..=MOST_PLACES)?,
            tiling: tiling(options, preset.tiling)?,
            order: options.one_of("order", preset.order, &orders)?,
            baseline: preset.baseline.read(options)?,
            output: preset.output.read(options)?,
            mean: options.one_of("summary", preset.mean, &[("area", false), ("mean", true)])?,
            normalisation: preset.normalisation.read(options)?,
            batch: perturbed_copies::batch(options)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let map = self.normalisation.of(&arrays.map);
        let parts = ordered(&arrays, &map, self.patch.max(1), self.tiling, self.order, self.regions)?;
        let removal = FeatureRemoval::new(&arrays, &parts, self.baseline, parts.len());
        let read = |scores: &[f64]| self.output.of(scores, case.class);
        let curve = removal.curve(self.batch, &read)?;
        let drops: Vec<f64> = curve[1..].iter().map(|output| curve[0] - output).collect();
        Ok(if self.mean { drops.iter().sum::<f64>() / drops.len() as f64 } else { area(&drops) })
    }
}

impl Metric for RegionPerturbation {
    fn name(&self) -> &str {
        "region-perturbation"
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        self.output.needs_class_scores()
    }

    fn better(&self) -> Better {
        match self.order {
            Order::MostFirst => Better::Higher,
            Order::LeastFirst => Better::Lower,
        }
    }

    fn check(&self, frame: &CaseShape) -> Result<()> {
        frame.holds((self.name(), "patch"), self.patch, frame.height.min(frame.width))
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
