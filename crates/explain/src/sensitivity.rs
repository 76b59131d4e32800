//! The split's backward pass as a rule set. Of the paper's four sensitivities only three are independent: the
//! ordinary gradient `d`, the hidden gradient `E` and the mass `σ`:
//!
//! ```text
//! δ⁺ᵍ = (σ + d − E)/2    δ⁻ᵍ = (σ − d + E)/2    δᵍ = (d − E)/2
//! δ⁺ʰ = (σ − d − E)/2    δ⁻ʰ = (σ + d + E)/2    δʰ = −(d + E)/2
//! ```

use std::rc::Rc;

use monosplit_autodiff::derivative::{power_slope, slope};
use monosplit_autodiff::linear::{Coefficients, transpose};
use monosplit_autodiff::window_max::{WindowMax, selects_first};
use monosplit_autodiff::{Edge, Rectifier, Rules, rectifier};
use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use crate::hidden_share::filled;
use crate::network::Network;
use crate::operator_norm::{Direction, log2_norm_bound, log2_slope_bound};
use crate::scaled::{ACTIVATION_BOUND, Scale, Scaled};
use crate::shift::Shifts;
use crate::split::{Pooling, Split};
use crate::sum_stream::SumStream;

/// The three independent sensitivities of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sensitivity {
    /// `d`, the ordinary gradient.
    pub(crate) gradient: NodeId,
    /// `E`; none is zero.
    pub(crate) hidden: Option<Scaled>,
    /// `σ`
    pub(crate) mass: Scaled,
}

/// The rules for `(d, E, σ)`.
pub(crate) struct Sensitivities {
    pub(crate) network: Rc<Network>,
    pub(crate) split: Split,
    pub(crate) scale: Scale,
    pub(crate) stream: Rc<SumStream>,
    pub(crate) shifts: Rc<Shifts>,
}

impl Rules for Sensitivities {
    type Message = Sensitivity;

    fn join(&mut self, g: &mut Graph, a: Sensitivity, b: Sensitivity) -> Result<Sensitivity> {
        self.both(g, a, b)
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, message: Sensitivity) -> Result<Option<Sensitivity>> {
        let Some(mut passed) = self.to_input(g, edge.id, edge.node, edge.index, message)? else {
            return Ok(None);
        };
        passed.mass = self.shifts.apply(g, edge.id, passed.mass)?;
        Ok(Some(passed))
    }
}

impl Sensitivities {
    fn to_input(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        m: Sensitivity,
    ) -> Result<Option<Sensitivity>> {
        if let Some(rectifier) = rectifier(g, node)? {
            return self.rectified(g, node.inputs[0], rectifier, m).map(Some);
        }
        if let Some(maximum) = WindowMax::of(g, node)? {
            return self.maximum(g, &maximum, m).map(Some);
        }
        match &node.op {
            Op::Binary(binary @ (Binary::Max | Binary::Min)) => {
                self.extremum(g, node, index, *binary, m).map(Some)
            }
            Op::Unary(Unary::Clip { min, max }) => self.clipped(g, node.inputs[0], *min, *max, m).map(Some),
            Op::Unary(Unary::Abs) => self.absolute(g, node.inputs[0], m).map(Some),
            op if op.is_linear() => self.linear(g, id, node, index, m).map(Some),
            Op::Unary(function) => {
                let slope = slope(g, *function, node.inputs[0], id)?;
                let steepest = log2_slope_bound(*function);
                slope.map(|slope| self.locally_affine(g, slope, steepest, m)).transpose()
            }
            Op::Binary(Binary::Pow) if index == 0 => {
                let slope = power_slope(g, node.inputs[0], node.inputs[1])?;
                self.locally_affine(g, slope, ACTIVATION_BOUND, m).map(Some)
            }
            Op::Binary(Binary::PRelu) if index == 0 => {
                let on = g.at_least(node.inputs[0], 0.0)?;
                let one = g.number(1.0);
                let slope = g.select(on, one, node.inputs[1])?;
                self.locally_affine(g, slope, ACTIVATION_BOUND, m).map(Some)
            }
            // Slopes and exponents, predicates, maxima that come before this match, and what has been decomposed.
            op => Err(Error::unsupported(format!(
                "{} cannot be split with respect to its input {index}; choose a layer above it",
                op.name()
            ))),
        }
    }

    /// `d ← Wᵀd`, `E ← WᵀE`, `σ ← |W|ᵀσ`; a coefficient that is itself an activation counts with its sum stream.
    fn linear(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        m: Sensitivity,
    ) -> Result<Sensitivity> {
        let grows = log2_norm_bound(g, node, Direction::Backward(index));
        let signed = Coefficients { operands: &node.inputs, magnitude: false };
        let gradient = transpose(g, id, index, m.gradient, signed)?;
        let partner = self.active_partner(node, index);
        let factor = partner.map(|i| (i, self.stream.at(node.inputs[i])));
        let larger = grows + if factor.is_some() { ACTIVATION_BOUND } else { 0.0 };
        let hidden = match m.hidden {
            Some(hidden) => {
                let ready = self.scale.ready(g, hidden, larger)?;
                Some(ready.grown(transpose(g, id, index, ready.value, signed)?, larger))
            }
            None => None,
        };
        let mass = self.linear_mass(g, id, node, index, m.mass, factor, grows)?;
        Ok(Sensitivity { gradient, hidden, mass })
    }

    /// The operand that a node multiplies the operand `index` with, if both depend on the input.
    fn active_partner(&self, node: &Node, index: usize) -> Option<usize> {
        let linearity = node.op.properties().linearity;
        let is_partner =
            |&i: &usize| linearity.multiplies(index, i) && self.network.is_active(node.inputs[i]);
        (0..node.inputs.len()).find(is_partner)
    }

    /// `|W|ᵀσ`; where an operand and its sum stream are given as `factor`, that takes the place of `|W|`.
    #[allow(clippy::too_many_arguments)]
    fn linear_mass(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        mass: Scaled,
        factor: Option<(usize, Scaled)>,
        grows: f64,
    ) -> Result<Scaled> {
        let mut operands = node.inputs.clone();
        for (i, operand) in operands.iter_mut().enumerate() {
            if i != index
                && g.node(*operand).kind == monosplit_graph::Kind::Float
                && !self.network.is_active(*operand)
            {
                *operand = g.magnitude(*operand)?;
            }
        }
        let (ready, factor) = match factor {
            None => (self.scale.ready(g, mass, grows)?, None),
            Some((partner, factor)) => {
                let (ready, factor) = self.scale.ready_pair(g, mass, factor, grows)?;
                operands[partner] = factor.value;
                (ready, Some(factor))
            }
        };
        let coefficients = Coefficients { operands: &operands, magnitude: true };
        let value = transpose(g, id, index, ready.value, coefficients)?;
        let exponent = self.scale.exponent_sum(g, ready.exponent, factor.and_then(|f| f.exponent))?;
        let bound = ready.bound + grows + factor.map_or(0.0, |f| f.bound);
        Ok(Scaled { value, exponent, bound })
    }

    fn rectified(
        &self,
        g: &mut Graph,
        z: NodeId,
        rectifier: Rectifier,
        m: Sensitivity,
    ) -> Result<Sensitivity> {
        let on = g.at_least(z, 0.0)?;
        let sign = self.split.relu.sign();
        let mut lost = if sign == 0.0 {
            None
        } else {
            Some(m.mass.map(g, |g, v| if sign < 0.0 { g.negated(v) } else { Ok(v) })?)
        };
        let (gradient, mut kept) = match rectifier.slope {
            None => (g.masked(on, m.gradient)?, None),
            Some(slope) => {
                let sloped = g.times(slope, m.gradient)?;
                let one = g.number(1.0);
                let share = g.minus(one, slope)?;
                lost = lost.map(|l| l.map(g, |g, v| g.times(share, v))).transpose()?;
                let kept = m.hidden.map(|e| e.map(g, |g, v| g.times(slope, v))).transpose()?;
                (g.select(on, m.gradient, sloped)?, kept)
            }
        };
        let hidden = if self.shifts.keeps_share() {
            let kept = self.either(g, on, m.hidden, kept)?;
            let lost = self.either(g, on, None, lost)?;
            filled(g, &self.scale, gradient, kept, lost)?
        } else {
            kept = self.scale.sum_of(g, kept, lost)?;
            self.either(g, on, m.hidden, kept)?
        };
        Ok(Sensitivity { gradient, hidden, mass: m.mass })
    }

    /// `a` where the condition holds, else `b`; none is zero.
    fn either(
        &self,
        g: &mut Graph,
        on: NodeId,
        a: Option<Scaled>,
        b: Option<Scaled>,
    ) -> Result<Option<Scaled>> {
        Ok(match (a, b) {
            (None, None) => None,
            (Some(a), None) => Some(a.map(g, |g, v| g.masked(on, v))?),
            (None, Some(b)) => Some(b.map(g, |g, v| {
                let zero = g.number(0.0);
                g.select(on, zero, v)
            })?),
            (Some(a), Some(b)) => {
                let bound = a.bound.max(b.bound);
                let (va, vb, exponent) = self.scale.aligned(g, a, b)?;
                Some(Scaled { value: g.select(on, va, vb)?, exponent, bound })
            }
        })
    }

    fn maximum(&self, g: &mut Graph, maximum: &WindowMax, m: Sensitivity) -> Result<Sensitivity> {
        let gradient = maximum.select_transposed(g, m.gradient)?;
        let growth = (maximum.window_size() as f64).log2();
        let ready = m.hidden.map(|e| self.scale.ready(g, e, growth)).transpose()?;
        let won = match ready {
            Some(hidden) => Some(hidden.grown(maximum.select_transposed(g, hidden.value)?, growth)),
            None => None,
        };
        let mass = self.scale.ready(g, m.mass, growth)?;
        let won_mass = mass.grown(maximum.select_transposed(g, mass.value)?, growth);
        if self.split.pooling == Pooling::Winner {
            return Ok(Sensitivity { gradient, hidden: won, mass: won_mass });
        }
        let spread = mass.grown(maximum.sum_transposed(g, mass.value)?, growth);
        let lost = self.scale.combine(g, spread, won_mass, |g, all, won| {
            if maximum.minimum { g.minus(won, all) } else { g.minus(all, won) }
        })?;
        let hidden = self.with_lost(g, gradient, won, Some(lost))?;
        Ok(Sensitivity { gradient, hidden, mass: spread })
    }

    fn extremum(
        &self,
        g: &mut Graph,
        node: &Node,
        index: usize,
        binary: Binary,
        m: Sensitivity,
    ) -> Result<Sensitivity> {
        let first = selects_first(g, node, binary)?;
        let on = if index == 0 { first } else { g.unary(Unary::Not, first)? };
        let shape = g.node(node.inputs[index]).shape.clone();
        let to_input = |g: &mut Graph, v: NodeId| g.summed_to(v, &shape);
        let gradient = g.masked(on, m.gradient)?;
        let gradient = to_input(g, gradient)?;
        let (lost, mass) = match self.split.pooling {
            Pooling::Winner => (None, m.mass.map(g, |g, v| g.masked(on, v))?),
            Pooling::Convex if binary == Binary::Max => (Some(m.mass), m.mass),
            Pooling::Convex => (Some(m.mass.map(g, |g, v| g.negated(v))?), m.mass),
        };
        let hidden = if self.shifts.keeps_share() {
            let kept = self.either(g, on, m.hidden, None)?.map(|e| e.map(g, to_input)).transpose()?;
            let lost = self.either(g, on, None, lost)?.map(|e| e.map(g, to_input)).transpose()?;
            filled(g, &self.scale, gradient, kept, lost)?
        } else {
            self.either(g, on, m.hidden, lost)?.map(|e| e.map(g, to_input)).transpose()?
        };
        Ok(Sensitivity { gradient, hidden, mass: mass.map(g, to_input)? })
    }

    /// What is kept of the hidden gradient and what the node adds to it.
    fn with_lost(
        &self,
        g: &mut Graph,
        gradient: NodeId,
        kept: Option<Scaled>,
        lost: Option<Scaled>,
    ) -> Result<Option<Scaled>> {
        match self.shifts.keeps_share() {
            true => filled(g, &self.scale, gradient, kept, lost),
            false => self.scale.sum_of(g, kept, lost),
        }
    }

    /// `clip(z) = low + relu(z − low) − relu(z − high)`, both ReLUs by the rule for ReLUs.
    fn clipped(&self, g: &mut Graph, z: NodeId, low: f64, high: f64, m: Sensitivity) -> Result<Sensitivity> {
        let rising = if low.is_finite() { self.threshold(g, z, low, m)? } else { m };
        if !high.is_finite() {
            return Ok(rising);
        }
        let falling = self.negated(g, m)?;
        let falling = self.threshold(g, z, high, falling)?;
        self.both(g, rising, falling)
    }

    /// `|z| = relu(z) + relu(−z)`
    fn absolute(&self, g: &mut Graph, z: NodeId, m: Sensitivity) -> Result<Sensitivity> {
        let right = self.threshold(g, z, 0.0, m)?;
        let mirrored = g.negated(z)?;
        let left = self.threshold(g, mirrored, 0.0, m)?;
        let left = self.negated(g, left)?;
        self.both(g, right, left)
    }

    fn threshold(&self, g: &mut Graph, z: NodeId, bound: f64, m: Sensitivity) -> Result<Sensitivity> {
        let moved = g.offset(-bound, z)?;
        self.rectified(g, moved, Rectifier { slope: None }, m)
    }

    fn negated(&self, g: &mut Graph, m: Sensitivity) -> Result<Sensitivity> {
        let hidden = m.hidden.map(|e| e.map(g, |g, v| g.negated(v))).transpose()?;
        Ok(Sensitivity { gradient: g.negated(m.gradient)?, hidden, mass: m.mass })
    }

    fn both(&self, g: &mut Graph, a: Sensitivity, b: Sensitivity) -> Result<Sensitivity> {
        Ok(Sensitivity {
            gradient: g.plus(a.gradient, b.gradient)?,
            hidden: self.scale.sum_of(g, a.hidden, b.hidden)?,
            mass: self.scale.sum(g, a.mass, b.mass)?,
        })
    }

    /// `(J·d, J·E, |J|·σ)` for a node that acts on each element alone with slope `J`.
    fn locally_affine(
        &self,
        g: &mut Graph,
        slope: NodeId,
        steepest: f64,
        m: Sensitivity,
    ) -> Result<Sensitivity> {
        let gradient = g.times(slope, m.gradient)?;
        let hidden = match m.hidden {
            Some(hidden) => {
                let ready = self.scale.ready(g, hidden, steepest)?;
                Some(ready.grown(g.times(slope, ready.value)?, steepest))
            }
            None => None,
        };
        let steepness = g.magnitude(slope)?;
        let ready = self.scale.ready(g, m.mass, steepest)?;
        let mass = ready.grown(g.times(steepness, ready.value)?, steepest);
        Ok(Sensitivity { gradient, hidden, mass })
    }
}
