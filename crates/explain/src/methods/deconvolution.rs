//! Deconvolution.

use monosplit_autodiff::{GradientRules, ReluBackward};
use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod, Method, Procedure};

/// The gradient with another rule for ReLUs: each passes the positive part of the gradient, whatever its input; sum over
/// channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deconvolution;

impl Method for Deconvolution {
    fn name(&self) -> String {
        "deconvolution".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }
}

impl GraphMethod for Deconvolution {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let rules = GradientRules { relu: ReluBackward::Deconvolution, ..GradientRules::default() };
        Ok(Attribution::per_element(builder.backward(rules, at)?, at, Reduction::Sum))
    }
}
