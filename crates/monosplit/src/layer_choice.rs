//! The layer of a map where none is named.

use monosplit_explain::{DefaultLayer, chosen_layer};
use monosplit_graph::Graph;

/// The default layer of the methods of the split: what enters the last layer that mixes positions.
pub fn default_layer(graph: &Graph) -> Option<String> {
    chosen_layer(graph, DefaultLayer::LastMixingInput).map(|layer| layer.name)
}
