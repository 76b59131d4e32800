//! Guided Grad-CAM and Guided LayerCAM: guided backpropagation at the image, weighted by the class activation map of a layer.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Dim, NodeId, Result, Shape};

use super::{GradCam, GuidedBackprop, LayerCam};
use crate::explanation_builder::ExplanationBuilder;
use crate::finish::{Upsampling, resized};
use crate::method::{Attribution, DefaultLayer, GraphMethod, Method, Procedure};

/// The class activation map that weights a guided map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CoarseMap {
    /// Grad-CAM.
    #[default]
    GradCam,
    /// LayerCAM.
    LayerCam,
}

/// Guided backpropagation at the image, times the layer's rectified class activation map; sum over channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GuidedCam {
    /// The class activation map.
    pub map: CoarseMap,
    /// How it is enlarged to the size of the image.
    pub upsampling: Upsampling,
}

impl Default for GuidedCam {
    /// Guided Grad-CAM as Captum enlarges it.
    fn default() -> Self {
        GuidedCam { map: CoarseMap::GradCam, upsampling: Upsampling::Nearest }
    }
}

impl Method for GuidedCam {
    fn name(&self) -> String {
        match self.map {
            CoarseMap::GradCam => "guided-gradcam".into(),
            CoarseMap::LayerCam => "guided-layercam".into(),
        }
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }

    fn default_layer(&self) -> DefaultLayer {
        DefaultLayer::LastFeatures
    }
}

impl GraphMethod for GuidedCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let image = builder.image();
        let fine = GuidedBackprop.write(builder, image)?.value.value;
        let coarse = match self.map {
            CoarseMap::GradCam => GradCam::default().write(builder, at)?,
            CoarseMap::LayerCam => LayerCam::default().write(builder, at)?,
        };
        let channels = builder.axes(image)?.image_channels;
        let shape = builder.graph().node(image).shape.clone();
        let g = builder.graph();
        let map = resized(g, coarse.value.value, &shape, channels, self.upsampling)?;
        let mut dims = shape.dims().to_vec();
        dims[channels] = Dim::Fixed(1);
        let map = g.reshaped(map, Shape::new(dims))?;
        Ok(Attribution::per_element(g.times(fine, map)?, image, Reduction::Sum))
    }
}
