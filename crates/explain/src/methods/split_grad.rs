//! SplitGrad: a stream's sensitivities.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::method::{Attribution, Method, Place, Procedure, Rewrite};
use crate::reading::{Part, Stream, sensitivity};
use crate::split::Split;
use crate::writing::Writing;

/// Mean over channels of a stream's sensitivities: the paper's "SplitGrad".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SplitGrad {
    /// The choices of the split.
    pub split: Split,
    /// The network of the pair.
    pub stream: Stream,
    /// Which of the stream's inputs.
    pub part: Part,
}

impl Method for SplitGrad {
    fn name(&self) -> String {
        format!("splitgrad-{}{}", self.stream.letter(), self.part.sign())
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::Rewrite(self)
    }

    fn place(&self) -> Place {
        Place::EntersLastConvolution
    }
}

impl Rewrite for SplitGrad {
    fn write(&self, writing: &mut Writing<'_>, at: NodeId) -> Result<Attribution> {
        let message = writing.sensitivities(&self.split, at)?;
        let (g, scale) = (&mut writing.graph, writing.scale);
        let delta = sensitivity(g, &scale, message, self.stream, self.part)?;
        Ok(Attribution::scaled(delta, at, Reduction::Mean))
    }
}
