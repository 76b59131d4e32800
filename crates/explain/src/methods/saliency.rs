//! Saliency: the size of the gradient.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::method::{Attribution, Method, Procedure, Rewrite};
use crate::writing::Writing;

/// `|∂y/∂a|`; the largest over channels, as first published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Saliency;

impl Method for Saliency {
    fn name(&self) -> String {
        "saliency".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::Rewrite(self)
    }
}

impl Rewrite for Saliency {
    fn write(&self, writing: &mut Writing<'_>, at: NodeId) -> Result<Attribution> {
        let gradient = writing.gradient(at)?;
        let size = writing.graph().magnitude(gradient)?;
        Ok(Attribution::per_element(size, at, Reduction::Max))
    }
}
