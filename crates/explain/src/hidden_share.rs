//! The share of the hidden gradient: shifts that are chosen as the walk goes, so that `‖E‖` keeps up with `‖d‖`.
//!
//! At a node that hides gradients, `E ← kept + lost`, where `lost` is a part of the mass `σ`. The mass is known up to a positive
//! factor, since a shift may multiply it by any. The factor `c` is the one for which `‖kept + c·lost‖ = ‖d‖`; both parts lie on
//! different elements of a ReLU, where that is exact. If what is kept has that norm already, nothing is added. All of this is
//! homogeneous in `E`, so that the ratio that is asked for is a factor of `E` at the layer.

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Graph, NodeId, Result};

use crate::scaled::{ACTIVATION_BOUND, Scale, Scaled};
use crate::sensitivity::Sensitivity;

/// `kept + c·lost` with the norm of `gradient`, sample by sample.
pub(crate) fn filled(
    g: &mut Graph,
    scale: &Scale,
    gradient: NodeId,
    kept: Option<Scaled>,
    lost: Option<Scaled>,
) -> Result<Option<Scaled>> {
    let kept = kept.map(|kept| without_exponent(g, scale, kept)).transpose()?;
    let Some(lost) = lost else { return Ok(kept.map(|kept| Scaled::plain(kept, ACTIVATION_BOUND))) };
    let mut missing = scale.sum_of_squares(g, gradient)?;
    if let Some(kept) = kept {
        let there = scale.sum_of_squares(g, kept)?;
        let difference = g.minus(missing, there)?;
        missing = g.rectified(difference)?;
    }
    let missing = g.unary(Unary::Sqrt, missing)?;
    // The exponent is a positive factor like any other.
    let mut hidden = with_norm(g, scale, lost.value, missing)?;
    if let Some(kept) = kept {
        hidden = g.plus(kept, hidden)?;
    }
    Ok(Some(Scaled::plain(hidden, ACTIVATION_BOUND)))
}

/// The same direction with norm one, sample by sample.
pub(crate) fn of_unit_norm(g: &mut Graph, scale: &Scale, value: Scaled) -> Result<Scaled> {
    let one = g.number(1.0);
    Ok(Scaled::plain(with_norm(g, scale, value.value, one)?, 0.0))
}

/// The sensitivities of a layer with `‖E‖ = ‖σ‖ = share·‖d‖`, sample by sample.
pub(crate) fn with_share(
    g: &mut Graph,
    scale: &Scale,
    message: Sensitivity,
    share: NodeId,
) -> Result<Sensitivity> {
    let ordinary = scale.sum_of_squares(g, message.gradient)?;
    let ordinary = g.unary(Unary::Sqrt, ordinary)?;
    let norm = g.times(share, ordinary)?;
    let mut rescaled = |value: Scaled| -> Result<Scaled> {
        Ok(Scaled::plain(with_norm(g, scale, value.value, norm)?, ACTIVATION_BOUND))
    };
    let hidden = message.hidden.map(&mut rescaled).transpose()?;
    Ok(Sensitivity { hidden, mass: rescaled(message.mass)?, ..message })
}

/// The same direction with another norm, sample by sample; zero stays zero.
fn with_norm(g: &mut Graph, scale: &Scale, value: NodeId, norm: NodeId) -> Result<NodeId> {
    let own = scale.sum_of_squares(g, value)?;
    let own = g.unary(Unary::Sqrt, own)?;
    let tiny = g.number(f64::from(f32::MIN_POSITIVE));
    let own = g.binary(Binary::Max, own, tiny)?;
    let factor = g.over(norm, own)?;
    let factor = scale.per_sample(g, factor, value)?;
    g.times(value, factor)
}

fn without_exponent(g: &mut Graph, scale: &Scale, value: Scaled) -> Result<NodeId> {
    match value.exponent {
        None => Ok(value.value),
        Some(exponent) => {
            let factor = scale.power(g, exponent, value.value, 1.0)?;
            g.times(value.value, factor)
        }
    }
}
