//! α by layer: one number for all shifted nodes, and others where a pattern names them.

use monosplit_graph::op::AffineLayer;
use monosplit_graph::{Error, Graph, NodeId, Result};

use crate::layer_pattern::fits;
use crate::network::Network;
use crate::shift::shifted_nodes;
use crate::split::Split;

/// The word for all convolutions in place of a pattern.
const CONVOLUTIONS: &str = "convolutions";
/// The word for the class scores, where sensitivities begin.
const SCORES: &str = "scores";
/// So many names are told where a pattern finds none.
const NAMED: usize = 5;

/// α for all shifted nodes, and the α of those that patterns name.
///
/// A pattern is the name of a layer, or of a module that contains layers, in which `*` stands for any text; or one of the words `convolutions` and `scores` (the class
/// scores). Of several patterns that name a node the last counts.
///
/// A batch norm that was merged into a convolution shifts no more. A convolution with `α' = 2α(1 − α)` stands for both, since
/// `1 − 2α' = (1 − 2α)²`: [`LayerAlphas::twice`].
#[derive(Clone, Debug, PartialEq)]
pub struct LayerAlphas {
    all: f64,
    at: Vec<(String, f64)>,
}

impl LayerAlphas {
    /// The same α for all nodes.
    pub fn new(all: f64) -> Self {
        LayerAlphas { all, at: Vec::new() }
    }

    /// Another α for the nodes that a pattern names.
    #[must_use]
    pub fn at(mut self, pattern: impl Into<String>, alpha: f64) -> Self {
        self.at.push((pattern.into(), alpha));
        self
    }

    /// The α of one shift that equals two shifts by `alpha`.
    pub fn twice(alpha: f64) -> f64 {
        2.0 * alpha * (1.0 - alpha)
    }

    /// One α for each shifted node of `network` and a last one for the class scores, in the order of
    /// [`Split::shifted_layers`]; an error if a pattern names none of them.
    pub fn of(&self, split: &Split, network: &Graph) -> Result<Vec<f64>> {
        let network = Network::new(network)?;
        let graph = network.graph();
        let nodes = shifted_nodes(&network, split.shift_at);
        let mut alphas = vec![self.all; nodes.len() + 1];
        for (pattern, alpha) in &self.at {
            let mut found = false;
            for (_, own) in nodes.iter().zip(&mut alphas).filter(|(id, _)| is_named(graph, **id, pattern)) {
                *own = *alpha;
                found = true;
            }
            if pattern == SCORES {
                alphas[nodes.len()] = *alpha;
                found = true;
            }
            if !found {
                return Err(nothing_found(graph, &nodes, pattern));
            }
        }
        Ok(alphas)
    }
}

fn is_named(graph: &Graph, id: NodeId, pattern: &str) -> bool {
    let node = graph.node(id);
    if pattern == CONVOLUTIONS {
        return node.op.affine_layer() == Some(AffineLayer::Convolution);
    }
    fits(pattern, &node.label)
}

fn nothing_found(graph: &Graph, nodes: &[NodeId], pattern: &str) -> Error {
    let names: Vec<&str> = nodes.iter().take(NAMED).map(|&id| graph.node(id).label.display()).collect();
    let more = if nodes.len() > NAMED { format!(" and {} more", nodes.len() - NAMED) } else { String::new() };
    Error::argument(format!(
        "no shifted layer is named '{pattern}'; there are {}{more}, {CONVOLUTIONS} for all convolutions, and {SCORES}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_shifts_are_one_with_the_alpha_of_both() {
        for alpha in [0.0, 0.1, 0.3, 0.5] {
            let both = (1.0 - 2.0 * alpha) * (1.0 - 2.0 * alpha);
            assert!((1.0 - 2.0 * LayerAlphas::twice(alpha) - both).abs() < 1e-15);
        }
    }
}
