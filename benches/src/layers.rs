//! The convolutions of four well-known networks at 224×224 as torchvision builds them, with the number of equal ones.

use monosplit::graph::Result;
use monosplit::graph::op::Window;
use monosplit::graph::{Error, Op};

/// A convolution with a square kernel, padded so that stride 1 keeps the size.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    /// How often the network has it.
    pub count: usize,
    /// Input channels.
    pub inputs: usize,
    /// Output channels.
    pub outputs: usize,
    /// Height and width of the kernel.
    pub kernel: usize,
    /// The stride.
    pub stride: usize,
    /// Independent groups of channels.
    pub groups: usize,
    /// Height and width of the input.
    pub size: usize,
}

/// A network's convolutions.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// torchvision's name.
    pub name: &'static str,
    /// Its convolutions, first to last.
    pub layers: &'static [Convolution],
}

impl Convolution {
    /// Kernel, stride and padding.
    pub fn window(&self) -> Window {
        let pad = self.kernel / 2;
        Window {
            stride: vec![self.stride; 2],
            pad: vec![(pad, pad); 2],
            ..Window::new([self.kernel, self.kernel])
        }
    }

    /// Height and width of the output.
    pub fn output_size(&self) -> Result<usize> {
        let size = self.window().positions(0, self.size);
        size.ok_or_else(|| Error::shape(format!("{self} has no output")))
    }

    /// Operations per sample of a direct convolution; a multiply-add counts as two. The input gradient has as many.
    pub fn operations(&self) -> Result<usize> {
        let taps = self.inputs / self.groups * self.kernel * self.kernel;
        Ok(2 * self.outputs * self.output_size()?.pow(2) * taps)
    }

    /// The node that computes it.
    pub fn forward(&self) -> Op {
        Op::Conv { window: self.window(), groups: self.groups }
    }

    /// The node that computes its input gradient.
    pub fn input_gradient(&self) -> Result<Op> {
        let read = (self.output_size()? - 1) * self.stride + self.kernel;
        let unread = self.size + 2 * (self.kernel / 2) - read;
        let output_padding = vec![unread; 2];
        Ok(Op::ConvTranspose { window: self.window(), groups: self.groups, output_padding })
    }
}

impl std::fmt::Display for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Convolution { inputs, outputs, kernel, stride, groups, size, .. } = self;
        write!(f, "{inputs}→{outputs} {kernel}×{kernel}")?;
        if *stride > 1 {
            write!(f, " stride {stride}")?;
        }
        if *groups > 1 {
            write!(f, " in {groups} groups")?;
        }
        write!(f, " of {size}×{size}")
    }
}

const fn dense(
    count: usize,
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
    size: usize,
) -> Convolution {
    Convolution { count, inputs, outputs, kernel, stride, groups: 1, size }
}

const fn depthwise(count: usize, channels: usize, stride: usize, size: usize) -> Convolution {
    Convolution { count, inputs: channels, outputs: channels, kernel: 3, stride, groups: channels, size }
}

/// The networks of the speed targets.
pub const NETWORKS: [Network; 4] = [
    Network {
        name: "vgg16",
        layers: &[
            dense(1, 3, 64, 3, 1, 224),
            dense(1, 64, 64, 3, 1, 224),
            dense(1, 64, 128, 3, 1, 112),
            dense(1, 128, 128, 3, 1, 112),
            dense(1, 128, 256, 3, 1, 56),
            dense(2, 256, 256, 3, 1, 56),
            dense(1, 256, 512, 3, 1, 28),
            dense(2, 512, 512, 3, 1, 28),
            dense(3, 512, 512, 3, 1, 14),
        ],
    },
    Network {
        name: "resnet18",
        layers: &[
            dense(1, 3, 64, 7, 2, 224),
            dense(4, 64, 64, 3, 1, 56),
            dense(1, 64, 128, 3, 2, 56),
            dense(3, 128, 128, 3, 1, 28),
            dense(1, 64, 128, 1, 2, 56),
            dense(1, 128, 256, 3, 2, 28),
            dense(3, 256, 256, 3, 1, 14),
            dense(1, 128, 256, 1, 2, 28),
            dense(1, 256, 512, 3, 2, 14),
            dense(3, 512, 512, 3, 1, 7),
            dense(1, 256, 512, 1, 2, 14),
        ],
    },
    Network {
        name: "resnet50",
        layers: &[
            dense(1, 3, 64, 7, 2, 224),
            dense(1, 64, 64, 1, 1, 56),
            dense(3, 64, 64, 3, 1, 56),
            dense(4, 64, 256, 1, 1, 56),
            dense(2, 256, 64, 1, 1, 56),
            dense(1, 256, 128, 1, 1, 56),
            dense(1, 128, 128, 3, 2, 56),
            dense(4, 128, 512, 1, 1, 28),
            dense(1, 256, 512, 1, 2, 56),
            dense(3, 512, 128, 1, 1, 28),
            dense(3, 128, 128, 3, 1, 28),
            dense(1, 512, 256, 1, 1, 28),
            dense(1, 256, 256, 3, 2, 28),
            dense(6, 256, 1024, 1, 1, 14),
            dense(1, 512, 1024, 1, 2, 28),
            dense(5, 1024, 256, 1, 1, 14),
            dense(5, 256, 256, 3, 1, 14),
            dense(1, 1024, 512, 1, 1, 14),
            dense(1, 512, 512, 3, 2, 14),
            dense(3, 512, 2048, 1, 1, 7),
            dense(1, 1024, 2048, 1, 2, 14),
            dense(2, 2048, 512, 1, 1, 7),
            dense(2, 512, 512, 3, 1, 7),
        ],
    },
    Network {
        name: "mobilenet_v2",
        layers: &[
            dense(1, 3, 32, 3, 2, 224),
            depthwise(1, 32, 1, 112),
            dense(1, 32, 16, 1, 1, 112),
            dense(1, 16, 96, 1, 1, 112),
            depthwise(1, 96, 2, 112),
            dense(1, 96, 24, 1, 1, 56),
            dense(2, 24, 144, 1, 1, 56),
            depthwise(1, 144, 1, 56),
            dense(1, 144, 24, 1, 1, 56),
            depthwise(1, 144, 2, 56),
            dense(1, 144, 32, 1, 1, 28),
            dense(3, 32, 192, 1, 1, 28),
            depthwise(2, 192, 1, 28),
            dense(2, 192, 32, 1, 1, 28),
            depthwise(1, 192, 2, 28),
            dense(1, 192, 64, 1, 1, 14),
            dense(4, 64, 384, 1, 1, 14),
            depthwise(4, 384, 1, 14),
            dense(3, 384, 64, 1, 1, 14),
            dense(1, 384, 96, 1, 1, 14),
            dense(3, 96, 576, 1, 1, 14),
            depthwise(2, 576, 1, 14),
            dense(2, 576, 96, 1, 1, 14),
            depthwise(1, 576, 2, 14),
            dense(1, 576, 160, 1, 1, 7),
            dense(3, 160, 960, 1, 1, 7),
            depthwise(3, 960, 1, 7),
            dense(2, 960, 160, 1, 1, 7),
            dense(1, 960, 320, 1, 1, 7),
            dense(1, 320, 1280, 1, 1, 7),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiply-adds from torchvision's documentation, without those of linear layers.
    #[test]
    fn the_networks_cost_what_torchvision_says() {
        let documented = [15.47 - 0.1236, 1.814 - 0.0005, 4.089 - 0.0020, 0.301 - 0.0013];
        for (network, billions) in NETWORKS.iter().zip(documented) {
            let cost = |layer: &Convolution| layer.count * layer.operations().unwrap() / 2;
            let total: usize = network.layers.iter().map(cost).sum();
            assert!((total as f64 / 1e9 / billions - 1.0).abs() < 5e-3, "{}: {total}", network.name);
        }
    }
}
