//! Transposes of linear ops. For a node that is linear in one of its inputs, `y = W x`, this module writes `Wᵀ y`, and
//! `|W|ᵀ y` with every coefficient replaced by its magnitude. Rule sets are built from these two.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use monosplit_graph::op::{Binary, Interpolation, Padding, Reduction, ResizeAxis, Unary, Window};
use monosplit_graph::{Dim, Error, Graph, Node, NodeId, Op, Result, Shape};

pub use crate::axis::AxisMap;
use crate::axis::{apply_transposed, transpose_pad, transpose_slice};

/// The values that the coefficients of a linear node are read from.
#[derive(Clone, Copy)]
pub struct Coefficients<'a> {
    /// One value for each input of the node: the input itself, or its magnitude.
    pub operands: &'a [NodeId],
    /// Whether the signs that the op itself has (a subtraction, a negative interpolation weight) are dropped.
    pub magnitude: bool,
}

/// `Wᵀ y`, where `W` is the linear dependence of the node `id` on its input `index`, all other inputs held.
///
/// Fails for nodes that are not linear in that input, naming the node.
pub fn transpose(
    g: &mut Graph,
    id: NodeId,
    index: usize,
    y: NodeId,
    coefficients: Coefficients<'_>,
) -> Result<NodeId> {
    let node = g.node(id).clone();
    let input = g.node(node.inputs[index]).shape.clone();
    let name = node.label.display().to_owned();
    transpose_node(g, &node, index, y, &input, coefficients).map_err(|e| e.at(name))
}

fn transpose_node(
    g: &mut Graph,
    node: &Node,
    index: usize,
    y: NodeId,
    input: &Shape,
    coefficients: Coefficients<'_>,
) -> Result<NodeId> {
    let Coefficients { operands, magnitude } = coefficients;
    match (&node.op, index) {
        (Op::Conv { window, groups }, 0) => {
            let output_padding = (0..window.axes())
                .map(|axis| {
                    let (before, after) = window.pad[axis];
                    let positions = node.shape.fixed_at(axis + 2).unwrap_or(1);
                    let span = window.span(axis).unwrap_or(1);
                    let read = (positions - 1) * window.stride[axis] + span;
                    (input.fixed_at(axis + 2).unwrap_or(0) + before + after).saturating_sub(read)
                })
                .collect();
            g.add(
                Op::ConvTranspose { window: window.clone(), groups: *groups, output_padding },
                &[y, operands[1]],
            )
        }
        (Op::ConvTranspose { window, groups, .. }, 0) => {
            g.add(Op::Conv { window: window.clone(), groups: *groups }, &[y, operands[1]])
        }
        (Op::Conv { window, groups }, 1) => weight_transpose(g, window, *groups, operands[0], y),
        (Op::ConvTranspose { window, groups, .. }, 1) => weight_transpose(g, window, *groups, y, operands[0]),
        (Op::Conv { .. } | Op::ConvTranspose { .. }, 2) => {
            let axes: Vec<usize> = (0..node.shape.rank()).filter(|&axis| axis != 1).collect();
            g.reduced(Reduction::Sum, y, &axes, false)
        }
        (Op::MatMul { trans_a, trans_b }, 0 | 1) => {
            let product = transpose_matmul(g, index, y, operands, *trans_a, *trans_b)?;
            g.summed_to(product, input)
        }
        (Op::MatMul { .. }, 2) => g.summed_to(y, input),
        (Op::BatchNorm { epsilon }, 0) => {
            let scale = batch_norm_scale(g, node, *epsilon)?;
            let scale = if magnitude { g.magnitude(scale)? } else { scale };
            g.times(y, scale)
        }
        (Op::Binary(Binary::Add), _) | (Op::Binary(Binary::Sub), 0) => g.summed_to(y, input),
        (Op::Binary(Binary::Sub), _) => {
            let sum = g.summed_to(y, input)?;
            if magnitude { Ok(sum) } else { g.negated(sum) }
        }
        (Op::Binary(Binary::Mul), _) => {
            let product = g.times(y, operands[1 - index])?;
            g.summed_to(product, input)
        }
        (Op::Binary(Binary::Div), 0) => {
            let quotient = g.over(y, operands[1])?;
            g.summed_to(quotient, input)
        }
        (Op::Unary(Unary::Neg), _) => {
            if magnitude {
                Ok(y)
            } else {
                g.negated(y)
            }
        }
        (Op::Where, 1) => {
            let kept = g.masked(node.inputs[0], y)?;
            g.summed_to(kept, input)
        }
        (Op::Where, 2) => {
            let zero = g.number(0.0);
            let kept = g.select(node.inputs[0], zero, y)?;
            g.summed_to(kept, input)
        }
        (Op::AveragePool { window, divisor }, _) => {
            let spatial = input.dims()[2..].iter().filter_map(|d| d.fixed()).collect();
            g.add(Op::AveragePoolTranspose { window: window.clone(), divisor: *divisor, spatial }, &[y])
        }
        (Op::AveragePoolTranspose { window, divisor, .. }, _) => {
            g.add(Op::AveragePool { window: window.clone(), divisor: *divisor }, &[y])
        }
        (Op::Reduce { reduction: Reduction::Sum, axes, .. }, _) => spread(g, y, input, axes, false),
        (Op::Reduce { reduction: Reduction::Mean, axes, .. }, _) => spread(g, y, input, axes, true),
        (Op::Concat { axis }, _) => transpose_concat(g, node, index, y, *axis),
        (Op::Slice { axis, start, step: 1, length }, _) => {
            let mut pads = vec![(0, 0); input.rank()];
            let available = input.fixed_at(*axis).unwrap_or(*length);
            pads[*axis] = (*start, available - start - length);
            g.add(Op::Pad { padding: Padding::Constant(0.0), pads }, &[y])
        }
        (Op::Slice { axis, start, step, .. }, _) => {
            transpose_slice(g, y, *axis, (*start, *step), input.fixed_at(*axis).unwrap_or(0))
        }
        (Op::Pad { padding: Padding::Constant(_), pads }, _) => transpose_padding(g, y, pads, input),
        (Op::Pad { padding, pads }, _) => {
            let mut value = y;
            for (axis, &(before, after)) in pads.iter().enumerate() {
                if (before, after) != (0, 0) {
                    let available = input.fixed_at(axis).unwrap_or(0);
                    value = transpose_pad(g, value, axis, ((before, after), *padding), available)?;
                }
            }
            Ok(value)
        }
        (Op::Reshape { .. }, _) => g.reshaped(y, input.clone()),
        (Op::Transpose { axes }, _) => {
            let mut inverse = vec![0; axes.len()];
            axes.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
            g.add(Op::Transpose { axes: inverse }, &[y])
        }
        (Op::Expand { .. }, _) => g.summed_to(y, input),
        (Op::Gather { axis }, 0) => transpose_gather(g, node, y, *axis, input),
        (Op::Resize { axes, interpolation, coordinates }, _) => {
            let mut value = y;
            for resized in axes {
                let length = input.fixed_at(resized.axis).unwrap_or(0);
                let map = AxisMap::resize(length, resized, *interpolation, *coordinates);
                let map = if magnitude { map.absolute() } else { map };
                value = apply_transposed(g, value, resized.axis, &map)?;
            }
            Ok(value)
        }
        (Op::Identity | Op::Dropout { .. } | Op::Cast { .. }, _) => Ok(y),
        (
            Op::Input
            | Op::Constant(_)
            | Op::Conv { .. }
            | Op::ConvTranspose { .. }
            | Op::MatMul { .. }
            | Op::BatchNorm { .. }
            | Op::LayerNorm { .. }
            | Op::GroupNorm { .. }
            | Op::LocalResponseNorm { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Where
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::MaxPool(_)
            | Op::WinnerGather(_)
            | Op::WinnerScatter(_)
            | Op::Reduce { reduction: Reduction::Max | Reduction::Min | Reduction::Product, .. }
            | Op::ArgMax { .. }
            | Op::Gather { .. },
            index,
        ) => Err(Error::unsupported(format!(
            "{} has no transpose for its input {index}; make that input a constant",
            node.op.name()
        ))),
    }
}

/// The transpose of a convolution's dependence on its weights, the input `x` held: `x` and `y` correlated over samples
/// and positions, which is a convolution with samples for channels, and stride and dilation exchanged.
fn weight_transpose(g: &mut Graph, window: &Window, groups: usize, x: NodeId, y: NodeId) -> Result<NodeId> {
    let (xs, ys) = (g.node(x).shape.dims().to_vec(), g.node(y).shape.dims().to_vec());
    let fixed: Option<Vec<usize>> = xs.iter().chain(&ys).map(|d| d.fixed()).collect();
    let (Some(_), Some(channels)) = (fixed, xs[1].over(Dim::Fixed(groups))) else {
        return Err(Error::unsupported(
            "the gradient of a kernel needs a batch of fixed size; give the graph's inputs fixed shapes",
        ));
    };
    let rank = xs.len();
    let grouped = [&[xs[0], Dim::Fixed(groups), channels], &xs[2..]].concat();
    let grouped = g.reshaped(x, Shape::new(grouped))?;
    let axes: Vec<usize> = [2, 1, 0].into_iter().chain(3..=rank).collect();
    let exchanged = g.add(Op::Transpose { axes }, &[grouped])?;
    let samples = xs[0].times(Dim::Fixed(groups)).unwrap_or(Dim::Fixed(0));
    let exchanged = g.reshaped(exchanged, Shape::new([&[channels, samples], &xs[2..]].concat()))?;
    let swap: Vec<usize> = [1, 0].into_iter().chain(2..rank).collect();
    let kernel = g.add(Op::Transpose { axes: swap.clone() }, &[y])?;
    let correlation = Window {
        kernel: ys[2..].iter().filter_map(|d| d.fixed()).collect(),
        stride: window.dilation.clone(),
        dilation: window.stride.clone(),
        pad: window.pad.clone(),
        ceil: false,
    };
    let mut weights = g.add(Op::Conv { window: correlation, groups }, &[exchanged, kernel])?;
    for (axis, &length) in window.kernel.iter().enumerate() {
        if g.node(weights).shape.fixed_at(axis + 2) != Some(length) {
            weights = g.add(Op::Slice { axis: axis + 2, start: 0, step: 1, length }, &[weights])?;
        }
    }
    g.add(Op::Transpose { axes: swap }, &[weights])
}

fn transpose_matmul(
    g: &mut Graph,
    index: usize,
    y: NodeId,
    operands: &[NodeId],
    trans_a: bool,
    trans_b: bool,
) -> Result<NodeId> {
    let (a, b) = (operands[0], operands[1]);
    let (flags, pair) = match (index, trans_a, trans_b) {
        (0, false, _) => ((false, !trans_b), [y, b]),
        (0, true, _) => ((trans_b, true), [b, y]),
        (_, _, false) => ((!trans_a, false), [a, y]),
        (_, _, true) => ((true, trans_a), [y, a]),
    };
    g.add(Op::MatMul { trans_a: flags.0, trans_b: flags.1 }, &pair)
}

/// `scale/√(variance + ε)` of a batch normalisation, shaped to multiply its input.
pub fn batch_norm_scale(g: &mut Graph, node: &Node, epsilon: f64) -> Result<NodeId> {
    let variance = g.offset(epsilon, node.inputs[4])?;
    let deviation = g.unary(Unary::Sqrt, variance)?;
    let scale = g.over(node.inputs[1], deviation)?;
    g.per_channel(scale, node.shape.rank())
}

fn spread(g: &mut Graph, y: NodeId, input: &Shape, axes: &[usize], mean: bool) -> Result<NodeId> {
    let kept =
        input.dims().iter().enumerate().map(|(i, &d)| if axes.contains(&i) { Dim::Fixed(1) } else { d });
    let kept = g.reshaped(y, Shape::new(kept.collect::<Vec<_>>()))?;
    let share = match (mean, axes.iter().try_fold(1usize, |n, &axis| Some(n * input.fixed_at(axis)?))) {
        (false, _) => kept,
        (true, Some(count)) => g.scaled(1.0 / count as f64, kept)?,
        (true, None) => {
            let count = count(g, input, axes)?;
            g.over(kept, count)?
        }
    };
    g.add(Op::Expand { shape: input.clone() }, &[share])
}

/// How many elements a value has along `axes`, some of which run over the batch.
fn count(g: &mut Graph, shape: &Shape, axes: &[usize]) -> Result<NodeId> {
    let one = g.number(1.0);
    let along = Shape::new(axes.iter().map(|&axis| shape.dims()[axis]).collect::<Vec<_>>());
    let ones = g.add(Op::Expand { shape: along }, &[one])?;
    g.reduced(Reduction::Sum, ones, &(0..axes.len()).collect::<Vec<_>>(), false)
}

fn transpose_concat(g: &mut Graph, node: &Node, index: usize, y: NodeId, axis: usize) -> Result<NodeId> {
    let lengths: Option<Vec<usize>> = node.inputs.iter().map(|&i| g.node(i).shape.fixed_at(axis)).collect();
    let lengths =
        lengths.ok_or_else(|| Error::unsupported("a concatenation along the batch axis has no transpose"))?;
    let start = lengths[..index].iter().sum();
    g.add(Op::Slice { axis, start, step: 1, length: lengths[index] }, &[y])
}

fn transpose_padding(g: &mut Graph, y: NodeId, pads: &[(usize, usize)], input: &Shape) -> Result<NodeId> {
    let mut value = y;
    for (axis, &(start, after)) in pads.iter().enumerate() {
        if (start, after) != (0, 0) {
            let length = input.fixed_at(axis).unwrap_or(0);
            value = g.add(Op::Slice { axis, start, step: 1, length }, &[value])?;
        }
    }
    Ok(value)
}

fn transpose_gather(g: &mut Graph, node: &Node, y: NodeId, axis: usize, input: &Shape) -> Result<NodeId> {
    let indices = g
        .constant_value(node.inputs[1])
        .and_then(|t| t.to_i64())
        .ok_or_else(|| Error::unsupported("Gather has a transpose only where its indices are constant"))?;
    let length = input
        .fixed_at(axis)
        .ok_or_else(|| Error::unsupported("a Gather along the batch axis has no transpose"))?;
    let map = AxisMap::gather(length, &indices)?;
    let dims = input.dims();
    let flat = [&dims[..axis], &[Dim::Fixed(indices.len())], &dims[axis + 1..]].concat();
    let y = g.reshaped(y, Shape::new(flat))?;
    apply_transposed(g, y, axis, &map)
}

/// `value` resized as `node` does, with every interpolation weight replaced by its magnitude.
pub fn resized_in_magnitude(g: &mut Graph, node: &Node, value: NodeId) -> Result<NodeId> {
    let Op::Resize { axes, interpolation: interpolation @ Interpolation::Cubic { .. }, coordinates } =
        &node.op
    else {
        return g.add(node.op.clone(), &[value]);
    };
    let mut value = value;
    for resized in axes {
        let length = g.node(value).shape.fixed_at(resized.axis).unwrap_or(0);
        let map = AxisMap::resize(length, resized, *interpolation, *coordinates).absolute();
        value = apply_transposed(g, value, resized.axis, &map.transposed())?;
    }
    Ok(value)
}

/// The matrices of a resize along its axes, if some of their coefficients are negative; `None` for all other ops.
pub fn signed_resize(node: &Node, input: &Shape) -> Option<Vec<(usize, AxisMap)>> {
    let Op::Resize { axes, interpolation: interpolation @ Interpolation::Cubic { .. }, coordinates } =
        &node.op
    else {
        return None;
    };
    let map = |resized: &ResizeAxis| {
        let length = input.fixed_at(resized.axis).unwrap_or(0);
        let map = AxisMap::resize(length, resized, *interpolation, *coordinates);
        (resized.axis, map)
    };
    Some(axes.iter().map(map).collect())
}

/// `(M⁺ᵀp + M⁻ᵀn, M⁻ᵀp + M⁺ᵀn)` of a pair `(p, n)`, where `M⁺` and `M⁻` are the positive and the negative part of a matrix
/// along an axis.
pub fn apply_parts_transposed(
    g: &mut Graph,
    (p, n): (NodeId, NodeId),
    axis: usize,
    map: &AxisMap,
) -> Result<(NodeId, NodeId)> {
    let (positive, negative) = map.parts();
    let (pp, nn) = (apply_transposed(g, p, axis, &positive)?, apply_transposed(g, n, axis, &negative)?);
    let (np, pn) = (apply_transposed(g, p, axis, &negative)?, apply_transposed(g, n, axis, &positive)?);
    Ok((g.plus(pp, nn)?, g.plus(np, pn)?))
}
