//! The stabiliser of the sum stream. It changes `s` alone, never the network's activations.

use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::{Graph, NodeId, Result};

use super::{Builder, Thresholds};
use crate::scaled::{ACTIVATION_BOUND, Scaled};
use crate::scaling::{Correction, Repetition, ScaledOver, Threshold};
use crate::split::Stabiliser;

impl Builder<'_> {
    pub(super) fn stabilised(&self, g: &mut Graph, id: NodeId, s: Scaled) -> Result<Scaled> {
        match (self.split.stabiliser, self.thresholds) {
            (Stabiliser::Shift, _) => Ok(Scaled::plain(g.scaled(0.0, id)?, 0.0)),
            (Stabiliser::Recentre, _) => Ok(Scaled::plain(g.magnitude(id)?, ACTIVATION_BOUND)),
            (Stabiliser::Scale, Some(thresholds)) => self.scaled_down(g, id, s, thresholds),
            _ => Ok(s),
        }
    }

    fn scaled_down(&self, g: &mut Graph, id: NodeId, s: Scaled, thresholds: Thresholds) -> Result<Scaled> {
        let a = self.scale.under(g, id, s)?;
        let factor = self.factor(g, s, a, thresholds)?;
        let factor = self.scale.per_sample(g, factor, s.value)?;
        let value = g.times(s.value, factor)?;
        let missing = match self.split.scaling.correction {
            Correction::Both => return Ok(Scaled { value, ..s }),
            Correction::Signed => g.magnitude(a)?,
            Correction::Plus => a,
        };
        let one = g.number(1.0);
        let share = g.minus(one, factor)?;
        let missing = g.times(share, missing)?;
        Ok(Scaled { value: g.plus(value, missing)?, bound: s.bound.max(ACTIVATION_BOUND) + 1.0, ..s })
    }

    /// What the stream of each sample is multiplied by; `a` is the activation under the stream's exponent.
    fn factor(
        &self,
        g: &mut Graph,
        s: Scaled,
        a: NodeId,
        Thresholds { theta, limit }: Thresholds,
    ) -> Result<NodeId> {
        let scaling = self.split.scaling;
        let (sum, magnitude) = (g.magnitude(s.value)?, g.magnitude(a)?);
        let doubled = g.plus(sum, magnitude)?;
        let largest = self.scale.largest(g, doubled)?;
        let mut allowed = g.scaled(2.0, limit)?;
        if scaling.threshold == Threshold::Relative {
            let own = self.scale.largest(g, magnitude)?;
            allowed = g.times(allowed, own)?;
        } else if let Some(exponent) = s.exponent {
            let factor = self.scale.power(g, exponent, exponent, -1.0)?;
            allowed = g.times(allowed, factor)?;
        }
        let past = g.binary(Binary::Greater, largest, allowed)?;
        let one = g.number(1.0);
        let reduced = match scaling.repetition {
            Repetition::Once => theta,
            Repetition::UntilWithin => power_within(g, theta, allowed, largest)?,
        };
        let factor = g.select(past, reduced, one)?;
        match scaling.over {
            ScaledOver::Batch if g.node(factor).shape.rank() == 1 => {
                g.reduced(Reduction::Min, factor, &[0], false)
            }
            _ => Ok(factor),
        }
    }
}

/// `θ^k` for the least whole `k` with `θ^k · largest ≤ allowed`.
fn power_within(g: &mut Graph, theta: NodeId, allowed: NodeId, largest: NodeId) -> Result<NodeId> {
    let (over, step) = (g.unary(Unary::Log, allowed)?, g.unary(Unary::Log, theta)?);
    let size = g.unary(Unary::Log, largest)?;
    let over = g.minus(over, size)?;
    // A factor of one would never end: its power is one however often it is taken.
    let least = g.number(-f64::from(f32::MIN_POSITIVE));
    let step = g.binary(Binary::Min, step, least)?;
    let times = g.over(over, step)?;
    let times = g.unary(Unary::Ceil, times)?;
    g.binary(Binary::Pow, theta, times)
}
