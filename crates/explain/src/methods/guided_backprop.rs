//! Guided backpropagation.

use monosplit_autodiff::{Gradient, ReluBackward};
use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, Method, Procedure, Rewrite};

/// The gradient with another rule for ReLUs: an open ReLU passes only the positive part of the gradient; sum over channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GuidedBackprop;

impl Method for GuidedBackprop {
    fn name(&self) -> String {
        "guided-backprop".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::Rewrite(self)
    }
}

impl Rewrite for GuidedBackprop {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let rules = Gradient { relu: ReluBackward::Guided, ..Gradient::default() };
        Ok(Attribution::per_element(builder.backward(rules, at)?, at, Reduction::Sum))
    }
}
