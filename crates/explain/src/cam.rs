//! Class activation maps: the activations of a layer, weighted and summed over channels.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, NodeId, Op, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::Attribution;
use crate::patch_grid::Grid;

/// The activations of a layer, and which of their axes are channels and which are spatial. Of tokens only those of patches
/// count: a class token is no place.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    at: NodeId,
    channels: usize,
    positions: Vec<usize>,
    patches: Option<Grid>,
}

impl Layer {
    pub(crate) fn new(builder: &ExplanationBuilder<'_>, at: NodeId) -> Result<Self> {
        let axes = builder.axes(at)?;
        let channels = axes.channels.unwrap_or(1);
        let shape = &builder.graph.node(at).shape;
        let positions: Vec<usize> = (1..shape.rank()).filter(|&axis| axis != channels).collect();
        let image = &builder.graph.node(builder.image()).shape;
        let patches = match positions.as_slice() {
            &[tokens] => shape.fixed_at(tokens).and_then(|count| Grid::of(image, axes.image_channels, count)),
            _ => None,
        };
        Ok(Layer { at, channels, positions, patches: patches.filter(|grid| grid.dropped > 0) })
    }

    /// A value of the layer's shape, or with some axes of length 1, without tokens that are no patches.
    fn places(&self, g: &mut Graph, value: NodeId) -> Result<NodeId> {
        let (Some(Grid { dropped, rows, columns }), &[axis]) = (self.patches, self.positions.as_slice())
        else {
            return Ok(value);
        };
        if g.node(value).shape.fixed_at(axis) != g.node(self.at).shape.fixed_at(axis) {
            return Ok(value);
        }
        g.add(Op::Slice { axis, start: dropped, step: 1, length: rows * columns }, &[value])
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
        let value = self.places(g, value)?;
        g.reduced(reduction, value, &self.positions, true)
    }

    /// `Σ_c w_c a_c`; without spatial axes, `w ⊙ a`.
    pub(crate) fn weighted(&self, g: &mut Graph, weights: NodeId, rectified: bool) -> Result<Attribution> {
        let (weights, activations) = (self.places(g, weights)?, self.places(g, self.at)?);
        let mut map = g.times(weights, activations)?;
        if !self.positions.is_empty() {
            map = g.reduced(Reduction::Sum, map, &[self.channels], false)?;
        }
        let map = if rectified { g.rectified(map)? } else { map };
        Ok(Attribution::per_position(map, self.at))
    }
}
