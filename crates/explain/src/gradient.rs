//! The ordinary gradient, as a rule set over the walk. Its message is one value.

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use crate::contest::Contest;
use crate::derivative::{power_slope, slope};
use crate::linear::{Coefficients, is_multilinear, transpose};
use crate::network::Network;
use crate::sum_stream::first_wins;
use crate::walk::Rules;

/// Rules of the chain rule. A ReLU passes where `z > 0`, as in PyTorch.
pub(crate) struct Gradient<'a> {
    pub(crate) network: &'a Network,
}

impl Rules for Gradient<'_> {
    type Message = NodeId;

    fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
        g.plus(a, b)
    }

    fn back(&mut self, g: &mut Graph, id: NodeId, d: NodeId) -> Result<Vec<(NodeId, NodeId)>> {
        let mut messages = Vec::new();
        for (index, input) in self.network.active_inputs(id) {
            if let Some(message) = gradient_to(g, id, index, d)? {
                messages.push((input, message));
            }
        }
        Ok(messages)
    }
}

/// The gradient at input `index` of a node, given the gradient `d` at its output; `None` where it is zero.
pub(crate) fn gradient_to(g: &mut Graph, id: NodeId, index: usize, d: NodeId) -> Result<Option<NodeId>> {
    let node = g.node(id).clone();
    if is_multilinear(&node.op) {
        return transpose(g, id, index, d, Coefficients { operands: &node.inputs, magnitude: false }).map(Some);
    }
    if let Some(contest) = Contest::of(g, &node)? {
        return contest.scatter(g, d).map(Some);
    }
    local_gradient(g, &node, id, index, d).map_err(|e| e.at(node.label.display()))
}

fn local_gradient(g: &mut Graph, node: &Node, id: NodeId, index: usize, d: NodeId) -> Result<Option<NodeId>> {
    match &node.op {
        Op::Unary(Unary::Relu) => {
            let on = g.more_than(node.inputs[0], 0.0)?;
            g.masked(on, d).map(Some)
        }
        Op::Unary(function) => {
            let Some(slope) = slope(g, *function, node.inputs[0], id)? else { return Ok(None) };
            g.times(slope, d).map(Some)
        }
        Op::Binary(binary @ (Binary::Max | Binary::Min)) => {
            let wins = first_wins(g, node, *binary)?;
            let zero = g.number(0.0);
            let routed = if index == 0 { g.select(wins, d, zero)? } else { g.select(wins, zero, d)? };
            let shape = g.node(node.inputs[index]).shape.clone();
            g.summed_to(routed, &shape).map(Some)
        }
        Op::Binary(Binary::PRelu) if index == 0 => {
            let on = g.more_than(node.inputs[0], 0.0)?;
            let sloped = g.times(node.inputs[1], d)?;
            g.select(on, d, sloped).map(Some)
        }
        Op::Binary(Binary::Pow) if index == 0 => {
            let slope = power_slope(g, node.inputs[0], node.inputs[1])?;
            let product = g.times(slope, d)?;
            let shape = g.node(node.inputs[0]).shape.clone();
            g.summed_to(product, &shape).map(Some)
        }
        op => Err(Error::unsupported(format!(
            "{} has no gradient rule for its input {index}; `monosplit ops` lists what can be explained",
            op.name()
        ))),
    }
}
