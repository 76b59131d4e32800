//! Input × gradient.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod, Method, Procedure};

/// `a ⊙ ∂y/∂a`; sum over channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InputXGradient;

impl Method for InputXGradient {
    fn name(&self) -> String {
        "input-x-gradient".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }
}

impl GraphMethod for InputXGradient {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let gradient = builder.gradient(at)?;
        let product = builder.graph().times(at, gradient)?;
        Ok(Attribution::per_element(product, at, Reduction::Sum))
    }
}
