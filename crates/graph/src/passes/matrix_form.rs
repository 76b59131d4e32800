//! Convolutions as matrix products, averages and interpolations as sums, normalisations decomposed. For runtimes that have
//! these ops in single precision only, but matrix products in double precision too, as ONNX Runtime on a CPU.

use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Coordinates, Divisor, Interpolation, Op, Padding, Reduction, ResizeAxis, Window};
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

use super::decompose::primitive;
use super::portable::turned;
use super::rewrite::{Rewrite, Step};

/// Rewrites convolutions and their transposes into matrix products, averages under a window, their transposes and
/// interpolations into sums, group and local response norms into what they are made of. Those over axes of unknown length
/// are kept.
pub fn matrix_form(graph: &Graph) -> Result<Graph> {
    let apart = Rewrite::run(graph, |rewrite, _, node| {
        let is_norm = matches!(node.op, Op::GroupNorm { .. } | Op::LocalResponseNorm { .. });
        let inputs = rewrite.inputs(node);
        let value = if is_norm { primitive(&mut rewrite.target, &node.op, &inputs)? } else { None };
        Ok(value.map_or(Step::Keep, Step::Replace))
    })?;
    Rewrite::run(&apart, |rewrite, _, node| {
        let inputs = rewrite.inputs(node);
        let g = &mut rewrite.target;
        let value = match &node.op {
            Op::Conv { window, groups } => convolution(g, node, &inputs, window, *groups)?,
            Op::ConvTranspose { window, groups, .. } => transposed(g, node, &inputs, window, *groups)?,
            Op::AveragePool { window, divisor } => match spatial(&g.node(inputs[0]).shape) {
                Some(lengths) => Some(average(g, inputs[0], window, &lengths, *divisor)?),
                None => None,
            },
            Op::AveragePoolTranspose { window, divisor, spatial } => {
                spread(g, inputs[0], window, spatial, *divisor)?
            }
            Op::Resize { axes, interpolation, coordinates } => {
                resized(g, inputs[0], axes, *interpolation, *coordinates)?
            }
            _ => None,
        };
        Ok(value.map_or(Step::Keep, Step::Replace))
    })
}

/// A resized value: along each axis, the weighted sum of the taps of each position.
fn resized(
    g: &mut Graph,
    x: NodeId,
    axes: &[ResizeAxis],
    interpolation: Interpolation,
    coordinates: Coordinates,
) -> Result<Option<NodeId>> {
    let known = |axis: &ResizeAxis| g.node(x).shape.fixed_at(axis.axis).is_some_and(|length| length > 0);
    if !axes.iter().all(known) {
        return Ok(None);
    }
    let lengths: Vec<usize> = g.node(x).shape.dims().iter().map(|dim| dim.fixed().unwrap_or(1)).collect();
    let mut value = x;
    for axis in ResizeAxis::shrinking_first(axes, &lengths) {
        let taps = axis.taps(interpolation, coordinates, lengths[axis.axis]);
        value = g.tap_sums(value, axis.axis, &taps)?;
    }
    Ok(Some(value))
}

fn spatial(shape: &Shape) -> Option<Vec<usize>> {
    shape.dims().iter().skip(2).map(|d| d.fixed()).collect()
}

fn convolution(
    g: &mut Graph,
    node: &Node,
    inputs: &[NodeId],
    window: &Window,
    groups: usize,
) -> Result<Option<NodeId>> {
    let known = [inputs[0], inputs[1]].iter().all(|&id| spatial(&g.node(id).shape).is_some());
    let positions = spatial(&node.shape).filter(|_| known);
    let Some(positions) = positions else { return Ok(None) };
    let border: Vec<_> =
        window.pad.iter().map(|&(before, after)| (before as isize, after as isize)).collect();
    let x = with_border(g, inputs[0], 2, &border)?;
    product(g, x, &inputs[1..], window, groups, &positions).map(Some)
}

/// A transposed convolution is a convolution, of stride one and with rotated kernels, of its input with zeros between the
/// elements.
fn transposed(
    g: &mut Graph,
    node: &Node,
    inputs: &[NodeId],
    window: &Window,
    groups: usize,
) -> Result<Option<NodeId>> {
    let (Some(from), Some(to)) = (spatial(&g.node(inputs[0]).shape), spatial(&node.shape)) else {
        return Ok(None);
    };
    let tiles = from.iter().zip(&window.stride).map(|(&n, &s)| n.checked_mul(s));
    let plain = window.dilation.iter().all(|&d| d == 1) && window.pad.iter().all(|&pad| pad == (0, 0));
    let side_by_side = plain && window.kernel == window.stride;
    if side_by_side && groups == 1 && tiles.eq(to.iter().map(|&n| Some(n))) {
        return tiled(g, inputs, window, &from, &to).map(Some);
    }
    let spans: Option<Vec<usize>> = (0..window.axes()).map(|axis| window.span(axis)).collect();
    let (Some(spans), Some(weight)) = (spans, turned(g, inputs[1], groups)?) else { return Ok(None) };
    let x = apart(g, inputs[0], &from, &window.stride)?;
    let border = (0..window.axes()).map(|axis| around(window, axis, spans[axis], from[axis], to[axis]));
    let x = with_border(g, x, 2, &border.collect::<Vec<_>>())?;
    let ones = vec![1; window.axes()];
    let back = Window { stride: ones, ..window.clone() };
    let operands: Vec<NodeId> = [weight].into_iter().chain(inputs.get(2).copied()).collect();
    product(g, x, &operands, &back, groups, &to).map(Some)
}

/// A transposed convolution whose windows lie side by side: every element becomes a tile of its own. Patches of a vision
/// transformer are such, and there are too many taps in one to lay them all out at every pixel.
fn tiled(g: &mut Graph, inputs: &[NodeId], window: &Window, from: &[usize], to: &[usize]) -> Result<NodeId> {
    let axes = window.axes();
    let (batch, channels) = (g.node(inputs[0]).shape.dims()[0], g.node(inputs[0]).shape.dims()[1]);
    let outputs = g.node(inputs[1]).shape.dims()[1];
    let (taps, count): (usize, usize) = (window.kernel.iter().product(), from.iter().product());
    let depth = outputs.fixed().and_then(|n| n.checked_mul(taps)).unwrap_or(0);
    let kernels = g.reshaped(inputs[1], Shape::new([channels, Dim::Fixed(depth)]))?;
    let kernels = g.add(Op::Transpose { axes: vec![1, 0] }, &[kernels])?;
    let elements = g.reshaped(inputs[0], Shape::new([batch, channels, Dim::Fixed(count)]))?;
    let product = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[kernels, elements])?;
    let lengths = window.kernel.iter().chain(from).map(|&n| Dim::Fixed(n));
    let shape: Vec<Dim> = [batch, outputs].into_iter().chain(lengths).collect();
    let product = g.reshaped(product, Shape::new(shape))?;
    let order = [0, 1].into_iter().chain((0..axes).flat_map(|axis| [2 + axes + axis, 2 + axis])).collect();
    let tiles = g.add(Op::Transpose { axes: order }, &[product])?;
    let lengths = to.iter().map(|&n| Dim::Fixed(n));
    let shape: Vec<Dim> = [batch, outputs].into_iter().chain(lengths).collect();
    let value = g.reshaped(tiles, Shape::new(shape))?;
    biased(g, value, inputs.get(2).copied())
}

/// A number added to every channel.
fn biased(g: &mut Graph, value: NodeId, bias: Option<NodeId>) -> Result<NodeId> {
    let Some(bias) = bias else { return Ok(value) };
    let mut column = vec![Dim::Fixed(1); g.node(value).shape.rank()];
    column[1] = g.node(value).shape.dims()[1];
    let bias = g.reshaped(bias, Shape::new(column))?;
    g.plus(value, bias)
}

/// The product of kernels with the elements under each position of the window. `operands` are the kernels and perhaps a bias;
/// `x` is padded already.
fn product(
    g: &mut Graph,
    x: NodeId,
    operands: &[NodeId],
    window: &Window,
    groups: usize,
    positions: &[usize],
) -> Result<NodeId> {
    let axes = window.axes();
    let batch = g.node(x).shape.dims()[0];
    let fixed = |g: &Graph, id: NodeId, axis: usize| g.node(id).shape.fixed_at(axis).unwrap_or(0);
    let (outputs, per_group) = (fixed(g, operands[0], 0), fixed(g, operands[0], 1));
    let mut seen = x;
    for (axis, &length) in positions.iter().enumerate() {
        seen = views(g, seen, axis, window, length)?;
    }
    let (taps, count): (usize, usize) = (window.kernel.iter().product(), positions.iter().product());
    let depth = taps * per_group;
    let mut order: Vec<usize> = vec![0];
    order.extend((2..axes + 2).rev());
    order.push(1);
    let kernels = g.add(Op::Transpose { axes: order }, &[operands[0]])?;
    let (kernels, seen) = if groups == 1 {
        let seen = g.reshaped(seen, Shape::new([batch, Dim::Fixed(depth), Dim::Fixed(count)]))?;
        (g.reshaped(kernels, Shape::fixed(&[outputs, depth]))?, seen)
    } else {
        let dims = [taps, groups, per_group, count].map(Dim::Fixed);
        let split = g.reshaped(seen, Shape::new([&[batch], &dims[..]].concat()))?;
        let sorted = g.add(Op::Transpose { axes: vec![0, 2, 1, 3, 4] }, &[split])?;
        let dims = [groups, depth, count].map(Dim::Fixed);
        let seen = g.reshaped(sorted, Shape::new([&[batch], &dims[..]].concat()))?;
        (g.reshaped(kernels, Shape::fixed(&[groups, outputs / groups, depth]))?, seen)
    };
    let product = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[kernels, seen])?;
    let lengths = positions.iter().map(|&n| Dim::Fixed(n));
    let shape: Vec<Dim> = [batch, Dim::Fixed(outputs)].into_iter().chain(lengths).collect();
    let value = g.reshaped(product, Shape::new(shape))?;
    biased(g, value, operands.get(1).copied())
}

/// The elements under the window along one axis, each tap as channels of its own.
fn views(g: &mut Graph, x: NodeId, axis: usize, window: &Window, length: usize) -> Result<NodeId> {
    let step = window.stride[axis] as isize;
    let mut taps = Vec::with_capacity(window.kernel[axis]);
    for tap in 0..window.kernel[axis] {
        let start = tap * window.dilation[axis];
        let whole = start == 0 && step == 1 && g.node(x).shape.fixed_at(axis + 2) == Some(length);
        taps.push(match whole {
            true => x,
            false => g.add(Op::Slice { axis: axis + 2, start, step, length }, &[x])?,
        });
    }
    match taps[..] {
        [only] => Ok(only),
        _ => g.add(Op::Concat { axis: 1 }, &taps),
    }
}

/// Zeros before and after axes, from `first` on; a negative number takes elements away.
fn with_border(g: &mut Graph, x: NodeId, first: usize, border: &[(isize, isize)]) -> Result<NodeId> {
    let mut value = x;
    let mut pads = vec![(0, 0); g.node(x).shape.rank()];
    for (axis, &(before, after)) in (first..).zip(border) {
        let (start, end) = ((-before).max(0) as usize, (-after).max(0) as usize);
        if (start, end) != (0, 0) {
            let length = g.node(x).shape.fixed_at(axis).unwrap_or(0).saturating_sub(start + end);
            value = g.add(Op::Slice { axis, start, step: 1, length }, &[value])?;
        }
        pads[axis] = (before.max(0) as usize, after.max(0) as usize);
    }
    if pads.iter().all(|&pad| pad == (0, 0)) {
        return Ok(value);
    }
    g.add(Op::Pad { padding: Padding::Constant(0.0), pads }, &[value])
}

/// A value with zeros after each element, so that neighbours are a stride apart.
fn apart(g: &mut Graph, x: NodeId, lengths: &[usize], stride: &[usize]) -> Result<NodeId> {
    if stride.iter().all(|&s| s == 1) {
        return Ok(x);
    }
    let lead = g.node(x).shape.dims()[..2].to_vec();
    let single = lengths.iter().flat_map(|&n| [n, 1]).map(Dim::Fixed).collect::<Vec<_>>();
    let single = g.reshaped(x, Shape::new([lead.clone(), single].concat()))?;
    let mut pads = vec![(0, 0); 2];
    pads.extend(stride.iter().flat_map(|&s| [(0, 0), (0, s - 1)]));
    let padded = g.add(Op::Pad { padding: Padding::Constant(0.0), pads }, &[single])?;
    let lengths = lengths.iter().zip(stride).map(|(&n, &s)| Dim::Fixed(n * s)).collect();
    g.reshaped(padded, Shape::new([lead, lengths].concat()))
}

/// A mean or sum under the window, one axis after the other.
fn average(g: &mut Graph, x: NodeId, window: &Window, lengths: &[usize], divisor: Divisor) -> Result<NodeId> {
    if window.kernel == lengths && window.pad.iter().all(|&pad| pad == (0, 0)) {
        let reduction = if divisor == Divisor::One { Reduction::Sum } else { Reduction::Mean };
        return g.reduced(reduction, x, &(2..lengths.len() + 2).collect::<Vec<_>>(), true);
    }
    let counts = window.divisors(lengths, divisor);
    let mut value = x;
    for (axis, &length) in lengths.iter().enumerate() {
        let positions = counts[axis].len();
        let reach =
            (positions.saturating_sub(1) * window.stride[axis] + window.span(axis).unwrap_or(1)) as isize;
        let before = window.pad[axis].0 as isize;
        value = with_border(g, value, axis + 2, &[(before, reach - before - length as isize)])?;
        value = sum_of_taps(g, value, axis, window, window.stride[axis], positions)?;
    }
    divided(g, value, &counts, divisor)
}

/// The transpose of a mean or sum under the window: a sum, of stride one, of its input with zeros between the elements.
fn spread(
    g: &mut Graph,
    y: NodeId,
    window: &Window,
    lengths: &[usize],
    divisor: Divisor,
) -> Result<Option<NodeId>> {
    let spans: Option<Vec<usize>> = (0..window.axes()).map(|axis| window.span(axis)).collect();
    let (Some(from), Some(spans)) = (spatial(&g.node(y).shape), spans) else { return Ok(None) };
    let shared = divided(g, y, &window.divisors(lengths, divisor), divisor)?;
    let mut value = apart(g, shared, &from, &window.stride)?;
    for (axis, &length) in lengths.iter().enumerate() {
        let border = around(window, axis, spans[axis], from[axis], length);
        value = with_border(g, value, axis + 2, &[border])?;
        value = sum_of_taps(g, value, axis, window, 1, length)?;
    }
    Ok(Some(value))
}

/// What stands before and after an axis of a value with zeros between its elements, so that a window of stride one has
/// as many positions on it as the transposed op has elements.
fn around(window: &Window, axis: usize, span: usize, from: usize, to: usize) -> (isize, isize) {
    let before = span as isize - 1 - window.pad[axis].0 as isize;
    (before, to as isize + span as isize - 1 - before - (from * window.stride[axis]) as isize)
}

fn sum_of_taps(
    g: &mut Graph,
    x: NodeId,
    axis: usize,
    window: &Window,
    stride: usize,
    length: usize,
) -> Result<NodeId> {
    let mut sum: Option<NodeId> = None;
    for tap in 0..window.kernel[axis] {
        let start = tap * window.dilation[axis];
        let seen = g.add(Op::Slice { axis: axis + 2, start, step: stride as isize, length }, &[x])?;
        sum = Some(sum.map_or(Ok(seen), |earlier| g.plus(earlier, seen))?);
    }
    Ok(sum.unwrap_or(x))
}

/// Divided at each position by the product of the counts along each axis.
fn divided(g: &mut Graph, x: NodeId, counts: &[Vec<usize>], divisor: Divisor) -> Result<NodeId> {
    if divisor == Divisor::One {
        return Ok(x);
    }
    let (mut value, mut everywhere) = (x, 1usize);
    for (axis, along) in counts.iter().enumerate() {
        match along.first() {
            Some(&first) if along.iter().all(|&count| count == first) => everywhere *= first.max(1),
            _ => {
                let mut shape = vec![1; counts.len()];
                shape[axis] = along.len();
                let along: Vec<f64> = along.iter().map(|&count| count.max(1) as f64).collect();
                let along = g.constant(Tensor::new(shape, along)?);
                value = g.over(value, along)?;
            }
        }
    }
    if everywhere == 1 {
        return Ok(value);
    }
    let everywhere = g.number(everywhere as f64);
    g.over(value, everywhere)
}
