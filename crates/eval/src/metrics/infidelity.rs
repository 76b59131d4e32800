//! Infidelity: how well a map, as a linear model, predicts the drop of the output.

use monosplit_graph::{Error, Options, Result};

use super::baseline::PixelBaseline;
use super::feature_removal::{FeatureRemoval, Parts};
use super::map_normalisation::MapNormalisation;
use super::perturbed_copies::{self, MeasuredOutput};
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, CaseShape, Metric, Undefined};
use crate::perturbation::Perturbations;

/// The mean of `(f(x) − f(x_k) − Σ a·(x − x_k))²` over the images `x_k` that lack the first `k` squares of a grid, row by
/// row. Quantus repeats this several times and averages; nothing in it is random, so here it is done once.
#[derive(Clone, Debug, PartialEq)]
pub struct Infidelity {
    /// Side of a square in pixels, which must divide both sides of the image.
    pub patch: usize,
    /// What the map is multiplied with.
    pub product: Product,
    /// What replaces removed pixels.
    pub baseline: PixelBaseline,
    /// Which output of the network is measured.
    pub output: MeasuredOutput,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// The batch size; the one the engine prefers if none is given.
    pub batch: Option<usize>,
}

/// How map and change are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Elementwise, `Σ_i a_i·(x − x_k)_i`.
    Places,
    /// As Quantus 0.5 does: the columns of the map with the rows of the change, channels added up on both sides, and squares
    /// that begin a side less one above and left of the grid.
    ColumnsWithRows,
}

impl Infidelity {
    /// The options of a published protocol.
    pub fn preset(preset: MetricPreset) -> Self {
        Infidelity {
            patch: 4,
            product: if preset == MetricPreset::Quantus05 {
                Product::ColumnsWithRows
            } else {
                Product::Places
            },
            baseline: PixelBaseline::Black,
            output: MeasuredOutput::Probability,
            normalisation: MapNormalisation::default(),
            batch: None,
        }
    }

    pub(crate) fn read(options: &mut Options) -> Result<Self> {
        let preset = Self::preset(MetricPreset::read(options, MetricPreset::Paper)?);
        Ok(Infidelity {
            patch: options.count("patch", preset.patch, 1..=1 << 16)?,
            product: preset.product,
            baseline: preset.baseline.read(options)?,
            output: preset.output.read(options)?,
            normalisation: preset.normalisation.read(options)?,
            batch: perturbed_copies::batch(options)?,
        })
    }

    /// An error if the squares do not divide the image.
    fn checked(&self, height: usize, width: usize) -> Result<()> {
        let (size, crossed) = (self.patch.max(1), self.product == Product::ColumnsWithRows);
        if !height.is_multiple_of(size) || !width.is_multiple_of(size) || (crossed && height != width) {
            return Err(Error::argument(format!(
                "infidelity needs squares that divide the image (a square one for quantus-0.5), found an image of \
                 {height}×{width} and patch={size}; choose another patch"
            )));
        }
        Ok(())
    }

    /// The pixels of each square.
    fn squares(&self, arrays: &CaseArrays<'_>) -> Result<Vec<Vec<usize>>> {
        let (height, width, size) = (arrays.height, arrays.width, self.patch.max(1));
        self.checked(height, width)?;
        let shift = if self.product == Product::ColumnsWithRows { size - 1 } else { 0 };
        let range = |start: usize| start.saturating_sub(shift)..(start + size).saturating_sub(shift);
        let square = |top: usize, left: usize| {
            range(top).flat_map(|y| range(left).map(move |x| y * width + x)).collect()
        };
        let tops = (0..height).step_by(size);
        Ok(tops.flat_map(|top| (0..width).step_by(size).map(move |left| square(top, left))).collect())
    }

    /// The predicted drop of the output when the image changes by `change`, `C·H·W` values.
    fn predicted(&self, arrays: &CaseArrays<'_>, map: &[f64], change: &[f64]) -> f64 {
        let (pixels, width) = (arrays.pixels(), arrays.width);
        match self.product {
            Product::Places => change
                .chunks(pixels)
                .map(|plane| plane.iter().zip(map).map(|(change, value)| change * value).sum::<f64>())
                .sum(),
            Product::ColumnsWithRows => {
                let column = |x: usize| map.iter().skip(x).step_by(width).sum::<f64>();
                let row = |y: usize| {
                    change.chunks(pixels).map(|p| p[y * width..][..width].iter().sum::<f64>()).sum::<f64>()
                };
                arrays.channels as f64 * (0..width).map(|k| column(k) * row(k)).sum::<f64>()
            }
        }
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let map = self.normalisation.of(&arrays.map);
        let parts = Parts::of_pixels(self.squares(&arrays)?);
        let removal = FeatureRemoval::new(&arrays, &parts, self.baseline, parts.len());
        let read = |scores: &[f64]| self.output.of(scores, case.class);
        let curve = removal.curve(self.batch, &read)?;
        let mut image = arrays.image.to_vec();
        let mut total = 0.0;
        for (step, output) in curve[1..].iter().enumerate() {
            removal.apply(step, &mut image);
            let change: Vec<f64> =
                arrays.image.iter().zip(&image).map(|(x, now)| f64::from(x - now)).collect();
            total += (curve[0] - output - self.predicted(&arrays, &map, &change)).powi(2);
        }
        Ok(total / parts.len() as f64)
    }
}

impl Metric for Infidelity {
    fn name(&self) -> &str {
        "infidelity"
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        self.output.needs_class_scores()
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    fn check(&self, frame: &CaseShape) -> Result<()> {
        self.checked(frame.height, frame.width)
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
