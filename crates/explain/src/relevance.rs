//! SplitLRP's backward pass as a rule set: ε-LRP on the pair of streams, whose weights are all non-negative. The
//! message is `(R⁺, R⁻)`; its sum is conserved.

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Error, Graph, Kind, Node, NodeId, Op, Result};

use crate::contest::Contest;
use crate::linear::{Coefficients, is_multilinear, transpose};
use crate::network::Network;
use crate::scaled::{Scale, Scaled};
use crate::sum_stream::{SumStream, affine_bias, first_wins, is_shape_node};
use crate::walk::Rules;

/// The stabiliser of the denominators.
const EPSILON: f64 = 1e-6;
/// It stays at least this large under an exponent, so that 0/0 cannot arise.
const LEAST_EPSILON: f64 = 1e-30;

/// Relevance of the positive and of the negative stream of a value, under the exponent of the seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relevance {
    pub(crate) plus: NodeId,
    pub(crate) minus: NodeId,
}

/// The rules for `(R⁺, R⁻)`.
pub(crate) struct Relevances<'a> {
    pub(crate) network: &'a Network,
    pub(crate) scale: Scale,
    pub(crate) stream: &'a SumStream,
}

impl Relevance {
    fn map(self, g: &mut Graph, mut f: impl FnMut(&mut Graph, NodeId) -> Result<NodeId>) -> Result<Self> {
        Ok(Relevance { plus: f(g, self.plus)?, minus: f(g, self.minus)? })
    }

    fn swapped(self) -> Self {
        Relevance { plus: self.minus, minus: self.plus }
    }
}

impl Rules for Relevances<'_> {
    type Message = Relevance;

    fn join(&mut self, g: &mut Graph, a: Relevance, b: Relevance) -> Result<Relevance> {
        Ok(Relevance { plus: g.plus(a.plus, b.plus)?, minus: g.plus(a.minus, b.minus)? })
    }

    fn back(&mut self, g: &mut Graph, id: NodeId, r: Relevance) -> Result<Vec<(NodeId, Relevance)>> {
        let node = g.node(id).clone();
        let inputs = self.network.active_inputs(id);
        let mut messages = Vec::with_capacity(inputs.len());
        for &(index, input) in &inputs {
            let passed = self.to_input(g, id, &node, index, inputs.len(), r);
            messages.push((input, passed.map_err(|e| e.at(node.label.display()))?));
        }
        Ok(messages)
    }
}

impl Relevances<'_> {
    fn to_input(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        active: usize,
        r: Relevance,
    ) -> Result<Relevance> {
        if let Some(contest) = Contest::of(g, node)? {
            return r.map(g, |g, v| contest.scatter(g, v));
        }
        let shape = g.node(node.inputs[index]).shape.clone();
        match &node.op {
            Op::Unary(Unary::Neg) => Ok(r.swapped()),
            Op::Unary(_) | Op::Binary(Binary::PRelu | Binary::Pow) => Ok(r),
            Op::Binary(binary @ (Binary::Max | Binary::Min)) => {
                let first = first_wins(g, node, *binary)?;
                let on = if index == 0 { first } else { g.unary(Unary::Not, first)? };
                r.map(g, |g, v| {
                    let won = g.masked(on, v)?;
                    g.summed_to(won, &shape)
                })
            }
            Op::Binary(binary @ (Binary::Add | Binary::Sub)) => {
                let r = if *binary == Binary::Sub && index == 1 { r.swapped() } else { r };
                r.map(g, |g, v| {
                    let share = if active == 2 { g.scaled(0.5, v)? } else { v };
                    g.summed_to(share, &shape)
                })
            }
            Op::MatMul { .. } | Op::Binary(Binary::Mul) if active == 2 => self.product(g, id, node, index, r),
            op if is_shape_node(op) => {
                let operands = Coefficients { operands: &node.inputs, magnitude: true };
                r.map(g, |g, v| transpose(g, id, index, v, operands))
            }
            op if is_multilinear(op) => self.affine(g, id, node, index, r),
            op => Err(Error::unsupported(format!("SplitLRP has no rule for {}", op.name()))),
        }
    }

    /// `z± = (|W|s ± Wa)/2`, `c± = R±/stab(z±)`, `u = c⁺ + c⁻`, `v = c⁺ − c⁻`, then
    /// `R⁺ ← a⁺(|W|ᵀu + Wᵀv)/2` and `R⁻ ← a⁻(|W|ᵀu − Wᵀv)/2`.
    fn affine(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        r: Relevance,
    ) -> Result<Relevance> {
        let sums = self
            .stream
            .contribution(id)
            .ok_or_else(|| Error::argument("the sum stream kept no contributions"))?;
        let differences = match affine_bias(g, node)? {
            Some(bias) => g.minus(id, bias)?,
            None => id,
        };
        let (plus, minus) = self.pair(g, sums, differences)?;
        let c_plus = self.divided(g, r.plus, plus, sums)?;
        let c_minus = self.divided(g, r.minus, minus, sums)?;
        let (u, v) = (g.plus(c_plus, c_minus)?, g.minus(c_plus, c_minus)?);
        let (signed, magnitudes, partner) = self.coefficients(g, node, index)?;
        let u = transpose(g, id, index, u, Coefficients { operands: &magnitudes, magnitude: true })?;
        let v = transpose(g, id, index, v, Coefficients { operands: &signed, magnitude: false })?;
        let exponent = match (sums.exponent, partner) {
            (Some(all), Some(partner)) => Some(g.minus(all, partner)?),
            (all, _) => all,
        };
        let input = node.inputs[index];
        let like = Scaled { value: input, exponent, bound: 0.0 };
        let stream = self.under_exponent_of(g, self.stream.at(input), like)?;
        let below = self.scale.under(g, input, like)?;
        let (a_plus, a_minus) = self.halves(g, stream, below)?;
        let (gain, loss) = (g.plus(u, v)?, g.minus(u, v)?);
        let (gain, loss) = (g.scaled(0.5, gain)?, g.scaled(0.5, loss)?);
        Ok(Relevance { plus: g.times(a_plus, gain)?, minus: g.times(a_minus, loss)? })
    }

    /// A product of two activations is affine in each with the other held; each gets half of the relevance.
    fn product(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        r: Relevance,
    ) -> Result<Relevance> {
        let half = r.map(g, |g, v| g.scaled(0.5, v))?;
        self.affine(g, id, node, index, half)
    }

    /// The node's operands with their signs and in magnitude, both under the exponent of the operand that is an
    /// activation itself, which is returned too.
    #[allow(clippy::type_complexity)]
    fn coefficients(
        &self,
        g: &mut Graph,
        node: &Node,
        index: usize,
    ) -> Result<(Vec<NodeId>, Vec<NodeId>, Option<NodeId>)> {
        let (mut signed, mut magnitudes) = (node.inputs.clone(), node.inputs.clone());
        let mut exponent = None;
        for (i, &operand) in node.inputs.iter().enumerate() {
            if i != index && g.node(operand).kind == Kind::Float {
                let stream = self.stream.operand(g, operand)?;
                signed[i] = self.scale.under(g, operand, stream)?;
                magnitudes[i] = stream.value;
                exponent = exponent.or(stream.exponent);
            }
        }
        Ok((signed, magnitudes, exponent))
    }

    /// `(s + a)/2` and `(s − a)/2`, `a` brought under the exponent of `s`.
    fn pair(&self, g: &mut Graph, s: Scaled, a: NodeId) -> Result<(NodeId, NodeId)> {
        let a = self.scale.under(g, a, s)?;
        self.halves(g, s.value, a)
    }

    fn halves(&self, g: &mut Graph, s: NodeId, a: NodeId) -> Result<(NodeId, NodeId)> {
        let (plus, minus) = (g.plus(s, a)?, g.minus(s, a)?);
        Ok((g.scaled(0.5, plus)?, g.scaled(0.5, minus)?))
    }

    /// `R/stab(z)` with `stab(z) = z + ε·sign(z)`, `sign(0) = +1`.
    fn divided(&self, g: &mut Graph, r: NodeId, z: NodeId, like: Scaled) -> Result<NodeId> {
        let epsilon = g.number(EPSILON);
        let mut epsilon = self.scale.under(g, epsilon, like)?;
        if like.exponent.is_some() {
            let least = g.number(LEAST_EPSILON);
            epsilon = g.binary(Binary::Max, epsilon, least)?;
        }
        let opposite = g.negated(epsilon)?;
        let positive = g.at_least(z, 0.0)?;
        let nudge = g.select(positive, epsilon, opposite)?;
        let denominator = g.plus(z, nudge)?;
        g.over(r, denominator)
    }

    /// `s` under the exponent of `like`, which is at least its own.
    fn under_exponent_of(&self, g: &mut Graph, s: Scaled, like: Scaled) -> Result<NodeId> {
        match (s.exponent, like.exponent) {
            (a, b) if a == b => Ok(s.value),
            (a, Some(b)) => {
                let zero = g.number(0.0);
                let drop = g.minus(b, a.unwrap_or(zero))?;
                let factor = self.scale.power(g, drop, s.value, -1.0)?;
                g.times(s.value, factor)
            }
            (Some(_), None) => Err(Error::argument("an affine node lost its input's exponent")),
            (None, None) => Ok(s.value),
        }
    }
}
