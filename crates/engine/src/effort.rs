//! How much arithmetic a node is, as it is defined and not as a fast algorithm does it.

use std::ops::Range;

use monosplit_graph::{Graph, Node, NodeId, Op};

/// How many additions and multiplications a node is defined by.
#[derive(Clone, Copy)]
pub(crate) enum Effort {
    /// This many for each element of its value.
    PerOutput(usize),
    /// This many for each element of its first input.
    PerInput(usize),
    /// Too few to count.
    Little,
}

impl Effort {
    pub(crate) fn of(graph: &Graph, node: &Node) -> Self {
        let lengths = |id: NodeId, axes: Range<usize>| {
            axes.map(|axis| graph.node(id).shape.fixed_at(axis).unwrap_or(1)).product::<usize>()
        };
        match &node.op {
            Op::Conv { window, .. } => Effort::PerOutput(2 * lengths(node.inputs[1], 1..2 + window.axes())),
            Op::ConvTranspose { window, .. } => {
                Effort::PerInput(2 * lengths(node.inputs[1], 1..2 + window.axes()))
            }
            Op::MatMul { trans_b, .. } => {
                let rank = graph.node(node.inputs[1]).shape.rank();
                let axis = if *trans_b { rank - 1 } else { rank - 2 };
                Effort::PerOutput(2 * lengths(node.inputs[1], axis..axis + 1))
            }
            _ => Effort::Little,
        }
    }
}
