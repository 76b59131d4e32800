//! The layer of a map where none is named.

use monosplit_explain::DefaultLayer;
pub use monosplit_explain::layers_by_size;
use monosplit_graph::Graph;

/// The name of the default layer of a method in `graph`; none is the image.
pub fn chosen_layer(graph: &Graph, place: DefaultLayer) -> Option<String> {
    let chosen = monosplit_explain::chosen_layer(graph, place).map(|layer| layer.name);
    log::debug!("layer chosen for {place:?}: {}", chosen.as_deref().unwrap_or("the image"));
    chosen
}

/// The default layer of the methods of the split: what enters the last layer that mixes places.
pub fn default_layer(graph: &Graph) -> Option<String> {
    chosen_layer(graph, DefaultLayer::LastMixingInput)
}
