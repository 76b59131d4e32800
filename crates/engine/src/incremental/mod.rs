//! Incremental inference: the outputs of a graph for inputs that differ from a baseline input within a small rectangle.
//!
//! Convolutions and pools spread a change only as far as their receptive fields. Of every activation on the way, only the
//! tile that the change reaches is computed; the rest is taken from the activations of the baseline input. From the last
//! such activation on, everything is computed.

mod program;
mod receptive_field;
mod segment;
#[cfg(test)]
mod tests;
mod tiles;
mod tiling;

use std::ops::Range;

use monosplit_graph::Tensor;

pub use program::IncrementalProgram;
pub use receptive_field::{FieldExtent, receptive_field};

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
    /// Their part of the memory budget.
    _held: std::sync::Arc<crate::Reservation>,
}
