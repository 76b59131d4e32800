//! Derivatives of elementwise functions, as nodes of a graph.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Graph, NodeId, Result};

/// `f′(z)`, given `z` and `a = f(z)`; `None` for functions whose slope is zero wherever it exists.
pub fn slope(g: &mut Graph, function: Unary, z: NodeId, a: NodeId) -> Result<Option<NodeId>> {
    use Unary::*;
    let slope = match function {
        Sigmoid => logistic_slope(g, a)?,
        Tanh => one_minus_square(g, a)?,
        Softplus => g.unary(Sigmoid, z)?,
        Elu { alpha } => exponential_slope(g, z, 1.0, alpha, 1.0)?,
        Selu { alpha, gamma } => exponential_slope(g, z, gamma, gamma * alpha, 1.0)?,
        Celu { alpha } => exponential_slope(g, z, 1.0, 1.0, alpha)?,
        Silu => {
            let s = g.unary(Sigmoid, z)?;
            gated_slope(g, z, s, logistic_slope)?
        }
        Mish => {
            let softplus = g.unary(Softplus, z)?;
            let tanh = g.unary(Tanh, softplus)?;
            let logistic = g.unary(Sigmoid, z)?;
            gated_slope(g, z, tanh, |g, t| {
                let inner = one_minus_square(g, t)?;
                g.times(inner, logistic)
            })?
        }
        Gelu => {
            let scaled = g.scaled(std::f64::consts::FRAC_1_SQRT_2, z)?;
            let erf = g.unary(Erf, scaled)?;
            let shifted = g.offset(1.0, erf)?;
            let phi = g.scaled(0.5, shifted)?;
            gated_slope(g, z, phi, |g, _| bell(g, z, 0.5, 1.0 / (2.0 * std::f64::consts::PI).sqrt()))?
        }
        GeluTanh => gelu_tanh_slope(g, z)?,
        Erf => bell(g, z, 1.0, std::f64::consts::FRAC_2_SQRT_PI)?,
        HardSigmoid { alpha, beta } => {
            let inside = between(g, z, -beta / alpha, (1.0 - beta) / alpha)?;
            let slope = g.number(alpha);
            g.masked(inside, slope)?
        }
        HardSwish => {
            let third = g.scaled(1.0 / 3.0, z)?;
            let ramp = g.offset(0.5, third)?;
            let one = g.number(1.0);
            let above = g.more_than(z, 3.0)?;
            let inside = between(g, z, -3.0, 3.0)?;
            let lower = g.masked(inside, ramp)?;
            g.select(above, one, lower)?
        }
        Sqrt => {
            let half = g.number(0.5);
            g.over(half, a)?
        }
        Exp => a,
        Log => g.unary(Reciprocal, z)?,
        Reciprocal => {
            let square = g.times(a, a)?;
            g.negated(square)?
        }
        Clip { min, max } => {
            let inside = between(g, z, min, max)?;
            let one = g.number(1.0);
            g.masked(inside, one)?
        }
        Cos => {
            let sine = g.unary(Sin, z)?;
            g.unary(Neg, sine)?
        }
        // cos z = sin(z + π/2)
        Sin => {
            let shifted = g.offset(std::f64::consts::FRAC_PI_2, z)?;
            g.unary(Sin, shifted)?
        }
        Abs => g.unary(Sign, z)?,
        Neg => g.number(-1.0),
        // Rounding is taken for the identity, because its own slope says nothing.
        Quantise { .. } | Half | Bfloat16 => g.number(1.0),
        Relu => {
            let on = g.more_than(z, 0.0)?;
            let one = g.number(1.0);
            g.masked(on, one)?
        }
        LeakyRelu { slope } => {
            let on = g.more_than(z, 0.0)?;
            let (one, slope) = (g.number(1.0), g.number(slope));
            g.select(on, one, slope)?
        }
        Sign | Floor | Ceil | Round | Wrap { .. } | Not => return Ok(None),
    };
    Ok(Some(slope))
}

/// `∂(zᵖ)/∂z = p·zᵖ⁻¹`
pub fn power_slope(g: &mut Graph, z: NodeId, exponent: NodeId) -> Result<NodeId> {
    let less = g.offset(-1.0, exponent)?;
    let power = g.binary(Binary::Pow, z, less)?;
    g.times(exponent, power)
}

fn logistic_slope(g: &mut Graph, s: NodeId) -> Result<NodeId> {
    let square = g.times(s, s)?;
    g.minus(s, square)
}

fn one_minus_square(g: &mut Graph, t: NodeId) -> Result<NodeId> {
    let one = g.number(1.0);
    let square = g.times(t, t)?;
    g.minus(one, square)
}

/// `(z·w)′ = w + z·w′` for a gate `w(z)` whose slope is found from `w`.
fn gated_slope(
    g: &mut Graph,
    z: NodeId,
    gate: NodeId,
    gate_slope: impl FnOnce(&mut Graph, NodeId) -> Result<NodeId>,
) -> Result<NodeId> {
    let slope = gate_slope(g, gate)?;
    let moved = g.times(z, slope)?;
    g.plus(gate, moved)
}

/// `height·exp(−width·z²)`
fn bell(g: &mut Graph, z: NodeId, width: f64, height: f64) -> Result<NodeId> {
    let square = g.times(z, z)?;
    let exponent = g.scaled(-width, square)?;
    let bell = g.unary(Unary::Exp, exponent)?;
    g.scaled(height, bell)
}

/// `right` for `z ≥ 0`, else `left·e^(z/width)`.
fn exponential_slope(g: &mut Graph, z: NodeId, right: f64, left: f64, width: f64) -> Result<NodeId> {
    let scaled = g.scaled(1.0 / width, z)?;
    let exponential = g.unary(Unary::Exp, scaled)?;
    let falling = g.scaled(left, exponential)?;
    let on = g.at_least(z, 0.0)?;
    let right = g.number(right);
    g.select(on, right, falling)
}

fn gelu_tanh_slope(g: &mut Graph, z: NodeId) -> Result<NodeId> {
    let k = (2.0 / std::f64::consts::PI).sqrt();
    let c = 0.044715;
    let square = g.times(z, z)?;
    let cubic = g.scaled(c, square)?;
    let cubic = g.offset(1.0, cubic)?;
    let inner = g.times(z, cubic)?;
    let inner = g.scaled(k, inner)?;
    let tanh = g.unary(Unary::Tanh, inner)?;
    let shifted = g.offset(1.0, tanh)?;
    let gate = g.scaled(0.5, shifted)?;
    gated_slope(g, z, gate, |g, _| {
        let outer = one_minus_square(g, tanh)?;
        let rate = g.scaled(3.0 * c, square)?;
        let rate = g.offset(1.0, rate)?;
        let product = g.times(outer, rate)?;
        g.scaled(0.5 * k, product)
    })
}

fn between(g: &mut Graph, z: NodeId, low: f64, high: f64) -> Result<NodeId> {
    let above = g.more_than(z, low)?;
    let high = g.number(high);
    let below = g.binary(Binary::Less, z, high)?;
    g.binary(Binary::And, above, below)
}
