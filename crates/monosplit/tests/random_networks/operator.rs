//! One more operator on values of a graph, as bytes choose. What does not fit is refused by the graph.

use monosplit::graph::op::{
    Binary, Coordinates, Divisor, Interpolation, Padding, Reduction, ResizeAxis, Rounding, Unary, Window,
};
use monosplit::graph::{Error, Graph, NodeId, Op, Result, Shape, Tensor};

use super::bytes::Bytes;

const BINARY: [Binary; 10] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Pow,
    Binary::Max,
    Binary::Min,
    Binary::PRelu,
    Binary::Greater,
    Binary::Equal,
];
const REDUCTIONS: [Reduction; 5] =
    [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product];

/// A value with more elements is not read again: time is not what is tried.
const LARGEST: usize = 20_000;

/// Adds an operator to the graph.
pub(crate) fn add(g: &mut Graph, bytes: &mut Bytes<'_>, values: &[NodeId]) -> Result<NodeId> {
    // The last value most often, so that networks grow deep.
    let pick = |bytes: &mut Bytes<'_>| match bytes.below(3) {
        0 => values[bytes.below(values.len())],
        _ => values[values.len() - 1],
    };
    let x = pick(bytes);
    let shape = g.node(x).shape.clone();
    if shape.count().and_then(|count| count.at(2)).is_none_or(|count| count > LARGEST) {
        return Err(Error::argument("large enough"));
    }
    let rank = shape.rank();
    let axis = bytes.below(rank.max(1));
    match bytes.below(22) {
        0..=3 => {
            let function = unary(bytes);
            g.unary(function, x)
        }
        4 | 5 => {
            let function = BINARY[bytes.below(BINARY.len())];
            let other = match bytes.below(3) {
                0 => pick(bytes),
                1 => {
                    let number = bytes.number();
                    g.number(number)
                }
                _ => {
                    let mut dims = vec![1; rank];
                    (1..rank).filter(|_| bytes.flag()).for_each(|i| dims[i] = shape.fixed_at(i).unwrap_or(1));
                    g.constant(bytes.tensor(&dims))
                }
            };
            if bytes.flag() { g.binary(function, x, other) } else { g.binary(function, other, x) }
        }
        6..=8 => convolution(g, bytes, x, &shape),
        9 => {
            let window = window(bytes, rank.saturating_sub(2));
            g.add(Op::MaxPool(window), &[x])
        }
        10 => {
            let divisor = [Divisor::Padded, Divisor::Covered, Divisor::One][bytes.below(3)];
            let window = window(bytes, rank.saturating_sub(2));
            g.add(Op::AveragePool { window, divisor }, &[x])
        }
        11 => {
            let padding = match bytes.below(3) {
                0 => Padding::Constant(bytes.number()),
                1 => Padding::Reflect,
                _ => Padding::Edge,
            };
            let pads = (0..rank).map(|i| if i == 0 { (0, 0) } else { (bytes.below(4), bytes.below(4)) });
            g.add(Op::Pad { padding, pads: pads.collect() }, &[x])
        }
        12 => {
            let step = [1, 2, 3, -1, -2, isize::MAX, isize::MIN, 0][bytes.below(8)];
            let op = Op::Slice { axis, start: bytes.below(9), step, length: bytes.below(9) };
            g.add(op, &[x])
        }
        13 => {
            let mut parts = vec![x, pick(bytes)];
            if bytes.flag() {
                let dims = shape.dims().iter().map(|dim| dim.fixed().unwrap_or(1)).collect::<Vec<_>>();
                parts.push(g.constant(bytes.tensor(&dims)));
            }
            g.add(Op::Concat { axis }, &parts)
        }
        14 => {
            let count: usize = (1..rank).map(|i| shape.fixed_at(i).unwrap_or(1)).product();
            let first = 1 + bytes.below(6);
            let dims = if bytes.flag() { vec![first, count / first] } else { vec![count] };
            g.reshaped(x, Shape::batched(&dims))
        }
        15 => {
            let mut axes: Vec<usize> = (0..rank).collect();
            (1..rank).for_each(|i| axes.swap(i, 1 + bytes.below(rank - 1)));
            g.add(Op::Transpose { axes }, &[x])
        }
        16 => {
            let axes: Vec<usize> = (1..rank).filter(|_| bytes.flag()).collect();
            g.reduced(REDUCTIONS[bytes.below(REDUCTIONS.len())], x, &axes, bytes.flag())
        }
        17 => {
            let inner = shape.fixed_at(rank.saturating_sub(1)).unwrap_or(1);
            let other = match bytes.below(3) {
                0 => pick(bytes),
                _ => {
                    let columns = 1 + bytes.below(6);
                    g.constant(bytes.tensor(&[inner, columns]))
                }
            };
            g.add(Op::MatMul { trans_a: false, trans_b: bytes.below(4) == 0 }, &[x, other])
        }
        18 => normalised(g, bytes, x, &shape),
        19 if bytes.flag() => g.add(Op::Softmax { axis }, &[x]),
        19 => g.add(Op::LogSoftmax { axis }, &[x]),
        20 => {
            let from = shape.fixed_at(axis).unwrap_or(1);
            let length = 1 + bytes.below(9);
            let axes = vec![ResizeAxis { axis, length, scale: length as f64 / from.max(1) as f64 }];
            let interpolation = match bytes.below(3) {
                0 => Interpolation::Nearest(Rounding::PreferFloor),
                1 => Interpolation::Linear,
                _ => Interpolation::Cubic { coefficient: -0.75, exclude_outside: bytes.flag() },
            };
            let coordinates = [Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric];
            let coordinates = coordinates[bytes.below(3)];
            g.add(Op::Resize { axes, interpolation, coordinates }, &[x])
        }
        _ => {
            let length = shape.fixed_at(axis).unwrap_or(1) as i64;
            if length == 0 {
                return Err(Error::argument("nothing to take from"));
            }
            let indices: Vec<i64> =
                (0..1 + bytes.below(4)).map(|_| (bytes.below(6) as i64 - 2) % length).collect();
            let indices = g.constant(Tensor::vector(indices));
            g.add(Op::Gather { axis }, &[x, indices])
        }
    }
}

fn unary(bytes: &mut Bytes<'_>) -> Unary {
    match bytes.below(24) {
        0..=4 => Unary::Relu,
        5 => Unary::LeakyRelu { slope: bytes.number() },
        6 => Unary::Elu { alpha: bytes.number() },
        7 => Unary::Clip { min: bytes.number(), max: bytes.number() },
        8 => Unary::Abs,
        9 => Unary::Neg,
        10 => Unary::Exp,
        11 => Unary::Log,
        12 => Unary::Sqrt,
        13 => Unary::Reciprocal,
        14 => Unary::Sigmoid,
        15 => Unary::Tanh,
        16 => Unary::Gelu,
        17 => Unary::Silu,
        18 => Unary::HardSwish,
        19 => Unary::HardSigmoid { alpha: bytes.number(), beta: bytes.number() },
        20 => Unary::Softplus,
        21 => Unary::Celu { alpha: bytes.number() },
        22 => Unary::Floor,
        _ => Unary::Sin,
    }
}

/// A window, which need not fit.
fn window(bytes: &mut Bytes<'_>, axes: usize) -> Window {
    let mut each =
        |least: usize, count: usize| (0..axes).map(|_| least + bytes.below(count)).collect::<Vec<_>>();
    let (kernel, stride, dilation) = (each(1, 4), each(1, 3), each(1, 3));
    let (before, after) = (each(0, 3), each(0, 3));
    let pad = before.into_iter().zip(after).collect();
    Window { kernel, stride, dilation, pad, ceil: bytes.flag() }
}

fn convolution(g: &mut Graph, bytes: &mut Bytes<'_>, x: NodeId, shape: &Shape) -> Result<NodeId> {
    let channels = shape.fixed_at(1).unwrap_or(1);
    let mut window = window(bytes, shape.rank().saturating_sub(2));
    window.ceil = false;
    let groups = if bytes.below(3) == 0 { channels.max(1) } else { 1 + bytes.below(2) };
    let per_group = 1 + bytes.below(3);
    let transposed = bytes.below(3) == 0;
    let mut dims = match transposed {
        true => vec![channels, per_group],
        false => vec![per_group * groups, channels / groups],
    };
    dims.extend(&window.kernel);
    let mut operands = vec![x, g.constant(bytes.tensor(&dims))];
    if bytes.flag() {
        operands.push(g.constant(bytes.tensor(&[per_group * groups])));
    }
    let op = match transposed {
        true => Op::ConvTranspose {
            output_padding: window.kernel.iter().map(|_| bytes.below(2)).collect(),
            window,
            groups,
        },
        false => Op::Conv { window, groups },
    };
    g.add(op, &operands)
}

fn normalised(g: &mut Graph, bytes: &mut Bytes<'_>, x: NodeId, shape: &Shape) -> Result<NodeId> {
    let channels = shape.fixed_at(1).unwrap_or(1);
    let vector = |g: &mut Graph, bytes: &mut Bytes<'_>| g.constant(bytes.tensor(&[channels]));
    let epsilon = bytes.number();
    match bytes.below(4) {
        0 => {
            let (scale, bias, mean) = (vector(g, bytes), vector(g, bytes), vector(g, bytes));
            let variance = vector(g, bytes);
            let variance = g.magnitude(variance)?;
            g.add(Op::BatchNorm { epsilon: epsilon.abs() }, &[x, scale, bias, mean, variance])
        }
        1 => {
            let (scale, bias) = (vector(g, bytes), vector(g, bytes));
            g.add(Op::GroupNorm { groups: 1 + bytes.below(3), epsilon }, &[x, scale, bias])
        }
        2 => {
            let last = shape.fixed_at(shape.rank().saturating_sub(1)).unwrap_or(1);
            let scale = g.constant(bytes.tensor(&[last]));
            g.add(Op::LayerNorm { axis: shape.rank().saturating_sub(1), epsilon }, &[x, scale])
        }
        _ => {
            let (size, alpha, beta) = (1 + bytes.below(5), bytes.number(), bytes.number());
            g.add(Op::LocalResponseNorm { size, alpha, beta, bias: bytes.number() }, &[x])
        }
    }
}
