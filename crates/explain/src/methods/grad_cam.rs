//! Grad-CAM.

use monosplit_graph::{NodeId, Result};

use crate::cam::Layer;
use crate::method::{Attribution, Method, Place, Procedure, Rewrite};
use crate::writing::Writing;

/// `Σ_c w_c a_c`, where `w_c` is the mean of the gradient over places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GradCam {
    /// Whether what is below zero becomes zero.
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
        Procedure::Rewrite(self)
    }

    fn place(&self) -> Place {
        Place::LastFeatures
    }
}

impl Rewrite for GradCam {
    fn write(&self, writing: &mut Writing<'_>, at: NodeId) -> Result<Attribution> {
        let layer = Layer::new(writing, at)?;
        let gradient = writing.gradient(at)?;
        let weights = layer.mean(writing.graph(), gradient)?;
        layer.weighted(writing.graph(), weights, self.rectified)
    }
}
