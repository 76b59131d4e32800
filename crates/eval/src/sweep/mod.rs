//! The sweep over a grid of candidates, images and metrics, cut into three steps: [`gaps`](StageGrid::gap) finds what is not in
//! the store, [`measure`](Measurer::measure) computes it without a store, and [`Store::put`](crate::store::Store::put) stores
//! it. One machine does all three ([`SharedSweep`]); on a cluster workers measure, and one process finds gaps and stores.

mod gaps;
mod measure;
mod shared;

use monosplit_graph::Result;

use crate::candidate::{Candidate, groups};
use crate::dataset::Sample;
use crate::metric::{Better, Undefined};

pub use measure::{Measured, Measurer};
pub use shared::SharedSweep;

/// An image of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluatedImage {
    /// Its id in the store.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its hash.
    pub hash: String,
    /// The class that is explained.
    pub class: usize,
    /// Its index in the data set.
    pub index: usize,
}

/// The value of a metric, or why it is undefined.
pub type Outcome = std::result::Result<f64, Undefined>;

/// Computes the values of a grid.
pub trait Evaluator {
    /// Prepares for candidates with the same run-time settings.
    fn prepare(&mut self, group: &[&Candidate]) -> Result<()>;

    /// Loads a batch of images.
    fn load(&mut self, samples: Vec<Sample>, images: &[EvaluatedImage]) -> Result<()>;

    /// The value of one metric for one of the prepared candidates and one of the loaded images.
    fn evaluate(&mut self, metric: usize, image: usize, candidate: usize) -> Result<Outcome>;

    /// Called before the next metric or image. Caches of the last one can be dropped.
    fn next_case(&mut self) {}
}

/// The candidates and metrics of a stage, and how they are computed. Which candidates are computed together, and on which images
/// at once, follows from this and the list of images alone: the same values have the same bits whoever measures them.
#[derive(Clone, Debug)]
pub struct StageGrid {
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// The names of the metrics, and whether higher is better.
    pub metrics: Vec<(String, Better)>,
    /// The indices of the candidates that are computed together.
    groups: Vec<Vec<usize>>,
    /// How many images are loaded together.
    batch: usize,
}

/// The ids of a stage's candidates and metrics in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageIds {
    /// The ids of the candidates' configurations, in order.
    pub configurations: Vec<i64>,
    /// The ids of the metrics, in order.
    pub metrics: Vec<i64>,
}

/// A unit of work: what is missing of a group of candidates on a block of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The index of the group.
    pub group: usize,
    /// The whole block, also images of which nothing is missing: bits must not depend on where a run was interrupted.
    pub images: Vec<EvaluatedImage>,
    /// The missing values.
    pub missing: Vec<MissingValues>,
}

/// The missing values of one candidate on one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingValues {
    /// The index of the candidate in its group.
    pub member: usize,
    /// The index of the image in its block.
    pub image: usize,
    /// The indices of the metrics.
    pub metrics: Vec<usize>,
}

impl StageGrid {
    /// A grid that computes at most `maps` different maps together, on `batch` images at once.
    pub fn new(
        candidates: Vec<Candidate>,
        metrics: Vec<(String, Better)>,
        maps: usize,
        batch: usize,
    ) -> Self {
        let groups = groups(&candidates, maps.max(1));
        StageGrid { candidates, metrics, groups, batch: batch.max(1) }
    }

    /// The number of units of work on `images` images.
    pub fn units(&self, images: usize) -> usize {
        self.groups.len() * images.div_ceil(self.batch)
    }
}

impl Unit {
    /// The number of missing values.
    pub fn rows(&self) -> usize {
        self.missing.iter().map(|values| values.metrics.len()).sum()
    }
}
