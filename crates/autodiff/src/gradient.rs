//! The ordinary gradient, as a rule set over the walk. Its message is one value.

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use crate::derivative::{power_slope, slope};
use crate::linear::{Coefficients, is_multilinear, transpose};
use crate::rectifier::rectifier;
use crate::walk::{Edge, Rules};
use crate::window_max::{WindowMax, first_wins};

/// Rules of the chain rule. PyTorch's ReLU is closed at zero, the paper's is open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gradient {
    /// Whether a ReLU passes the gradient where its input is exactly zero.
    pub open_at_zero: bool,
    /// What a ReLU does instead of the chain rule.
    pub relu: ReluBackward,
}

/// What passes backwards through a ReLU. Its relatives with a slope on the left, and ReLU6, follow the chain rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReluBackward {
    /// The gradient, where the ReLU is open.
    #[default]
    ChainRule,
    /// The positive part of it, where the ReLU is open.
    Guided,
    /// The positive part of it, everywhere.
    Deconvolution,
}

impl Rules for Gradient {
    type Message = NodeId;

    fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
        g.plus(a, b)
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, d: NodeId) -> Result<Option<NodeId>> {
        gradient_to(g, edge, d, *self)
    }
}

/// The gradient at an input of a node, given the gradient `d` at its output; `None` where it is zero.
fn gradient_to(g: &mut Graph, edge: &Edge<'_>, d: NodeId, rules: Gradient) -> Result<Option<NodeId>> {
    let Edge { id, node, index, .. } = *edge;
    let Gradient { open_at_zero, relu } = rules;
    if relu == ReluBackward::Deconvolution && node.op == Op::Unary(Unary::Relu) {
        return g.rectified(d).map(Some);
    }
    if is_multilinear(&node.op) {
        return transpose(g, id, index, d, Coefficients { operands: &node.inputs, magnitude: false })
            .map(Some);
    }
    if let Some(maximum) = WindowMax::of(g, node)? {
        return maximum.scatter(g, d).map(Some);
    }
    if let Some(rectifier) = rectifier(g, node)? {
        let z = node.inputs[0];
        let on = if open_at_zero { g.at_least(z, 0.0)? } else { g.more_than(z, 0.0)? };
        return match rectifier.slope {
            None => {
                let d = if relu == ReluBackward::Guided { g.rectified(d)? } else { d };
                g.masked(on, d).map(Some)
            }
            Some(slope) => {
                let sloped = g.times(slope, d)?;
                g.select(on, d, sloped).map(Some)
            }
        };
    }
    if let (Op::Unary(Unary::Clip { min, max }), true) = (&node.op, open_at_zero) {
        let above = g.at_least(node.inputs[0], *min)?;
        let bound = g.number(*max);
        let below = g.binary(Binary::Less, node.inputs[0], bound)?;
        let inside = g.binary(Binary::And, above, below)?;
        return g.masked(inside, d).map(Some);
    }
    local_gradient(g, node, id, index, d)
}

fn local_gradient(g: &mut Graph, node: &Node, id: NodeId, index: usize, d: NodeId) -> Result<Option<NodeId>> {
    match &node.op {
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
            "{} has no gradient rule for its input {index}; choose a layer above it",
            op.name()
        ))),
    }
}
