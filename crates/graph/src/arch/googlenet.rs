//! GoogLeNet, "Going deeper with convolutions" (Szegedy et al. 2014), with batch normalisation and, as in
//! torchvision, a 3×3 convolution where the paper has 5×5. The auxiliary heads serve training only.

use super::Network;
use super::builder::{Builder, Conv, Layer, Pool};
use crate::error::Result;
use crate::graph::NodeId;
use crate::op::{Binary, Op};
use crate::tensor::Tensor;

use Stage::{Inception, Pooled};

pub(super) const NETWORKS: &[(&str, &dyn Network)] = &[("googlenet", &GoogLeNet)];

struct GoogLeNet;

enum Stage {
    Pooled(&'static str, Pool),
    /// Channels of the branches: 1×1; 3×3 reduced and full; "5×5" reduced and full; after the pool.
    Inception(&'static str, [usize; 6]),
}

const STAGES: &[Stage] = &[
    Inception("inception3a", [64, 96, 128, 16, 32, 32]),
    Inception("inception3b", [128, 128, 192, 32, 96, 64]),
    Pooled("maxpool3", Pool::new(3, 2).ceil()),
    Inception("inception4a", [192, 96, 208, 16, 48, 64]),
    Inception("inception4b", [160, 112, 224, 24, 64, 64]),
    Inception("inception4c", [128, 128, 256, 24, 64, 64]),
    Inception("inception4d", [112, 144, 288, 32, 64, 64]),
    Inception("inception4e", [256, 160, 320, 32, 128, 128]),
    Pooled("maxpool4", Pool::new(2, 2).ceil()),
    Inception("inception5a", [256, 160, 320, 32, 128, 128]),
    Inception("inception5b", [384, 192, 384, 48, 128, 128]),
];

const BATCH_NORM_EPSILON: f64 = 1e-3;

/// Mean and standard deviation of ImageNet's channels, which torchvision's images are normalised with.
const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f64; 3] = [0.229, 0.224, 0.225];

/// From torchvision's normalisation to the one the original weights were trained with, `[-1, 1]`.
fn transform_input(b: &mut Builder, image: NodeId) -> Result<NodeId> {
    let per_channel = |values: [f64; 3]| Tensor::new([1, 3, 1, 1], values.to_vec());
    let scale = b.constant("scale", per_channel(DEVIATION.map(|d| d / 0.5))?);
    let shift = b.constant("shift", per_channel(MEAN.map(|m| (m - 0.5) / 0.5))?);
    let x = b.node("mul", Op::Binary(Binary::Mul), &[image, scale])?;
    b.add(x, shift)
}

fn basic_conv(b: &mut Builder, name: &str, x: NodeId, conv: Conv) -> Result<NodeId> {
    b.within(name, |b| {
        let x = b.conv("conv", x, conv)?;
        let x = b.batch_norm_with("bn", x, BATCH_NORM_EPSILON)?;
        b.relu("relu", x)
    })
}

fn inception(b: &mut Builder, x: NodeId, channels: [usize; 6]) -> Result<NodeId> {
    let [pointwise, reduced3, full3, reduced5, full5, projected] = channels;
    let branch1 = basic_conv(b, "branch1", x, Conv::new(pointwise, 1))?;
    let branch2 = basic_conv(b, "branch2.0", x, Conv::new(reduced3, 1))?;
    let branch2 = basic_conv(b, "branch2.1", branch2, Conv::new(full3, 3).padding(1))?;
    let branch3 = basic_conv(b, "branch3.0", x, Conv::new(reduced5, 1))?;
    let branch3 = basic_conv(b, "branch3.1", branch3, Conv::new(full5, 3).padding(1))?;
    let branch4 = b.max_pool("branch4.0", x, Pool::new(3, 1).padding(1).ceil())?;
    let branch4 = basic_conv(b, "branch4.1", branch4, Conv::new(projected, 1))?;
    b.cat(&[branch1, branch2, branch3, branch4])
}

impl Network for GoogLeNet {
    fn head(&self) -> &'static str {
        "fc"
    }

    fn training_only(&self) -> &'static [&'static str] {
        &["aux1.", "aux2."]
    }

    fn transform_input(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        b.within("transform_input", |b| transform_input(b, image))
    }

    fn forward(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        let x = basic_conv(b, "conv1", image, Conv::new(64, 7).stride(2).padding(3))?;
        let x = b.max_pool("maxpool1", x, Pool::new(3, 2).ceil())?;
        let x = basic_conv(b, "conv2", x, Conv::new(64, 1))?;
        let x = basic_conv(b, "conv3", x, Conv::new(192, 3).padding(1))?;
        let mut x = b.max_pool("maxpool2", x, Pool::new(3, 2).ceil())?;
        for stage in STAGES {
            x = match *stage {
                Pooled(name, pool) => b.max_pool(name, x, pool)?,
                Inception(name, channels) => b.within(name, |b| inception(b, x, channels))?,
            };
        }
        let x = b.adaptive_average_pool("avgpool", x, 1)?;
        let x = b.flatten(x)?;
        let x = b.dropout("dropout", x, 0.2)?;
        b.layer("fc", x, Layer::Classes)
    }
}
