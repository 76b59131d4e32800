//! The activations of one of the two streams, which explain no class: what the other methods of the split weigh.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};
use crate::split::Split;
use crate::split_streams::{StreamPart, activation};

/// `a⁺ = (s + a)/2` or `a⁻ = (s − a)/2`, whose difference is the activation itself, added up over channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitStream {
    /// The choices of the split.
    pub split: Split,
    /// The stream; combined is their difference, the network's own activation.
    pub part: StreamPart,
}

impl Default for SplitStream {
    fn default() -> Self {
        SplitStream { split: Split::default(), part: StreamPart::Plus }
    }
}

impl Method for SplitStream {
    fn name(&self) -> String {
        format!("splitstream{}", self.part.sign())
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastMixingInput
    }
}

impl GraphMethod for SplitStream {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let stream = builder.stream(&self.split, false)?;
        let (g, scale) = (&mut builder.graph, builder.scale);
        let value = activation(g, &scale, at, stream.at(at), self.part)?;
        Ok(Attribution::scaled(value, at, Reduction::Sum))
    }
}
