//! SplitLRP's backward pass as a rule set: ε-LRP on the pair of streams, whose weights are all non-negative. The
//! message is `(R⁺, R⁻)`; its sum is conserved.
//!
//! The rule divides by both members of a pair. In single precision `(s − a)/2` is mostly rounding error where `a⁻ ≪ a⁺`, so graphs
//! with this rule set need double precision.

use std::cell::RefCell;
use std::rc::Rc;

use monosplit_autodiff::linear::{
    Coefficients, apply_parts_transposed, batch_norm_scale, signed_resize, transpose,
};
use monosplit_autodiff::window_max::{WindowMax, selects_first};
use monosplit_autodiff::{Edge, Rules};
use monosplit_graph::op::{Binary, Linearity, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use crate::constant_elements::{marked, unmarked};
use crate::network::Network;
use crate::scaled::{Scale, Scaled};
use crate::stabilised_quotient::stabilised_quotient;
use crate::sum_stream::{SumStream, affine_bias};

/// The paper's stabiliser of the denominators.
pub(crate) const EPSILON: f64 = 1e-6;
/// It stays at least this large under an exponent, so that 0/0 cannot arise.
const LEAST_EPSILON: f64 = 1e-30;

/// The power of two by which relevance may grow at a weighted sum: by the inverse of the stabiliser, where the stabiliser of the
/// streams has left sums of mixed sign behind.
const GROWTH: f64 = 20.0;
/// The power of two that bounds relevance where the walk begins.
const BEGINNING: f64 = 40.0;

/// Relevance of the positive and of the negative stream of a value, under the exponent of the seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relevance {
    pub(crate) plus: NodeId,
    pub(crate) minus: NodeId,
    /// What both are under besides: relevance grows where sums nearly cancel.
    pub(crate) exponent: Option<NodeId>,
    /// The magnitude of both is about two to this power at most.
    pub(crate) bound: f64,
}

/// Relevance that a node received and does not hand on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    pub(crate) relevance: NodeId,
    /// Its exponent besides that of the seed.
    pub(crate) exponent: Option<NodeId>,
    /// The weighted sum that received it, which keeps it only where it is zero; none keeps all.
    pub(crate) sum: Option<NodeId>,
}

/// What weighted sums and constants received.
pub(crate) type RecordedRelevance = RefCell<Vec<Recorded>>;

/// The rules for `(R⁺, R⁻)`.
pub(crate) struct Relevances {
    /// The stabiliser of the denominators.
    pub(crate) epsilon: f64,
    pub(crate) network: Rc<Network>,
    pub(crate) scale: Scale,
    pub(crate) stream: Rc<SumStream>,
    /// Relevance received by weighted sums and by constants: where a sum is only its bias, relevance stays there.
    pub(crate) recorded: Rc<RecordedRelevance>,
}

/// The positive and the negative part of a weight.
struct Halves {
    plus: NodeId,
    minus: NodeId,
}

impl Relevance {
    fn map(self, g: &mut Graph, mut f: impl FnMut(&mut Graph, NodeId) -> Result<NodeId>) -> Result<Self> {
        Ok(Relevance { plus: f(g, self.plus)?, minus: f(g, self.minus)?, ..self })
    }

    fn swapped(self) -> Self {
        Relevance { plus: self.minus, minus: self.plus, ..self }
    }

    /// The relevance that a walk begins with.
    pub(crate) fn beginning(plus: NodeId, minus: NodeId) -> Self {
        Relevance { plus, minus, exponent: None, bound: BEGINNING }
    }

    fn scaled(self, value: NodeId) -> Scaled {
        Scaled { value, exponent: self.exponent, bound: self.bound }
    }
}

impl Rules for Relevances {
    type Message = Relevance;

    fn join(&mut self, g: &mut Graph, a: Relevance, b: Relevance) -> Result<Relevance> {
        let (plus, other, exponent) = self.scale.aligned(g, a.scaled(a.plus), b.scaled(b.plus))?;
        let plus = g.plus(plus, other)?;
        let (minus, other, _) = self.scale.aligned(g, a.scaled(a.minus), b.scaled(b.minus))?;
        let minus = g.plus(minus, other)?;
        Ok(Relevance { plus, minus, exponent, bound: a.bound.max(b.bound) + 1.0 })
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, r: Relevance) -> Result<Option<Relevance>> {
        self.to_input(g, edge.id, edge.node, edge.index, edge.active, r).map(Some)
    }
}

impl Relevances {
    fn to_input(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        active: usize,
        r: Relevance,
    ) -> Result<Relevance> {
        if let Some(maximum) = WindowMax::of(g, node)? {
            return r.map(g, |g, v| maximum.select_transposed(g, v));
        }
        let shape = g.node(node.inputs[index]).shape.clone();
        match &node.op {
            Op::Unary(Unary::Neg) => Ok(r.swapped()),
            // Any other elementwise function of one value passes relevance unchanged, whatever the function.
            Op::Unary(_) | Op::Binary(Binary::PRelu | Binary::Pow) => Ok(r),
            Op::Binary(binary @ (Binary::Max | Binary::Min)) => {
                let first = selects_first(g, node, *binary)?;
                let on = if index == 0 { first } else { g.unary(Unary::Not, first)? };
                if active == 1 {
                    let lost = g.unary(Unary::Not, on)?;
                    let kept = r.map(g, |g, v| g.masked(lost, v))?;
                    self.record(kept);
                }
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
            op => match op.properties().linearity {
                Linearity::Selection(_) => {
                    self.record_constants(g, id, node, index, r)?;
                    let operands = Coefficients { operands: &node.inputs, magnitude: true };
                    r.map(g, |g, v| transpose(g, id, index, v, operands))
                }
                linearity
                    if self
                        .network
                        .active_inputs(id)
                        .iter()
                        .any(|&(i, _)| linearity.multiplies(index, i)) =>
                {
                    Err(Error::unsupported(format!(
                        "SplitLRP has no rule for {} of two values that depend on the input; choose a layer above it",
                        op.name()
                    )))
                }
                Linearity::WeightedSum(_) | Linearity::Product(_) => self.affine(g, id, node, index, r),
                // Predicates, products of many elements, maxima that come before this match, and what has been decomposed.
                Linearity::Nonlinear => {
                    Err(Error::unsupported(format!("SplitLRP has no rule for {}", op.name())))
                }
            },
        }
    }

    /// `z± = (|W|s ± Wa)/2`, `c± = R±/stab(z±)`, then `R⁺ ← a⁺(W⁺ᵀc⁺ + W⁻ᵀc⁻)` and `R⁻ ← a⁻(W⁻ᵀc⁺ + W⁺ᵀc⁻)`.
    ///
    /// The sums are not written as `(|W|ᵀu ± Wᵀv)/2` with `u = c⁺ + c⁻`, `v = c⁺ − c⁻`: where one of `z±` vanishes, its
    /// `c` is up to `1/ε` times the other, and what should cancel in `u` and `v` would leave its rounding behind.
    fn affine(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        r: Relevance,
    ) -> Result<Relevance> {
        let [plus, minus] = self.scale.ready_alike(g, r.scaled(r.plus), r.scaled(r.minus), GROWTH)?;
        let r =
            Relevance { plus: plus.value, minus: minus.value, exponent: plus.exponent, bound: plus.bound };
        let sums = self
            .stream
            .contribution(id)
            .ok_or_else(|| Error::argument("the sum stream kept no contributions"))?;
        let constants = self.stream.summed_constants(node);
        let differences = self.contributions(g, id, node, index, constants)?;
        let (plus, minus) = self.pair(g, sums, differences)?;
        for (relevance, sum) in [(r.plus, plus), (r.minus, minus)] {
            let recorded = Recorded { relevance, exponent: r.exponent, sum: Some(sum) };
            self.recorded.borrow_mut().push(recorded);
        }
        let c = Relevance {
            plus: self.segmented(g, r.plus, plus, sums)?,
            minus: self.segmented(g, r.minus, minus, sums)?,
            ..r
        };
        let (gains, partner) = self.gains(g, id, node, index, c)?;
        let exponent = match (sums.exponent, partner) {
            (Some(all), Some(partner)) => Some(g.minus(all, partner)?),
            (all, _) => all,
        };
        let input = node.inputs[index];
        let like = Scaled { value: input, exponent, bound: 0.0 };
        let (mut stream, mut below) = (self.stream.at(input), input);
        if let Some(mask) = constants {
            stream = stream.map(g, |g, value| unmarked(g, mask, value))?;
            below = unmarked(g, mask, below)?;
        }
        let stream = self.under_exponent_of(g, stream, like)?;
        let below = self.scale.under(g, below, like)?;
        let (a_plus, a_minus) = self.halves(g, stream, below)?;
        let (plus, minus) = (g.times(a_plus, gains.plus)?, g.times(a_minus, gains.minus)?);
        Ok(Relevance { plus, minus, bound: r.bound + GROWTH, ..r })
    }

    /// What the elements of the input contribute to a weighted sum: the sum without its bias, and without `constants`. Taking the
    /// bias from the sum leaves its rounding error, which only a stabiliser that is larger covers.
    fn contributions(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        constants: Option<NodeId>,
    ) -> Result<NodeId> {
        let bias = affine_bias(g, node)?;
        let covered = self.epsilon > f64::EPSILON;
        let input = match (constants, bias) {
            (Some(mask), _) => unmarked(g, mask, node.inputs[index])?,
            (None, None) => return Ok(id),
            (None, Some(bias)) if covered => return g.minus(id, bias),
            (None, Some(_)) => node.inputs[index],
        };
        if let Op::BatchNorm { epsilon } = node.op {
            let scale = batch_norm_scale(g, node, epsilon)?;
            return g.times(input, scale);
        }
        let mut operands = node.inputs.clone();
        operands[index] = input;
        if bias.is_some() {
            operands.truncate(2);
        }
        g.add(node.op.clone(), &operands)
    }

    /// Records relevance that stays where it is.
    fn record(&self, kept: Relevance) {
        let recorded = [kept.plus, kept.minus];
        let recorded = recorded.map(|relevance| Recorded { relevance, exponent: kept.exponent, sum: None });
        self.recorded.borrow_mut().extend(recorded);
    }

    /// Records the relevance of elements that a node takes from no active operand, once for all its operands.
    fn record_constants(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        r: Relevance,
    ) -> Result<()> {
        let active = |&i: &usize| self.network.is_active(node.inputs[i]);
        if (0..node.inputs.len()).find(active) != Some(index) {
            return Ok(());
        }
        if let (Op::Pad { .. }, Some(mask), None) =
            (&node.op, self.stream.constants(id), self.stream.constants(node.inputs[0]))
        {
            let kept = r.map(g, |g, v| marked(g, mask, v))?;
            self.record(kept);
        }
        if let Op::Concat { .. } | Op::Where = node.op {
            let first = usize::from(matches!(node.op, Op::Where));
            for constant in (first..node.inputs.len()).filter(|i| !active(i)) {
                let operands = Coefficients { operands: &node.inputs, magnitude: true };
                let kept = r.map(g, |g, v| transpose(g, id, constant, v, operands))?;
                self.record(kept);
            }
        }
        Ok(())
    }

    /// `(W⁺ᵀc⁺ + W⁻ᵀc⁻, W⁻ᵀc⁺ + W⁺ᵀc⁻)`, and the exponent it is under if the coefficients are an activation.
    fn gains(
        &self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        index: usize,
        c: Relevance,
    ) -> Result<(Relevance, Option<NodeId>)> {
        if let Some(factor) = diagonal(g, node)? {
            let positive = g.at_least(factor, 0.0)?;
            let sorted = Relevance {
                plus: g.select(positive, c.plus, c.minus)?,
                minus: g.select(positive, c.minus, c.plus)?,
                ..c
            };
            let operands = magnitudes(g, node, index)?;
            let coefficients = Coefficients { operands: &operands, magnitude: true };
            return Ok((sorted.map(g, |g, v| transpose(g, id, index, v, coefficients))?, None));
        }
        let other = (0..node.inputs.len().min(2)).find(|&i| i != index);
        if let (Some(other), Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } | Op::Binary(_)) =
            (other, &node.op)
        {
            let (weight, exponent) = self.parts(g, node.inputs[other])?;
            let mut through = |weight: NodeId, c: NodeId| {
                let mut operands = node.inputs.clone();
                operands[other] = weight;
                transpose(g, id, index, c, Coefficients { operands: &operands, magnitude: true })
            };
            let (pp, mm) = (through(weight.plus, c.plus)?, through(weight.minus, c.minus)?);
            let (mp, pm) = (through(weight.minus, c.plus)?, through(weight.plus, c.minus)?);
            return Ok((Relevance { plus: g.plus(pp, mm)?, minus: g.plus(mp, pm)?, ..c }, exponent));
        }
        let input = g.node(node.inputs[index]).shape.clone();
        if let Some(maps) = signed_resize(node, &input) {
            let mut pair = (c.plus, c.minus);
            for (axis, map) in maps {
                pair = apply_parts_transposed(g, pair, axis, &map)?;
            }
            return Ok((Relevance { plus: pair.0, minus: pair.1, ..c }, None));
        }
        let unsigned = Coefficients { operands: &node.inputs, magnitude: true };
        Ok((c.map(g, |g, v| transpose(g, id, index, v, unsigned))?, None))
    }

    /// `W⁺` and `W⁻` of a weight, or the two streams of an activation under its exponent.
    fn parts(&self, g: &mut Graph, weight: NodeId) -> Result<(Halves, Option<NodeId>)> {
        if self.network.is_active(weight) {
            let stream = self.stream.at(weight);
            let (plus, minus) = self.pair(g, stream, weight)?;
            return Ok((Halves { plus, minus }, stream.exponent));
        }
        let opposite = g.negated(weight)?;
        Ok((Halves { plus: g.rectified(weight)?, minus: g.rectified(opposite)? }, None))
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
    fn segmented(&self, g: &mut Graph, r: NodeId, z: NodeId, like: Scaled) -> Result<NodeId> {
        let epsilon = g.number(self.epsilon);
        let mut epsilon = self.scale.under(g, epsilon, like)?;
        if like.exponent.is_some() {
            let least = g.number(LEAST_EPSILON);
            epsilon = g.binary(Binary::Max, epsilon, least)?;
        }
        stabilised_quotient(g, r, z, epsilon)
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

/// For a node that multiplies each element by a coefficient of its own: the coefficients, or numbers of their sign.
fn diagonal(g: &mut Graph, node: &Node) -> Result<Option<NodeId>> {
    let factor = |i: usize| g.node(node.inputs[i]).is_constant().then_some(node.inputs[i]);
    match &node.op {
        Op::BatchNorm { epsilon } => batch_norm_scale(g, node, *epsilon).map(Some),
        Op::Binary(Binary::Div) => Ok(factor(1)),
        Op::Binary(Binary::Mul) => Ok(factor(1).or(factor(0))),
        _ => Ok(None),
    }
}

/// The node's operands with those that are coefficients made positive.
fn magnitudes(g: &mut Graph, node: &Node, index: usize) -> Result<Vec<NodeId>> {
    let operands = node.inputs.iter().enumerate();
    operands.map(|(i, &operand)| if i == index { Ok(operand) } else { g.magnitude(operand) }).collect()
}
