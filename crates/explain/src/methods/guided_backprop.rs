//! Guided backpropagation.

use monosplit_autodiff::{GradientRules, ReluBackward};
use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod, Method, Procedure};

/// The gradient with another rule for ReLUs: an open ReLU passes only the positive part of the gradient; sum over channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GuidedBackprop;

impl Method for GuidedBackprop {
    fn name(&self) -> String {
        "guided-backprop".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }
}

impl GraphMethod for GuidedBackprop {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let rules = GradientRules { relu: ReluBackward::Guided, ..GradientRules::default() };
        Ok(Attribution::per_element(builder.backward(rules, at)?, at, Reduction::Sum))
    }
}
