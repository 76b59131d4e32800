//! Class activation maps: the activations of a layer, weighted and summed over channels.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::Attribution;

/// The activations of a layer, and which of their axes are channels and which are spatial.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    at: NodeId,
    channels: usize,
    positions: Vec<usize>,
}

impl Layer {
    pub(crate) fn new(builder: &ExplanationBuilder<'_>, at: NodeId) -> Result<Self> {
        let channels = builder.axes(at)?.channels.unwrap_or(1);
        let rank = builder.graph.node(at).shape.rank();
        Ok(Layer { at, channels, positions: (1..rank).filter(|&axis| axis != channels).collect() })
    }

    /// The mean over spatial axes, which are kept with length 1.
    pub(crate) fn mean(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        self.reduced(g, Reduction::Mean, value)
    }

    /// The sum over spatial axes, which are kept with length 1.
    pub(crate) fn sum(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        self.reduced(g, Reduction::Sum, value)
    }

    fn reduced(&self, g: &mut Graph, reduction: Reduction, value: NodeId) -> Result<NodeId> {
        if self.positions.is_empty() {
            return Ok(value);
        }
        g.reduced(reduction, value, &self.positions, true)
    }

    /// `Σ_c w_c a_c`; without spatial axes, `w ⊙ a`.
    pub(crate) fn weighted(&self, g: &mut Graph, weights: NodeId, rectified: bool) -> Result<Attribution> {
        let mut map = g.times(weights, self.at)?;
        if !self.positions.is_empty() {
            map = g.reduced(Reduction::Sum, map, &[self.channels], false)?;
        }
        let map = if rectified { g.rectified(map)? } else { map };
        Ok(Attribution::per_position(map, self.at))
    }
}
