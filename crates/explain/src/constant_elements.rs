//! Which elements of a value are constants although the value depends on the explained input: what padding by a number other
//! than zero adds, and what is joined on. Relevance is shared out among elements that depend on the input.

use std::collections::HashMap;

use monosplit_graph::op::{Binary, Padding};
use monosplit_graph::{Graph, Kind, Node, NodeId, Op, Result};

use crate::network::Network;

/// One at elements that are constants, zero at others; values without such elements are left out.
#[derive(Default)]
pub(crate) struct ConstantElements {
    masks: HashMap<NodeId, NodeId>,
}

impl ConstantElements {
    /// The mask of a value that has constant elements.
    pub(crate) fn mask(&self, id: NodeId) -> Option<NodeId> {
        self.masks.get(&id).copied()
    }

    /// Finds the constant elements of a node whose operands have been seen.
    pub(crate) fn visit(&mut self, g: &mut Graph, network: &Network, id: NodeId, node: &Node) -> Result<()> {
        if let Some(mask) = self.of(g, network, node)? {
            self.masks.insert(id, mask);
        }
        Ok(())
    }

    fn of(&self, g: &mut Graph, network: &Network, node: &Node) -> Result<Option<NodeId>> {
        let known = node.inputs.first().and_then(|&input| self.mask(input));
        match &node.op {
            Op::Pad { padding: Padding::Constant(c), pads } if *c != 0.0 => {
                let inner = known.map_or_else(|| zeros_like(g, node.inputs[0]), Ok)?;
                let frame = Op::Pad { padding: Padding::Constant(1.0), pads: pads.clone() };
                g.add(frame, &[inner]).map(Some)
            }
            Op::Concat { .. } => {
                let is_constant = |id: NodeId| !network.is_active(id) || self.mask(id).is_some();
                if !node.inputs.iter().any(|&input| is_constant(input)) {
                    return Ok(None);
                }
                let mut parts = Vec::with_capacity(node.inputs.len());
                for &input in &node.inputs {
                    let zeros = zeros_like(g, input)?;
                    parts.push(match self.mask(input) {
                        Some(mask) => mask,
                        None if network.is_active(input) => zeros,
                        None => g.offset(1.0, zeros)?,
                    });
                }
                g.add(node.op.clone(), &parts).map(Some)
            }
            Op::Slice { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Gather { .. }
            | Op::Pad { .. } => {
                let Some(mask) = known else { return Ok(None) };
                let mut operands = node.inputs.clone();
                operands[0] = mask;
                g.add(node.op.clone(), &operands).map(Some)
            }
            // Element by element: a constant stays one where the other operand is a constant too.
            Op::Unary(_) | Op::Identity | Op::Dropout { .. } | Op::BatchNorm { .. } => Ok(known),
            Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::PRelu) => {
                let mut active = node.inputs.iter().filter(|&&input| network.is_active(input));
                let (Some(&only), None) = (active.next(), active.next()) else { return Ok(None) };
                let mask = self.mask(only);
                Ok(mask.filter(|&mask| g.node(mask).shape == node.shape))
            }
            // All others mix elements.
            _ => Ok(None),
        }
    }
}

/// Zeros of the shape of a value, whatever its elements are.
fn zeros_like(g: &mut Graph, a: NodeId) -> Result<NodeId> {
    let never = g.binary(Binary::Less, a, a)?;
    g.add(Op::Cast { to: Kind::Float }, &[never])
}

/// The elements of `value` that `mask` marks, zero in place of the others.
pub(crate) fn marked(g: &mut Graph, mask: NodeId, value: NodeId) -> Result<NodeId> {
    let constant = g.at_least(mask, 0.5)?;
    g.masked(constant, value)
}

/// The elements of `value` that `mask` does not mark, zero in place of the others.
pub(crate) fn unmarked(g: &mut Graph, mask: NodeId, value: NodeId) -> Result<NodeId> {
    let constant = g.at_least(mask, 0.5)?;
    let zero = g.number(0.0);
    g.select(constant, zero, value)
}
