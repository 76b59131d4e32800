//! AlexNet, "One weird trick for parallelizing convolutional neural networks" (Krizhevsky 2014).

use super::Network;
use super::builder::{Builder, Conv, Layer, Pool};
use crate::error::Result;
use crate::graph::NodeId;

pub(super) const NETWORKS: &[(&str, &dyn Network)] = &[("alexnet", &AlexNet)];

struct AlexNet;

const FEATURES: &[Layer] = &[
    Layer::Conv(Conv::new(64, 11).stride(4).padding(2).biased()),
    Layer::Relu,
    POOL,
    Layer::Conv(Conv::new(192, 5).padding(2).biased()),
    Layer::Relu,
    POOL,
    Layer::Conv(Conv::new(384, 3).padding(1).biased()),
    Layer::Relu,
    Layer::Conv(Conv::new(256, 3).padding(1).biased()),
    Layer::Relu,
    Layer::Conv(Conv::new(256, 3).padding(1).biased()),
    Layer::Relu,
    POOL,
];

const POOL: Layer = Layer::MaxPool(Pool::new(3, 2));

const CLASSIFIER: &[Layer] = &[
    Layer::Dropout(0.5),
    Layer::Linear(4096),
    Layer::Relu,
    Layer::Dropout(0.5),
    Layer::Linear(4096),
    Layer::Relu,
    Layer::Classes,
];

impl Network for AlexNet {
    fn head(&self) -> &'static str {
        "classifier.6"
    }

    fn forward(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        let x = b.sequential("features", image, FEATURES)?;
        let x = b.adaptive_average_pool("avgpool", x, 6)?;
        let x = b.flatten(x)?;
        b.sequential("classifier", x, CLASSIFIER)
    }
}
