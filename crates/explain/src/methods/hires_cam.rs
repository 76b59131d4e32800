//! HiResCAM.

use monosplit_graph::{NodeId, Result};

use crate::cam::Layer;
use crate::method::{Attribution, Method, Place, Procedure, Rewrite};
use crate::writing::Writing;

/// `Σ_c ∂y/∂a_c ⊙ a_c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HiResCam {
    /// Whether what is below zero becomes zero.
    pub rectified: bool,
}

impl Method for HiResCam {
    fn name(&self) -> String {
        "hirescam".into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::Rewrite(self)
    }

    fn place(&self) -> Place {
        Place::LastFeatures
    }
}

impl Rewrite for HiResCam {
    fn write(&self, writing: &mut Writing<'_>, at: NodeId) -> Result<Attribution> {
        let layer = Layer::new(writing, at)?;
        let gradient = writing.gradient(at)?;
        layer.weighted(writing.graph(), gradient, self.rectified)
    }
}
