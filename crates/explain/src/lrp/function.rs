//! Functions of several nodes that relevance propagation treats as one: softmaxes, `e·1/Σe` with `e = exp(x − max x)`, and
//! activations as exporters write them, `½x·(1 + erf(x/√2))`.

use std::collections::HashMap;

use monosplit_graph::op::Reduction;
use monosplit_graph::passes::smooth_activations;
use monosplit_graph::{Graph, NodeId, Op, Result};

use crate::network::Network;

/// The functions of a network, by the nodes they consist of.
pub(super) struct Functions {
    softmaxes: HashMap<NodeId, Softmax>,
    /// The one input that receives all relevance of a node unchanged.
    pass_through_inputs: HashMap<NodeId, usize>,
}

/// A softmax, or its logarithm.
pub(super) struct Softmax {
    /// The node.
    pub(super) id: NodeId,
    /// Whether it is one without a logarithm.
    pub(super) is_plain: bool,
    x: NodeId,
    axis: usize,
}

impl Functions {
    /// The softmaxes, and optionally the activations.
    pub(super) fn of(network: &Network, activations: bool) -> Self {
        let graph = network.graph();
        let mut found = Functions { softmaxes: HashMap::new(), pass_through_inputs: HashMap::new() };
        for (id, node) in network.nodes() {
            let (axis, is_plain) = match node.op {
                Op::Softmax { axis } => (axis, true),
                Op::LogSoftmax { axis } => (axis, false),
                _ => continue,
            };
            let Some(end) = network.decomposition(id) else { continue };
            if is_plain {
                let exponentials = graph.node(end).inputs[0];
                found.pass_through_inputs.insert(graph.node(exponentials).inputs[0], 0);
            }
            found.softmaxes.insert(end, Softmax { id, is_plain, x: node.inputs[0], axis });
        }
        let activations = if activations { smooth_activations(graph) } else { Vec::new() };
        for activation in activations {
            let mut at = activation.node;
            while at != activation.input && network.decomposition(at).is_none() {
                let &[(index, input), ..] = &*network.active_inputs(at) else { break };
                found.pass_through_inputs.insert(at, index);
                at = input;
            }
        }
        found
    }

    /// The softmax whose last step a node is.
    pub(super) fn softmax_ending_at(&self, id: NodeId) -> Option<&Softmax> {
        self.softmaxes.get(&id)
    }

    /// The one input that receives all relevance of a node unchanged.
    pub(super) fn pass_through_input(&self, id: NodeId) -> Option<usize> {
        self.pass_through_inputs.get(&id).copied()
    }
}

impl Softmax {
    /// `x ⊙ (R − s ΣR)`: the Taylor expansion at `x`, with the remainder at the input 0 taken as a bias.
    pub(super) fn propagate(&self, g: &mut Graph, r: NodeId) -> Result<NodeId> {
        let all = g.reduced(Reduction::Sum, r, &[self.axis], true)?;
        let expected = g.times(self.id, all)?;
        let surplus = g.minus(r, expected)?;
        g.times(self.x, surplus)
    }
}
