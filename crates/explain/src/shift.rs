//! The shift of sensitivities: at each counted node the mass is multiplied by `1 − 2α`, so that the hidden gradient does not
//! dominate the ordinary one.

use std::collections::{HashMap, HashSet};

use monosplit_graph::op::{AffineLayer, Binary};
use monosplit_graph::{Graph, NodeId, Op, Result, Shape};

use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::inputs;
use crate::hidden_share::of_unit_norm;
use crate::network::Network;
use crate::scaled::{Scale, Scaled};
use crate::split::{AlphaInput, ShiftAt, Split};
use crate::target::is_choice;

/// How far every counted node is shifted.
pub(crate) enum Shifts {
    /// By the factor `1 − 2α`.
    Factors {
        /// The factor of each node.
        factors: HashMap<NodeId, NodeId>,
        /// That of the class scores.
        seed: NodeId,
    },
    /// So that the mass that leaves it has norm one. What the hidden gradient takes of it is settled where it takes it.
    UnitMass {
        /// The nodes, and the arithmetic of one number per sample.
        nodes: HashSet<NodeId>,
        /// Norms are those of each sample.
        scale: Scale,
    },
}

impl Shifts {
    /// Adds the input `alpha` and the factors to the graph.
    pub(crate) fn new(builder: &mut ExplanationBuilder<'_>, split: &Split) -> Result<Self> {
        let nodes = shifted_nodes(builder.network, split.shift_at);
        match split.alpha {
            AlphaInput::Uniform => {
                let alpha = builder.added_input(inputs::ALPHA, Shape::default())?;
                let seed = complement(&mut builder.graph, alpha)?;
                Ok(Shifts::Factors { factors: nodes.into_iter().map(|id| (id, seed)).collect(), seed })
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
                Ok(Shifts::Factors { factors, seed })
            }
            AlphaInput::Share => {
                // A function of one value leaves the mass as it is, or scales it by a slope that the next node makes up for.
                let graph = builder.network.graph();
                let changes_norm = |id: &NodeId| !matches!(graph.node(*id).op, Op::Unary(_));
                let nodes = nodes.into_iter().filter(changes_norm).collect();
                Ok(Shifts::UnitMass { nodes, scale: builder.scale })
            }
        }
    }

    /// The mass at the class scores, where the gradient is `seed`.
    pub(crate) fn mass_of_scores(&self, g: &mut Graph, seed: NodeId) -> Result<NodeId> {
        match self {
            Shifts::Factors { seed: factor, .. } => g.times(seed, *factor),
            Shifts::UnitMass { .. } => Ok(seed),
        }
    }

    /// The factor at a counted node, where it is known before the walk.
    pub(crate) fn factor(&self, id: NodeId) -> Option<NodeId> {
        match self {
            Shifts::Factors { factors, .. } => factors.get(&id).copied(),
            Shifts::UnitMass { .. } => None,
        }
    }

    /// Whether the hidden gradient is kept at the norm of the ordinary one.
    pub(crate) fn keeps_share(&self) -> bool {
        matches!(self, Shifts::UnitMass { .. })
    }

    /// The mass that leaves node `id`.
    pub(crate) fn apply(&self, g: &mut Graph, id: NodeId, mass: Scaled) -> Result<Scaled> {
        match self {
            Shifts::Factors { factors, .. } => match factors.get(&id) {
                Some(&factor) => mass.map(g, |g, value| g.times(value, factor)),
                None => Ok(mass),
            },
            Shifts::UnitMass { nodes, scale } if nodes.contains(&id) => of_unit_norm(g, scale, mass),
            Shifts::UnitMass { .. } => Ok(mass),
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
        && !is_choice(node)
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
