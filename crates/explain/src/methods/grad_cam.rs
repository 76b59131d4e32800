//! Grad-CAM.

use monosplit_graph::{NodeId, Result};

use crate::cam::Layer;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};

/// `Σ_c w_c a_c`, where `w_c` is the mean of the gradient over positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GradCam {
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
}

impl Default for GradCam {
    fn default() -> Self {
        GradCam { rectified: true }
    }
}

impl Method for GradCam {
    fn name(&self) -> String {
        "gradcam".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl GraphMethod for GradCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layer = Layer::new(builder, at)?;
        let gradient = builder.gradient(at)?;
        let weights = layer.mean(builder.graph(), gradient)?;
        layer.weighted(builder.graph(), weights, self.rectified)
    }
}
