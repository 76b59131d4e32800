//! MobileNetV2, "Inverted residuals and linear bottlenecks" (Sandler et al. 2018).

use super::Network;
use super::builder::{Builder, Conv, Layer};
use crate::error::Result;
use crate::graph::NodeId;

pub(super) const NETWORKS: &[(&str, &dyn Network)] = &[("mobilenet_v2", &MobileNetV2)];

struct MobileNetV2;

struct Stage {
    expansion: usize,
    channels: usize,
    blocks: usize,
    /// Stride of the first block.
    stride: usize,
}

const fn stage(expansion: usize, channels: usize, blocks: usize, stride: usize) -> Stage {
    Stage { expansion, channels, blocks, stride }
}

const STAGES: &[Stage] = &[
    stage(1, 16, 1, 1),
    stage(6, 24, 2, 2),
    stage(6, 32, 3, 2),
    stage(6, 64, 4, 2),
    stage(6, 96, 3, 1),
    stage(6, 160, 3, 2),
    stage(6, 320, 1, 1),
];

const STEM_CHANNELS: usize = 32;
const LAST_CHANNELS: usize = 1280;

fn conv_bn_relu6(b: &mut Builder, name: &str, x: NodeId, conv: Conv) -> Result<NodeId> {
    b.sequential(name, x, &[Layer::Conv(conv), Layer::BatchNorm, Layer::Relu6])
}

fn inverted_residual(b: &mut Builder, x: NodeId, stage: &Stage, stride: usize) -> Result<NodeId> {
    let input = b.channels(x)?;
    let hidden = input * stage.expansion;
    let narrowed = b.within("conv", |b| {
        let mut position = 0;
        let mut out = x;
        if stage.expansion != 1 {
            out = conv_bn_relu6(b, "0", out, Conv::new(hidden, 1))?;
            position = 1;
        }
        let depthwise = Conv::new(hidden, 3).stride(stride).padding(1).groups(hidden);
        out = conv_bn_relu6(b, &position.to_string(), out, depthwise)?;
        out = b.conv(&(position + 1).to_string(), out, Conv::new(stage.channels, 1))?;
        b.batch_norm(&(position + 2).to_string(), out)
    })?;
    if stride == 1 && input == stage.channels { b.add(x, narrowed) } else { Ok(narrowed) }
}

impl Network for MobileNetV2 {
    fn head(&self) -> &'static str {
        "classifier.1"
    }

    fn forward(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        let stem = Conv::new(STEM_CHANNELS, 3).stride(2).padding(1);
        let mut x = conv_bn_relu6(b, "features.0", image, stem)?;
        let mut position = 1;
        for stage in STAGES {
            for block in 0..stage.blocks {
                let stride = if block == 0 { stage.stride } else { 1 };
                x = b.within(&format!("features.{position}"), |b| inverted_residual(b, x, stage, stride))?;
                position += 1;
            }
        }
        let x = conv_bn_relu6(b, &format!("features.{position}"), x, Conv::new(LAST_CHANNELS, 1))?;
        let x = b.adaptive_average_pool("adaptive_avg_pool2d", x, 1)?;
        let x = b.flatten(x)?;
        b.sequential("classifier", x, &[Layer::Dropout(0.2), Layer::Classes])
    }
}
