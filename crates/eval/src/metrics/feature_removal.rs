//! Features of an image removed one after another, and the network's output after each step: the core of the faithfulness
//! metrics.

use monosplit_graph::{Result, Tensor};

use super::baseline::PixelBaseline;
use super::perturbed_copies::{after_each, rows, score};
use crate::case_arrays::CaseArrays;
use crate::perturbation::{Perturbations, Region};
use crate::replacement::PixelReplacement;

/// A part is small if it spans at most one in this many rows and columns.
const SMALL: usize = 4;

/// What counts as one feature of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureUnit {
    /// A pixel, all its channels at once.
    #[default]
    Pixel,
    /// A value of one channel.
    Value,
}

/// The parts to remove: their positions end to end, and where each part ends.
pub(crate) struct Parts {
    places: Vec<usize>,
    ends: Vec<usize>,
    unit: FeatureUnit,
}

impl Parts {
    /// Positions in order, `step` in each part.
    pub(crate) fn of(places: Vec<usize>, step: usize, unit: FeatureUnit) -> Self {
        let count = places.len().div_ceil(step);
        let ends = (1..=count).map(|part| (part * step).min(places.len())).collect();
        Parts { places, ends, unit }
    }

    /// Parts of pixels.
    pub(crate) fn of_pixels(parts: impl IntoIterator<Item = Vec<usize>>) -> Self {
        let (mut places, mut ends) = (Vec::new(), Vec::new());
        for part in parts {
            places.extend(part);
            ends.push(places.len());
        }
        Parts { places, ends, unit: FeatureUnit::Pixel }
    }

    /// The number of parts.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn part(&self, index: usize) -> &[usize] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.places[start..self.ends[index]]
    }

    /// The rows and columns that each of the first `steps` parts lies within, if these are small.
    fn regions(&self, steps: usize, height: usize, width: usize) -> Option<Vec<Region>> {
        let area = |index: usize| -> Option<Region> {
            let places = || self.part(index).iter();
            let range = |of: fn(usize, usize) -> usize, length: usize| {
                let (least, most) =
                    (places().map(|&p| of(p, width)).min()?, places().map(|&p| of(p, width)).max()?);
                ((most + 1 - least) * SMALL <= length).then_some(least..most + 1)
            };
            Some([range(|place, width| place / width, height)?, range(|place, width| place % width, width)?])
        };
        (self.unit == FeatureUnit::Pixel && steps > 0).then(|| (0..steps).map(area).collect())?
    }

    /// For each pixel, or each value of each channel, the part it belongs to; `None` if one belongs to several.
    fn steps_of_pixels(&self, pixels: usize, channels: usize) -> Option<Vec<f32>> {
        if !PixelReplacement::can_represent(self.len()) {
            return None;
        }
        let never = self.len() as f32;
        let mut steps_of_pixels =
            vec![never; if self.unit == FeatureUnit::Value { pixels * channels } else { pixels }];
        for index in 0..self.len() {
            for &place in self.part(index) {
                if std::mem::replace(&mut steps_of_pixels[place], index as f32) != never {
                    return None;
                }
            }
        }
        Some(steps_of_pixels)
    }

    /// Replaces part `index` of an image by the level of each channel.
    fn overwrite(&self, index: usize, levels: &[f32], pixels: usize, image: &mut [f32]) {
        match self.unit {
            FeatureUnit::Value => {
                self.part(index).iter().for_each(|&place| image[place] = levels[place / pixels])
            }
            FeatureUnit::Pixel => {
                for (plane, level) in image.chunks_mut(pixels).zip(levels) {
                    self.part(index).iter().for_each(|&place| plane[place] = *level);
                }
            }
        }
    }

    /// Replaces part `index` of an image by that of another.
    fn take_from(&self, index: usize, source: &[f32], pixels: usize, image: &mut [f32]) {
        for (plane, from) in image.chunks_mut(pixels).zip(source.chunks(pixels)) {
            self.part(index).iter().for_each(|&place| plane[place] = from[place]);
        }
    }
}

/// What replaces removed positions.
enum Filling<'a> {
    /// A level for each channel, for each step or for all steps.
    Levels(Vec<Vec<f32>>),
    /// The pixels of another image.
    Picture(&'a [f32]),
}

/// The parts to remove, the image, and what replaces them.
pub(crate) struct FeatureRemoval<'a> {
    arrays: &'a CaseArrays<'a>,
    start: Tensor,
    parts: &'a Parts,
    filling: Filling<'a>,
    steps: usize,
}

impl<'a> FeatureRemoval<'a> {
    /// Replaces the first `steps` parts of the image by a baseline.
    pub(crate) fn new(
        arrays: &'a CaseArrays<'a>,
        parts: &'a Parts,
        baseline: PixelBaseline,
        steps: usize,
    ) -> Self {
        let mut levels = Vec::new();
        if baseline.moves() {
            let mut image = arrays.image.to_vec();
            for step in 0..steps {
                let now = baseline.levels(arrays, &image);
                parts.overwrite(step, &now, arrays.pixels(), &mut image);
                levels.push(now);
            }
        } else {
            levels.push(baseline.levels(arrays, &arrays.image));
        }
        FeatureRemoval {
            arrays,
            start: arrays.case.image.clone(),
            parts,
            filling: Filling::Levels(levels),
            steps,
        }
    }

    /// Turns one image into another, part by part.
    pub(crate) fn between(
        arrays: &'a CaseArrays<'a>,
        parts: &'a Parts,
        from: Tensor,
        to: &'a [f32],
    ) -> FeatureRemoval<'a> {
        FeatureRemoval { arrays, start: from, parts, filling: Filling::Picture(to), steps: parts.len() }
    }

    /// The output before the first step and after each step.
    pub(crate) fn curve(&self, batch: Option<usize>, read: &dyn Fn(&[f64]) -> f64) -> Result<Vec<f64>> {
        let case = self.arrays.case;
        if let Some(scores) = case.network.scores_after(&self.start, self, batch)? {
            return Ok(rows(&scores, 1 + self.steps, case.class)?.iter().map(|row| read(row)).collect());
        }
        let start = self.start.to_f32();
        let mut curve = vec![score(case, &start, read)?];
        let make = |step: usize, image: &mut [f32]| self.apply(step, image);
        curve.extend(after_each(case, &start, self.steps, batch, &make, read)?);
        Ok(curve)
    }
}

impl Perturbations for FeatureRemoval<'_> {
    fn steps(&self) -> usize {
        self.steps
    }

    fn apply(&self, step: usize, image: &mut [f32]) {
        let pixels = self.arrays.pixels();
        match &self.filling {
            Filling::Picture(picture) => self.parts.take_from(step, picture, pixels, image),
            Filling::Levels(levels) => {
                self.parts.overwrite(step, &levels[step.min(levels.len() - 1)], pixels, image);
            }
        }
    }

    fn regions(&self) -> Option<Vec<Region>> {
        self.parts.regions(self.steps, self.arrays.height, self.arrays.width)
    }

    fn replacement(&self) -> Result<Option<PixelReplacement>> {
        let CaseArrays { channels, height, width, .. } = *self.arrays;
        let levels = match &self.filling {
            Filling::Picture(picture) => Tensor::new([1, channels, height, width], picture.to_vec())?,
            Filling::Levels(levels) => match &levels[..] {
                [fixed] => Tensor::new([1, channels, 1, 1], fixed.clone())?,
                _ => return Ok(None),
            },
        };
        let Some(steps_of_pixels) = self.parts.steps_of_pixels(height * width, channels) else {
            return Ok(None);
        };
        let planes = steps_of_pixels.len() / (height * width);
        Ok(Some(PixelReplacement {
            steps: Tensor::new([1, planes, height, width], steps_of_pixels)?,
            values: levels,
        }))
    }
}

/// The area under a curve with points one apart, by trapezoids; 0 for a single point.
pub(crate) fn area(curve: &[f64]) -> f64 {
    curve.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).sum()
}
