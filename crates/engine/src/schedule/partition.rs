//! What a step of a program computes: one node, or several that run as one.

use monosplit_graph::NodeId;

/// Nodes that run as one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Partition {
    /// One node.
    Single(NodeId),
    /// Elementwise nodes of one shape, in topological order.
    Elementwise(Vec<NodeId>),
    /// A convolution, then its epilogue: elementwise nodes of its shape that are all that read it, in topological order.
    Epilogue(Vec<NodeId>),
    /// A 1×1 convolution and the depthwise one that alone reads it, each followed by its epilogue, and the number of
    /// nodes that belong to the first.
    PointwiseDepthwise(Vec<NodeId>, usize),
    /// Elementwise nodes of one shape, in topological order, then reductions over one axis, not the last, that are all
    /// that read them.
    Reduction(Vec<NodeId>),
    /// Convolutions or products of values of one shape with the same weights and attributes.
    Batched(Vec<NodeId>),
    /// Products of different values with one matrix of weights or its magnitudes.
    StreamProducts(StreamProducts),
}

/// Products that read one matrix of weights in one pass. The magnitudes are taken on the fly and never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamProducts {
    /// The products.
    pub(crate) nodes: Vec<NodeId>,
    /// The matrix of weights.
    pub(crate) weights: NodeId,
    /// For each product, whether it reads the magnitudes.
    pub(crate) magnitude: Vec<bool>,
}

impl Partition {
    /// The nodes that have a kernel of their own; all others are fused or belong to an epilogue.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = NodeId> {
        let second = match self {
            Partition::PointwiseDepthwise(_, first) => Some(*first),
            _ => None,
        };
        std::iter::once(0).chain(second).map(|at| self.nodes()[at])
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> &[NodeId] {
        match self {
            Partition::Single(node) => std::slice::from_ref(node),
            Partition::Elementwise(nodes)
            | Partition::Epilogue(nodes)
            | Partition::PointwiseDepthwise(nodes, _)
            | Partition::Reduction(nodes)
            | Partition::Batched(nodes)
            | Partition::StreamProducts(StreamProducts { nodes, .. }) => nodes,
        }
    }

    /// Whether values that only its own nodes read need no memory.
    pub(crate) fn keeps_values_in_registers(&self) -> bool {
        match self {
            Partition::Elementwise(_)
            | Partition::Epilogue(_)
            | Partition::PointwiseDepthwise(..)
            | Partition::Reduction(_) => true,
            Partition::Single(_) | Partition::Batched(_) | Partition::StreamProducts(_) => false,
        }
    }
}
