//! Layer-wise relevance propagation: the explained score is propagated backwards from layer to layer to the image. A composite
//! gives the rule of each affine layer. All other nodes have fixed rules:
//!
//! | node | rule |
//! |---|---|
//! | activations, constants added or multiplied | relevance unchanged; a constant added right after a fully connected layer is its bias |
//! | sums, differences, average pools, means, interpolation | shares by contribution, `x ⊙ Jᵀ(R/stab(z))` |
//! | max pooling, elementwise maximum | all to the selected element |
//! | concatenation, slices, padding, other moves of elements | by transposition |
//! | products of two activations | all to the signal where one factor gates (a sigmoid, a softmax, a normaliser), which is held as if it were constant (Ali et al. 2022); half to each where both or neither do |
//! | softmax that is not a factor, such as attention whose heads are mixed before it is used | AttnLRP's rule, `x_i (R_i − s_i Σ_j R_j)` |
//!
//! A composite with [`Products::Halved`] has the rules of AttnLRP for products, all softmaxes, norms and added constants
//! instead.

mod affine;
mod composite;
mod conservation;
mod function;
mod gate;
mod rule;
mod signs;

use std::collections::HashMap;
use std::rc::Rc;

use monosplit_autodiff::linear::{Coefficients, transpose};
use monosplit_autodiff::window_max::{WindowMax, selects_first};
use monosplit_autodiff::{Edge, Rules};
use monosplit_graph::op::{AffineLayer, Binary, Linearity, Unary};
use monosplit_graph::{Error, Graph, Hint, Node, NodeId, Op, Result};

pub use composite::{Composite, NamedRule, Products};
pub use conservation::{Conservation, LayerRelevance};
pub use rule::Rule;

use crate::network::Network;
use crate::stabilised_quotient::stabilised_quotient;
use affine::{Affine, adds_bias};
use function::Functions;
use gate::Gating;
use rule::RuleContext;
use signs::non_negative;

/// The rules for one relevance.
pub(crate) struct LrpRules {
    network: Rc<Network>,
    composite: Composite,
    /// For each node, whether it is a first layer: no affine layer lies before it.
    first: Vec<bool>,
    non_negative: Vec<bool>,
    functions: Functions,
    /// `R/stab(z)` of the nodes visited so far, shared by all their inputs.
    quotients: HashMap<NodeId, NodeId>,
}

impl LrpRules {
    /// Prepares the rules; an error if a rule by name fits no layer.
    pub(crate) fn new(network: &Rc<Network>, composite: &Composite) -> Result<Self> {
        composite.check()?;
        let affine = |node: &monosplit_graph::Node| node.op.affine_layer().is_some();
        for named in &composite.named {
            if !network.nodes().any(|(_, node)| affine(node) && named.fits(&node.label)) {
                return Err(Error::argument(format!(
                    "the rule '{}' is for '{}', but no affine layer has that name",
                    named.rule.name(),
                    named.pattern
                ))
                .hint(Hint::LAYERS));
            }
        }
        Ok(LrpRules {
            network: network.clone(),
            composite: composite.clone(),
            first: first_layers(network),
            non_negative: non_negative(network.graph()),
            functions: Functions::of(network, composite.products == Products::Halved),
            quotients: HashMap::new(),
        })
    }

    /// `x ⊙ Jᵀ(share·R/stab(z))` for a node that is linear in the input `x`.
    fn shared(&mut self, g: &mut Graph, edge: &Edge<'_>, share: f64, r: NodeId) -> Result<NodeId> {
        let quotient = match self.quotients.get(&edge.id) {
            Some(&known) => known,
            None => {
                let epsilon = g.number(self.composite.stabiliser);
                let quotient = stabilised_quotient(g, r, edge.id, epsilon)?;
                self.quotients.insert(edge.id, quotient);
                quotient
            }
        };
        let operands = Coefficients { operands: &edge.node.inputs, magnitude: false };
        let gain = transpose(g, edge.id, edge.index, quotient, operands)?;
        let relevance = g.times(edge.node.inputs[edge.index], gain)?;
        g.scaled(share, relevance)
    }

    /// A product of two activations.
    fn product(&mut self, g: &mut Graph, edge: &Edge<'_>, r: NodeId) -> Result<Option<NodeId>> {
        let [own, other] = [edge.index, 1 - edge.index].map(|i| self.is_gate(edge.node.inputs[i]));
        match (own, other, self.composite.products) {
            (true, false, _) => Ok(None),
            (false, true, Products::GatesHeld) => self.shared(g, edge, 1.0, r).map(Some),
            (false, true, Products::Halved) if matches!(edge.node.op, Op::Binary(_)) => {
                let shape = g.node(edge.node.inputs[edge.index]).shape.clone();
                g.summed_to(r, &shape).map(Some)
            }
            (false, true, Products::Halved) => self.shared(g, edge, 1.0, r).map(Some),
            _ => self.shared(g, edge, 0.5, r).map(Some),
        }
    }

    /// Whether a value is a gate: the result of a saturating or normalising function, possibly moved or scaled since. With halved
    /// products only normalisers count.
    fn is_gate(&self, mut id: NodeId) -> bool {
        let saturating = self.composite.products == Products::GatesHeld;
        loop {
            let node = self.network.graph().node(id);
            match Gating::of(&node.op) {
                Gating::Normaliser => return true,
                Gating::Saturating => return saturating,
                Gating::Carried => {}
                Gating::None => return false,
            }
            let &[(_, input)] = &*self.network.active_inputs(id) else { return false };
            id = input;
        }
    }

    /// The relevance at an edge of a function that is treated as one: only the edges of its path pass relevance. `None` for an edge
    /// of any other node.
    fn within_function(&self, g: &mut Graph, edge: &Edge<'_>, r: NodeId) -> Result<Option<Option<NodeId>>> {
        let Some(softmax) = self.functions.softmax_ending_at(edge.id) else {
            return Ok(self
                .functions
                .pass_through_input(edge.id)
                .map(|pass_through_input| (edge.index == pass_through_input).then_some(r)));
        };
        if !softmax.is_plain {
            return Err(Error::unsupported(
                "relevance cannot pass the logarithm of a softmax; name a layer above it",
            )
            .at(self.network.graph().node(softmax.id).label.display()));
        }
        Ok(Some(if edge.index == 0 { Some(softmax.propagate(g, r)?) } else { None }))
    }
}

impl Rules for LrpRules {
    type Message = NodeId;

    fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
        g.plus(a, b)
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, r: NodeId) -> Result<Option<NodeId>> {
        let Edge { id, node, index, active } = *edge;
        if let Some(passed) = self.within_function(g, edge, r)? {
            return Ok(passed);
        }
        if let Some(layer) = Affine::of(g, &self.network, edge)? {
            let rule = self.composite.rule(layer.kind, self.first[id.index()], &node.label);
            let context = RuleContext {
                stabiliser: self.composite.stabiliser,
                non_negative: self.non_negative[layer.x.index()],
            };
            return rule.propagate(g, &layer, r, context).map(Some);
        }
        if let Some(maximum) = WindowMax::of(g, node)? {
            return maximum.select_transposed(g, r).map(Some);
        }
        let shape = g.node(node.inputs[index]).shape.clone();
        // The rule of the layer before it includes this bias.
        let is_bias = adds_bias(&self.network, node.inputs[index]);
        match &node.op {
            // An elementwise function of one value passes relevance unchanged, whatever the function.
            Op::Unary(_) => Ok(Some(r)),
            Op::Binary(Binary::PRelu | Binary::Pow) if index == 0 => g.summed_to(r, &shape).map(Some),
            Op::Binary(binary @ (Binary::Max | Binary::Min)) if active == 2 => {
                let first = selects_first(g, node, *binary)?;
                let on = if index == 0 { first } else { g.unary(Unary::Not, first)? };
                let won = g.masked(on, r)?;
                g.summed_to(won, &shape).map(Some)
            }
            Op::Binary(Binary::Mul) | Op::MatMul { .. } if active == 2 && index < 2 => {
                self.product(g, edge, r)
            }
            Op::Binary(Binary::Add | Binary::Sub)
                if active == 2 || (self.composite.products == Products::Halved && !is_bias) =>
            {
                self.shared(g, edge, 1.0, r).map(Some)
            }
            Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max | Binary::Min)
                if active == 1 =>
            {
                g.summed_to(r, &shape).map(Some)
            }
            // Winners of windows come from explanations, which are not explained.
            Op::WinnerScatter(_) => no_share(node, index),
            op => match op.properties().linearity {
                Linearity::Selection(_) => {
                    let operands = Coefficients { operands: &node.inputs, magnitude: false };
                    transpose(g, id, index, r, operands).map(Some)
                }
                Linearity::WeightedSum(_) => self.shared(g, edge, 1.0, r).map(Some),
                // Operands that the rules above have no share for, and what has been decomposed.
                Linearity::Product(_) | Linearity::Nonlinear => no_share(node, index),
            },
        }
    }
}

fn no_share<T>(node: &Node, index: usize) -> Result<T> {
    Err(Error::unsupported(format!(
        "relevance cannot pass {} to its input {index}; choose a layer above it",
        node.op.name()
    )))
}

/// The affine layers without another affine layer before them. Batch norms do not count.
fn first_layers(network: &Network) -> Vec<bool> {
    let layer = |id: NodeId| {
        let kind = network.graph().node(id).op.affine_layer();
        kind.is_some_and(|kind| kind != AffineLayer::Normalisation)
    };
    let mut behind = vec![false; network.graph().len()];
    let mut first = vec![false; network.graph().len()];
    for (id, _) in network.nodes().filter(|(id, _)| network.is_active(*id)) {
        let sources = network.predecessors(id);
        behind[id.index()] = sources.iter().any(|source| behind[source.index()] || layer(*source));
        first[id.index()] = !behind[id.index()];
    }
    first
}
