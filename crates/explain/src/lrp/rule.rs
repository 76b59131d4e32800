//! Relevance propagation rules for affine layers. `stab(z) = z + ε·sign(z)` with `sign(0) = +1`; `x⁺`, `W⁺` are positive
//! parts, `x⁻`, `W⁻` negative ones (so that `x = x⁺ + x⁻`).

use monosplit_graph::{Dim, Error, Graph, NodeId, Op, Result, Shape, Tensor};

use super::affine::Affine;
use crate::stabilised_quotient::stabilised_quotient;

/// A rule for an affine layer `z = W·x + b` whose relevance is `R`.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// `x ⊙ Wᵀ(R/stab(z))` with this ε (Bach et al. 2015).
    Epsilon {
        /// ε
        epsilon: f64,
    },
    /// The generalised γ rule, for inputs and outputs of either sign (Andéol et al. 2021). Where `z > 0`, contributions
    /// are `x⁺(W + γW⁺) + x⁻(W + γW⁻)`, where `z < 0` they are `x⁺(W + γW⁻) + x⁻(W + γW⁺)`; the bias counts as the weight
    /// of a positive input. Where `z = 0` no relevance is propagated.
    Gamma {
        /// γ
        gamma: f64,
    },
    /// The γ rule for non-negative inputs, `x ⊙ VᵀR/stab(Vx + b)` with `V = W + γW⁺` (Montavon et al. 2019); the bias is
    /// left as it is.
    PaperGamma {
        /// γ
        gamma: f64,
    },
    /// The αβ rule with α = 1 and β = 0.
    ZPlus,
    /// α shares of the positive contributions `x⁺W⁺ + x⁻W⁻ + b⁺`, less β shares of the negative ones `x⁺W⁻ + x⁻W⁺ + b⁻`
    /// (Bach et al. 2015); relevance is conserved if α − β = 1.
    AlphaBeta {
        /// α
        alpha: f64,
        /// β
        beta: f64,
    },
    /// `(x ⊙ Wᵀ − l ⊙ W⁺ᵀ − h ⊙ W⁻ᵀ)(R/stab(Wx − W⁺l − W⁻h))` for inputs that lie between `l` and `h` (Montavon et al.
    /// 2017).
    ZBox {
        /// `l`: one number, or one for each channel.
        low: Vec<f64>,
        /// `h`: one number, or one for each channel.
        high: Vec<f64>,
    },
    /// Shares in proportion to the squared weights, whatever the input (Montavon et al. 2017).
    WSquare,
    /// Equal shares to all inputs (Lapuschkin et al. 2019).
    Flat,
    /// Relevance passes unchanged; only for layers that keep the shape.
    Pass,
}

/// What a rule depends on besides the layer.
#[derive(Clone, Copy)]
pub(super) struct RuleContext {
    /// The stabiliser ε of all rules but [`Rule::Epsilon`].
    pub(super) stabiliser: f64,
    /// Whether the layer's input has no negative elements.
    pub(super) non_negative: bool,
}

impl Rule {
    /// The name of the rule, such as `epsilon`.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Epsilon { .. } => "epsilon",
            Rule::Gamma { .. } => "gamma",
            Rule::PaperGamma { .. } => "paper-gamma",
            Rule::ZPlus => "z-plus",
            Rule::AlphaBeta { .. } => "alpha-beta",
            Rule::ZBox { .. } => "zbox",
            Rule::WSquare => "w-square",
            Rule::Flat => "flat",
            Rule::Pass => "pass",
        }
    }

    /// An error if a number is out of its range.
    pub fn check(&self) -> Result<()> {
        let fits = match self {
            Rule::Epsilon { epsilon } => epsilon.is_finite() && *epsilon > 0.0,
            Rule::Gamma { gamma } | Rule::PaperGamma { gamma } => gamma.is_finite() && *gamma >= 0.0,
            Rule::AlphaBeta { alpha, beta } => {
                alpha.is_finite() && *beta >= 0.0 && (alpha - beta - 1.0).abs() < 1e-9
            }
            Rule::ZBox { low, high } => {
                let finite = low.iter().chain(high).all(|bound| bound.is_finite());
                let pairs = low.len().max(high.len());
                let at = |bounds: &[f64], i: usize| bounds[i.min(bounds.len() - 1)];
                finite && !low.is_empty() && !high.is_empty() && (0..pairs).all(|i| at(low, i) <= at(high, i))
            }
            Rule::ZPlus | Rule::WSquare | Rule::Flat | Rule::Pass => true,
        };
        let expected = match self {
            _ if fits => return Ok(()),
            Rule::Epsilon { .. } => "ε must be greater than 0",
            Rule::Gamma { .. } | Rule::PaperGamma { .. } => "γ must not be negative",
            Rule::AlphaBeta { .. } => "α − β must be 1 and β not negative, or relevance is not kept",
            _ => "ZBox needs finite bounds, low below high, one number or one for each channel",
        };
        Err(Error::argument(expected))
    }

    /// The relevance of the layer's input, `r` being that of its output.
    pub(super) fn propagate(
        &self,
        g: &mut Graph,
        layer: &Affine<'_>,
        r: NodeId,
        context: RuleContext,
    ) -> Result<NodeId> {
        let (weight, bias) = (layer.weight, layer.bias);
        match self {
            Rule::Epsilon { epsilon } => {
                let c = quotient(g, r, layer.z, *epsilon)?;
                contribution(g, layer, layer.x, weight, c)
            }
            Rule::Gamma { gamma } => {
                let grown = |g: &mut Graph, v: NodeId, upwards: bool| raised(g, v, *gamma, upwards);
                let (up, down) = (grown(g, weight, true)?, grown(g, weight, false)?);
                let up_bias = bias.map(|b| grown(g, b, true)).transpose()?;
                let down_bias = bias.map(|b| grown(g, b, false)).transpose()?;
                let zero = g.number(0.0);
                let positive = g.more_than(layer.z, 0.0)?;
                let negative = g.binary(monosplit_graph::op::Binary::Less, layer.z, zero)?;
                let (above, below) = (g.masked(positive, r)?, g.masked(negative, r)?);
                let above = side(g, layer, (up, down, up_bias), above, context)?;
                let below = side(g, layer, (down, up, down_bias), below, context)?;
                g.plus(above, below)
            }
            Rule::PaperGamma { gamma } => {
                let weight = raised(g, weight, *gamma, true)?;
                let z = layer.forward(g, layer.x, weight, bias)?;
                let c = quotient(g, r, z, context.stabiliser)?;
                contribution(g, layer, layer.x, weight, c)
            }
            Rule::ZPlus => alpha_beta(g, layer, (1.0, 0.0), r, context),
            Rule::AlphaBeta { alpha, beta } => alpha_beta(g, layer, (*alpha, *beta), r, context),
            Rule::ZBox { low, high } => boxed(g, layer, (low, high), r, context),
            Rule::WSquare => {
                let squared = g.times(weight, weight)?;
                let bias = bias.map(|b| g.times(b, b)).transpose()?;
                unweighted(g, layer, squared, bias, r, context)
            }
            Rule::Flat => {
                let ones = constant_like(g, weight, 1.0)?;
                unweighted(g, layer, ones, None, r, context)
            }
            Rule::Pass => {
                let (from, to) = (&g.node(layer.z).shape, &g.node(layer.x).shape);
                if from != to {
                    return Err(Error::shape(format!(
                        "the rule 'pass' is for layers that keep the shape; this one makes {from} of {to}"
                    )));
                }
                Ok(r)
            }
        }
    }
}

/// `r/stab(z)`
fn quotient(g: &mut Graph, r: NodeId, z: NodeId, epsilon: f64) -> Result<NodeId> {
    let epsilon = g.number(epsilon);
    stabilised_quotient(g, r, z, epsilon)
}

/// `x ⊙ weightᵀc`
fn contribution(g: &mut Graph, layer: &Affine<'_>, x: NodeId, weight: NodeId, c: NodeId) -> Result<NodeId> {
    let gain = layer.backward(g, weight, c)?;
    g.times(x, gain)
}

/// `min(v, 0)`
fn negative_part(g: &mut Graph, v: NodeId) -> Result<NodeId> {
    let opposite = g.negated(v)?;
    let lost = g.rectified(opposite)?;
    g.negated(lost)
}

/// `v + γv⁺`, or `v + γv⁻`.
fn raised(g: &mut Graph, v: NodeId, gamma: f64, upwards: bool) -> Result<NodeId> {
    let part = if upwards { g.rectified(v)? } else { negative_part(g, v)? };
    let grown = g.scaled(gamma, part)?;
    g.plus(v, grown)
}

/// Relevance shared by the contributions `x⁺·upper + x⁻·lower`, whose sum includes the bias.
fn side(
    g: &mut Graph,
    layer: &Affine<'_>,
    (upper, lower, bias): (NodeId, NodeId, Option<NodeId>),
    r: NodeId,
    context: RuleContext,
) -> Result<NodeId> {
    if context.non_negative {
        let z = layer.forward(g, layer.x, upper, bias)?;
        let c = quotient(g, r, z, context.stabiliser)?;
        return contribution(g, layer, layer.x, upper, c);
    }
    let (positive, negative) = (g.rectified(layer.x)?, negative_part(g, layer.x)?);
    let (first, second) =
        (layer.forward(g, positive, upper, bias)?, layer.forward(g, negative, lower, None)?);
    let z = g.plus(first, second)?;
    let c = quotient(g, r, z, context.stabiliser)?;
    let (first, second) =
        (contribution(g, layer, positive, upper, c)?, contribution(g, layer, negative, lower, c)?);
    g.plus(first, second)
}

fn alpha_beta(
    g: &mut Graph,
    layer: &Affine<'_>,
    (alpha, beta): (f64, f64),
    r: NodeId,
    context: RuleContext,
) -> Result<NodeId> {
    let (upper, lower) = (g.rectified(layer.weight)?, negative_part(g, layer.weight)?);
    let upper_bias = layer.bias.map(|b| g.rectified(b)).transpose()?;
    let for_it = side(g, layer, (upper, lower, upper_bias), r, context)?;
    let for_it = g.scaled(alpha, for_it)?;
    if beta == 0.0 {
        return Ok(for_it);
    }
    let lower_bias = layer.bias.map(|b| negative_part(g, b)).transpose()?;
    let against_it = side(g, layer, (lower, upper, lower_bias), r, context)?;
    let against_it = g.scaled(beta, against_it)?;
    g.minus(for_it, against_it)
}

fn boxed(
    g: &mut Graph,
    layer: &Affine<'_>,
    (low, high): (&[f64], &[f64]),
    r: NodeId,
    context: RuleContext,
) -> Result<NodeId> {
    let (upper, lower) = (g.rectified(layer.weight)?, negative_part(g, layer.weight)?);
    let (low, high) = (bound_like(g, layer.x, low)?, bound_like(g, layer.x, high)?);
    // The positive and the negative part of the bias add up to the bias, which is then gone from the sum.
    let mut z = layer.forward(g, layer.x, layer.weight, None)?;
    for (bound, weight) in [(low, upper), (high, lower)] {
        let least = layer.forward(g, bound, weight, None)?;
        z = g.minus(z, least)?;
    }
    let c = quotient(g, r, z, context.stabiliser)?;
    let mut relevance = contribution(g, layer, layer.x, layer.weight, c)?;
    for (bound, weight) in [(low, upper), (high, lower)] {
        let least = contribution(g, layer, bound, weight, c)?;
        relevance = g.minus(relevance, least)?;
    }
    Ok(relevance)
}

/// `weightᵀ(r/stab(weight·1 + bias))`
fn unweighted(
    g: &mut Graph,
    layer: &Affine<'_>,
    weight: NodeId,
    bias: Option<NodeId>,
    r: NodeId,
    context: RuleContext,
) -> Result<NodeId> {
    let ones = constant_like(g, layer.x, 1.0)?;
    let z = layer.forward(g, ones, weight, bias)?;
    let c = quotient(g, r, z, context.stabiliser)?;
    layer.backward(g, weight, c)
}

/// A number everywhere, shaped like `value`.
fn constant_like(g: &mut Graph, value: NodeId, number: f64) -> Result<NodeId> {
    let (shape, number) = (g.node(value).shape.clone(), g.number(number));
    g.add(Op::Expand { shape }, &[number])
}

/// One number everywhere, or one for each channel, shaped like `value`.
fn bound_like(g: &mut Graph, value: NodeId, bounds: &[f64]) -> Result<NodeId> {
    if let [bound] = *bounds {
        return constant_like(g, value, bound);
    }
    let shape = g.node(value).shape.clone();
    if shape.fixed_at(1) != Some(bounds.len()) {
        let given = bounds.len();
        return Err(Error::shape(format!(
            "{given} bounds were given for an input of shape {shape}; give one number, or one for each channel"
        )));
    }
    let bounds = g.constant(Tensor::vector(bounds.to_vec()));
    let mut dims = vec![Dim::Fixed(1); shape.rank()];
    dims[1] = g.node(bounds).shape.dims()[0];
    let bounds = g.reshaped(bounds, Shape::new(dims))?;
    g.add(Op::Expand { shape }, &[bounds])
}
