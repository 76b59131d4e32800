//! SqueezeNet, "AlexNet-level accuracy with 50x fewer parameters" (Iandola et al. 2016).

use super::Network;
use super::builder::{Builder, Conv, Layer, Pool};
use crate::error::Result;
use crate::graph::NodeId;

use Stage::{Fire, Pooled};

pub(super) const NETWORKS: &[(&str, &dyn Network)] = &[
    (
        "squeezenet1_0",
        &SqueezeNet {
            stem: Conv::new(96, 7).stride(2).biased(),
            stages: &[
                Pooled,
                Fire(16, 64),
                Fire(16, 64),
                Fire(32, 128),
                Pooled,
                Fire(32, 128),
                Fire(48, 192),
                Fire(48, 192),
                Fire(64, 256),
                Pooled,
                Fire(64, 256),
            ],
        },
    ),
    (
        "squeezenet1_1",
        &SqueezeNet {
            stem: Conv::new(64, 3).stride(2).biased(),
            stages: &[
                Pooled,
                Fire(16, 64),
                Fire(16, 64),
                Pooled,
                Fire(32, 128),
                Fire(32, 128),
                Pooled,
                Fire(48, 192),
                Fire(48, 192),
                Fire(64, 256),
                Fire(64, 256),
            ],
        },
    ),
];

struct SqueezeNet {
    stem: Conv,
    stages: &'static [Stage],
}

#[derive(Clone, Copy)]
enum Stage {
    Pooled,
    /// Channels squeezed to, and channels each of the two expansions adds.
    Fire(usize, usize),
}

impl Stage {
    fn forward(self, b: &mut Builder, name: &str, x: NodeId) -> Result<NodeId> {
        match self {
            Pooled => b.max_pool(name, x, Pool::new(3, 2).ceil()),
            Fire(squeezed, expanded) => b.within(name, |b| {
                let x = rectified(b, "squeeze", x, Conv::new(squeezed, 1))?;
                let pointwise = rectified(b, "expand1x1", x, Conv::new(expanded, 1))?;
                let spatial = rectified(b, "expand3x3", x, Conv::new(expanded, 3).padding(1))?;
                b.cat(&[pointwise, spatial])
            }),
        }
    }
}

fn rectified(b: &mut Builder, name: &str, x: NodeId, conv: Conv) -> Result<NodeId> {
    let x = b.conv(name, x, conv.biased())?;
    b.relu(&format!("{name}_activation"), x)
}

impl Network for SqueezeNet {
    fn head(&self) -> &'static str {
        "classifier.1"
    }

    fn forward(&self, b: &mut Builder, image: NodeId) -> Result<NodeId> {
        let stem = [Layer::Conv(self.stem), Layer::Relu];
        let mut x = b.sequential("features", image, &stem)?;
        for (i, stage) in self.stages.iter().enumerate() {
            x = stage.forward(b, &format!("features.{}", stem.len() + i), x)?;
        }
        let classifier = Conv::new(b.classes(), 1).biased();
        let classifier = [Layer::Dropout(0.5), Layer::Conv(classifier), Layer::Relu];
        let x = b.sequential("classifier", x, &classifier)?;
        let x = b.adaptive_average_pool("classifier.3", x, 1)?;
        b.flatten(x)
    }
}
