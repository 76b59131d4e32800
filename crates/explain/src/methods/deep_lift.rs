//! DeepLIFT with the Rescale rule.

use monosplit_autodiff::Walk;
use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, Method, Procedure, Rewrite};
use crate::reference::ReferenceImage;
use crate::rescale::Rescale;

/// Multiplier times change, `m ⊙ (x − x′)`; sum over channels. At the image, attributions add up to `f(x) − f(x′)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeepLift {
    /// The image `x′` that the image `x` is compared with.
    pub baseline: ReferenceImage,
    /// The rule of max pools.
    pub pool: PoolChange,
}

/// What the change of a maximum is owed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolChange {
    /// A rise to the element that won, a fall to the one that had won on the baseline, in proportion to their own change:
    /// attributions add up.
    #[default]
    Change,
    /// To the element that won, as a gradient has it. Attributions add up only where the baseline has no winners of its
    /// own.
    Winner,
}

impl Method for DeepLift {
    fn name(&self) -> String {
        "deeplift".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::Rewrite(self)
    }
}

impl Rewrite for DeepLift {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let reference = builder.reference(&self.baseline)?;
        let multiplier = builder.message(self, at, |builder| {
            let network = builder.network.clone();
            let rules = Rescale { network, reference: reference.clone(), pool: self.pool };
            Ok(Walk::new(rules, builder.scores(), builder.seed()))
        })?;
        let g = builder.graph();
        let change = g.minus(at, reference.at(at))?;
        Ok(Attribution::per_element(g.times(multiplier, change)?, at, Reduction::Sum))
    }
}
