//! What a metric is: a number for one map of one image, given the network it explains.

use monosplit_graph::{Error, Result, Tensor};

use crate::perturbation::Perturbations;

/// The network under examination, as metrics see it.
pub trait Network: Sync {
    /// The class scores `[N, classes]` of preprocessed images `[N, C, H, W]`.
    fn scores(&self, images: &Tensor) -> Result<Tensor>;

    /// The batch size the network is computed most efficiently at, if its engine prefers one.
    fn preferred_batch_size(&self) -> Option<usize> {
        None
    }

    /// The class scores `[1 + steps, classes]` of one image `[1, C, H, W]`, untouched and after each of several changes, so
    /// many images at a time; `None` where the scores of all the changed images have to be asked for.
    fn scores_after(
        &self,
        image: &Tensor,
        changes: &dyn Perturbations,
        batch: Option<usize>,
    ) -> Result<Option<Tensor>> {
        let _ = (image, changes, batch);
        Ok(None)
    }

    /// The explanations `[N, H, W]` of preprocessed images for one class, by the method under examination.
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor>;

    /// The explanations `[H, W]` of one image `[1, C, H, W]` in networks of which ever more layers have been re-initialised,
    /// by the same method; `None` where there are no such networks. Only the randomisation test asks for them.
    fn randomised_maps(&self, image: &Tensor, class: usize, seed: u64) -> Result<Option<Vec<Tensor>>> {
        let _ = (image, class, seed);
        Ok(None)
    }
}

/// One map of one image.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The preprocessed image `[1, C, H, W]`.
    pub image: &'a Tensor,
    /// The class that is explained.
    pub class: usize,
    /// The map at the size of the image `[H, W]`, signed.
    pub map: &'a Tensor,
    /// Where the object is, `H·W` places, if that is known.
    pub mask: Option<&'a [bool]>,
    /// The network and the method that made the map.
    pub network: &'a dyn Network,
    /// Seeds whatever the metric draws; the same seed, image and options give the same number.
    pub seed: u64,
}

/// What all cases of an evaluation have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseShape {
    /// Channels of an image.
    pub channels: usize,
    /// Its rows.
    pub height: usize,
    /// Its columns.
    pub width: usize,
    /// Classes of the network.
    pub classes: usize,
}

impl CaseShape {
    /// Pixels of an image.
    pub fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// An error unless an option of a metric is at most `most`, which is as much as such an image has.
    pub(crate) fn holds(&self, (metric, key): (&str, &str), value: usize, most: usize) -> Result<()> {
        match value <= most {
            true => Ok(()),
            false => Err(Error::argument(format!(
                "{metric}: option '{key}' is a whole number from 1 to {most} for images of {}×{} pixels, found '{value}'",
                self.width, self.height
            ))),
        }
    }
}

/// Which end of a metric is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A larger value is a better explanation.
    Higher,
    /// A smaller value is a better explanation.
    Lower,
}

/// Why a metric has no value for a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undefined(pub String);

/// A way to judge a map.
pub trait Metric: Send + Sync {
    /// The name it has in experiments, stores and reports.
    fn name(&self) -> &str;

    /// Which end is the good one.
    fn better(&self) -> Better;

    /// Whether it needs to know where the object is.
    fn needs_mask(&self) -> bool {
        false
    }

    /// Refuses, before anything is computed, what has no value on such images whatever the map.
    fn check(&self, frame: &CaseShape) -> Result<()> {
        let _ = frame;
        Ok(())
    }

    /// Its value for a case; silent where the definition has none, as for an empty mask or a map that is constant.
    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>>;
}
