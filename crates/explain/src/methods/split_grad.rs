//! SplitGrad: a stream's sensitivities.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};
use crate::split::Split;
use crate::split_streams::{Stream, StreamPart, sensitivity};

/// Mean over channels of a stream's sensitivities: the paper's "SplitGrad".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SplitGrad {
    /// The choices of the split.
    pub split: Split,
    /// The network of the pair.
    pub stream: Stream,
    /// Which of the stream's inputs.
    pub part: StreamPart,
}

impl Method for SplitGrad {
    fn name(&self) -> String {
        format!("splitgrad-{}{}", self.stream.letter(), self.part.sign())
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastMixingInput
    }
}

impl GraphMethod for SplitGrad {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let message = builder.sensitivities(&self.split, at)?;
        let (g, scale) = (&mut builder.graph, builder.scale);
        let delta = sensitivity(g, &scale, message, self.stream, self.part)?;
        Ok(Attribution::scaled(delta, at, Reduction::Mean))
    }
}
