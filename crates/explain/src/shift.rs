//! The shift of sensitivities: at each counted node the mass is multiplied by `1 − 2α`, so that the hidden gradient does not
//! dominate the ordinary one.

use std::collections::HashMap;

use monosplit_graph::op::{AffineLayer, Binary};
use monosplit_graph::{Graph, NodeId, Op, Result, Shape};

use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::inputs;
use crate::network::Network;
use crate::scaled::Scaled;
use crate::split::{AlphaInput, ShiftAt, Split};

/// The factor `1 − 2α` of every counted node.
pub(crate) struct Shifts {
    factors: HashMap<NodeId, NodeId>,
    seed: NodeId,
}

impl Shifts {
    /// Adds the input `alpha` and the factors to the graph.
    pub(crate) fn new(builder: &mut ExplanationBuilder<'_>, split: &Split) -> Result<Self> {
        let nodes = shifted_nodes(builder.network, split.shift_at);
        match split.alpha {
            AlphaInput::Uniform => {
                let alpha = builder.added_input(inputs::ALPHA, Shape::default())?;
                let seed = complement(&mut builder.graph, alpha)?;
                Ok(Shifts { factors: nodes.into_iter().map(|id| (id, seed)).collect(), seed })
            }
            AlphaInput::PerLayer => {
                let alphas = builder.added_input(inputs::ALPHA, Shape::fixed(&[nodes.len() + 1]))?;
                let g = &mut builder.graph;
                let all = complement(g, alphas)?;
                let mut at = |start: usize| -> Result<NodeId> {
                    let one = g.add(Op::Slice { axis: 0, start, step: 1, length: 1 }, &[all])?;
                    g.reshaped(one, Shape::default())
                };
                let seed = at(nodes.len())?;
                let factors =
                    nodes.iter().enumerate().map(|(i, &id)| Ok((id, at(i)?))).collect::<Result<_>>()?;
                Ok(Shifts { factors, seed })
            }
        }
    }

    /// The factor at the class scores.
    pub(crate) fn seed(&self) -> NodeId {
        self.seed
    }

    /// The factor at a counted node.
    pub(crate) fn factor(&self, id: NodeId) -> Option<NodeId> {
        self.factors.get(&id).copied()
    }

    /// The mass that leaves node `id`.
    pub(crate) fn apply(&self, g: &mut Graph, id: NodeId, mass: Scaled) -> Result<Scaled> {
        match self.factor(id) {
            Some(factor) => mass.map(g, |g, value| g.times(value, factor)),
            None => Ok(mass),
        }
    }
}

fn complement(g: &mut Graph, alpha: NodeId) -> Result<NodeId> {
    let doubled = g.scaled(-2.0, alpha)?;
    g.offset(1.0, doubled)
}

/// The nodes at which sensitivities are shifted, in topological order; the class scores come after all of them.
pub(crate) fn shifted_nodes(network: &Network, at: ShiftAt) -> Vec<NodeId> {
    let counts = |id: NodeId| match at {
        ShiftAt::Every => is_counted(network, id),
        ShiftAt::Affine => is_counted(network, id) && is_affine(network, id),
    };
    network.nodes().map(|(id, _)| id).filter(|&id| counts(id)).collect()
}

fn is_counted(network: &Network, id: NodeId) -> bool {
    let graph = network.graph();
    let node = graph.node(id);
    let given_mask = matches!(node.op, Op::Binary(Binary::Mul))
        && node.inputs.iter().any(|&i| !network.is_active(i) && !graph.node(i).is_constant());
    network.is_active(id)
        && id != network.input()
        && network.decomposition(id).is_none()
        && !network.is_decomposition_step(id)
        && !node.op.is_selection()
        && !given_mask
}

/// Affine layers of one activation, and elementwise functions of two values that are affine in one.
fn is_affine(network: &Network, id: NodeId) -> bool {
    let op = &network.graph().node(id).op;
    let one_operand = || network.active_inputs(id).len() == 1;
    match op.affine_layer() {
        Some(AffineLayer::Convolution | AffineLayer::Normalisation) => true,
        Some(AffineLayer::Dense) => one_operand(),
        // Sums, differences, products and quotients of one activation and constants.
        None => matches!(op, Op::Binary(_)) && op.is_linear() && one_operand(),
    }
}
