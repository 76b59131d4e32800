//! The activations of one of the two streams, which explain no class: what the other methods of the split weigh.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::method::{Attribution, Method, Place, Procedure, Rewrite};
use crate::reading::{Part, activation};
use crate::split::Split;
use crate::writing::Writing;

/// `a⁺ = (s + a)/2` or `a⁻ = (s − a)/2`, whose difference is the activation itself, added up over channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitStream {
    /// The choices of the split.
    pub split: Split,
    /// The stream; combined is their difference, the network's own activation.
    pub part: Part,
}

impl Default for SplitStream {
    fn default() -> Self {
        SplitStream { split: Split::default(), part: Part::Plus }
    }
}

impl Method for SplitStream {
    fn name(&self) -> String {
        format!("splitstream{}", self.part.sign())
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::Rewrite(self)
    }

    fn place(&self) -> Place {
        Place::EntersLastConvolution
    }
}

impl Rewrite for SplitStream {
    fn write(&self, writing: &mut Writing<'_>, at: NodeId) -> Result<Attribution> {
        let stream = writing.stream(&self.split, false)?;
        let (g, scale) = (&mut writing.graph, writing.scale);
        let value = activation(g, &scale, at, stream.at(at), self.part)?;
        Ok(Attribution::scaled(value, at, Reduction::Sum))
    }
}
