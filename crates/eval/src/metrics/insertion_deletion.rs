//! Insertion and Deletion: how fast the output rises or falls, pixel by pixel.

use monosplit_graph::{Options, Result, Tensor};

use super::baseline::PixelBaseline;
use super::feature_removal::{FeatureRemoval, FeatureUnit, Parts, area};
use super::map_normalisation::MapNormalisation;
use super::order::{MOST_PLACES, Ties, descending};
use super::perturbed_copies::{self, MeasuredOutput};
use super::preset::MetricPreset;
use crate::case_arrays::{CaseArrays, MeasureError, measured};
use crate::metric::{Better, Case, Metric, Undefined};

/// The mean height of the curve of the class's output, from the first image to the last, while pixels of one image are
/// replaced by those of another in the order of the map: from the image to an empty one (deletion) or from a blurred one to
/// the image (insertion).
#[derive(Clone, Debug, PartialEq)]
pub struct InsertionDeletion {
    /// Which of the two.
    pub direction: Direction,
    /// Pixels replaced in one step; a row of the image if 0.
    pub step: usize,
    /// The other image.
    pub substrate: Substrate,
    /// Which output of the network is measured.
    pub output: MeasuredOutput,
    /// How the map is normalised.
    pub normalisation: MapNormalisation,
    /// The batch size; the one the engine prefers if none is given.
    pub batch: Option<usize>,
}

/// Whether pixels are inserted or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Pixels of the image are inserted into the substrate.
    Insertion,
    /// Pixels of the image are replaced by the substrate.
    Deletion,
}

/// The image without information.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Substrate {
    /// The image blurred by a kernel of 11×11, zero beyond its border.
    Blur,
    /// A constant level for each channel.
    Level(PixelBaseline),
}

/// Half of the blur's side, and the deviation of its Gaussian: those of Petsiuk et al.
const RADIUS: usize = 5;
const DEVIATION: f64 = 5.0;

impl InsertionDeletion {
    /// The published options.
    pub fn new(direction: Direction) -> Self {
        InsertionDeletion {
            direction,
            step: 0,
            substrate: match direction {
                Direction::Insertion => Substrate::Blur,
                Direction::Deletion => Substrate::Level(PixelBaseline::Value(0.0)),
            },
            output: MeasuredOutput::Probability,
            normalisation: MapNormalisation::default(),
            batch: None,
        }
    }

    pub(crate) fn read(direction: Direction, options: &mut Options) -> Result<Self> {
        MetricPreset::read(options, MetricPreset::Paper)?;
        let default = Self::new(direction);
        let blurred = options.one_of(
            "substrate",
            default.substrate == Substrate::Blur,
            &[("blur", true), ("level", false)],
        )?;
        let level = PixelBaseline::Value(0.0).read(options)?;
        Ok(InsertionDeletion {
            direction,
            step: options.count("step", default.step, 1..=MOST_PLACES)?,
            substrate: if blurred { Substrate::Blur } else { Substrate::Level(level) },
            output: default.output.read(options)?,
            normalisation: default.normalisation.read(options)?,
            batch: perturbed_copies::batch(options)?,
        })
    }

    fn substrate(&self, arrays: &CaseArrays<'_>) -> Vec<f32> {
        let pixels = arrays.pixels();
        match self.substrate {
            Substrate::Blur => arrays
                .image
                .chunks(pixels)
                .flat_map(|plane| blurred(plane, arrays.height, arrays.width))
                .collect(),
            Substrate::Level(level) => level
                .levels(arrays, &arrays.image)
                .into_iter()
                .flat_map(|level| std::iter::repeat_n(level, pixels))
                .collect(),
        }
    }

    fn value(&self, case: &Case<'_>) -> Result<f64, MeasureError> {
        let arrays = CaseArrays::of(case)?;
        let order = descending(&self.normalisation.of(&arrays.map), Ties::LaterFirst);
        let step = if self.step == 0 { arrays.width } else { self.step.min(arrays.pixels()) };
        let parts = Parts::of(order, step, FeatureUnit::Pixel);
        let substrate = self.substrate(&arrays);
        let (from, to) = match self.direction {
            Direction::Insertion => {
                (Tensor::new(case.image.shape().to_vec(), substrate.clone())?, &arrays.image[..])
            }
            Direction::Deletion => (case.image.clone(), &substrate[..]),
        };
        let read = |scores: &[f64]| self.output.of(scores, case.class);
        let curve = FeatureRemoval::between(&arrays, &parts, from, to).curve(self.batch, &read)?;
        Ok(area(&curve) / parts.len() as f64)
    }
}

/// A plane blurred along both axes, zero beyond its border.
fn blurred(plane: &[f32], height: usize, width: usize) -> Vec<f32> {
    let weights = gaussian_of_an_impulse();
    let across = |value: &dyn Fn(usize) -> f64, place: usize, length: usize| -> f64 {
        let near = place.saturating_sub(RADIUS)..(place + RADIUS + 1).min(length);
        near.map(|other| weights[RADIUS + other - place] * value(other)).sum()
    };
    let rows: Vec<f64> = (0..height * width)
        .map(|i| across(&|x| f64::from(plane[i / width * width + x]), i % width, width))
        .collect();
    (0..height * width).map(|i| across(&|y| rows[y * width + i % width], i / width, height) as f32).collect()
}

/// A Gaussian on 11 places, what falls beyond them reflected back: SciPy's filter of an impulse among so many places,
/// which is the published kernel.
fn gaussian_of_an_impulse() -> [f64; 2 * RADIUS + 1] {
    let radius = (4.0 * DEVIATION + 0.5) as i64;
    let weight = |x: i64| (-0.5 * (x as f64 / DEVIATION).powi(2)).exp();
    let sum: f64 = (-radius..=radius).map(weight).sum();
    let length = 2 * RADIUS as i64 + 1;
    let mut kernel = [0.0; 2 * RADIUS + 1];
    for (place, value) in kernel.iter_mut().enumerate() {
        for x in -radius..=radius {
            let folded = (place as i64 + x).rem_euclid(2 * length);
            let folded = if folded < length { folded } else { 2 * length - 1 - folded };
            if folded == RADIUS as i64 {
                *value += weight(x) / sum;
            }
        }
    }
    kernel
}

impl Metric for InsertionDeletion {
    fn name(&self) -> &str {
        match self.direction {
            Direction::Insertion => "insertion",
            Direction::Deletion => "deletion",
        }
    }

    fn needs_class_scores(&self) -> Option<&'static str> {
        self.output.needs_class_scores()
    }

    fn better(&self) -> Better {
        match self.direction {
            Direction::Insertion => Better::Higher,
            Direction::Deletion => Better::Lower,
        }
    }

    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>> {
        measured(self.value(case))
    }
}
