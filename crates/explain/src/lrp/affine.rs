//! Affine layers as functions of the one input that depends on the image, `z = W·x + b`, and the same with modified inputs, weights
//! and biases. All rules are built from these.

use monosplit_autodiff::linear::{Coefficients, batch_norm_scale, transpose};
use monosplit_autodiff::{Edge, User};
use monosplit_graph::op::{AffineLayer, Binary};
use monosplit_graph::{Graph, Node, NodeId, Op, Result};

use crate::network::Network;
use crate::sum_stream::affine_bias;

/// An affine node with its input, weight and bias.
pub(super) struct Affine<'a> {
    pub(super) kind: AffineLayer,
    /// The value `z`: that of the node, or of the node after it that adds its bias.
    pub(super) z: NodeId,
    pub(super) x: NodeId,
    pub(super) weight: NodeId,
    pub(super) bias: Option<NodeId>,
    id: NodeId,
    node: &'a Node,
    index: usize,
}

/// The bias of a layer that a separate node adds, as exporters write dense layers over tokens, and that node. Rounding in
/// between is taken for the identity.
pub(super) fn separate_bias(network: &Network, layer: NodeId) -> Option<(NodeId, NodeId)> {
    let graph = network.graph();
    let node = graph.node(layer);
    let bare = matches!(node.op, Op::MatMul { .. }) && node.inputs.len() == 2;
    let single = |id| network.active_inputs(id).len() == 1;
    if !bare || !single(layer) {
        return None;
    }
    let mut product = layer;
    loop {
        let &[User { node: reader, input: Some(index) }] = network.users(product) else { return None };
        let reading = graph.node(reader);
        match reading.op {
            Op::Unary(function) if function.is_straight_through() => product = reader,
            Op::Binary(Binary::Add) if reading.shape == node.shape && single(reader) => {
                return Some((reading.inputs[1 - index], reader));
            }
            _ => return None,
        }
    }
}

/// Whether a sum adds the bias of the layer before it, of which `product` is the result.
pub(super) fn adds_bias(network: &Network, mut product: NodeId) -> bool {
    let graph = network.graph();
    while let Op::Unary(function) = graph.node(product).op
        && function.is_straight_through()
    {
        product = graph.node(product).inputs[0];
    }
    separate_bias(network, product).is_some()
}

impl<'a> Affine<'a> {
    /// The affine layer that is the node of an edge; none for other nodes.
    pub(super) fn of(g: &mut Graph, network: &Network, edge: &Edge<'a>) -> Result<Option<Self>> {
        let Edge { id, node, index, active } = *edge;
        let Some(kind) = node.op.affine_layer().filter(|_| active == 1) else { return Ok(None) };
        let (weight, bias) = match (&node.op, index) {
            (Op::BatchNorm { epsilon }, 0) => (batch_norm_scale(g, node, *epsilon)?, affine_bias(g, node)?),
            (Op::MatMul { .. }, 1) => (node.inputs[0], node.inputs.get(2).copied()),
            (Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. }, 0) => {
                (node.inputs[1], node.inputs.get(2).copied())
            }
            _ => return Ok(None),
        };
        let (bias, z) = match separate_bias(network, id) {
            Some((later, sum)) => (Some(later), sum),
            None => (bias, id),
        };
        Ok(Some(Affine { kind, z, x: node.inputs[index], weight, bias, id, node, index }))
    }

    /// `weight·x + bias`
    pub(super) fn forward(
        &self,
        g: &mut Graph,
        x: NodeId,
        weight: NodeId,
        bias: Option<NodeId>,
    ) -> Result<NodeId> {
        if self.kind == AffineLayer::Normalisation {
            let product = g.times(x, weight)?;
            return bias.map_or(Ok(product), |bias| g.plus(product, bias));
        }
        let mut operands = if self.index == 0 { vec![x, weight] } else { vec![weight, x] };
        operands.extend(bias);
        g.add(self.node.op.clone(), &operands)
    }

    /// `weightᵀ·c`
    pub(super) fn backward(&self, g: &mut Graph, weight: NodeId, c: NodeId) -> Result<NodeId> {
        if self.kind == AffineLayer::Normalisation {
            return g.times(c, weight);
        }
        let mut operands = self.node.inputs.clone();
        operands[1 - self.index] = weight;
        transpose(g, self.id, self.index, c, Coefficients { operands: &operands, magnitude: false })
    }
}
