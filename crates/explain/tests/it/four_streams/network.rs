//! Random small networks, written through the public interface of the graph: a few steps over feature maps, then a
//! head. Weights are representable in single precision, so both precisions see the same network.

use monosplit_graph::op::{
    Binary, Coordinates, Divisor, Interpolation, Padding, Reduction, ResizeAxis, Rounding, Unary, Window,
};
use monosplit_graph::{Graph, Kind, Label, NodeId, Op, Shape, Tensor};

use super::noise::Noise;

/// What may occur in a network.
#[derive(Clone, Copy)]
pub(crate) struct Menu {
    pub(crate) products: bool,
    pub(crate) smooth: bool,
    pub(crate) bias: bool,
    pub(crate) abs_clip: bool,
    pub(crate) branches: bool,
    pub(crate) contests: bool,
    pub(crate) steps: (usize, usize),
}

pub(crate) const EVERYTHING: Menu = Menu {
    products: true,
    smooth: true,
    bias: true,
    abs_clip: true,
    branches: true,
    contests: true,
    steps: (3, 8),
};

/// Affine maps, rectifiers and maxima only.
pub(crate) const PIECEWISE_LINEAR: Menu = Menu { products: false, smooth: false, ..EVERYTHING };

pub(crate) struct Writer<'a> {
    pub(crate) graph: Graph,
    pub(crate) noise: &'a mut Noise,
    menu: Menu,
}

pub(crate) fn random_network(noise: &mut Noise, menu: Menu) -> Graph {
    let mut writer = Writer { graph: Graph::new(), noise, menu };
    let (c, h, w) = (writer.noise.between(1, 3), writer.noise.between(5, 8), writer.noise.between(5, 8));
    let mut value = writer.graph.input("x", Shape::batched(&[c, h, w]), Kind::Float);
    value = writer.conv(value);
    for _ in 0..writer.noise.between(menu.steps.0, menu.steps.1) {
        value = writer.step(value);
    }
    let logits = writer.head(value);
    writer.graph.output("logits", logits);
    writer.graph
}

impl Writer<'_> {
    pub(crate) fn add(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        let label = Label::named(format!("n{}", self.graph.len()));
        self.graph.add_named(label, op, inputs).unwrap()
    }

    pub(crate) fn constant(&mut self, shape: &[usize], values: Vec<f32>) -> NodeId {
        self.graph.constant(Tensor::new(shape, values).unwrap())
    }

    fn random(&mut self, shape: &[usize], size: f64) -> NodeId {
        let values = self.noise.numbers(shape.iter().product(), size);
        self.constant(shape, values)
    }

    pub(crate) fn shape(&self, id: NodeId) -> Vec<usize> {
        self.graph.node(id).shape.at(1).unwrap()
    }

    fn step(&mut self, x: NodeId) -> NodeId {
        let choice = self.noise.below(34);
        match choice {
            0..=4 => self.conv(x),
            5 if self.menu.branches => self.conv_transpose(x),
            6 => self.batch_norm(x),
            7..=10 => self.add(Op::Unary(Unary::Relu), &[x]),
            11 => {
                let slope = self.noise.pick(&[0.0, 0.125, 0.5, 1.0]);
                self.add(Op::Unary(Unary::LeakyRelu { slope }), &[x])
            }
            12 => self.parametric(x),
            13 | 14 if self.menu.abs_clip => self.clip_or_abs(x),
            15 | 16 if self.menu.contests => self.max_pool(x),
            17 => self.average_pool(x),
            18 | 19 if self.menu.branches => self.residual(x),
            20 if self.menu.branches => self.joined(x),
            21 if self.menu.contests => self.extremum(x),
            22 => self.scaled(x),
            23 if self.menu.products => self.gated(x),
            24 if self.menu.products => self.attention(x),
            25 if self.menu.branches => self.resize(x),
            26 if self.menu.branches => self.pad(x),
            27 if self.menu.branches => self.slice(x),
            28 if self.menu.branches => self.rearranged(x),
            29 if self.menu.contests => self.maxout(x),
            30 if self.menu.smooth => {
                let function = self.noise.pick(&[Unary::Tanh, Unary::Sigmoid, Unary::Softplus, Unary::Silu]);
                self.add(Op::Unary(function), &[x])
            }
            31 if self.menu.branches => self.batch_moved(x),
            32 if self.menu.branches => self.gathered(x),
            _ => self.add(Op::Unary(Unary::Relu), &[x]),
        }
    }

    fn window(&mut self, spatial: &[usize], kernels: &[usize], strides: &[usize], dilate: bool) -> Window {
        let kernel: Vec<usize> = spatial.iter().map(|_| self.noise.pick(kernels)).collect();
        let mut window = Window::new(kernel);
        for (axis, &length) in spatial.iter().enumerate() {
            window.stride[axis] = self.noise.pick(strides);
            if dilate && self.noise.chance(0.25) {
                window.dilation[axis] = 2;
            }
            let span = window.span(axis).unwrap();
            window.pad[axis] = (self.noise.below(window.kernel[axis]), self.noise.below(window.kernel[axis]));
            if length + window.pad[axis].0 + window.pad[axis].1 < span {
                window.pad[axis] = (window.kernel[axis] - 1, window.kernel[axis] - 1);
            }
            if length + window.pad[axis].0 + window.pad[axis].1 < span {
                (window.kernel[axis], window.dilation[axis], window.pad[axis]) = (1, 1, (0, 0));
            }
        }
        window
    }

    pub(crate) fn conv(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        let strides: &[usize] = if shape[2] > 5 { &[1, 1, 2, 3] } else { &[1] };
        let window = self.window(&shape[2..], &[1, 2, 3], strides, true);
        let groups = if shape[1].is_multiple_of(2) && self.noise.chance(0.3) { 2 } else { 1 };
        let out = groups * self.noise.between(1, 4 / groups);
        self.convolved(x, window, groups, out)
    }

    pub(crate) fn convolved(&mut self, x: NodeId, window: Window, groups: usize, out: usize) -> NodeId {
        let channels = self.shape(x)[1];
        let weight = [&[out, channels / groups], &window.kernel[..]].concat();
        let fan_in: usize = weight[1..].iter().product();
        let w = self.random(&weight, 1.2 / (fan_in as f64).sqrt());
        let mut inputs = vec![x, w];
        if self.menu.bias && self.noise.chance(0.7) {
            inputs.push(self.random(&[out], 0.3));
        }
        self.add(Op::Conv { window, groups }, &inputs)
    }

    fn conv_transpose(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        if shape[2] * shape[3] > 30 {
            return self.conv(x);
        }
        let mut window = Window::new([3, 2]);
        window.stride = vec![self.noise.between(1, 2), self.noise.between(1, 2)];
        window.pad = vec![(self.noise.below(2), 0), (0, self.noise.below(2))];
        let output_padding = window.stride.iter().map(|s| self.noise.below(*s)).collect();
        let groups = if shape[1].is_multiple_of(2) { 2 } else { 1 };
        let w = self.random(&[shape[1], 2, 3, 2], 0.5);
        let mut inputs = vec![x, w];
        if self.menu.bias {
            inputs.push(self.random(&[2 * groups], 0.3));
        }
        let op = Op::ConvTranspose { window: window.clone(), groups, output_padding };
        if self.graph.add(op.clone(), &inputs).is_err() {
            return self.conv(x);
        }
        self.add(op, &inputs)
    }

    fn batch_norm(&mut self, x: NodeId) -> NodeId {
        let c = self.shape(x)[1];
        let size = if self.menu.bias { 0.4 } else { 0.0 };
        let (scale, bias, mean) = (self.random(&[c], 1.0), self.random(&[c], size), self.random(&[c], size));
        let variance = self.noise.positive(c);
        let variance = self.constant(&[c], variance);
        self.add(Op::BatchNorm { epsilon: 1e-5 }, &[x, scale, bias, mean, variance])
    }

    fn parametric(&mut self, x: NodeId) -> NodeId {
        let c = self.shape(x)[1];
        let slopes = (0..c).map(|_| self.noise.uniform() as f32).collect();
        let slopes = self.constant(&[c, 1, 1], slopes);
        self.add(Op::Binary(Binary::PRelu), &[x, slopes])
    }

    fn clip_or_abs(&mut self, x: NodeId) -> NodeId {
        let function = match self.noise.below(4) {
            0 => Unary::Abs,
            1 => Unary::Clip { min: 0.0, max: 0.5 },
            2 => Unary::Clip { min: -0.25, max: f64::INFINITY },
            _ => Unary::Clip { min: f64::NEG_INFINITY, max: 0.25 },
        };
        self.add(Op::Unary(function), &[x])
    }

    fn max_pool(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        let mut window = self.window(&shape[2..], &[2, 3], &[1, 2], false);
        window.ceil = self.noise.chance(0.5);
        self.add(Op::MaxPool(window), &[x])
    }

    fn average_pool(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        let mut window = self.window(&shape[2..], &[2, 3], &[1, 2], false);
        window.ceil = self.noise.chance(0.5);
        let divisor = self.noise.pick(&[Divisor::Covered, Divisor::Padded, Divisor::One]);
        self.add(Op::AveragePool { window, divisor }, &[x])
    }

    /// A 1×1 convolution to the given number of channels.
    fn projection(&mut self, x: NodeId, out: usize) -> NodeId {
        self.convolved(x, Window::new([1, 1]), 1, out)
    }

    fn residual(&mut self, x: NodeId) -> NodeId {
        let out = self.noise.between(1, 3);
        let left = self.projection(x, out);
        let left = self.add(Op::Unary(Unary::Relu), &[left]);
        let right = if self.shape(x)[1] == out { x } else { self.projection(x, out) };
        let binary = self.noise.pick(&[Binary::Add, Binary::Add, Binary::Sub]);
        self.add(Op::Binary(binary), &[left, right])
    }

    fn joined(&mut self, x: NodeId) -> NodeId {
        let left = self.projection(x, 1);
        let right = self.add(Op::Unary(Unary::Neg), &[x]);
        let mut parts = vec![left, right];
        if self.noise.chance(0.5) {
            parts.push(self.add(Op::Unary(Unary::Relu), &[left]));
        }
        self.add(Op::Concat { axis: 1 }, &parts)
    }

    fn extremum(&mut self, x: NodeId) -> NodeId {
        let out = self.noise.between(1, 3);
        let left = self.projection(x, out);
        let shape = self.shape(left);
        let right = match self.noise.below(3) {
            0 => self.projection(x, out),
            1 => self.projection(x, 1),
            _ => self.random(&[out, 1, shape[3]], 0.5),
        };
        let binary = self.noise.pick(&[Binary::Max, Binary::Min]);
        let inputs = if self.noise.chance(0.5) { [left, right] } else { [right, left] };
        self.add(Op::Binary(binary), &inputs)
    }

    fn scaled(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        match self.noise.below(4) {
            0 => {
                let factor = self.random(&[shape[1], 1, 1], 1.0);
                self.add(Op::Binary(Binary::Mul), &[factor, x])
            }
            1 => {
                let divisor = self.noise.positive(shape[3]).into_iter().map(|v| -v).collect();
                let divisor = self.constant(&[shape[3]], divisor);
                self.add(Op::Binary(Binary::Div), &[x, divisor])
            }
            2 if self.menu.bias => {
                let offset = self.random(&[shape[1], 1, shape[3]], 0.5);
                self.add(Op::Binary(Binary::Sub), &[offset, x])
            }
            _ if self.menu.bias => {
                let offset = self.random(&[1, shape[1], 1, 1], 0.5);
                self.add(Op::Binary(Binary::Add), &[x, offset])
            }
            _ => x,
        }
    }

    /// A product of two activations, one of them broadcast at times.
    fn gated(&mut self, x: NodeId) -> NodeId {
        let out = self.noise.between(1, 3);
        let left = self.projection(x, out);
        let right = match self.noise.below(3) {
            0 => self.projection(x, out),
            1 => left,
            _ => self.add(Op::Reduce { reduction: Reduction::Mean, axes: vec![2, 3], keep: true }, &[left]),
        };
        self.add(Op::Binary(Binary::Mul), &[left, right])
    }

    /// A matrix product of two activations, `q·kᵀ·v` at times.
    fn attention(&mut self, x: NodeId) -> NodeId {
        let [_, _, h, w] = self.shape(x)[..] else { return x };
        let flat = |writer: &mut Self, x: NodeId, c: usize| {
            let y = writer.projection(x, c);
            writer.add(Op::Reshape { shape: Shape::batched(&[c, h * w]) }, &[y])
        };
        let (q, k, v) = (flat(self, x, 2), flat(self, x, 3), flat(self, x, 3));
        let scores = self.add(Op::MatMul { trans_a: false, trans_b: true }, &[q, k]);
        let shrink = self.constant(&[], vec![1.0 / (h * w) as f32]);
        let scores = self.add(Op::Binary(Binary::Mul), &[scores, shrink]);
        let mixed = self.add(Op::MatMul { trans_a: false, trans_b: false }, &[scores, v]);
        self.add(Op::Reshape { shape: Shape::batched(&[2, h, w]) }, &[mixed])
    }

    fn resize(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        let mut axes = Vec::new();
        for axis in [2, 3] {
            let length = self.noise.between(2, 9);
            if length != shape[axis] {
                axes.push(ResizeAxis { axis, length, scale: length as f64 / shape[axis] as f64 });
            }
        }
        let nearest = [Rounding::PreferFloor, Rounding::PreferCeil, Rounding::Floor, Rounding::Ceil];
        let interpolation = match self.noise.below(4) {
            0 => Interpolation::Nearest(self.noise.pick(&nearest)),
            1 => Interpolation::Linear,
            exclude => Interpolation::Cubic { coefficient: -0.75, exclude_outside: exclude == 2 },
        };
        let coordinates = self.noise.pick(&[
            Coordinates::HalfPixel,
            Coordinates::PytorchHalfPixel,
            Coordinates::AlignCorners,
            Coordinates::Asymmetric,
        ]);
        self.add(Op::Resize { axes, interpolation, coordinates }, &[x])
    }

    fn pad(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        let fill = if self.menu.bias { -0.5 } else { 0.0 };
        let padding = self.noise.pick(&[
            Padding::Constant(0.0),
            Padding::Constant(fill),
            Padding::Reflect,
            Padding::Edge,
        ]);
        let mut pads = vec![(0, 0); 2];
        for &length in &shape[2..] {
            pads.push((self.noise.below(length.min(2)), self.noise.below(length.min(3))));
        }
        self.add(Op::Pad { padding, pads }, &[x])
    }

    fn slice(&mut self, x: NodeId) -> NodeId {
        let axis = self.noise.pick(&[2, 3]);
        let n = self.shape(x)[axis];
        let op = match self.noise.below(3) {
            _ if n < 3 => return x,
            0 => Op::Slice { axis, start: 1, step: 1, length: n - 1 },
            1 => Op::Slice { axis, start: n - 1, step: -1, length: n },
            _ => Op::Slice { axis, start: 0, step: 2, length: n.div_ceil(2) },
        };
        self.add(op, &[x])
    }

    fn rearranged(&mut self, x: NodeId) -> NodeId {
        let [_, c, h, w] = self.shape(x)[..] else { return x };
        match self.noise.below(3) {
            0 => self.add(Op::Transpose { axes: vec![0, 1, 3, 2] }, &[x]),
            // The convolution behind it says that channels are read from axis 1 again.
            1 => {
                let turned = self.add(Op::Transpose { axes: vec![0, 2, 1, 3] }, &[x]);
                self.projection(turned, c)
            }
            _ => self.add(Op::Reshape { shape: Shape::batched(&[c, w, h]) }, &[x]),
        }
    }

    /// The largest or smallest of groups of channels.
    fn maxout(&mut self, x: NodeId) -> NodeId {
        let [_, _, h, w] = self.shape(x)[..] else { return x };
        let many = self.projection(x, 4);
        let grouped = self.add(Op::Reshape { shape: Shape::batched(&[2, 2, h, w]) }, &[many]);
        let reduction = self.noise.pick(&[Reduction::Max, Reduction::Min]);
        self.add(Op::Reduce { reduction, axes: vec![2], keep: false }, &[grouped])
    }

    /// The samples on another axis for a while, and then many rows to a sample.
    fn batch_moved(&mut self, x: NodeId) -> NodeId {
        let swap = || Op::Transpose { axes: vec![1, 0, 2, 3] };
        let moved = self.add(swap(), &[x]);
        let moved = self.add(Op::Unary(Unary::Relu), &[moved]);
        let back = self.add(swap(), &[moved]);
        let [_, c, h, w] = self.shape(x)[..] else { return x };
        let rows = Shape::new([monosplit_graph::Dim::Batch(c), (h * w).into()]);
        let rows = self.add(Op::Reshape { shape: rows }, &[back]);
        let matrix = self.random(&[h * w, h * w], 1.0 / (h * w) as f64);
        let mixed = self.add(Op::MatMul { trans_a: false, trans_b: false }, &[rows, matrix]);
        self.add(Op::Reshape { shape: Shape::batched(&[c, h, w]) }, &[mixed])
    }

    fn gathered(&mut self, x: NodeId) -> NodeId {
        let picks = self.graph.constant(Tensor::vector(vec![-1i64, 0, 0]));
        self.add(Op::Gather { axis: 1 }, &[x, picks])
    }

    fn head(&mut self, x: NodeId) -> NodeId {
        let shape = self.shape(x);
        let reduction = match self.noise.below(4) {
            0 => Some(Reduction::Mean),
            1 => Some(Reduction::Sum),
            2 if self.menu.contests => Some(Reduction::Max),
            _ => None,
        };
        let mut flat = match reduction {
            Some(reduction) => self.add(Op::Reduce { reduction, axes: vec![2, 3], keep: false }, &[x]),
            None => self.add(Op::Reshape { shape: Shape::batched(&[shape[1..].iter().product()]) }, &[x]),
        };
        if self.noise.chance(0.5) {
            let width = self.noise.between(2, 6);
            flat = self.linear(flat, width);
            flat = self.add(Op::Unary(Unary::Relu), &[flat]);
        }
        let classes = self.noise.between(2, 5);
        self.linear(flat, classes)
    }

    pub(crate) fn linear(&mut self, x: NodeId, out: usize) -> NodeId {
        let width = self.shape(x)[1];
        let trans_b = self.noise.chance(0.5);
        let shape = if trans_b { [out, width] } else { [width, out] };
        let w = self.random(&shape, 1.2 / (width as f64).sqrt());
        let mut inputs = vec![x, w];
        if self.menu.bias && self.noise.chance(0.7) {
            inputs.push(self.random(&[out], 0.3));
        }
        self.add(Op::MatMul { trans_a: false, trans_b }, &inputs)
    }
}

/// A writer over an empty graph, for networks of a given form.
pub(crate) fn writer(noise: &mut Noise, menu: Menu) -> Writer<'_> {
    Writer { graph: Graph::new(), noise, menu }
}
