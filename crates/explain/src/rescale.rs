//! DeepLIFT's Rescale rule as a rule set. The message is the multiplier `m` of a value: how much the explained score
//! changed for each unit the value changed between the baseline and the image. Multipliers of the inputs, times their
//! changes, add up to the change of the score.

use std::rc::Rc;

use monosplit_autodiff::linear::{Coefficients, transpose};
use monosplit_autodiff::window_max::{WindowMax, selects_first};
use monosplit_autodiff::{Edge, GradientRules, Rules};
use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use crate::methods::PoolChange;
use crate::network::Network;
use crate::reference::Reference;

/// Changes below this count as zero: there the gradient is the multiplier.
const NO_CHANGE: f64 = 1e-10;

/// The rules for multipliers.
pub(crate) struct Rescale {
    pub(crate) network: Rc<Network>,
    pub(crate) reference: Rc<Reference>,
    pub(crate) pool: PoolChange,
}

impl Rules for Rescale {
    type Message = NodeId;

    fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
        g.plus(a, b)
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, m: NodeId) -> Result<Option<NodeId>> {
        let Edge { id, node, index, active } = *edge;
        if node.op.is_linear() {
            return self.linear(g, edge, m).map(Some);
        }
        let routed = if let Some(maximum) = WindowMax::of(g, node)? {
            if self.pool == PoolChange::Winner {
                return maximum.select_transposed(g, m).map(Some);
            }
            self.maximum(g, id, node, &maximum, m)?
        } else if let (Op::Binary(binary @ (Binary::Max | Binary::Min)), 2) = (&node.op, active) {
            self.extremum(g, edge, *binary, m)?
        } else if matches!(node.op, Op::Reduce { .. }) {
            return Err(Error::unsupported(format!(
                "DeepLIFT's rule is for functions of one element; {} makes one of several",
                node.op.name()
            )));
        } else {
            let change = g.minus(id, self.reference.at(id))?;
            g.times(m, change)?
        };
        let input = node.inputs[index];
        let shape = g.node(input).shape.clone();
        let routed = g.summed_to(routed, &shape)?;
        let change = g.minus(input, self.reference.at(input))?;
        let quotient = g.over(routed, change)?;
        let size = g.magnitude(change)?;
        let least = g.number(NO_CHANGE);
        let unchanged = g.binary(Binary::Less, size, least)?;
        let gradient = match GradientRules::default().pass(g, edge, m)? {
            Some(gradient) => gradient,
            None => g.number(0.0),
        };
        g.select(unchanged, gradient, quotient).map(Some)
    }
}

impl Rescale {
    /// `Wᵀm`. For a product of two values that both changed, the coefficient of each is the mean of the other:
    /// `Δ(ab) = ½(b + b′)Δa + ½(a + a′)Δb`.
    fn linear(&self, g: &mut Graph, edge: &Edge<'_>, m: NodeId) -> Result<NodeId> {
        let mut operands = edge.node.inputs.clone();
        let linearity = edge.node.op.properties().linearity;
        for (i, operand) in operands.iter_mut().enumerate() {
            if linearity.multiplies(edge.index, i) && self.network.is_active(*operand) {
                let both = g.plus(*operand, self.reference.at(*operand))?;
                *operand = g.scaled(0.5, both)?;
            }
        }
        transpose(g, edge.id, edge.index, m, Coefficients { operands: &operands, magnitude: false })
    }

    /// With `b` the larger of the maximum and its reference: the rise from the reference to `b` goes to the element selected for
    /// the image, the fall from `b` to the maximum to the element selected for the reference.
    fn maximum(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        maximum: &WindowMax,
        m: NodeId,
    ) -> Result<NodeId> {
        let mut before = node.clone();
        before.inputs.iter_mut().for_each(|input| *input = self.reference.at(*input));
        let Some(earlier) = WindowMax::of(g, &before)? else { return maximum.select_transposed(g, m) };
        let best = if maximum.minimum { Binary::Min } else { Binary::Max };
        let (rise, fall) = self.rise_and_fall(g, id, best, m)?;
        let (won, lost) = (maximum.select_transposed(g, rise)?, earlier.select_transposed(g, fall)?);
        g.plus(won, lost)
    }

    /// The same for the larger or smaller of two values.
    fn extremum(&self, g: &mut Graph, edge: &Edge<'_>, binary: Binary, m: NodeId) -> Result<NodeId> {
        let mut before = edge.node.clone();
        before.inputs.iter_mut().for_each(|input| *input = self.reference.at(*input));
        let (rise, fall) = self.rise_and_fall(g, edge.id, binary, m)?;
        let mut part = |node: &Node, change: NodeId| {
            let first = selects_first(g, node, binary)?;
            let on = if edge.index == 0 { first } else { g.unary(Unary::Not, first)? };
            g.masked(on, change)
        };
        let (won, lost) = (part(edge.node, rise)?, part(&before, fall)?);
        g.plus(won, lost)
    }

    /// `m(b − y′)` and `m(y − b)`, `b` being the better of `y` and the reference's `y′`.
    fn rise_and_fall(&self, g: &mut Graph, y: NodeId, better: Binary, m: NodeId) -> Result<(NodeId, NodeId)> {
        let before = self.reference.at(y);
        let best = g.binary(better, y, before)?;
        let (rise, fall) = (g.minus(best, before)?, g.minus(y, best)?);
        Ok((g.times(m, rise)?, g.times(m, fall)?))
    }
}
