//! Saliency: the magnitude of the gradient.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod, Method, Procedure};

/// `|∂y/∂a|`; the largest over channels, as first published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Saliency;

impl Method for Saliency {
    fn name(&self) -> String {
        "saliency".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }
}

impl GraphMethod for Saliency {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let gradient = builder.gradient(at)?;
        let size = builder.graph().magnitude(gradient)?;
        Ok(Attribution::per_element(size, at, Reduction::Max))
    }
}
