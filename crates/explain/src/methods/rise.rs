//! RISE: the mean of random smooth masks, weighted by the scores of the masked images.

use monosplit_engine::Engine;
use monosplit_graph::{Error, Noise, Result, Tensor};

use super::smooth_grad::check_samples;
use crate::baseline::Baseline;
use crate::bilinear::{Tap, enlarged, mirrored};
use crate::explain_batch::ExplainBatch;
use crate::method::{
    AttributedLayer, Attributions, GraphMethod, Method, MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
use crate::model_output::ModelOutput;
use crate::network_partition::batch_of;
use crate::sample_layout::SampleLayout;
use crate::scorer::{BATCH, Scorer};

/// The most cells along an axis.
const MOST_CELLS: usize = 1024;
/// The most cells of a mask.
const MOST_IN_ALL: usize = MOST_CELLS * MOST_CELLS;

/// `Σ f(x ⊙ m) m / (N p)` over `N` random masks `m`: a grid of cells along all axes, each open with probability `p`, enlarged
/// smoothly and shifted at random. The features of a table `[N, F]` have no neighbours: each is a cell of its own.
///
/// Mask number `i` depends on the seed and `i` alone; all samples have the same masks.
#[derive(Clone, Debug, PartialEq)]
pub struct Rise {
    /// Number of masks.
    pub samples: usize,
    /// Cells along each axis.
    pub grid: usize,
    /// The probability that a cell is open.
    pub probability: f64,
    /// The output of the network that weights a mask.
    pub measure: Measure,
    /// What replaces the image where a mask is closed.
    pub baseline: Baseline,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of masks in a batch.
    pub batch: usize,
}

/// An output of the network for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Its score.
    Score,
    /// Its probability: the softmax of the scores.
    Probability,
}

impl Measure {
    pub(crate) fn of(self, output: &ModelOutput<'_>) -> f64 {
        match self {
            Measure::Score => output.score(),
            Measure::Probability => output.probability(),
        }
    }
}

impl Default for Rise {
    fn default() -> Self {
        Rise {
            samples: 1000,
            grid: 8,
            probability: 0.5,
            measure: Measure::Probability,
            baseline: Baseline::default(),
            seed: 0,
            batch: BATCH,
        }
    }
}

impl Method for Rise {
    fn name(&self) -> String {
        "rise".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::MultiPass(self)
    }

    fn takes_inputs_in_turn(&self) -> bool {
        true
    }
}

impl MultiPass for Rise {
    fn unrolled(&self) -> Option<&dyn GraphMethod> {
        Some(self)
    }

    fn prepare(&self, target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Box<dyn PreparedMethod>> {
        let scorer = Scorer::scores(target, engine, self.batch)?;
        self.check(scorer.layout())?;
        Ok(Box::new(Masking { method: self.clone(), scorer, layer: target.layer.map(str::to_owned) }))
    }
}

/// RISE compiled for an image.
struct Masking {
    method: Rise,
    scorer: Scorer,
    layer: Option<String>,
}

/// What is random about a mask.
pub(crate) struct DrawnMask {
    /// The cells of the grid, row by row: 1 if open, else 0.
    pub(crate) cells: Vec<f64>,
    /// Where the input begins in the enlarged grid, along each axis.
    pub(crate) shifts: Vec<usize>,
}

impl Rise {
    /// An error if an option is out of its range for inputs of this layout.
    pub(crate) fn check(&self, layout: &SampleLayout) -> Result<()> {
        check_samples(self.samples, 1)?;
        let likely = self.probability > 0.0 && self.probability <= 1.0;
        if !likely || !(1..=MOST_CELLS).contains(&self.grid) {
            return Err(Error::argument(format!(
                "a grid of {} cells, open with probability {}: expected 1 to {MOST_CELLS} cells and a probability \
                 above 0, at most 1",
                self.grid, self.probability
            )));
        }
        let axes = layout.spatial_dims().len();
        let cells = u32::try_from(axes).ok().and_then(|axes| self.grid.checked_pow(axes));
        if cells.is_none_or(|cells| cells > MOST_IN_ALL) {
            return Err(Error::argument(format!(
                "a grid of {} cells along each of {axes} axes has more than {MOST_IN_ALL} of them; ask for fewer",
                self.grid
            )));
        }
        Ok(())
    }

    /// The number of cells along each axis: one for each feature of a table.
    pub(crate) fn cells_along(&self, layout: &SampleLayout) -> Vec<usize> {
        let along = |&length: &usize| if layout.is_table() { length } else { self.grid };
        layout.spatial_dims().iter().map(along).collect()
    }

    /// The random numbers of mask number `number` for inputs of this layout.
    pub(crate) fn drawn(&self, number: usize, layout: &SampleLayout) -> DrawnMask {
        let noise = Noise::new(self.seed).stream("rise").numbered(number as u64);
        let open = |i| if noise.uniform(i) < self.probability { 1.0 } else { 0.0 };
        let count = self.cells_along(layout).iter().product::<usize>();
        let shift = |(axis, length): (usize, &usize)| {
            (noise.stream("shift").uniform(axis as u64) * length.div_ceil(self.grid) as f64) as usize
        };
        let shifts = match layout.is_table() {
            true => vec![0],
            false => layout.spatial_dims().iter().enumerate().map(shift).collect(),
        };
        DrawnMask { cells: (0..count as u64).map(open).collect(), shifts }
    }

    /// The grid enlarged along an axis of this length, and one cell more for the shift.
    pub(crate) fn enlarged_axis(&self, length: usize) -> Vec<Tap> {
        mirrored(self.grid, (self.grid + 1) * length.div_ceil(self.grid))
    }

    /// Mask number `number` for inputs of this layout.
    fn mask(&self, number: usize, layout: &SampleLayout) -> Vec<f64> {
        let DrawnMask { cells, shifts } = self.drawn(number, layout);
        if layout.is_table() {
            return cells;
        }
        let shifted =
            |(&length, &shift): (&usize, &usize)| self.enlarged_axis(length)[shift..shift + length].to_vec();
        let taps: Vec<Vec<Tap>> = layout.spatial_dims().iter().zip(&shifts).map(shifted).collect();
        enlarged(&cells, &self.cells_along(layout), &taps)
    }
}

impl PreparedMethod for Masking {
    fn attribute(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Attributions> {
        let (method, scorer) = (&self.method, &self.scorer);
        let cut_values = scorer.cut_values(batch, classes)?;
        let replacements = scorer.replacements(&cut_values, &method.baseline)?;
        let layout = scorer.layout();
        let mut found = vec![vec![0.0; layout.position_count()]; cut_values.samples()];
        let share = 1.0 / (method.samples as f64 * method.probability);
        scorer.run_perturbed(
            &cut_values,
            &vec![method.samples; cut_values.samples()],
            |perturbation, image| {
                let (mask, cover) =
                    (method.mask(perturbation.number, layout), &replacements[perturbation.sample]);
                for channel in 0..layout.channels() {
                    for (position, open) in mask.iter().enumerate() {
                        let element = layout.element(channel, position);
                        image[element] = cover[element] + open * (image[element] - cover[element]);
                    }
                }
            },
            |perturbation, output| {
                let weight = share * method.measure.of(output);
                let mask = method.mask(perturbation.number, layout);
                found[perturbation.sample].iter_mut().zip(mask).for_each(|(sum, open)| *sum += weight * open);
            },
        )?;
        let values = Tensor::new(batch_of(cut_values.samples(), layout.spatial_dims()), found.concat())?;
        Ok(Attributions { values, diagnostics: Vec::new() })
    }

    fn attributed_layer(&self) -> AttributedLayer {
        AttributedLayer { layer: self.layer.clone(), channels: None }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::Shape;

    use super::*;
    use crate::channels::Axes;

    #[test]
    fn masks_are_open_as_often_as_they_should_be_everywhere() {
        let rise = Rise { probability: 0.3, grid: 4, ..Rise::default() };
        for dims in [&[2, 13, 10][..], &[2, 40], &[1, 4, 5, 6], &[9]] {
            let channels = (dims.len() > 1).then_some(1);
            let layout =
                SampleLayout::new(&Shape::batched(dims), Axes { channels, image_channels: 1 }).unwrap();
            let count = 4000;
            let mut mean = vec![0.0; layout.position_count()];
            for number in 0..count {
                let mask = rise.mask(number, &layout);
                assert!(mask.iter().all(|v| (0.0..=1.0).contains(v)));
                assert!(!layout.is_table() || mask.iter().all(|v| [0.0, 1.0].contains(v)));
                mean.iter_mut().zip(mask).for_each(|(mean, v)| *mean += v / count as f64);
            }
            assert!(mean.iter().all(|mean| (mean - 0.3).abs() < 0.03), "{mean:?}");
        }
    }
}
