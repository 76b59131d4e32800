//! Which nodes run as one step, and in which order.
//!
//! Equal nodes are computed once. Elementwise nodes of one shape share a pass over memory or become the epilogue of the
//! convolution that they alone read. Nodes with the same weights run as one, and so do a 1×1 convolution and the
//! depthwise one that alone reads it. Steps that free memory run first.

mod epilogue;
mod fusion;
mod order;
mod partition;
mod shared_weights;

use std::collections::HashMap;

use monosplit_graph::op::{Movement, OpKey, Role};
use monosplit_graph::{Graph, Node, NodeId};

use fusion::is_elementwise;
use order::Units;
pub(crate) use partition::{Partition, StreamProducts};
use shared_weights::{StreamWeights, stream_weights};

/// Which optimisations are made. On the CPU, results have the same bits whatever is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Optimisations {
    /// Common subexpressions: equal nodes are computed once.
    pub(crate) common_subexpressions: bool,
    /// Elementwise nodes share a pass over memory.
    pub(crate) fuse_elementwise: bool,
    /// Elementwise nodes run on the results of a convolution while these are still in cache.
    pub(crate) fuse_epilogues: bool,
    /// A 1×1 convolution and the depthwise one that alone reads it run as one; the value between them is never written.
    pub(crate) fuse_depthwise: bool,
    /// Elementwise nodes and the reductions that alone read them run as one; what is reduced is never written.
    pub(crate) fuse_reductions: bool,
    /// Convolutions with the same weights run as one, and products where `stream_products` does not apply.
    pub(crate) batch_shared_weights: bool,
    /// Products with the same large matrix read it once, and its magnitudes are not stored. Needs
    /// `batch_shared_weights`.
    pub(crate) stream_products: bool,
    /// Steps that free memory run early.
    pub(crate) reorder: bool,
}

impl Optimisations {
    /// Those whose bit is not set.
    #[cfg(test)]
    pub(crate) fn without(bits: usize) -> Self {
        let on = |bit: usize| bits & (1 << bit) == 0;
        Optimisations {
            common_subexpressions: on(0),
            fuse_elementwise: on(1),
            batch_shared_weights: on(2),
            stream_products: on(2),
            reorder: on(3),
            fuse_epilogues: on(4),
            fuse_reductions: on(5),
            fuse_depthwise: on(6),
        }
    }

    /// Those that the CPU engine has kernels for.
    pub(crate) const CPU: Optimisations = Optimisations {
        common_subexpressions: true,
        fuse_elementwise: true,
        fuse_epilogues: true,
        fuse_depthwise: true,
        fuse_reductions: false,
        batch_shared_weights: true,
        stream_products: true,
        reorder: true,
    };
}

/// Partitions of the nodes, in the order they run.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// For every node, the first that computes the same.
    pub(crate) representative: Vec<NodeId>,
    pub(crate) partitions: Vec<Partition>,
}

struct Scheduler<'a> {
    graph: &'a Graph,
    /// For every node, whether it is computed in a run.
    computed: Vec<bool>,
    representative: Vec<NodeId>,
    /// For every product that may be one of several in a pass over its matrix, that matrix.
    stream_weights: Vec<Option<StreamWeights>>,
    options: Optimisations,
}

impl Schedule {
    /// Schedules every `live` node that is not `known`.
    pub(crate) fn new(graph: &Graph, known: &[bool], live: &[bool], options: Optimisations) -> Self {
        let representative = representatives(graph, live, options.common_subexpressions);
        let computed = |(id, node): (NodeId, &Node)| {
            let i = id.index();
            live[i] && !known[i] && representative[i] == id && node.op.role() != Role::Source
        };
        let computed: Vec<bool> = graph.nodes().map(computed).collect();
        let streams = |(id, node): (NodeId, &Node)| {
            let considered = options.stream_products && computed[id.index()];
            considered.then(|| stream_weights(graph, &representative, known, node)).flatten()
        };
        let stream_weights = graph.nodes().map(streams).collect();
        let scheduler = Scheduler { graph, computed, representative, stream_weights, options };
        let partitions = scheduler.partitions(known);
        Schedule { representative: scheduler.representative, partitions }
    }
}

/// For every node, the first live one that computes the same. An identity is represented by what it reads.
fn representatives(graph: &Graph, live: &[bool], share: bool) -> Vec<NodeId> {
    let mut representative: Vec<NodeId> = Vec::with_capacity(graph.len());
    let mut first: HashMap<(OpKey, Vec<NodeId>), NodeId> = HashMap::new();
    for (id, node) in graph.nodes() {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| representative[input.index()]).collect();
        let found = match OpKey::of(&node.op) {
            _ if node.op.role() == Role::Movement(Movement::Identity) => inputs[0],
            Some(key) if share && live[id.index()] => *first.entry((key, inputs)).or_insert(id),
            _ => id,
        };
        representative.push(found);
    }
    representative
}

impl Scheduler<'_> {
    fn computed(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.graph.nodes().filter(|(id, _)| self.computed[id.index()])
    }

    /// The computed nodes that a node reads.
    fn inputs<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = NodeId> + 'a {
        let read = node.inputs.iter().map(|input| self.representative[input.index()]);
        read.filter(|input| self.computed[input.index()])
    }

    fn is_output(&self, id: NodeId) -> bool {
        self.graph.outputs().iter().any(|output| self.representative[output.node.index()] == id)
    }

    fn singles(&self) -> Units {
        Units::of(self.graph.len(), self.computed().map(|(id, _)| vec![id]).collect())
    }

    fn partitions(&self, known: &[bool]) -> Vec<Partition> {
        let options = self.options;
        let mut units = if options.batch_shared_weights { self.batches(known) } else { self.singles() };
        let mut order = self.order(&units, false);
        if order.is_none() {
            units = self.singles();
            order = self.order(&units, false);
        }
        let in_order = |units: &Units| self.computed().map(|(id, _)| units.unit[id.index()]).collect();
        let mut order: Vec<usize> = order.unwrap_or_else(|| in_order(&units));
        if options.fuse_elementwise {
            let fused = self.fuse_elementwise(&units, &order);
            // Levels keep fused units from waiting for each other. If they did, the nodes would run one by one.
            if let Some(better) = self.order(&fused, options.reorder) {
                (units, order) = (fused, better);
            }
        } else if options.reorder
            && let Some(better) = self.order(&units, true)
        {
            order = better;
        }
        let mut partitions = order.into_iter().map(|unit| self.partition(&units.members[unit])).collect();
        if options.fuse_reductions {
            partitions = self.fuse_reductions(partitions);
        }
        if options.fuse_epilogues {
            partitions = self.fuse_epilogues(partitions);
        }
        if options.fuse_depthwise {
            partitions = self.fuse_depthwise(partitions, known);
        }
        partitions
    }

    /// The partition that a unit of nodes is.
    fn partition(&self, members: &[NodeId]) -> Partition {
        let stream = |id: &NodeId| self.stream_weights[id.index()];
        if let Some(StreamWeights { weights, magnitude }) = stream(&members[0])
            && (members.len() > 1 || magnitude)
        {
            let magnitude = members.iter().map(|id| stream(id).is_some_and(|s| s.magnitude)).collect();
            return Partition::StreamProducts(StreamProducts { nodes: members.to_vec(), weights, magnitude });
        }
        match members {
            [first, ..]
                if self.options.fuse_elementwise && is_elementwise(self.graph, self.graph.node(*first)) =>
            {
                Partition::Elementwise(members.to_vec())
            }
            [only] => Partition::Single(*only),
            members => Partition::Batched(members.to_vec()),
        }
    }
}
