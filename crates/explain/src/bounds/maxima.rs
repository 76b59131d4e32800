//! Maxima of two values at a time. The linear bounds of a maximum of two are tight where those of one over a window are not, and
//! every other maximum is made of them.

use monosplit_graph::op::{Binary, Padding, Reduction, Unary, Window};
use monosplit_graph::passes::{Rewrite, Step};
use monosplit_graph::{Graph, Kind, Node, NodeId, Op, Result};

/// Rewrites pooling and reductions to the largest or smallest element, limits and absolute values as maxima and minima of two
/// values. No value of the network changes.
pub(super) fn pairwise_maxima(network: &Graph) -> Result<Graph> {
    Rewrite::run(network, |rewrite, _, node| {
        if node.kind != Kind::Float {
            return Ok(Step::Keep);
        }
        let inputs = rewrite.inputs(node);
        let g = &mut rewrite.target;
        let value = match &node.op {
            Op::MaxPool(window) => pooled(g, node, inputs[0], window)?,
            Op::Reduce { reduction: Reduction::Max, axes, .. } => {
                extreme(g, node, inputs[0], axes, Binary::Max)?
            }
            Op::Reduce { reduction: Reduction::Min, axes, .. } => {
                extreme(g, node, inputs[0], axes, Binary::Min)?
            }
            Op::Unary(Unary::Clip { min, max }) => Some(limited(g, inputs[0], *min, *max)?),
            Op::Unary(Unary::HardSigmoid { alpha, beta }) => {
                let line = g.scaled(*alpha, inputs[0])?;
                let line = g.offset(*beta, line)?;
                Some(limited(g, line, 0.0, 1.0)?)
            }
            Op::Unary(Unary::Abs) => {
                let opposite = g.negated(inputs[0])?;
                Some(g.binary(Binary::Max, inputs[0], opposite)?)
            }
            _ => None,
        };
        // A limit without bounds is the value itself.
        Ok(value.filter(|&value| value != inputs[0]).map_or(Step::Keep, Step::Replace))
    })
}

fn limited(g: &mut Graph, x: NodeId, min: f64, max: f64) -> Result<NodeId> {
    let mut value = x;
    if min > f64::NEG_INFINITY {
        let min = g.number(min);
        value = g.binary(Binary::Max, value, min)?;
    }
    if max < f64::INFINITY {
        let max = g.number(max);
        value = g.binary(Binary::Min, value, max)?;
    }
    Ok(value)
}

/// The maximum over a window, along one axis after the other. Padding repeats the element at the edge, which changes no maximum
/// where every window that reaches the padding covers that element; `None` where one does not.
fn pooled(g: &mut Graph, node: &Node, x: NodeId, window: &Window) -> Result<Option<NodeId>> {
    let shape = g.node(x).shape.clone();
    let padding = (0..window.axes()).map(|axis| {
        let (length, positions) = (shape.fixed_at(axis + 2)?, node.shape.fixed_at(axis + 2)?);
        padding_with_edges(window, axis, length, positions)
    });
    let Some(padding) = padding.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let mut value = x;
    for (axis, (before, after)) in padding.into_iter().enumerate() {
        let along = axis + 2;
        let positions = node.shape.fixed_at(along).unwrap_or(1);
        if (before, after) != (0, 0) {
            let mut pads = vec![(0, 0); node.shape.rank()];
            pads[along] = (before, after);
            value = g.add(Op::Pad { padding: Padding::Edge, pads }, &[value])?;
        }
        let step = window.stride[axis] as isize;
        let taps = (0..window.kernel[axis]).map(|tap| {
            let start = tap * window.dilation[axis];
            g.add(Op::Slice { axis: along, start, step, length: positions }, &[value])
        });
        let taps = taps.collect::<Result<Vec<_>>>()?;
        value = folded(g, taps, Binary::Max)?;
    }
    Ok(Some(value))
}

/// By how many elements an axis is padded for every window to lie within it; `None` if a window that reaches the padding misses the
/// element at the edge.
fn padding_with_edges(
    window: &Window,
    axis: usize,
    length: usize,
    positions: usize,
) -> Option<(usize, usize)> {
    let before = window.pad[axis].0;
    let last = positions.checked_sub(1)?.checked_mul(window.stride[axis])?;
    let after = last.checked_add(window.span(axis)?)?.saturating_sub(length + before);
    let inside = (before, after) == (0, 0);
    // Without gaps a window covers the edge that it reaches beyond, unless it lies in the padding altogether.
    let gapless = window.dilation[axis] == 1 && before < window.kernel[axis] && last < length + before;
    (inside || gapless).then_some((before, after))
}

/// The extreme over axes of fixed length; `None` if one runs over the samples.
fn extreme(g: &mut Graph, node: &Node, x: NodeId, axes: &[usize], binary: Binary) -> Result<Option<NodeId>> {
    let shape = g.node(x).shape.clone();
    if axes.iter().any(|&axis| shape.fixed_at(axis).is_none_or(|length| length == 0)) {
        return Ok(None);
    }
    let mut value = x;
    for &axis in axes {
        while let Some(length) = g.node(value).shape.fixed_at(axis).filter(|&length| length > 1) {
            let half = length / 2;
            let mut part = |start, length| g.add(Op::Slice { axis, start, step: 1, length }, &[value]);
            let (first, second) = (part(0, half)?, part(half, half)?);
            let rest = if length % 2 == 1 { Some(part(length - 1, 1)?) } else { None };
            value = g.binary(binary, first, second)?;
            if let Some(rest) = rest {
                // The largest of three is that of the first two and the third, at every position.
                value = g.binary(binary, value, rest)?;
            }
        }
    }
    g.reshaped(value, node.shape.clone()).map(Some)
}

/// The extreme of several values of one shape, as a balanced tree.
fn folded(g: &mut Graph, mut values: Vec<NodeId>, binary: Binary) -> Result<NodeId> {
    while values.len() > 1 {
        let pairs = values.chunks(2).map(|pair| match *pair {
            [a, b] => g.binary(binary, a, b),
            [a, ..] => Ok(a),
            [] => unreachable!("chunks are not empty"),
        });
        values = pairs.collect::<Result<Vec<_>>>()?;
    }
    Ok(values[0])
}
