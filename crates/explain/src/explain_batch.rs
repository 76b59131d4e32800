//! The input of an explainer: images, the classes to explain, and the numbers a method takes at run time.

use monosplit_graph::{Error, Result, Tensor};

/// The number that stands for the class with the second highest score.
pub(crate) const SECOND: i64 = -2;

/// The class that is explained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// The class with the highest score, sample by sample.
    #[default]
    Top,
    /// The class with the second highest score, sample by sample.
    Second,
    /// This class for every sample.
    Index(usize),
    /// One class for each sample.
    PerSample(Vec<usize>),
    /// One class for each sample; none is the one with the highest score.
    PerSampleOrTop(Vec<Option<usize>>),
}

impl Class {
    /// The class number of each sample, −1 for the highest score and [`SECOND`] for the one after it; an error if one is not
    /// below `classes`.
    pub(crate) fn numbers(&self, samples: usize, classes: usize) -> Result<Vec<i64>> {
        let numbers: Vec<Option<usize>> = match self {
            Class::Second if classes < 2 => {
                return Err(Error::argument(
                    "there is one score alone, and so no second highest; explain the highest",
                ));
            }
            Class::Second => return Ok(vec![SECOND; samples]),
            Class::Top => vec![None; samples],
            Class::Index(index) => vec![Some(*index); samples],
            Class::PerSample(each) => each.iter().copied().map(Some).collect(),
            Class::PerSampleOrTop(each) => each.clone(),
        };
        if numbers.len() != samples {
            let given = numbers.len();
            return Err(Error::argument(format!("{given} classes were given for {samples} images")));
        }
        match numbers.iter().flatten().find(|&&c| c >= classes) {
            Some(c) => Err(Error::argument(format!(
                "there is no class {c}: the network has {classes} classes, 0 to {}",
                classes.saturating_sub(1)
            ))),
            None => Ok(numbers.into_iter().map(|c| c.map_or(-1, |c| c as i64)).collect()),
        }
    }
}

/// The numbers of a split that a compiled explanation takes as inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The shift α: one number, or one per shifted layer where the split was set up so. Between 0 (the true
    /// gradients of `g` and `h`) and ½ (multiples of the ordinary gradient).
    pub alpha: Vec<f64>,
    /// The norm of the hidden gradient at the layer, as a multiple of that of the ordinary one, where the split was set up so.
    pub share: f64,
    /// The factor θ by which the stabiliser `Scale` multiplies.
    pub theta: f64,
    /// The limit Θ past which it does so.
    pub limit: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { alpha: vec![0.4], share: 0.5, theta: 0.1, limit: 10.0 }
    }
}

impl Settings {
    /// An error if a number is out of its range.
    pub fn check(&self) -> Result<()> {
        if self.alpha.iter().any(|a| !(0.0..=1.0).contains(a)) {
            return Err(Error::argument("α must lie between 0 and 1 (½ gives the ordinary gradient)"));
        }
        if !(0.0..=1e6).contains(&self.share) {
            return Err(Error::argument("the share of the hidden gradient must lie between 0 and 1000000"));
        }
        if !(self.theta > 0.0 && self.theta <= 1.0) {
            return Err(Error::argument("θ must be greater than 0 and at most 1"));
        }
        if self.limit.is_nan() || self.limit <= 0.0 {
            return Err(Error::argument("the limit Θ must be positive"));
        }
        Ok(())
    }

    /// Another α for all layers.
    #[must_use]
    pub fn alpha(self, alpha: f64) -> Self {
        Settings { alpha: vec![alpha], ..self }
    }

    /// Another share of the hidden gradient.
    #[must_use]
    pub fn share(self, share: f64) -> Self {
        Settings { share, ..self }
    }
}

/// Receives progress reports of long computations.
pub trait Progress: Sync {
    /// `done` of `total` steps are done. An error ends the computation, which returns it.
    fn advance(&self, done: usize, total: usize) -> Result<()>;
}

/// Ignores progress reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn advance(&self, _done: usize, _total: usize) -> Result<()> {
        Ok(())
    }
}

/// A batch of images to explain, with the class to explain and the settings.
#[derive(Clone, Copy)]
pub struct ExplainBatch<'a> {
    /// Preprocessed images, samples along the first axis.
    pub images: &'a Tensor,
    /// The other inputs of the network, by name. They are held fixed, like weights.
    pub other_inputs: &'a [(&'a str, Tensor)],
    /// The class that is explained.
    pub class: &'a Class,
    /// The numbers of the split.
    pub settings: &'a Settings,
    /// Receives the progress of methods that run the network many times.
    pub progress: &'a dyn Progress,
    /// The position of the batch in the whole set of images; none if the images have no order. Options given per image
    /// (baselines, masks) are looked up by it.
    pub position: Option<BatchPosition>,
}

/// The position of a batch in a set of images that is explained batch by batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPosition {
    /// The number of images in earlier batches.
    pub offset: usize,
    /// Whether this is the last batch.
    pub is_last: bool,
}

impl Default for BatchPosition {
    /// The only batch.
    fn default() -> Self {
        BatchPosition { offset: 0, is_last: true }
    }
}

impl<'a> ExplainBatch<'a> {
    /// A batch of a network with no other inputs.
    pub fn new(images: &'a Tensor, class: &'a Class, settings: &'a Settings) -> Self {
        ExplainBatch {
            images,
            other_inputs: &[],
            class,
            settings,
            progress: &NoProgress,
            position: Some(BatchPosition::default()),
        }
    }

    /// For each image of the batch, the index of its item among `count` items (`what`): there is one item for all images,
    /// or one for each image of the whole set.
    pub(crate) fn item_indices(&self, count: usize, what: &str) -> Result<Vec<usize>> {
        let samples = self.samples();
        if count == 1 {
            return Ok(vec![0; samples]);
        }
        let Some(BatchPosition { offset, is_last }) = self.position else {
            return Err(Error::argument(format!(
                "{count} {what} were given, but the images have no order here; give one for all"
            )));
        };
        let end = offset + samples;
        match count {
            _ if (count == end && is_last) || (count > end && !is_last) => Ok((offset..end).collect()),
            _ => {
                let more = if is_last { "" } else { " and more" };
                Err(Error::argument(format!(
                    "{count} {what} were given for {end} images{more}; give one, or one for each"
                )))
            }
        }
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.images.shape().first().copied().unwrap_or(1)
    }
}
