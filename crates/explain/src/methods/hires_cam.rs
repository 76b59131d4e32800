//! HiResCAM.

use monosplit_graph::{NodeId, Result};

use crate::cam::Layer;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};

/// `Σ_c ∂y/∂a_c ⊙ a_c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HiResCam {
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
}

impl Method for HiResCam {
    fn name(&self) -> String {
        "hirescam".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl GraphMethod for HiResCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layer = Layer::new(builder, at)?;
        let gradient = builder.gradient(at)?;
        layer.weighted(builder.graph(), gradient, self.rectified)
    }
}
