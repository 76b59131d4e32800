//! A graph in the ops the card has kernels for: normalisations and softmax spelled out, and what is added to convolutions
//! and products left to the elementwise kernels, which take it along with what follows.

use monosplit_graph::op::Unary;
use monosplit_graph::passes::{Rewrite, Step, primitive};
use monosplit_graph::{Dim, Graph, NodeId, Op, Result, Shape};

/// Rewrites `graph`.
pub(super) fn lowered(graph: &Graph) -> Result<Graph> {
    Rewrite::run(graph, |rewrite, _, node| {
        let inputs = rewrite.inputs(node);
        let (g, rank) = (&mut rewrite.target, node.shape.rank());
        let value = match &node.op {
            Op::Conv { .. } | Op::ConvTranspose { .. } if inputs.len() > 2 => {
                let plain = g.add(node.op.clone(), &inputs[..2])?;
                let bias = per_channel(g, inputs[2], rank)?;
                Some(g.plus(plain, bias)?)
            }
            Op::MatMul { .. } if inputs.len() > 2 => {
                let plain = g.add(node.op.clone(), &inputs[..2])?;
                Some(g.plus(plain, inputs[2])?)
            }
            Op::BatchNorm { epsilon } => {
                let variance = g.offset(*epsilon, inputs[4])?;
                let deviation = g.unary(Unary::Sqrt, variance)?;
                let factor = g.over(inputs[1], deviation)?;
                let moved = g.times(inputs[3], factor)?;
                let shift = g.minus(inputs[2], moved)?;
                let (factor, shift) = (per_channel(g, factor, rank)?, per_channel(g, shift, rank)?);
                let scaled = g.times(inputs[0], factor)?;
                Some(g.plus(scaled, shift)?)
            }
            Op::LayerNorm { .. }
            | Op::GroupNorm { .. }
            | Op::LocalResponseNorm { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. } => primitive(g, &node.op, &inputs)?,
            _ => None,
        };
        Ok(value.map_or(Step::Keep, Step::Replace))
    })
}

/// A vector over channels, shaped to meet axis 1 of a value of rank `rank`.
fn per_channel(g: &mut Graph, vector: NodeId, rank: usize) -> Result<NodeId> {
    let mut dims = vec![Dim::Fixed(1); rank];
    dims[1] = g.node(vector).shape.dims()[0];
    g.reshaped(vector, Shape::new(dims))
}
