//! The image itself as a graph.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Op, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::ImageItself;

impl GraphMethod for ImageItself {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let value = builder.graph.add(Op::Identity, &[at])?;
        Ok(Attribution::per_element(value, at, Reduction::Mean))
    }
}
