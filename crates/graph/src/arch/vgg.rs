//! VGG, "Very deep convolutional networks for large-scale image recognition" (Simonyan and Zisserman 2014),
//! with and without batch normalisation.

use super::Network;
use super::builder::{Builder, Conv, Layer, Pool};
use crate::error::Result;
use crate::graph::NodeId;

pub(super) const NETWORKS: &[(&str, &dyn Network)] = &[
    ("vgg11", &Vgg { stages: [1, 1, 2, 2, 2], batch_norm: false }),
    ("vgg11_bn", &Vgg { stages: [1, 1, 2, 2, 2], batch_norm: true }),
    ("vgg13", &Vgg { stages: [2, 2, 2, 2, 2], batch_norm: false }),
    ("vgg13_bn", &Vgg { stages: [2, 2, 2, 2, 2], batch_norm: true }),
    ("vgg16", &Vgg { stages: [2, 2, 3, 3, 3], batch_norm: false }),
    ("vgg16_bn", &Vgg { stages: [2, 2, 3, 3, 3], batch_norm: true }),
    ("vgg19", &Vgg { stages: [2, 2, 4, 4, 4], batch_norm: false }),
    ("vgg19_bn", &Vgg { stages: [2, 2, 4, 4, 4], batch_norm: true }),
];

struct Vgg {
    /// Convolutions between one pool and the next.
    stages: [usize; 5],
    batch_norm: bool,
}

const CHANNELS: [usize; 5] = [64, 128, 256, 512, 512];

const CLASSIFIER: &[Layer] = &[
    Layer::Linear(4096),
    Layer::Relu,
    Layer::Dropout(0.5),
    Layer::Linear(4096),
    Layer::Relu,
    Layer::Dropout(0.5),
    Layer::Classes,
];

impl Vgg {
    fn features(&self) -> Vec<Layer> {
        let mut layers = Vec::new();
        for (convolutions, channels) in self.stages.into_iter().zip(CHANNELS) {
            for _ in 0..convolutions {
                layers.push(Layer::Conv(Conv::new(channels, 3).padding(1).biased()));
                layers.extend(self.batch_norm.then_some(Layer::BatchNorm));
                layers.push(Layer::Relu);
            }
            layers.push(Layer::MaxPool(Pool::new(2, 2)));
        }
        layers
    }
}

impl Network for Vgg {
    fn head(&self) -> &'static str {
        "classifier.6"
    }

    fn forward(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        let x = b.sequential("features", image, &self.features())?;
        let x = b.adaptive_average_pool("avgpool", x, 7)?;
        let x = b.flatten(x)?;
        b.sequential("classifier", x, CLASSIFIER)
    }
}
