//! The ordinary gradient as a rule set. Its message is one value.

use monosplit_graph::op::{Binary, Linearity, Reduction, Unary};
use monosplit_graph::{Error, Graph, NodeId, Op, Result};

use crate::derivative::{power_slope, slope};
use crate::linear::{Coefficients, transpose};
use crate::rectifier::rectifier;
use crate::walk::{Edge, Rules};
use crate::window_max::{WindowMax, selects_first};

/// The chain rule, with two choices at ReLUs. The default is the gradient PyTorch computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GradientRules {
    /// Whether a ReLU passes the gradient where its input is exactly zero. PyTorch's does not, the paper's does.
    pub open_at_zero: bool,
    /// What passes backwards through a ReLU.
    pub relu: ReluBackward,
}

/// What passes backwards through a ReLU. Leaky and parametric ReLUs and ReLU6 always follow the chain rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReluBackward {
    /// The gradient, where the ReLU is open.
    #[default]
    ChainRule,
    /// Guided Backprop: the positive part of the gradient, where the ReLU is open.
    Guided,
    /// Deconvolution: the positive part of the gradient, everywhere.
    Deconvolution,
}

impl Rules for GradientRules {
    type Message = NodeId;

    fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
        g.plus(a, b)
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, d: NodeId) -> Result<Option<NodeId>> {
        match &edge.node.op {
            Op::MaxPool(_) | Op::Reduce { reduction: Reduction::Max | Reduction::Min, .. } => {
                match WindowMax::of(g, edge.node)? {
                    Some(maximum) => maximum.select_transposed(g, d).map(Some),
                    None => refused(edge),
                }
            }
            Op::Unary(function) => self.unary(g, edge, *function, d),
            Op::Binary(function) => self.binary(g, edge, *function, d),
            // Winners of windows come from explanations, which have no gradients.
            Op::WinnerGather(_) | Op::WinnerScatter(_) => refused(edge),
            op => match op.properties().linearity {
                Linearity::Selection(_) | Linearity::WeightedSum(_) | Linearity::Product(_) => {
                    linear(g, edge, d)
                }
                // What has been decomposed, products of many elements, and indices.
                Linearity::Nonlinear => refused(edge),
            },
        }
    }
}

impl GradientRules {
    fn unary(self, g: &mut Graph, edge: &Edge<'_>, function: Unary, d: NodeId) -> Result<Option<NodeId>> {
        let z = edge.node.inputs[0];
        if function == Unary::Neg {
            return linear(g, edge, d);
        }
        if function == Unary::Relu && self.relu == ReluBackward::Deconvolution {
            return g.rectified(d).map(Some);
        }
        if let Some(rectified) = self.rectifier(g, edge, d)? {
            return Ok(Some(rectified));
        }
        if let (Unary::Clip { min, max }, true) = (function, self.open_at_zero) {
            let above = g.at_least(z, min)?;
            let bound = g.number(max);
            let below = g.binary(Binary::Less, z, bound)?;
            let inside = g.binary(Binary::And, above, below)?;
            return g.masked(inside, d).map(Some);
        }
        let Some(slope) = slope(g, function, z, edge.id)? else { return Ok(None) };
        g.times(slope, d).map(Some)
    }

    fn binary(self, g: &mut Graph, edge: &Edge<'_>, function: Binary, d: NodeId) -> Result<Option<NodeId>> {
        let Edge { node, index, .. } = *edge;
        match (function, index) {
            (Binary::Add | Binary::Sub | Binary::Mul | Binary::Div, _) => linear(g, edge, d),
            (Binary::Max | Binary::Min, _) => {
                let first = selects_first(g, node, function)?;
                let zero = g.number(0.0);
                let routed = if index == 0 { g.select(first, d, zero)? } else { g.select(first, zero, d)? };
                let shape = g.node(node.inputs[index]).shape.clone();
                g.summed_to(routed, &shape).map(Some)
            }
            (Binary::PRelu, _) => match self.rectifier(g, edge, d)? {
                Some(rectified) => Ok(Some(rectified)),
                None if index == 0 => {
                    let on = g.more_than(node.inputs[0], 0.0)?;
                    let sloped = g.times(node.inputs[1], d)?;
                    g.select(on, d, sloped).map(Some)
                }
                None => refused(edge),
            },
            (Binary::Pow, 0) => {
                let slope = power_slope(g, node.inputs[0], node.inputs[1])?;
                let product = g.times(slope, d)?;
                let shape = g.node(node.inputs[0]).shape.clone();
                g.summed_to(product, &shape).map(Some)
            }
            (
                Binary::Pow
                | Binary::Equal
                | Binary::Less
                | Binary::LessOrEqual
                | Binary::Greater
                | Binary::GreaterOrEqual
                | Binary::And
                | Binary::Or
                | Binary::Xor,
                _,
            ) => refused(edge),
        }
    }

    /// The gradient at the input of a ReLU, or of a leaky or parametric one; `None` if the node is neither.
    fn rectifier(self, g: &mut Graph, edge: &Edge<'_>, d: NodeId) -> Result<Option<NodeId>> {
        let Some(rectifier) = rectifier(g, edge.node)? else { return Ok(None) };
        let z = edge.node.inputs[0];
        let on = if self.open_at_zero { g.at_least(z, 0.0)? } else { g.more_than(z, 0.0)? };
        match rectifier.slope {
            None => {
                let d = if self.relu == ReluBackward::Guided { g.rectified(d)? } else { d };
                g.masked(on, d).map(Some)
            }
            Some(slope) => {
                let sloped = g.times(slope, d)?;
                g.select(on, d, sloped).map(Some)
            }
        }
    }
}

/// The gradient at an input that the node is linear in.
fn linear(g: &mut Graph, edge: &Edge<'_>, d: NodeId) -> Result<Option<NodeId>> {
    let Edge { id, node, index, .. } = *edge;
    transpose(g, id, index, d, Coefficients { operands: &node.inputs, magnitude: false }).map(Some)
}

fn refused(edge: &Edge<'_>) -> Result<Option<NodeId>> {
    Err(Error::unsupported(format!(
        "{} has no gradient rule for its input {}; choose a layer above it",
        edge.node.op.name(),
        edge.index
    )))
}
