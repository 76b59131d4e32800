//! Division by sums that may be zero.

use monosplit_graph::{Graph, NodeId, Result};

/// `r/(z + ε·sign(z))` with `sign(0) = +1`.
pub(crate) fn stabilised_quotient(g: &mut Graph, r: NodeId, z: NodeId, epsilon: NodeId) -> Result<NodeId> {
    let opposite = g.negated(epsilon)?;
    let positive = g.at_least(z, 0.0)?;
    let nudge = g.select(positive, epsilon, opposite)?;
    let denominator = g.plus(z, nudge)?;
    g.over(r, denominator)
}
