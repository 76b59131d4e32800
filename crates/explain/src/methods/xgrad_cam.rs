//! XGrad-CAM.

use monosplit_graph::{NodeId, Result};

use crate::cam::Layer;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};

/// `Σ_c w_c a_c`, where `w_c = Σ d a / Σ a` over places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XGradCam {
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
}

impl Default for XGradCam {
    fn default() -> Self {
        XGradCam { rectified: true }
    }
}

impl Method for XGradCam {
    fn name(&self) -> String {
        "xgradcam".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl GraphMethod for XGradCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layer = Layer::new(builder, at)?;
        let d = builder.gradient(at)?;
        let g = builder.graph();
        let product = g.times(d, at)?;
        let (above, prefix) = (layer.sum(g, product)?, layer.sum(g, at)?);
        let prefix = g.offset(EPSILON, prefix)?;
        let weights = g.over(above, prefix)?;
        layer.weighted(g, weights, self.rectified)
    }
}

/// The constant that the grad-cam package adds to the denominator.
const EPSILON: f64 = 1e-7;
