//! Layer-wise relevance propagation, with the rules of a composite.

use monosplit_autodiff::Walk;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, NodeId, Op, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::lrp::{Composite, LrpRules, Products};
use crate::method::{Attribution, GraphMethod, Method, Procedure};

/// The relevance of the class scores, where the walk starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RelevanceSeed {
    /// The score of the explained class, so that relevance adds up to it where the rules conserve it.
    #[default]
    Score,
    /// One at the explained class.
    One,
}

/// The relevance of a value; sum over channels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lrp {
    /// The rules.
    pub composite: Composite,
    /// The relevance of the class scores.
    pub seed: RelevanceSeed,
}

impl Lrp {
    /// The relevance of the value `at`; none for a value that only multiplies others, such as a gate.
    pub(crate) fn relevance(
        &self,
        builder: &mut ExplanationBuilder<'_>,
        at: NodeId,
    ) -> Result<Option<NodeId>> {
        builder.message_if_any(self.clone(), at, |builder| self.walk(builder))
    }

    fn walk(&self, builder: &mut ExplanationBuilder<'_>) -> Result<Walk<LrpRules>> {
        let (scores, one_hot) = (builder.scores(), builder.seed());
        let seed = match self.seed {
            RelevanceSeed::Score => builder.graph.times(one_hot, scores)?,
            RelevanceSeed::One => one_hot,
        };
        Ok(Walk::new(LrpRules::new(builder.network, &self.composite)?, scores, seed))
    }
}

impl Method for Lrp {
    fn name(&self) -> String {
        format!("lrp-{}", self.composite.name)
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }
}

impl GraphMethod for Lrp {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let relevance = builder.message(self.clone(), at, |builder| self.walk(builder))?;
        Ok(Attribution::per_element(relevance, at, Reduction::Sum))
    }

    /// Sums and differences of tokens cancel: from block to block relevance is divided by what is left of them, and an error
    /// grows as relevance does. The rules of AttnLRP, which give constants their share, keep it small.
    fn needs_double_precision(&self, network: &Graph) -> bool {
        self.composite.products == Products::GatesHeld && has_layers_over_tokens(network)
    }
}

/// Whether a matrix product reads activations of more than two axes, as attention and dense layers over tokens do.
fn has_layers_over_tokens(network: &Graph) -> bool {
    let over_tokens = |&input: &NodeId| {
        let operand = network.node(input);
        !operand.is_constant() && operand.shape.rank() > 2
    };
    network
        .nodes()
        .any(|(_, node)| matches!(node.op, Op::MatMul { .. }) && node.inputs.iter().any(over_tokens))
}
