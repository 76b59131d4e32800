//! Nodes that read the same weights run as one: the weights are then read once.

use std::collections::HashMap;

use monosplit_graph::op::{OpKey, Unary};
use monosplit_graph::{Dim, Graph, Kind, Node, NodeId, Op, Shape};

use super::Scheduler;
use super::order::Units;

/// The fewest elements of a matrix that is worth reading in one pass for several products.
const MIN_STREAM_MATRIX: usize = 1 << 15;
/// The most values a convolution or a product is given at once.
const MAX_BATCHED: usize = 4;

/// The large matrix of known weights that a product reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamWeights {
    pub(super) weights: NodeId,
    /// Whether the product reads the magnitudes.
    pub(super) magnitude: bool,
}

/// The matrix that `node` multiplies with, if the product can share one pass over it with others.
pub(super) fn stream_weights(
    graph: &Graph,
    representative: &[NodeId],
    known: &[bool],
    node: &Node,
) -> Option<StreamWeights> {
    let Op::MatMul { trans_a: false, .. } = node.op else { return None };
    let (x, read) = (graph.node(node.inputs[0]), representative[node.inputs[1].index()]);
    let (weights, magnitude) = match graph.node(read) {
        node if node.op == Op::Unary(Unary::Abs) => (representative[node.inputs[0].index()], true),
        _ => (read, false),
    };
    let matrix = graph.node(weights);
    let large = matches!(matrix.shape.count(), Some(Dim::Fixed(n)) if n >= MIN_STREAM_MATRIX);
    let plain = known[read.index()] && matrix.shape.rank() == 2 && x.shape.rank() == 2;
    (plain && large && matrix.kind == Kind::Float).then_some(StreamWeights { weights, magnitude })
}

/// What nodes must have in common to run as one.
#[derive(PartialEq, Eq, Hash)]
struct BatchKey {
    op: Option<OpKey>,
    /// Kernels for values that depend on no input are chosen differently.
    is_constant: bool,
    weights: Vec<NodeId>,
    input: Shape,
}

impl Scheduler<'_> {
    /// Whether a node treats each row of its first input alike, so that several inputs are only more rows.
    fn takes_rows(&self, node: &Node) -> bool {
        match node.op {
            Op::Conv { .. } | Op::ConvTranspose { .. } => true,
            Op::MatMul { trans_a: false, .. } => {
                let flat = [&node.shape, &self.graph.node(node.inputs[0]).shape];
                !self.options.stream_products && flat.iter().all(|shape| shape.rank() == 2)
            }
            _ => false,
        }
    }

    /// Units of nodes with the same weights; every other node is a unit of its own.
    pub(super) fn batches(&self, known: &[bool]) -> Units {
        let mut members: Vec<Vec<NodeId>> = Vec::new();
        let mut open: HashMap<BatchKey, usize> = HashMap::new();
        for (id, node) in self.computed() {
            let stream = self.stream_weights[id.index()];
            let weights: Vec<NodeId> = match stream {
                Some(StreamWeights { weights, .. }) => vec![weights],
                None => node.inputs.iter().skip(1).map(|w| self.representative[w.index()]).collect(),
            };
            let joins = self.takes_rows(node) && weights.iter().all(|w| known[w.index()]);
            if !joins && stream.is_none() {
                members.push(vec![id]);
                continue;
            }
            let key = BatchKey {
                op: OpKey::of(&node.op),
                is_constant: node.is_constant(),
                weights,
                input: self.graph.node(node.inputs[0]).shape.clone(),
            };
            match open.get(&key) {
                Some(&unit) if members[unit].len() < MAX_BATCHED && !self.depends(id, &members[unit]) => {
                    members[unit].push(id);
                }
                _ => {
                    open.insert(key, members.len());
                    members.push(vec![id]);
                }
            }
        }
        Units::of(self.graph.len(), members)
    }

    /// Whether a node depends on one of `others`, all of which come before it.
    fn depends(&self, id: NodeId, others: &[NodeId]) -> bool {
        let Some(&first) = others.first() else { return false };
        let mut seen = vec![false; id.index() - first.index() + 1];
        let mut open = vec![id];
        while let Some(next) = open.pop() {
            for input in self.inputs(self.graph.node(next)).filter(|&input| input >= first) {
                if others.contains(&input) {
                    return true;
                }
                if !std::mem::replace(&mut seen[input.index() - first.index()], true) {
                    open.push(input);
                }
            }
        }
        false
    }
}
