//! The `Metric` trait: a number for one map of one image, given the network the map explains.

use monosplit_graph::{Error, Result, Tensor};

use crate::perturbation::Perturbations;

/// The evaluated network and method, as metrics see them.
pub trait ExplainedNetwork: Sync {
    /// The class scores `[N, classes]` of preprocessed images `[N, C, H, W]`.
    fn scores(&self, images: &Tensor) -> Result<Tensor>;

    /// The batch size the network is computed most efficiently at, if its engine prefers one.
    fn preferred_batch_size(&self) -> Option<usize> {
        None
    }

    /// The class scores `[1 + steps, classes]` of one image `[1, C, H, W]`, unchanged and after each of several cumulative
    /// perturbations, `batch` images at a time. `None` if there is no faster way than [`ExplainedNetwork::scores`] of every
    /// perturbed image.
    fn scores_after(
        &self,
        image: &Tensor,
        changes: &dyn Perturbations,
        batch: Option<usize>,
    ) -> Result<Option<Tensor>> {
        let _ = (image, changes, batch);
        Ok(None)
    }

    /// The maps `[N, H, W]` of preprocessed images for one class, by the evaluated method.
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor>;

    /// The maps `[H, W]` of one image `[1, C, H, W]` in copies of the network with more and more layers re-initialised, by the
    /// same method. `None` if there are no such copies. Only the parameter randomisation test calls it.
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
    /// The object mask, `H·W` pixels, if there is one.
    pub mask: Option<&'a [bool]>,
    /// The evaluated network and method.
    pub network: &'a dyn ExplainedNetwork,
    /// The seed of the metric's random numbers. The same seed, image and options give the same value.
    pub seed: u64,
}

/// The sizes that all cases of an evaluation share.
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

    /// An error if the option `key` of a metric exceeds `most`, the largest value for such images.
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

/// Whether larger or smaller values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A larger value is a better explanation.
    Higher,
    /// A smaller value is a better explanation.
    Lower,
}

/// The reason why a metric is undefined for a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undefined(pub String);

/// A metric of saliency maps.
pub trait Metric: Send + Sync {
    /// The name it has in experiments, stores and reports.
    fn name(&self) -> &str;

    /// Whether larger or smaller values are better.
    fn better(&self) -> Better;

    /// Whether the metric needs an object mask.
    fn needs_mask(&self) -> bool {
        false
    }

    /// Whether the metric asks for maps of other images, classes or networks than those explained. A map that was given has
    /// none.
    fn recomputes_maps(&self) -> bool {
        false
    }

    /// Why the metric makes sense only where scores are those of classes, and what to do instead; none if any score will do.
    fn needs_class_scores(&self) -> Option<&'static str> {
        None
    }

    /// An error if the metric is undefined for every map of such images. It is called before anything is computed.
    fn check(&self, frame: &CaseShape) -> Result<()> {
        let _ = frame;
        Ok(())
    }

    /// The value for a case, or why it is undefined, as for an empty mask or a constant map.
    fn measure(&self, case: &Case<'_>) -> Result<std::result::Result<f64, Undefined>>;
}
