//! Shape inference: shape and kind of a node's value, given those of its operands, or an error.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use crate::error::{Error, Hint, Result};
use crate::graph::Node;
use crate::op::{Binary, Op, Padding, Window};
use crate::shape::{Dim, Shape};
use crate::tensor::Kind;

/// The largest number of elements (per sample) a value may have: more than any machine holds, and where addresses are short, what
/// can be addressed.
const MAX_ELEMENTS: usize = if usize::BITS > 40 { (1u64 << 40) as usize } else { usize::MAX >> 3 };

/// Shape and kind of the value `op` produces from `inputs`.
pub(crate) fn infer(op: &Op, inputs: &[&Node]) -> Result<(Shape, Kind)> {
    check_arity(op, inputs.len())?;
    let shape = output_shape(op, inputs)?;
    let kind = output_kind(op, inputs)?;
    match shape.count() {
        Some(Dim::Fixed(n) | Dim::Batch(n)) if n <= MAX_ELEMENTS => Ok((shape, kind)),
        Some(_) => Err(Error::shape(format!(
            "the shape {shape} of the result has more than {MAX_ELEMENTS} elements"
        ))),
        None => Err(Error::shape(format!(
            "the number of elements of the shape {shape} of the result is too large, or no multiple of the batch size"
        ))),
    }
}

fn check_arity(op: &Op, found: usize) -> Result<()> {
    let arity = op.properties().arity;
    match arity.admits(found) {
        true => Ok(()),
        false => Err(Error::shape(format!("{} takes {}, found {found}", op.name(), arity.of("input")))),
    }
}

fn output_kind(op: &Op, inputs: &[&Node]) -> Result<Kind> {
    let kinds: Vec<Kind> = inputs.iter().map(|n| n.kind).collect();
    let expect = |wanted: Kind, of: &[Kind]| match of.iter().find(|&&k| k != wanted) {
        None => Ok(wanted),
        Some(found) => Err(Error::shape(format!("{} reads {wanted} values, found {found}", op.name()))),
    };
    let alike = |of: &[Kind]| expect(of[0], &of[1..]).map(|_| of[0]);
    match op {
        Op::Input | Op::Constant(_) => Err(Error::argument("inputs and constants are not inferred")),
        Op::Cast { to } => Ok(*to),
        Op::Unary(function) => match kinds[0] {
            kind if function.accepts(kind) => Ok(kind),
            Kind::Float | Kind::Int | Kind::Bool if function.accepts(Kind::Float) => {
                expect(Kind::Float, &kinds)
            }
            Kind::Float | Kind::Int | Kind::Bool => expect(Kind::Bool, &kinds),
        },
        Op::Binary(Binary::And | Binary::Or | Binary::Xor) => expect(Kind::Bool, &kinds),
        Op::Binary(Binary::Pow) => expect(kinds[0], &kinds[..1]),
        Op::Binary(binary) => alike(&kinds).map(|kind| if binary.is_predicate() { Kind::Bool } else { kind }),
        Op::Where => expect(Kind::Bool, &kinds[..1]).and_then(|_| alike(&kinds[1..])),
        Op::ArgMax { .. } => Ok(Kind::Int),
        Op::Gather { .. } => expect(Kind::Int, &kinds[1..]).map(|_| kinds[0]),
        Op::Reduce { .. } => match kinds[0] {
            Kind::Bool => expect(Kind::Float, &kinds),
            Kind::Float | Kind::Int => Ok(kinds[0]),
        },
        Op::Concat { .. } => alike(&kinds),
        Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Expand { .. }
        | Op::Identity
        | Op::Dropout { .. } => Ok(kinds[0]),
        Op::Conv { .. }
        | Op::ConvTranspose { .. }
        | Op::MatMul { .. }
        | Op::BatchNorm { .. }
        | Op::LayerNorm { .. }
        | Op::GroupNorm { .. }
        | Op::LocalResponseNorm { .. }
        | Op::Softmax { .. }
        | Op::LogSoftmax { .. }
        | Op::MaxPool(_)
        | Op::AveragePool { .. }
        | Op::AveragePoolTranspose { .. }
        | Op::WinnerGather(_)
        | Op::WinnerScatter(_)
        | Op::Resize { .. } => expect(Kind::Float, &kinds),
    }
}

fn output_shape(op: &Op, inputs: &[&Node]) -> Result<Shape> {
    let shapes: Vec<&Shape> = inputs.iter().map(|n| &n.shape).collect();
    match op {
        Op::Input | Op::Constant(_) => Err(Error::argument("inputs and constants are not inferred")),
        Op::Conv { window, groups } => conv(window, *groups, &shapes),
        Op::ConvTranspose { window, groups, output_padding } => {
            conv_transpose(window, *groups, output_padding, &shapes)
        }
        Op::MatMul { trans_a, trans_b } => matmul(*trans_a, *trans_b, &shapes),
        Op::BatchNorm { .. } => per_channel(&shapes),
        Op::GroupNorm { groups, .. } => {
            let channels = channels(shapes[0])?;
            if *groups == 0 || channels % groups != 0 {
                return Err(Error::shape(format!("{channels} channels cannot be put into {groups} groups")));
            }
            per_channel(&shapes)
        }
        Op::LayerNorm { axis, .. } => layer_norm(*axis, &shapes),
        Op::LocalResponseNorm { size, .. } => {
            channels(shapes[0])?;
            if *size == 0 { Err(Error::shape("LRN over no channels")) } else { Ok(shapes[0].clone()) }
        }
        Op::Unary(_) | Op::Cast { .. } | Op::Identity | Op::Dropout { .. } => Ok(shapes[0].clone()),
        Op::Binary(Binary::PRelu) => match shapes[0].broadcast(shapes[1])? {
            shape if shape == *shapes[0] => Ok(shape),
            _ => Err(Error::shape(format!("a slope of shape {} does not fit {}", shapes[1], shapes[0]))),
        },
        Op::Binary(_) => shapes[0].broadcast(shapes[1]),
        Op::Where => shapes[0].broadcast(shapes[1])?.broadcast(shapes[2]),
        Op::Softmax { axis } | Op::LogSoftmax { axis } => {
            checked_axis(*axis, shapes[0]).map(|_| shapes[0].clone())
        }
        Op::MaxPool(window) | Op::AveragePool { window, .. } => pool(window, shapes[0]),
        Op::AveragePoolTranspose { window, spatial, .. } => unpool(window, spatial, shapes[0]),
        Op::WinnerGather(window) => {
            same(shapes[0], shapes[1])?;
            pool(window, shapes[0])
        }
        Op::WinnerScatter(window) => {
            same(&pool(window, shapes[0])?, shapes[1])?;
            Ok(shapes[0].clone())
        }
        Op::Reduce { axes, keep, .. } => reduce(axes, *keep, shapes[0]),
        Op::ArgMax { axis, keep } => reduce(&[*axis], *keep, shapes[0]),
        Op::Concat { axis } => concat(*axis, &shapes),
        Op::Slice { axis, start, step, length } => slice(*axis, *start, *step, *length, shapes[0]),
        Op::Pad { padding, pads } => pad(*padding, pads, shapes[0]),
        Op::Reshape { shape } => match (shape.count(), shapes[0].count()) {
            (Some(a), Some(b)) if a == b => Ok(shape.clone()),
            _ => Err(Error::shape(format!("{} cannot be reshaped to {shape}", shapes[0]))),
        },
        Op::Transpose { axes } => transpose(axes, shapes[0]),
        Op::Expand { shape } => match shapes[0].broadcast(shape)? {
            full if full == *shape => Ok(full),
            _ => Err(Error::shape(format!("{} cannot be expanded to {shape}", shapes[0]))),
        },
        Op::Gather { axis } => {
            checked_axis(*axis, shapes[0])?;
            let dims = shapes[0].dims();
            Ok(Shape::new([&dims[..*axis], shapes[1].dims(), &dims[axis + 1..]].concat()))
        }
        Op::Resize { axes, .. } => {
            let mut dims = shapes[0].dims().to_vec();
            for resized in axes {
                checked_axis(resized.axis, shapes[0])?;
                if shapes[0].fixed_at(resized.axis).is_none_or(|n| n == 0) || resized.length == 0 {
                    return Err(Error::shape(format!(
                        "axis {} of {} cannot be resized",
                        resized.axis, shapes[0]
                    )));
                }
                dims[resized.axis] = Dim::Fixed(resized.length);
            }
            Ok(Shape::new(dims))
        }
    }
}

fn checked_axis(axis: usize, shape: &Shape) -> Result<Dim> {
    shape.dims().get(axis).copied().ok_or_else(|| Error::shape(format!("there is no axis {axis} in {shape}")))
}

fn same(expected: &Shape, found: &Shape) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::shape(format!("expected a value of shape {expected}, found {found}")))
}

fn channels(shape: &Shape) -> Result<usize> {
    shape
        .fixed_at(1)
        .ok_or_else(|| Error::shape(format!("expected [N, channels, …] with fixed channels, found {shape}")))
}

fn per_channel(shapes: &[&Shape]) -> Result<Shape> {
    let expected = Shape::fixed(&[channels(shapes[0])?]);
    shapes[1..].iter().try_for_each(|s| same(&expected, s))?;
    Ok(shapes[0].clone())
}

fn layer_norm(axis: usize, shapes: &[&Shape]) -> Result<Shape> {
    checked_axis(axis, shapes[0])?;
    let normalised = Shape::new(&shapes[0].dims()[axis..]);
    for parameter in &shapes[1..] {
        same(&normalised, &normalised.broadcast(parameter)?)?;
    }
    Ok(shapes[0].clone())
}

fn check_window(window: &Window, shape: &Shape) -> Result<()> {
    let axes = window.axes();
    let consistent =
        [window.stride.len(), window.dilation.len(), window.pad.len()].iter().all(|&n| n == axes);
    if !consistent || shape.rank() != axes + 2 || axes == 0 {
        return Err(Error::shape(format!(
            "a window over {axes} spatial axes does not fit a value of shape {shape}"
        )));
    }
    let positive = |v: &[usize]| v.iter().all(|&n| n > 0);
    if !(positive(&window.kernel) && positive(&window.stride) && positive(&window.dilation)) {
        return Err(Error::shape("kernel, stride and dilation must be at least 1"));
    }
    Ok(())
}

fn spatial(shape: &Shape) -> Result<Vec<usize>> {
    shape.dims()[2..]
        .iter()
        .map(|d| {
            let open = || Error::shape(format!("the spatial axes of {shape} must be fixed"));
            d.fixed().ok_or_else(|| open().hint(Hint::FIXED_BATCH))
        })
        .collect()
}

fn pool(window: &Window, shape: &Shape) -> Result<Shape> {
    check_window(window, shape)?;
    let mut dims = shape.dims()[..2].to_vec();
    for (axis, length) in spatial(shape)?.into_iter().enumerate() {
        let positions = window.positions(axis, length).ok_or_else(|| {
            Error::shape(format!("a window of {:?} does not fit into {shape}", window.kernel))
        })?;
        dims.push(Dim::Fixed(positions));
    }
    Ok(Shape::new(dims))
}

fn unpool(window: &Window, spatial: &[usize], shape: &Shape) -> Result<Shape> {
    check_window(window, shape)?;
    let dims = shape.dims()[..2].iter().copied().chain(spatial.iter().map(|&n| Dim::Fixed(n)));
    let full = Shape::new(dims.collect::<Vec<_>>());
    same(&pool(window, &full)?, shape)?;
    Ok(full)
}

fn conv(window: &Window, groups: usize, shapes: &[&Shape]) -> Result<Shape> {
    let (x, w) = (shapes[0], shapes[1]);
    let positions = pool(window, x)?;
    let input_channels = channels(x)?;
    let weight = fixed(w)?;
    let fits = groups > 0
        && weight.len() == window.axes() + 2
        && weight[2..] == window.kernel
        && weight[1].checked_mul(groups) == Some(input_channels)
        && weight[0] % groups == 0;
    if !fits {
        return Err(Error::shape(format!(
            "a kernel of shape {w} in {groups} group(s) does not fit an input of shape {x}"
        )));
    }
    bias(shapes.get(2), weight[0])?;
    let mut dims = positions.dims().to_vec();
    dims[1] = Dim::Fixed(weight[0]);
    Ok(Shape::new(dims))
}

fn conv_transpose(
    window: &Window,
    groups: usize,
    output_padding: &[usize],
    shapes: &[&Shape],
) -> Result<Shape> {
    let (x, w) = (shapes[0], shapes[1]);
    check_window(window, x)?;
    let weight = fixed(w)?;
    let fits = groups > 0
        && output_padding.len() == window.axes()
        && weight.len() == window.axes() + 2
        && weight[2..] == window.kernel
        && weight[0] == channels(x)?
        && weight[0] % groups == 0;
    let Some(output_channels) = weight.get(1).and_then(|n| n.checked_mul(groups)).filter(|_| fits) else {
        return Err(Error::shape(format!(
            "a transposed kernel of shape {w} in {groups} group(s) does not fit an input of shape {x}"
        )));
    };
    bias(shapes.get(2), output_channels)?;
    let mut dims = vec![x.dims()[0], Dim::Fixed(output_channels)];
    for (axis, length) in spatial(x)?.into_iter().enumerate() {
        let (before, after) = window.pad[axis];
        // Beyond a stride no element of the input reaches the padded end, and the result is no transpose.
        if output_padding[axis] >= window.stride[axis] {
            return Err(Error::shape(format!(
                "axis {} of a transposed convolution of {x} has {} elements more than its input and stride {} give, expected fewer than the stride",
                axis + 2,
                output_padding[axis],
                window.stride[axis]
            )));
        }
        let full = length
            .checked_sub(1)
            .and_then(|n| n.checked_mul(window.stride[axis]))
            .and_then(|n| n.checked_add(window.span(axis)?))
            .and_then(|n| n.checked_add(output_padding[axis]))
            .and_then(|n| n.checked_sub(before.checked_add(after)?))
            .filter(|&n| n > 0)
            .ok_or_else(|| {
                Error::shape(format!("a transposed convolution of {x} leaves nothing of axis {}", axis + 2))
            })?;
        dims.push(Dim::Fixed(full));
    }
    Ok(Shape::new(dims))
}

fn fixed(shape: &Shape) -> Result<Vec<usize>> {
    let dims: Option<Vec<usize>> = shape.dims().iter().map(|d| d.fixed()).collect();
    dims.ok_or_else(|| Error::shape(format!("expected fixed axes, found {shape}")))
}

fn bias(shape: Option<&&Shape>, channels: usize) -> Result<()> {
    shape.map_or(Ok(()), |b| same(&Shape::fixed(&[channels]), b))
}

fn matmul(trans_a: bool, trans_b: bool, shapes: &[&Shape]) -> Result<Shape> {
    let (a, b) = (shapes[0], shapes[1]);
    let matrix = |s: &Shape, transposed: bool| match s.dims() {
        [batch @ .., rows, columns] if transposed => Ok((Shape::new(batch), *columns, *rows)),
        [batch @ .., rows, columns] => Ok((Shape::new(batch), *rows, *columns)),
        _ => Err(Error::shape(format!("expected a matrix, found {s}"))),
    };
    let (batch_a, rows, inner) = matrix(a, trans_a)?;
    let (batch_b, inner_b, columns) = matrix(b, trans_b)?;
    if inner != inner_b {
        return Err(Error::shape(format!(
            "matrices of shape {a}{} and {b}{} cannot be multiplied",
            if trans_a { " transposed" } else { "" },
            if trans_b { " transposed" } else { "" },
        )));
    }
    let batch = batch_a.broadcast(&batch_b)?;
    let shape = Shape::new([batch.dims(), &[rows, columns]].concat());
    if let Some(bias) = shapes.get(2) {
        same(&shape, &shape.broadcast(bias)?)?;
    }
    Ok(shape)
}

fn reduce(axes: &[usize], keep: bool, shape: &Shape) -> Result<Shape> {
    axes.iter().try_for_each(|&axis| checked_axis(axis, shape).map(|_| ()))?;
    if axes.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(Error::shape(format!("reduced axes must ascend, found {axes:?}")));
    }
    let dims = shape.dims().iter().enumerate().filter_map(|(axis, &dim)| match axes.contains(&axis) {
        false => Some(dim),
        true => keep.then_some(Dim::Fixed(1)),
    });
    Ok(Shape::new(dims.collect::<Vec<_>>()))
}

fn concat(axis: usize, shapes: &[&Shape]) -> Result<Shape> {
    let mut joined = checked_axis(axis, shapes[0])?;
    for shape in &shapes[1..] {
        let others_agree = shape.rank() == shapes[0].rank()
            && (0..shape.rank()).all(|i| i == axis || shape.dims()[i] == shapes[0].dims()[i]);
        let longer = others_agree
            .then(|| match (joined, shape.dims()[axis]) {
                (Dim::Fixed(a), Dim::Fixed(b)) => a.checked_add(b).map(Dim::Fixed),
                (Dim::Batch(a), Dim::Batch(b)) => a.checked_add(b).map(Dim::Batch),
                _ => None,
            })
            .flatten();
        joined = longer.ok_or_else(|| {
            Error::shape(format!("{} and {shape} cannot be joined along axis {axis}", shapes[0]))
        })?;
    }
    let mut dims = shapes[0].dims().to_vec();
    dims[axis] = joined;
    Ok(Shape::new(dims))
}

fn slice(axis: usize, start: usize, step: isize, length: usize, shape: &Shape) -> Result<Shape> {
    let bad = || {
        Error::shape(format!(
            "cannot take {length} elements from {start} by {step} along axis {axis} of {shape}"
        ))
    };
    let available = checked_axis(axis, shape)?.fixed().ok_or_else(bad)?;
    let within = |n: i128| (0..available as i128).contains(&n);
    let last = start as i128 + (length as i128 - 1) * step as i128;
    if step == 0 || start > available || (length > 0 && !(within(start as i128) && within(last))) {
        return Err(bad());
    }
    let mut dims = shape.dims().to_vec();
    dims[axis] = Dim::Fixed(length);
    Ok(Shape::new(dims))
}

fn pad(padding: Padding, pads: &[(usize, usize)], shape: &Shape) -> Result<Shape> {
    let bad = || Error::shape(format!("padding {pads:?} does not fit a value of shape {shape}"));
    if pads.len() != shape.rank() {
        return Err(bad());
    }
    let padded = shape.dims().iter().zip(pads).map(|(&dim, &(before, after))| match dim {
        _ if (before, after) == (0, 0) => Some(dim),
        Dim::Fixed(n) if padding == Padding::Reflect && before.max(after) >= n => None,
        Dim::Fixed(0) if padding == Padding::Edge => None,
        Dim::Fixed(n) => n.checked_add(before)?.checked_add(after).map(Dim::Fixed),
        Dim::Batch(_) => None,
    });
    padded.collect::<Option<Vec<_>>>().map(Shape::new).ok_or_else(bad)
}

fn transpose(axes: &[usize], shape: &Shape) -> Result<Shape> {
    let mut seen = vec![false; shape.rank()];
    let permutation = axes.len() == shape.rank()
        && axes.iter().all(|&a| seen.get_mut(a).is_some_and(|s| !std::mem::replace(s, true)));
    if !permutation {
        return Err(Error::shape(format!("{axes:?} does not reorder the axes of {shape}")));
    }
    Ok(Shape::new(axes.iter().map(|&a| shape.dims()[a]).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::op::Unary;
    use crate::tensor::Tensor;

    fn shape_of(op: Op, shapes: &[Shape]) -> Result<Shape> {
        let mut g = Graph::new();
        let inputs: Vec<_> = shapes.iter().map(|s| g.input("x", s.clone(), Kind::Float)).collect();
        g.add(op, &inputs).map(|id| g.node(id).shape.clone())
    }

    #[test]
    fn a_transposed_convolution_undoes_the_shape_of_a_convolution() {
        for length in 5..20 {
            for stride in 1..4 {
                for dilation in 1..3 {
                    let mut window = Window::new([3]);
                    window.stride = vec![stride];
                    window.dilation = vec![dilation];
                    window.pad = vec![(1, 0)];
                    let x = Shape::batched(&[4, length]);
                    let w = Shape::fixed(&[6, 2, 3]);
                    let y = shape_of(Op::Conv { window: window.clone(), groups: 2 }, &[x.clone(), w.clone()])
                        .unwrap();
                    let short = (y.fixed_at(2).unwrap() - 1) * stride + window.span(0).unwrap() - 1;
                    let op = Op::ConvTranspose { window, groups: 2, output_padding: vec![length - short] };
                    assert_eq!(shape_of(op, &[y, w]).unwrap(), x);
                }
            }
        }
    }

    /// ONNX Runtime refuses what has no convolution that it is the transpose of.
    #[test]
    fn a_transposed_convolution_is_padded_by_less_than_its_stride() {
        let (x, w) = (Shape::batched(&[1, 3]), Shape::fixed(&[1, 1, 2]));
        for (stride, dilation, padding) in [(2, 1, 1), (3, 1, 2), (2, 1, 2), (1, 3, 1), (1, 1, 1)] {
            let window = Window { stride: vec![stride], dilation: vec![dilation], ..Window::new([2]) };
            let op = Op::ConvTranspose { window, groups: 1, output_padding: vec![padding] };
            let found = shape_of(op, &[x.clone(), w.clone()]);
            assert_eq!(found.is_ok(), padding < stride, "{stride} {dilation} {padding}");
        }
    }

    #[test]
    fn matrices_multiply_with_batch_and_transposes() {
        let op = |trans_a, trans_b| Op::MatMul { trans_a, trans_b };
        let a = Shape::batched(&[4, 5]);
        assert_eq!(
            shape_of(op(false, true), &[a.clone(), Shape::fixed(&[7, 5])]).unwrap(),
            Shape::batched(&[4, 7])
        );
        assert_eq!(
            shape_of(op(true, false), &[a.clone(), Shape::fixed(&[4, 7])]).unwrap(),
            Shape::batched(&[5, 7])
        );
        assert!(shape_of(op(false, false), &[a, Shape::fixed(&[4, 7])]).is_err());
    }

    #[test]
    fn reshapes_keep_the_number_of_elements_at_every_batch_size() {
        let to = |dims: &[Dim]| Op::Reshape { shape: Shape::new(dims) };
        let x = Shape::batched(&[6, 4]);
        assert!(shape_of(to(&[Dim::Batch(2), Dim::Fixed(12)]), std::slice::from_ref(&x)).is_ok());
        assert!(shape_of(to(&[Dim::Fixed(24)]), &[x]).is_err());
    }

    #[test]
    fn slices_stay_inside() {
        let take = |start, step, length| Op::Slice { axis: 1, start, step, length };
        let x = [Shape::batched(&[6])];
        assert_eq!(shape_of(take(5, -2, 3), &x).unwrap(), Shape::batched(&[3]));
        assert!(shape_of(take(4, -2, 4), &x).is_err());
        assert!(shape_of(take(0, 1, 7), &x).is_err());
        // Nothing is taken at the end at most: its transpose pads by what stands on both sides.
        assert_eq!(shape_of(take(6, 1, 0), &x).unwrap(), Shape::batched(&[0]));
        assert!(shape_of(take(7, 1, 0), &x).is_err());
        assert!(shape_of(Op::Slice { axis: 0, start: 0, step: 1, length: 1 }, &x).is_err());
    }

    #[test]
    fn kinds_are_checked() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let i = g.constant(Tensor::vector(vec![0i64]));
        assert!(g.add(Op::Binary(Binary::Add), &[x, i]).is_err());
        let less = g.add(Op::Binary(Binary::Less), &[x, x]).unwrap();
        assert_eq!(g.node(less).kind, Kind::Bool);
        assert!(g.add(Op::Unary(Unary::Relu), &[less]).is_err());
    }

    #[test]
    fn absurd_results_are_refused() {
        let x = Shape::fixed(&[1 << 30, 1]);
        let y = Shape::fixed(&[1, 1 << 30]);
        assert!(shape_of(Op::Binary(Binary::Add), &[x, y]).is_err());
    }
}
