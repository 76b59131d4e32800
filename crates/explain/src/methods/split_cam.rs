//! SplitCAM: the activations of a layer, weighted by a stream's sensitivities and added up.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};
use crate::split::Split;
use crate::split_streams::{Stream, StreamPart, activation, sensitivity};

/// `Σ_c δ ⊙ a` of a stream: the paper's section "SplitCAM".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SplitCam {
    /// The choices of the split.
    pub split: Split,
    /// The network of the pair.
    pub stream: Stream,
    /// Which of the stream's inputs.
    pub part: StreamPart,
}

impl Method for SplitCam {
    fn name(&self) -> String {
        format!("splitcam-{}{}", self.stream.letter(), self.part.sign())
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastMixingInput
    }
}

impl GraphMethod for SplitCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let message = builder.sensitivities(&self.split, at)?;
        let stream = builder.stream(&self.split, false)?;
        let (g, scale) = (&mut builder.graph, builder.scale);
        let delta = sensitivity(g, &scale, message, self.stream, self.part)?;
        let a = activation(g, &scale, at, stream.at(at), self.part)?;
        Ok(Attribution::scaled(scale.product(g, delta, a)?, at, Reduction::Sum))
    }
}
