//! Selectivity: the output while patches are removed from the most to the least important.

use monosplit_graph::{Options, Result};

use super::baseline::PixelBaseline;
use super::feature_removal::{FeatureRemoval, area};
use super::map_normalisation::MapNormalisation;
use super::patches::{Order, Tiling, ordered};
use super::perturbed_copies::{self, MeasuredOutput};
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, CaseShape, Metric, Undefined};

/// The area under the curve of the class's output while patches are removed in the order of the map's sum in each, the
/// points one apart, the unchanged image left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Selectivity {
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Where patches lie.
    pub tiling: Tiling,
    /// What replaces removed pixels.
    pub baseline: PixelBaseline,
    /// Which output of the network is measured.
    pub output: MeasuredOutput,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// The batch size; the one the engine prefers if none is given.
    pub batch: Option<usize>,
}

impl Selectivity {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        Selectivity {
            patch: 8,
            tiling: if preset == MetricPreset::Quantus05 { Tiling::Greedy } else { Tiling::Grid },
            baseline: PixelBaseline::Black,
            output: MeasuredOutput::Probability,
            normalisation: MapNormalisation::NORMALISED,
            batch: None,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(Selectivity {
            patch: options.count("patch", preset.patch, 1..=1 << 16)?,
            tiling: tiling(options, preset.tiling)?,
            baseline: preset.baseline.read(options)?,
            output: preset.output.read(options)?,
            normalisation: preset.normalisation.read(options)?,
            batch: perturbed_copies::batch(options)?,
        })
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let map = self.normalisation.of(&arrays.map);
        let parts = ordered(&arrays, &map, self.patch.max(1), self.tiling, Order::MostFirst, usize::MAX)?;
        let removal = FeatureRemoval::new(&arrays, &parts, self.baseline, parts.len());
        let read = |scores: &[f64]| self.output.of(scores, case.class);
        Ok(area(&removal.curve(self.batch, &read)?[1..]))
    }
}

/// The `tiling` option.
pub(crate) fn tiling(options: &mut Options, default: Tiling) -> Result<Tiling> {
    options.one_of("tiling", default, &[("grid", Tiling::Grid), ("greedy", Tiling::Greedy)])
}

impl Metric for Selectivity {
    fn name(&self) -> &str {
        "selectivity"
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        self.output.needs_class_scores()
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    fn check(&self, frame: &CaseShape) -> Result<()> {
        frame.holds((self.name(), "patch"), self.patch, frame.height.min(frame.width))
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
