//! Functions that relevance passes as a whole though they are spelled out in several nodes: softmaxes, `e·1/Σe` with
//! `e = exp(x − max x)`, and activations as exporters write them, `½x·(1 + erf(x/√2))`.

use std::collections::HashMap;

use monosplit_graph::op::Reduction;
use monosplit_graph::passes::smooth_activations;
use monosplit_graph::{Graph, NodeId, Op, Result};

use crate::network::Network;

/// The functions of a network, by the nodes they are spelled out with.
pub(super) struct Functions {
    softmaxes: HashMap<NodeId, Softmax>,
    /// The one input to which a node hands on all relevance as it is.
    routes: HashMap<NodeId, usize>,
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
    /// The softmaxes, and the activations if they are asked for.
    pub(super) fn of(network: &Network, activations: bool) -> Self {
        let graph = network.graph();
        let mut found = Functions { softmaxes: HashMap::new(), routes: HashMap::new() };
        for (id, node) in network.nodes() {
            let (axis, is_plain) = match node.op {
                Op::Softmax { axis } => (axis, true),
                Op::LogSoftmax { axis } => (axis, false),
                _ => continue,
            };
            let Some(end) = network.decomposition(id) else { continue };
            if is_plain {
                let exponentials = graph.node(end).inputs[0];
                found.routes.insert(graph.node(exponentials).inputs[0], 0);
            }
            found.softmaxes.insert(end, Softmax { id, is_plain, x: node.inputs[0], axis });
        }
        let activations = if activations { smooth_activations(graph) } else { Vec::new() };
        for activation in activations {
            let mut at = activation.node;
            while at != activation.input && network.decomposition(at).is_none() {
                let &[(index, input), ..] = &*network.active_inputs(at) else { break };
                found.routes.insert(at, index);
                at = input;
            }
        }
        found
    }

    /// The softmax whose last step a node is.
    pub(super) fn softmax_ending_at(&self, id: NodeId) -> Option<&Softmax> {
        self.softmaxes.get(&id)
    }

    /// The one input to which a node hands on all relevance as it is.
    pub(super) fn route(&self, id: NodeId) -> Option<usize> {
        self.routes.get(&id).copied()
    }
}

impl Softmax {
    /// `x ⊙ (R − s ΣR)`: Taylor's expansion at `x`, what it leaves at the input 0 taken for a bias.
    pub(super) fn hand_down(&self, g: &mut Graph, r: NodeId) -> Result<NodeId> {
        let all = g.reduced(Reduction::Sum, r, &[self.axis], true)?;
        let expected = g.times(self.id, all)?;
        let surplus = g.minus(r, expected)?;
        g.times(self.x, surplus)
    }
}
