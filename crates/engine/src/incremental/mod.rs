//! Incremental inference: the outputs of a graph for inputs that differ from a baseline input within a small rectangle.
//!
//! Convolutions and pools spread a change only as far as their receptive fields. Of every activation on the way, only the
//! tile that the change reaches is computed; the rest is taken from the activations of the baseline input. From the last
//! such activation on, everything is computed.

mod program;
mod receptive_field;
mod scratch;
mod segment;
mod tiles;
mod tiling;

use std::ops::Range;

use monosplit_graph::{Result, Tensor};

pub(crate) use program::TiledProgram;

/// A change of one sample of the first graph input, which is an image `[N, C, H, W]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The sample that is changed.
    pub sample: usize,
    /// The rows and columns that are replaced.
    pub region: [Range<usize>; 2],
    /// What they are replaced by, `[C, rows, columns]`.
    pub values: Tensor,
}

/// The activations of an unchanged input that an [`IncrementalProgram`] reads.
#[derive(Clone, Debug)]
pub struct BaselineActivations {
    /// The tiled activations, the image first.
    tiled: Vec<Tensor>,
    /// What else the part above the last of them reads.
    crossing: Vec<Tensor>,
}

/// A graph compiled for inputs that differ from a baseline input within a rectangle. The same arguments give the same bits at
/// every number of threads.
pub trait IncrementalProgram: Send + Sync {
    /// Computes the activations of unchanged inputs: one tensor for each input of the graph, any number of samples.
    fn baseline(&self, inputs: &[Tensor]) -> Result<BaselineActivations>;

    /// The outputs of the graph for copies with one change each: row `i` belongs to sample `changes[i].sample` of the
    /// baseline with that change alone. All copies are computed at once.
    fn run(&self, baseline: &BaselineActivations, changes: &[Change]) -> Result<Vec<Tensor>>;

    /// The outputs of the graph while changes add up: row 0 belongs to the unchanged input, row `i` to the input after the
    /// first `i` changes. The baseline has one sample. At most `batch_size` copies are computed at once.
    fn run_cumulative(
        &self,
        baseline: BaselineActivations,
        changes: &[Change],
        batch_size: usize,
    ) -> Result<Vec<Tensor>>;
}
