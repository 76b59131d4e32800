//! ResNet, "Deep residual learning for image recognition" (He et al. 2015), with the stride in the 3×3
//! convolution as torchvision has it; Wide ResNet (Zagoruyko and Komodakis 2016) and ResNeXt (Xie et al. 2016).

use super::Network;
use super::builder::{Builder, Conv, Layer, Pool};
use crate::error::Result;
use crate::graph::NodeId;

pub(super) const NETWORKS: &[(&str, &dyn Network)] = &[
    ("resnet18", &ResNet::basic([2, 2, 2, 2])),
    ("resnet34", &ResNet::basic([3, 4, 6, 3])),
    ("resnet50", &ResNet::bottleneck([3, 4, 6, 3], 1, 64)),
    ("resnet101", &ResNet::bottleneck([3, 4, 23, 3], 1, 64)),
    ("resnet152", &ResNet::bottleneck([3, 8, 36, 3], 1, 64)),
    ("wide_resnet50_2", &ResNet::bottleneck([3, 4, 6, 3], 1, 128)),
    ("wide_resnet101_2", &ResNet::bottleneck([3, 4, 23, 3], 1, 128)),
    ("resnext50_32x4d", &ResNet::bottleneck([3, 4, 6, 3], 32, 4)),
    ("resnext101_32x8d", &ResNet::bottleneck([3, 4, 23, 3], 32, 8)),
    ("resnext101_64x4d", &ResNet::bottleneck([3, 4, 23, 3], 64, 4)),
];

#[derive(Clone, Copy)]
enum Block {
    /// Two 3×3 convolutions.
    Basic,
    /// A 3×3 convolution between two 1×1, the last with four times the channels.
    Bottleneck { groups: usize, width_per_group: usize },
}

struct ResNet {
    block: Block,
    /// Blocks in each of the four layers.
    blocks: [usize; 4],
}

impl ResNet {
    const fn basic(blocks: [usize; 4]) -> Self {
        ResNet { block: Block::Basic, blocks }
    }

    const fn bottleneck(blocks: [usize; 4], groups: usize, width_per_group: usize) -> Self {
        ResNet { block: Block::Bottleneck { groups, width_per_group }, blocks }
    }
}

impl Block {
    /// The convolutions of a block; normalised, and all but the last rectified.
    fn convolutions(self, planes: usize, stride: usize) -> Vec<Conv> {
        match self {
            Block::Basic => {
                vec![Conv::new(planes, 3).stride(stride).padding(1), Conv::new(planes, 3).padding(1)]
            }
            Block::Bottleneck { groups, width_per_group } => {
                let width = planes * width_per_group / 64 * groups;
                vec![
                    Conv::new(width, 1),
                    Conv::new(width, 3).stride(stride).padding(1).groups(groups),
                    Conv::new(planes * 4, 1),
                ]
            }
        }
    }

    fn channels(self, planes: usize) -> usize {
        match self {
            Block::Basic => planes,
            Block::Bottleneck { .. } => planes * 4,
        }
    }

    fn forward(self, b: &mut Builder, x: NodeId, planes: usize, stride: usize) -> Result<NodeId> {
        let mut out = x;
        for (i, conv) in self.convolutions(planes, stride).into_iter().enumerate() {
            if i > 0 {
                out = b.relu("relu", out)?;
            }
            out = b.conv(&format!("conv{}", i + 1), out, conv)?;
            out = b.batch_norm(&format!("bn{}", i + 1), out)?;
        }
        let channels = self.channels(planes);
        let mut identity = x;
        if stride != 1 || b.channels(x)? != channels {
            let downsample = [Layer::Conv(Conv::new(channels, 1).stride(stride)), Layer::BatchNorm];
            identity = b.sequential("downsample", x, &downsample)?;
        }
        let sum = b.add(out, identity)?;
        b.relu("relu", sum)
    }
}

impl Network for ResNet {
    fn head(&self) -> &'static str {
        "fc"
    }

    fn forward(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        let x = b.conv("conv1", image, Conv::new(64, 7).stride(2).padding(3))?;
        let x = b.batch_norm("bn1", x)?;
        let x = b.relu("relu", x)?;
        let mut x = b.max_pool("maxpool", x, Pool::new(3, 2).padding(1))?;
        for (layer, blocks) in self.blocks.into_iter().enumerate() {
            for block in 0..blocks {
                let stride = if layer > 0 && block == 0 { 2 } else { 1 };
                x = b.within(&format!("layer{}.{block}", layer + 1), |b| {
                    self.block.forward(b, x, 64 << layer, stride)
                })?;
            }
        }
        let x = b.adaptive_average_pool("avgpool", x, 1)?;
        let x = b.flatten(x)?;
        b.layer("fc", x, Layer::Classes)
    }
}
