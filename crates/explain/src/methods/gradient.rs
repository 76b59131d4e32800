//! The gradient of the class score.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod, Method, Procedure};

/// The ordinary gradient, signed; mean over channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gradient;

impl Method for Gradient {
    fn name(&self) -> String {
        "gradient".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }
}

impl GraphMethod for Gradient {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        Ok(Attribution::per_element(builder.gradient(at)?, at, Reduction::Mean))
    }
}
