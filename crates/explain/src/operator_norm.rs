//! Bounds on the operator norms of linear nodes, from their weights: how much a node can enlarge its input.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use monosplit_graph::op::{Binary, Divisor, Reduction, Unary};
use monosplit_graph::{Data, Graph, Node, NodeId, Op, Tensor};

use crate::scaled::ACTIVATION_BOUND;

/// The bound for coefficients that are computed and not constant.
const UNKNOWN: f64 = 20.0;

/// Whether a node is applied, or its transpose to the input `index`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Direction {
    Forward,
    Backward(usize),
}

/// The logarithm to base 2 of a bound on the ∞-norm of a node with all coefficients replaced by their magnitudes. Coefficients
/// that depend on the input are not counted.
pub(crate) fn log2_norm_bound(g: &Graph, node: &Node, direction: Direction) -> f64 {
    let bits = |factor: f64| factor.max(1.0).log2();
    let stored = |id: NodeId| g.constant_value(id);
    match &node.op {
        Op::Conv { groups, .. } | Op::ConvTranspose { groups, .. } => {
            let by_rows = matches!(node.op, Op::Conv { .. }) == (direction == Direction::Forward);
            stored(node.inputs[1]).map_or(UNKNOWN, |w| bits(kernel_sum(w, *groups, by_rows)))
        }
        Op::MatMul { .. } => {
            let inner = |id: NodeId| stored(id).map(|w| bits(matrix_sum(w)));
            let length = node.inputs.iter().take(2).filter_map(|&i| inner(i)).next();
            length.unwrap_or_else(|| {
                if node.inputs.iter().take(2).any(|&i| g.node(i).is_constant()) { UNKNOWN } else { 12.0 }
            })
        }
        Op::BatchNorm { epsilon } => match (stored(node.inputs[1]), stored(node.inputs[4])) {
            (Some(scale), Some(variance)) => {
                let pairs =
                    scale.to_f64().iter().copied().zip(variance.to_f64().to_vec()).collect::<Vec<_>>();
                bits(pairs.iter().map(|(s, v)| s.abs() / (v + epsilon).sqrt()).fold(0.0, f64::max))
            }
            _ => UNKNOWN,
        },
        Op::Binary(Binary::Mul | Binary::Div) => {
            let constants = node.inputs.iter().filter(|&&i| g.node(i).is_constant());
            constants
                .map(|&i| {
                    stored(i)
                        .map_or(UNKNOWN, |c| bits(extreme(c, matches!(node.op, Op::Binary(Binary::Div)))))
                })
                .sum()
        }
        Op::AveragePool { window, divisor } => match (divisor, direction) {
            (Divisor::One, _) | (_, Direction::Backward(_)) => {
                bits(window.kernel.iter().product::<usize>() as f64)
            }
            _ => 0.0,
        },
        Op::AveragePoolTranspose { window, .. } => bits(window.kernel.iter().product::<usize>() as f64),
        Op::Reduce { reduction: Reduction::Sum, axes, .. } if direction == Direction::Forward => {
            let shape = &g.node(node.inputs[0]).shape;
            bits(axes.iter().filter_map(|&a| shape.fixed_at(a)).map(|n| n as f64).product())
        }
        Op::Binary(Binary::Add | Binary::Sub) => 1.0,
        Op::Resize { axes, .. } => axes.iter().map(|a| bits(4.0 * a.scale.max(1.0))).sum(),
        Op::Expand { .. } | Op::Gather { .. } | Op::Pad { .. } if direction != Direction::Forward => UNKNOWN,
        Op::Expand { .. } | Op::Gather { .. } | Op::Pad { .. } | Op::Reduce { .. } => 0.0,
        // Every element is one element of an operand.
        Op::Concat { .. } | Op::Slice { .. } | Op::Reshape { .. } | Op::Transpose { .. } => 0.0,
        Op::Identity | Op::Dropout { .. } | Op::Cast { .. } | Op::Where | Op::WinnerGather(_) => 0.0,
        Op::WinnerScatter(window) => bits(window.kernel.iter().product::<usize>() as f64),
        // Functions have bounds on their slopes instead.
        Op::Unary(_) | Op::MaxPool(_) | Op::ArgMax { .. } => 0.0,
        Op::Binary(Binary::Pow | Binary::Max | Binary::Min | Binary::PRelu) => 0.0,
        Op::Binary(Binary::Equal | Binary::Less | Binary::LessOrEqual) => 0.0,
        Op::Binary(Binary::Greater | Binary::GreaterOrEqual | Binary::And | Binary::Or | Binary::Xor) => 0.0,
        Op::LayerNorm { .. } | Op::GroupNorm { .. } | Op::LocalResponseNorm { .. } => 0.0,
        Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::Input | Op::Constant(_) => 0.0,
    }
}

/// The logarithm to base 2 of a bound on the magnitude of the derivative.
pub(crate) fn log2_slope_bound(function: Unary) -> f64 {
    match function {
        Unary::Exp | Unary::Log | Unary::Sqrt | Unary::Reciprocal => ACTIVATION_BOUND,
        Unary::Selu { alpha, gamma } => 1.0 + (alpha.abs() * gamma.abs()).max(1.0).log2(),
        Unary::Elu { alpha } => alpha.abs().max(1.0).log2(),
        Unary::LeakyRelu { slope } => slope.abs().max(1.0).log2(),
        Unary::HardSigmoid { alpha, .. } => alpha.abs().max(1.0).log2(),
        Unary::Relu | Unary::Celu { .. } | Unary::Sigmoid | Unary::Tanh | Unary::Softplus => 1.0,
        Unary::HardSwish | Unary::Silu | Unary::Gelu | Unary::GeluTanh | Unary::Erf | Unary::Mish => 1.0,
        Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round => 1.0,
        Unary::Sin
        | Unary::Cos
        | Unary::Quantise { .. }
        | Unary::Half
        | Unary::Bfloat16
        | Unary::Wrap { .. } => 0.0,
        Unary::Clip { .. } | Unary::Not => 1.0,
    }
}

/// The largest sum of magnitudes over one output channel (`by_rows`) or one input channel of a kernel.
fn kernel_sum(w: &Tensor, groups: usize, by_rows: bool) -> f64 {
    let shape = w.shape();
    let (rows, columns) = (shape[0], shape.get(1).copied().unwrap_or(1));
    let taps: usize = shape[2..].iter().product();
    match w.data() {
        Data::F32(w) if !w.is_empty() => largest_channel(w, (rows, columns, taps), groups, by_rows),
        Data::F64(w) if !w.is_empty() => largest_channel(w, (rows, columns, taps), groups, by_rows),
        Data::F32(_) | Data::F64(_) | Data::I64(_) | Data::Bool(_) => 0.0,
    }
}

fn largest_channel<T: Copy + Into<f64>>(
    weights: &[T],
    (rows, columns, taps): (usize, usize, usize),
    groups: usize,
    by_rows: bool,
) -> f64 {
    if by_rows {
        let all_of = |row: usize| magnitude(&weights[row * columns * taps..][..columns * taps]);
        return (0..rows).map(all_of).fold(0.0, f64::max);
    }
    let taps_of = |row: usize, column: usize| magnitude(&weights[(row * columns + column) * taps..][..taps]);
    let per_group = rows / groups.max(1);
    let mut largest = 0.0f64;
    for group in 0..groups {
        for column in 0..columns {
            let rows = group * per_group..(group + 1) * per_group;
            largest = largest.max(rows.map(|row| taps_of(row, column)).sum());
        }
    }
    largest
}

/// The larger of the largest row sum and the largest column sum of magnitudes.
fn matrix_sum(w: &Tensor) -> f64 {
    let columns = w.shape().last().copied().unwrap_or(1).max(1);
    let rows = w.shape().iter().rev().nth(1).copied().unwrap_or(1).max(1);
    match w.data() {
        Data::F32(w) => w.chunks(rows * columns).map(|w| largest_sum(w, columns)).fold(0.0, f64::max),
        Data::F64(w) => w.chunks(rows * columns).map(|w| largest_sum(w, columns)).fold(0.0, f64::max),
        Data::I64(_) | Data::Bool(_) => 0.0,
    }
}

fn largest_sum<T: Copy + Into<f64>>(matrix: &[T], columns: usize) -> f64 {
    let mut column_sums = vec![0.0; columns];
    let mut largest = 0.0f64;
    for row in matrix.chunks(columns) {
        largest = largest.max(magnitude(row));
        for (sum, &v) in column_sums.iter_mut().zip(row) {
            *sum += v.into().abs();
        }
    }
    column_sums.into_iter().fold(largest, f64::max)
}

/// The sum of magnitudes, in eight partial sums so that it vectorises. Builds that do not optimise this crate spend their time
/// here with large networks, so it makes no iterator for every eight elements.
fn magnitude<T: Copy + Into<f64>>(values: &[T]) -> f64 {
    let (several, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for &[a, b, c, d, e, f, g, h] in several {
        sums[0] += a.into().abs();
        sums[1] += b.into().abs();
        sums[2] += c.into().abs();
        sums[3] += d.into().abs();
        sums[4] += e.into().abs();
        sums[5] += f.into().abs();
        sums[6] += g.into().abs();
        sums[7] += h.into().abs();
    }
    sums.into_iter().chain(rest.iter().map(|&v| v.into().abs())).sum()
}

fn extreme(c: &Tensor, reciprocal: bool) -> f64 {
    let factor = |v: f64| if reciprocal { 1.0 / v.abs() } else { v.abs() };
    c.to_f64().iter().map(|&v| factor(v)).fold(0.0, f64::max).min(UNKNOWN.exp2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_summed_over_the_right_channels() {
        // Two groups of one input channel each; three outputs each, one tap.
        let w = Tensor::new([6, 1, 1], vec![1f32, -2.0, 3.0, 4.0, -5.0, 6.0]).unwrap();
        assert_eq!(kernel_sum(&w, 2, true), 6.0);
        assert_eq!(kernel_sum(&w, 2, false), 15.0);
    }

    #[test]
    fn matrices_are_bounded_both_ways() {
        let w = Tensor::new([2, 3], vec![1f32, -2.0, 3.0, 0.0, 5.0, 0.0]).unwrap();
        assert_eq!(matrix_sum(&w), 7.0);
    }
}
