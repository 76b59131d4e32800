//! Deconvolution.

use monosplit_autodiff::{Gradient, ReluBackward};
use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, Method, Procedure, Rewrite};

/// The gradient with another rule for ReLUs: each passes the positive part of the gradient, whatever its input; sum over
/// channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deconvolution;

impl Method for Deconvolution {
    fn name(&self) -> String {
        "deconvolution".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::Rewrite(self)
    }
}

impl Rewrite for Deconvolution {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let rules = Gradient { relu: ReluBackward::Deconvolution, ..Gradient::default() };
        Ok(Attribution::per_element(builder.backward(rules, at)?, at, Reduction::Sum))
    }
}
