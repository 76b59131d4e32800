//! DenseNet-BC, "Densely connected convolutional networks" (Huang et al. 2016).

use super::Network;
use super::builder::{Builder, Conv, Layer, Pool};
use crate::error::Result;
use crate::graph::NodeId;

pub(super) const NETWORKS: &[(&str, &dyn Network)] = &[
    ("densenet121", &DenseNet { growth: 32, stem: 64, layers: [6, 12, 24, 16] }),
    ("densenet161", &DenseNet { growth: 48, stem: 96, layers: [6, 12, 36, 24] }),
    ("densenet169", &DenseNet { growth: 32, stem: 64, layers: [6, 12, 32, 32] }),
    ("densenet201", &DenseNet { growth: 32, stem: 64, layers: [6, 12, 48, 32] }),
];

struct DenseNet {
    /// Channels each dense layer adds.
    growth: usize,
    /// Channels of the first convolution.
    stem: usize,
    /// Dense layers in each block.
    layers: [usize; 4],
}

/// Channels of a dense layer's bottleneck, in multiples of the growth.
const BOTTLENECK: usize = 4;

fn normalised(b: &mut Builder, suffix: &str, x: NodeId, conv: Conv) -> Result<NodeId> {
    let x = b.batch_norm(&format!("norm{suffix}"), x)?;
    let x = b.relu(&format!("relu{suffix}"), x)?;
    b.conv(&format!("conv{suffix}"), x, conv)
}

impl DenseNet {
    fn block(&self, b: &mut Builder, x: NodeId, layers: usize) -> Result<NodeId> {
        let mut features = vec![x];
        for layer in 1..=layers {
            let new = b.within(&format!("denselayer{layer}"), |b| {
                let x = if layer == 1 { x } else { b.cat(&features)? };
                let x = normalised(b, "1", x, Conv::new(BOTTLENECK * self.growth, 1))?;
                normalised(b, "2", x, Conv::new(self.growth, 3).padding(1))
            })?;
            features.push(new);
        }
        b.cat(&features)
    }

    fn features(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        let x = b.conv("conv0", image, Conv::new(self.stem, 7).stride(2).padding(3))?;
        let x = b.batch_norm("norm0", x)?;
        let x = b.relu("relu0", x)?;
        let mut x = b.max_pool("pool0", x, Pool::new(3, 2).padding(1))?;
        for (i, layers) in self.layers.into_iter().enumerate() {
            if i > 0 {
                x = b.within(&format!("transition{i}"), |b| {
                    let halved = b.channels(x)? / 2;
                    let x = normalised(b, "", x, Conv::new(halved, 1))?;
                    b.average_pool("pool", x, Pool::new(2, 2))
                })?;
            }
            x = b.within(&format!("denseblock{}", i + 1), |b| self.block(b, x, layers))?;
        }
        b.batch_norm("norm5", x)
    }
}

impl Network for DenseNet {
    fn head(&self) -> &'static str {
        "classifier"
    }

    fn forward(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        let x = b.within("features", |b| self.features(b, image))?;
        let x = b.relu("relu", x)?;
        let x = b.adaptive_average_pool("adaptive_avg_pool2d", x, 1)?;
        let x = b.flatten(x)?;
        b.layer("classifier", x, Layer::Classes)
    }
}
