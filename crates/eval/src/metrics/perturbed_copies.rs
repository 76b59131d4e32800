//! Perturbed copies of an image, run through the network in batches. Copies that follow from each other are updated in
//! place.

use monosplit_graph::{Error, Options, Result, Tensor};

use crate::metric::Case;
use crate::perturbation::batch_size;

/// The largest batch size that options may ask for.
pub(crate) const MAX_BATCH_SIZE: usize = 4096;

/// The `batch` option; `None` if it is not given.
pub(crate) fn batch(options: &mut Options) -> Result<Option<usize>> {
    match options.is_given("batch") {
        true => options.count("batch", 1, 1..=MAX_BATCH_SIZE).map(Some),
        false => Ok(None),
    }
}

/// Which output of the network is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeasuredOutput {
    /// The probability of the class: the softmax of the scores.
    #[default]
    Probability,
    /// The score of the class itself.
    Logit,
}

impl MeasuredOutput {
    pub(crate) fn read(self, options: &mut Options) -> Result<Self> {
        options.one_of(
            "output",
            self,
            &[("probability", MeasuredOutput::Probability), ("logit", MeasuredOutput::Logit)],
        )
    }

    /// What [`Metric::needs_class_scores`](crate::metric::Metric::needs_class_scores) says of a metric of this output.
    pub(crate) fn needs_class_scores(self) -> Option<&'static str> {
        (self == MeasuredOutput::Probability).then_some(
            "measures the probability of a class, which the score of a target has not; give output=logit",
        )
    }

    /// The output for `class`, given a row of scores.
    pub(crate) fn of(self, scores: &[f64], class: usize) -> f64 {
        match self {
            MeasuredOutput::Logit => scores[class],
            MeasuredOutput::Probability => {
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                (scores[class] - largest).exp() / sum
            }
        }
    }
}

/// Copies of one image in one buffer that is used again for every batch.
pub(crate) struct PerturbedCopies<'a> {
    case: &'a Case<'a>,
    size: usize,
    buffer: Vec<f32>,
}

impl<'a> PerturbedCopies<'a> {
    /// `count` copies of `start`, an image of the case's shape.
    pub(crate) fn of(case: &'a Case<'a>, start: &[f32], count: usize) -> Self {
        PerturbedCopies { case, size: start.len(), buffer: start.repeat(count) }
    }

    /// One of the copies.
    pub(crate) fn copy(&mut self, index: usize) -> &mut [f32] {
        &mut self.buffer[index * self.size..(index + 1) * self.size]
    }

    /// Keeps the first `count` copies, for a last batch that is not full.
    fn truncate(&mut self, count: usize) {
        self.buffer.truncate(count * self.size);
    }

    /// Calls `look` with the copies as one tensor `[N, C, H, W]` and takes the memory back.
    fn shown<T>(&mut self, load: impl FnOnce(&Tensor) -> Result<T>) -> Result<T> {
        let mut shape = self.case.image.shape().to_vec();
        if let Some(samples) = shape.first_mut() {
            *samples = self.buffer.len() / self.size.max(1);
        }
        let tensor = Tensor::new(shape, std::mem::take(&mut self.buffer))?;
        let found = load(&tensor);
        if let monosplit_graph::Data::F32(buffer) = tensor.into_data() {
            self.buffer = buffer.into_vec();
        }
        found
    }

    /// `read` of the scores of each copy.
    pub(crate) fn scores(&mut self, read: &dyn Fn(&[f64]) -> f64) -> Result<Vec<f64>> {
        let (network, class) = (self.case.network, self.case.class);
        let scores = self.shown(|images| rows(&network.scores(images)?, images.shape()[0], class))?;
        Ok(scores.iter().map(|row| read(row)).collect())
    }

    /// The map of each copy, `H·W` values.
    pub(crate) fn maps(&mut self) -> Result<Vec<Vec<f64>>> {
        let (network, class) = (self.case.network, self.case.class);
        let (pixels, shape) = (self.case.map.len(), self.case.image.shape().to_vec());
        self.shown(|images| {
            let maps = network.maps(images, class)?;
            if maps.shape() != [images.shape()[0], shape[2], shape[3]] {
                return Err(Error::shape(format!(
                    "expected maps as large as the images {:?}, found {:?}",
                    images.shape(),
                    maps.shape()
                )));
            }
            Ok(maps.to_f64().chunks(pixels).map(<[f64]>::to_vec).collect())
        })
    }
}

/// The scores of each image; an error unless there is one row for each and the class is among them.
pub(crate) fn rows(scores: &Tensor, images: usize, class: usize) -> Result<Vec<Vec<f64>>> {
    match *scores.shape() {
        [samples, classes] if samples == images && class < classes => {
            Ok(scores.to_f64().chunks(classes).map(<[f64]>::to_vec).collect())
        }
        ref shape => Err(Error::shape(format!(
            "expected scores of {images} images with a class {class} among them, found {shape:?}"
        ))),
    }
}

/// `read` of the scores of one image.
pub(crate) fn score(case: &Case<'_>, image: &[f32], read: &dyn Fn(&[f64]) -> f64) -> Result<f64> {
    let found = PerturbedCopies::of(case, image, 1).scores(read)?;
    found.first().copied().ok_or_else(|| Error::shape("the network scored no image"))
}

/// `read` of the scores after each of `steps` cumulative changes of `start`; `apply(s, image)` makes change `s`. Each copy of
/// a batch is one change ahead of the one before, and is updated by the changes between two batches.
pub(crate) fn after_each(
    case: &Case<'_>,
    start: &[f32],
    steps: usize,
    batch: Option<usize>,
    apply: &dyn Fn(usize, &mut [f32]),
    read: &dyn Fn(&[f64]) -> f64,
) -> Result<Vec<f64>> {
    let batch = batch_size(batch, case.network.preferred_batch_size()).clamp(1, steps.max(1));
    let mut copies = PerturbedCopies::of(case, start, batch);
    let mut found = Vec::with_capacity(steps);
    for first in (0..steps).step_by(batch) {
        let count = batch.min(steps - first);
        for index in 0..count {
            let behind = (first + index + 1).saturating_sub(if first == 0 { usize::MAX } else { batch });
            (behind..=first + index).for_each(|step| apply(step, copies.copy(index)));
        }
        copies.truncate(count);
        found.extend(copies.scores(read)?);
    }
    Ok(found)
}

/// The results of `look` for `count` independent copies of the image; `make(i, copy)` makes copy `i`.
pub(crate) fn each<T>(
    case: &Case<'_>,
    image: &[f32],
    count: usize,
    batch: Option<usize>,
    make: &dyn Fn(usize, &mut [f32]),
    load: &mut dyn FnMut(&mut PerturbedCopies<'_>) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let batch = batch_size(batch, case.network.preferred_batch_size()).clamp(1, count.max(1));
    let mut copies = PerturbedCopies::of(case, image, batch);
    let mut found = Vec::with_capacity(count);
    for first in (0..count).step_by(batch) {
        copies.truncate(batch.min(count - first));
        for index in 0..batch.min(count - first) {
            let copy = copies.copy(index);
            copy.copy_from_slice(image);
            make(first + index, copy);
        }
        found.extend(load(&mut copies)?);
    }
    Ok(found)
}
