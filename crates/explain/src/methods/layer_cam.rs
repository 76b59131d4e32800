//! LayerCAM, as published and as the paper writes it.

use monosplit_graph::{NodeId, Result};

use crate::cam::Layer;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};

/// `Σ_c relu(∂y/∂a_c) ⊙ a_c`, or without the inner ReLU as the paper on the split writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayerCam {
    /// Whether only positive gradients count, as published.
    pub positive_gradients: bool,
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
}

impl Default for LayerCam {
    fn default() -> Self {
        LayerCam { positive_gradients: true, rectified: true }
    }
}

impl Method for LayerCam {
    fn name(&self) -> String {
        "layercam".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl GraphMethod for LayerCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layer = Layer::new(builder, at)?;
        let gradient = builder.gradient(at)?;
        let g = builder.graph();
        let weights = if self.positive_gradients { g.rectified(gradient)? } else { gradient };
        layer.weighted(g, weights, self.rectified)
    }
}
