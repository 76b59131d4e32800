//! Networks without the rounding of their activations: a quantised network or one of half precision on real numbers.

use crate::error::Result;
use crate::graph::Graph;
use crate::op::Op;

use super::rewrite::{Rewrite, Step};

/// Drops every node that explanations take for the identity ([`Unary::is_straight_through`](crate::op::Unary::is_straight_through)),
/// and counts them.
pub fn drop_rounding(graph: &Graph) -> Result<(Graph, usize)> {
    let mut dropped = 0;
    let plain = Rewrite::run(graph, |rewrite, _, node| match node.op {
        Op::Unary(function) if function.is_straight_through() => {
            dropped += 1;
            Ok(Step::Replace(rewrite.inputs(node)[0]))
        }
        _ => Ok(Step::Keep),
    })?;
    Ok((plain, dropped))
}
