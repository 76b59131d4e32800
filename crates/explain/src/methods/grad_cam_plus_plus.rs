//! Grad-CAM++.

use monosplit_graph::{NodeId, Result};

use crate::cam::Layer;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};

/// `Σ_c w_c a_c`, where `w_c = Σ α relu(d)` over positions and `α = d²/(2d² + d³ Σa)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GradCamPlusPlus {
    /// Whether negative values of the map are set to zero.
    pub rectified: bool,
}

impl Default for GradCamPlusPlus {
    fn default() -> Self {
        GradCamPlusPlus { rectified: true }
    }
}

impl Method for GradCamPlusPlus {
    fn name(&self) -> String {
        "gradcam++".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl GraphMethod for GradCamPlusPlus {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layer = Layer::new(builder, at)?;
        let d = builder.gradient(at)?;
        let g = builder.graph();
        let square = g.times(d, d)?;
        let cube = g.times(square, d)?;
        let (total, twice) = (layer.sum(g, at)?, g.scaled(2.0, square)?);
        let further = g.times(total, cube)?;
        let prefix = g.plus(twice, further)?;
        let prefix = g.offset(EPSILON, prefix)?;
        let share = g.over(square, prefix)?;
        let positive = g.rectified(d)?;
        let product = g.times(positive, share)?;
        // Where d is zero so is d², but the denominator may be zero as well.
        let open = g.more_than(d, 0.0)?;
        let product = g.masked(open, product)?;
        let weights = layer.sum(g, product)?;
        layer.weighted(g, weights, self.rectified)
    }
}

/// The constant that the grad-cam package adds to the denominator.
const EPSILON: f64 = 1e-6;
