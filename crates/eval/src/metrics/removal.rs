//! Parts of an image removed one after the other, and what the network says after each: the core of the faithfulness
//! metrics.

use monosplit_graph::Result;

use super::baseline::Baseline;
use super::copies::{after_each, rows};
use crate::erosions::{Area, Changes};
use crate::subject::Subject;

/// A part is small if it spans no more than one in so many rows and columns.
const SMALL: usize = 4;

/// What counts as one feature of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A pixel, all its channels at once.
    #[default]
    Pixel,
    /// A value of one channel.
    Value,
}

/// Parts to remove: the places of all of them end to end, and where each part ends.
pub(crate) struct Parts {
    places: Vec<usize>,
    ends: Vec<usize>,
    unit: Unit,
}

impl Parts {
    /// Places in order, so many in each part.
    pub(crate) fn of(places: Vec<usize>, step: usize, unit: Unit) -> Self {
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
        Parts { places, ends, unit: Unit::Pixel }
    }

    /// How many parts there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn part(&self, index: usize) -> &[usize] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.places[start..self.ends[index]]
    }

    /// The rows and columns that each of the first `steps` parts lies within, if these are small.
    fn areas(&self, steps: usize, height: usize, width: usize) -> Option<Vec<Area>> {
        let area = |index: usize| -> Option<Area> {
            let places = || self.part(index).iter();
            let range = |of: fn(usize, usize) -> usize, length: usize| {
                let (least, most) =
                    (places().map(|&p| of(p, width)).min()?, places().map(|&p| of(p, width)).max()?);
                ((most + 1 - least) * SMALL <= length).then_some(least..most + 1)
            };
            Some([range(|place, width| place / width, height)?, range(|place, width| place % width, width)?])
        };
        (self.unit == Unit::Pixel && steps > 0).then(|| (0..steps).map(area).collect())?
    }

    /// Overwrites part `index` of an image of so many pixels with the level of each channel.
    fn overwrite(&self, index: usize, levels: &[f32], pixels: usize, image: &mut [f32]) {
        match self.unit {
            Unit::Value => self.part(index).iter().for_each(|&place| image[place] = levels[place / pixels]),
            Unit::Pixel => {
                for (plane, level) in image.chunks_mut(pixels).zip(levels) {
                    self.part(index).iter().for_each(|&place| plane[place] = *level);
                }
            }
        }
    }

    /// Overwrites parts with those of another image.
    pub(crate) fn take_from(&self, index: usize, source: &[f32], pixels: usize, image: &mut [f32]) {
        for (plane, from) in image.chunks_mut(pixels).zip(source.chunks(pixels)) {
            self.part(index).iter().for_each(|&place| plane[place] = from[place]);
        }
    }
}

/// A removal: what is removed, and what it becomes.
pub(crate) struct Removal<'a> {
    subject: &'a Subject<'a>,
    parts: &'a Parts,
    /// The levels at each step, or those of all steps.
    levels: Vec<Vec<f32>>,
}

impl<'a> Removal<'a> {
    pub(crate) fn new(subject: &'a Subject<'a>, parts: &'a Parts, baseline: Baseline, steps: usize) -> Self {
        let pixels = subject.pixels();
        if !baseline.moves() {
            return Removal { subject, parts, levels: vec![baseline.levels(subject, &subject.image)] };
        }
        let mut image = subject.image.to_vec();
        let mut levels = Vec::with_capacity(steps);
        for step in 0..steps {
            let now = baseline.levels(subject, &image);
            parts.overwrite(step, &now, pixels, &mut image);
            levels.push(now);
        }
        Removal { subject, parts, levels }
    }

    /// Makes one step in an image.
    pub(crate) fn apply(&self, step: usize, image: &mut [f32]) {
        let levels = &self.levels[step.min(self.levels.len() - 1)];
        self.parts.overwrite(step, levels, self.subject.pixels(), image);
    }

    /// What the network says after each of the first `steps` parts is gone.
    pub(crate) fn curve(&self, steps: usize, batch: usize, read: &dyn Fn(&[f64]) -> f64) -> Result<Vec<f64>> {
        let apply = |step: usize, image: &mut [f32]| self.apply(step, image);
        let case = self.subject.case;
        if let Some(areas) = self.parts.areas(steps, self.subject.height, self.subject.width) {
            let changes = Changes { areas: &areas, change: &apply, batch };
            if let Some(scores) = case.network.scores_after(case.image, changes)? {
                return Ok(rows(&scores, steps, case.class)?.iter().map(|row| read(row)).collect());
            }
        }
        after_each(self.subject.case, &self.subject.image, steps, batch, &apply, read)
    }
}

/// The area under a curve whose points are one apart, by trapezoids; nothing for a single point.
pub(crate) fn area(curve: &[f64]) -> f64 {
    curve.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).sum()
}
