//! SplitLRP: relevance propagated through the pair of streams.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};
use crate::scaled::Scaled;
use crate::split::Split;

/// Which relevance of SplitLRP is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RelevanceMap {
    /// `R⁺`
    Pos,
    /// `R⁻`
    Neg,
    /// `R⁺ − R⁻`
    #[default]
    Comb,
}

/// Sum over channels of a stream's relevance: the paper's section "SplitLRP".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SplitLrp {
    /// The choices of the split.
    pub split: Split,
    /// The relevance that is shown.
    pub map: RelevanceMap,
}

impl Method for SplitLrp {
    fn name(&self) -> String {
        let map = match self.map {
            RelevanceMap::Pos => "pos",
            RelevanceMap::Neg => "neg",
            RelevanceMap::Comb => "comb",
        };
        format!("splitlrp-{map}")
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastMixingInput
    }
}

impl GraphMethod for SplitLrp {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let [plus, minus] = builder.relevances(&self.split, at)?;
        let value = match self.map {
            RelevanceMap::Pos => plus.value,
            RelevanceMap::Neg => minus.value,
            RelevanceMap::Comb => builder.graph.minus(plus.value, minus.value)?,
        };
        Ok(Attribution::scaled(Scaled { value, ..plus }, at, Reduction::Sum))
    }

    /// The rule divides by both members of a pair, one of which may be tiny beside the other.
    fn needs_double_precision(&self, _: &Graph) -> bool {
        true
    }
}
