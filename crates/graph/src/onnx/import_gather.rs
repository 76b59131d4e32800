//! Ops that pick elements by their positions.

use super::batch_positions::{Positions, Ramp, batch_index, known_ramp, same_for_all};
use super::call::{self, Call};
use super::evaluate::{nd_positions, value_shape};
use super::import::Importer;
use super::static_array::{StaticArray, broadcast_positions};
use super::value::Value;
use crate::error::{Error, Hint, Result};
use crate::graph::NodeId;
use crate::op::{Binary, Op, Reduction};
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor, element_count};

/// The most elements a sample may have while its own elements are picked from it.
const MOST_COMPARED: usize = 1 << 26;

fn across_the_batch(op: &str) -> Error {
    Error::unsupported(format!("{op} picks across the batch, whose samples must stay apart"))
        .hint(Hint::FIXED_BATCH)
}

pub(crate) fn gather(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let axis = call::axis(call.int("axis", 0)?, shape.rank())?;
    if let Some(ramp) = known_ramp(call.known(1)) {
        return gather_ramp(importer, x, axis, ramp);
    }
    if let Value::Positions(positions) = call.input(1)? {
        let Positions::Rows { stride, within } = **positions else { return Err(across_the_batch("Gather")) };
        let rows = samples_of(importer, x, axis, stride)?;
        return picked(importer, rows, within).map(|id| vec![Value::Node(id)]);
    }
    let indices = importer.operand(call, 1)?;
    if let (Some(length), Some(tensor)) = (shape.fixed_at(axis), importer.graph.constant_value(indices)) {
        let within = |&i: &i64| i < length as i64 && i >= -(length as i64);
        if let Some(bad) = tensor.to_i64().and_then(|v| v.iter().copied().find(|i| !within(i))) {
            return Err(Error::shape(format!("the index {bad} is outside axis {axis} of {shape}")));
        }
    }
    importer.one(Op::Gather { axis }, &[x, indices])
}

/// `[N, stride, …]` of a flattened batch of `stride` rows each.
fn samples_of(importer: &mut Importer, x: NodeId, axis: usize, stride: i64) -> Result<NodeId> {
    let shape = importer.shape(x);
    let rows = usize::try_from(stride).ok().filter(|&rows| rows > 0);
    match (rows, shape.dims().split_first()) {
        (Some(rows), Some((&Dim::Batch(all), rest))) if axis == 0 && all == rows => {
            let shape = Shape::new([&[Dim::Batch(1), Dim::Fixed(rows)], rest].concat());
            importer.add(Op::Reshape { shape }, &[x])
        }
        _ => Err(across_the_batch("Gather")),
    }
}

/// Indices `stride·n + base` into a flattened batch of `stride` rows each pick `base` of every sample.
fn gather_ramp(importer: &mut Importer, x: NodeId, axis: usize, ramp: &Ramp) -> Result<Vec<Value>> {
    let rows = samples_of(importer, x, axis, ramp.stride)?;
    let base = ramp.base.tensor().ok_or_else(|| across_the_batch("Gather"))?;
    let positions = base.to_i64().unwrap_or_else(|| Vec::new().into());
    if positions.iter().any(|&p| p < 0 || p >= ramp.stride) {
        return Err(across_the_batch("Gather"));
    }
    constant_rows(importer, rows, &positions, base.shape()).map(|id| vec![Value::Node(id)])
}

/// The rows at `positions` of `[N, S, …]`, under the shape `[N, outer…, …]`.
fn constant_rows(importer: &mut Importer, x: NodeId, positions: &[i64], outer: &[usize]) -> Result<NodeId> {
    let shape = importer.shape(x);
    let outer: Vec<Dim> = outer.iter().map(|&n| Dim::Fixed(n)).collect();
    let result = Shape::new([&shape.dims()[..1], &outer, &shape.dims()[2..]].concat());
    let all = shape.fixed_at(1) == Some(positions.len());
    let in_order = all && positions.iter().enumerate().all(|(i, &p)| p == i as i64);
    let taken = match in_order {
        true => x,
        false => {
            let indices = importer.constant(Tensor::vector(positions.to_vec()));
            importer.add(Op::Gather { axis: 1 }, &[x, indices])?
        }
    };
    importer.add(Op::Reshape { shape: result }, &[taken])
}

/// The rows of `[N, S, …]` at `within`, `[N, outer…]`, which is known when the graph is run: those whose position equals the index,
/// in a sum. Of an index outside it is zero.
fn picked(importer: &mut Importer, x: NodeId, within: NodeId) -> Result<NodeId> {
    let (shape, outer) = (importer.shape(x), importer.shape(within));
    let fixed = |dims: &[Dim]| dims.iter().map(|d| d.fixed()).collect::<Option<Vec<usize>>>();
    let lengths = fixed(&shape.dims()[1..]).zip(fixed(outer.dims().get(1..).unwrap_or_default()));
    let Some((lengths, picks)) = lengths.filter(|_| shape.dims()[0] == outer.dims()[0]) else {
        return Err(across_the_batch("a gather"));
    };
    let (rows, size) = (lengths[0], lengths[1..].iter().product::<usize>());
    let count = element_count(&picks).unwrap_or(usize::MAX);
    if element_count(&[count, rows, size]).is_none_or(|n| n > MOST_COMPARED) {
        return Err(Error::unsupported(format!(
            "picks {count} of {rows} rows of {size} elements of every sample, which is too many to compare"
        )));
    }
    let under = |lengths: &[usize]| {
        let rest: Vec<Dim> = lengths.iter().map(|&n| Dim::Fixed(n)).collect();
        Shape::new([&shape.dims()[..1], &rest].concat())
    };
    let values = importer.add(Op::Reshape { shape: under(&[1, rows, size]) }, &[x])?;
    let within = importer.add(Op::Reshape { shape: under(&[count, 1, 1]) }, &[within])?;
    let within = counted_from_the_end(importer, within, rows)?;
    let positions = Tensor::new([1, 1, rows, 1], (0..rows as i64).collect::<Vec<_>>())?;
    let chosen = where_equal(importer, within, positions, values, 2)?;
    let result = [&shape.dims()[..1], &outer.dims()[1..], &shape.dims()[2..]].concat();
    importer.add(Op::Reshape { shape: Shape::new(result) }, &[chosen])
}

/// Negative indices as those that they stand for.
fn counted_from_the_end(importer: &mut Importer, indices: NodeId, length: usize) -> Result<NodeId> {
    let (zero, length) =
        (importer.constant(Tensor::scalar(0i64)), importer.constant(Tensor::scalar(length as i64)));
    let negative = importer.add(Op::Binary(Binary::Less), &[indices, zero])?;
    let wrapped = importer.add(Op::Binary(Binary::Add), &[indices, length])?;
    importer.add(Op::Where, &[negative, wrapped, indices])
}

/// The sum over an axis of the values whose position equals the index.
fn where_equal(
    importer: &mut Importer,
    indices: NodeId,
    positions: Tensor,
    values: NodeId,
    axis: usize,
) -> Result<NodeId> {
    let kind = importer.graph.node(values).kind;
    let real = match kind {
        Kind::Float => values,
        Kind::Int | Kind::Bool => importer.add(Op::Cast { to: Kind::Float }, &[values])?,
    };
    let (positions, zero) = (importer.constant(positions), importer.constant(Tensor::scalar(0f32)));
    let equal = importer.add(Op::Binary(Binary::Equal), &[indices, positions])?;
    let kept = importer.add(Op::Where, &[equal, real, zero])?;
    let sum = Op::Reduce { reduction: Reduction::Sum, axes: vec![axis], keep: false };
    let sum = importer.add(sum, &[kept])?;
    if kind == Kind::Float { Ok(sum) } else { importer.add(Op::Cast { to: kind }, &[sum]) }
}

/// `GatherND`: constant indices are a gather over the addressed axes taken as one. Those that count the batch, or follow it
/// (`batch_dims` 1), address the axes of a sample.
pub(crate) fn gather_nd(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let batch_dims = call.int("batch_dims", 0)?;
    let tuples = match call.input(1)? {
        Value::Positions(positions) => match &**positions {
            Positions::Tuples(values) if batch_dims == 0 => Some(values.clone()),
            _ => return Err(across_the_batch("GatherND")),
        },
        _ => None,
    };
    if let Some(values) = tuples {
        let begins = values.first().is_some_and(batch_index);
        if !begins || shape.dims().first() != Some(&Dim::Batch(1)) {
            return Err(across_the_batch("GatherND"));
        }
        return of_each_sample(importer, x, &values[1..]);
    }
    match batch_dims {
        0 => gather_constant_nd(importer, call, x),
        1 => {
            let values = elements_of_tuples(importer, call)?;
            of_each_sample(importer, x, &values)
        }
        _ => Err(Error::unsupported(format!("GatherND with batch_dims {batch_dims} is not supported"))),
    }
}

/// The elements of the tuples along the last axis of the indices, each with a last axis of one.
fn elements_of_tuples(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let indices = importer.operand(call, 1)?;
    let shape = importer.shape(indices);
    let misfit = || Error::shape(format!("the indices of GatherND have the shape {shape}"));
    let axis = shape.rank().checked_sub(1).filter(|&axis| axis > 0).ok_or_else(misfit)?;
    let depth = shape.fixed_at(axis).ok_or_else(misfit)?;
    let element = |start| importer.add(Op::Slice { axis, start, step: 1, length: 1 }, &[indices]);
    (0..depth).map(element).map(|id| id.map(Value::Node)).collect()
}

/// The elements of `[N, S₁, …]` at the positions `[N, outer…, 1]` along its axes behind the first.
fn of_each_sample(importer: &mut Importer, x: NodeId, along: &[Value]) -> Result<Vec<Value>> {
    let shape = importer.shape(x);
    let addressed = shape.dims().get(1..=along.len()).unwrap_or_default();
    let lengths: Option<Vec<usize>> = addressed.iter().map(|d| d.fixed()).collect();
    let lengths = lengths.filter(|lengths| lengths.len() == along.len());
    let lengths =
        lengths.ok_or_else(|| Error::shape(format!("the indices of GatherND do not fit {shape}")))?;
    let rows = element_count(&lengths)
        .ok_or_else(|| Error::shape(format!("{shape} has more elements than can be addressed")))?;
    let Some(first) = along.first() else { return Ok(vec![Value::Node(x)]) };
    let flat = [&shape.dims()[..1], &[Dim::Fixed(rows)], &shape.dims()[along.len() + 1..]].concat();
    let flat = importer.add(Op::Reshape { shape: Shape::new(flat) }, &[x])?;
    let outer = value_shape(importer, first);
    let outer = Shape::new(&outer.dims()[..outer.rank() - 1]);
    let constant: Option<Vec<StaticArray>> =
        along.iter().map(|value| same_for_all(importer, value)).collect();
    if let Some(parts) = constant {
        let last = parts[0].shape.len() - 1;
        let positions = nd_positions(&lengths, &StaticArray::joined(&parts, last)?)?;
        let positions: Vec<i64> = positions.into_iter().map(|p| p as i64).collect();
        let taken = constant_rows(importer, flat, &positions, &parts[0].shape[..last])?;
        return Ok(vec![Value::Node(taken)]);
    }
    let mut within: Option<NodeId> = None;
    for (value, &length) in along.iter().zip(&lengths) {
        let index = match same_for_all(importer, value).and_then(|array| array.tensor()) {
            Some(tensor) => importer.constant(tensor),
            None => importer.node_of(value)?,
        };
        let index = counted_from_the_end(importer, index, length)?;
        within = Some(match within {
            None => index,
            Some(outer) => {
                let stride = importer.constant(Tensor::scalar(length as i64));
                let scaled = importer.add(Op::Binary(Binary::Mul), &[outer, stride])?;
                importer.add(Op::Binary(Binary::Add), &[scaled, index])?
            }
        });
    }
    let within = within.ok_or_else(|| Error::malformed("GatherND has no indices"))?;
    let within = match importer.shape(within).dims().first() {
        first if first == shape.dims().first() => importer.add(Op::Reshape { shape: outer }, &[within])?,
        _ => return Err(across_the_batch("GatherND")),
    };
    picked(importer, flat, within).map(|id| vec![Value::Node(id)])
}

fn gather_constant_nd(importer: &mut Importer, call: &Call, x: NodeId) -> Result<Vec<Value>> {
    let shape = importer.shape(x);
    let indices = call.array(1, "indices")?.ok_or_else(|| Error::malformed("GatherND has no indices"))?;
    let depth = indices.shape.last().copied().filter(|&d| d > 0 && d <= shape.rank());
    let depth = depth.ok_or_else(|| Error::shape(format!("the indices of GatherND do not fit {shape}")))?;
    let leading: Option<Vec<usize>> = shape.dims()[..depth].iter().map(|d| d.fixed()).collect();
    let leading = leading.ok_or_else(|| across_the_batch("GatherND"))?;
    let positions: Vec<i64> = nd_positions(&leading, &indices)?.into_iter().map(|p| p as i64).collect();
    let flat = element_count(&leading).ok_or_else(|| {
        Error::shape(format!("the shape {leading:?} has more elements than can be addressed"))
    })?;
    let rest = &shape.dims()[depth..];
    let rows = Shape::new([&[Dim::Fixed(flat)], rest].concat());
    let rows = importer.add(Op::Reshape { shape: rows }, &[x])?;
    let outer = indices.shape[..indices.shape.len() - 1].to_vec();
    let indices = importer.constant(Tensor::new(outer, positions)?);
    importer.one(Op::Gather { axis: 0 }, &[rows, indices])
}

/// `GatherElements`: along the axis each index picks its element, on the others elements stay where they are. From a vector that
/// was expanded it is a gather.
pub(crate) fn gather_elements(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let (x, indices) = (importer.operand(call, 0)?, importer.operand(call, 1)?);
    let (shape, picks) = (importer.shape(x), importer.shape(indices));
    let axis = call::axis(call.int("axis", 0)?, shape.rank())?;
    let misfit = || Error::shape(format!("indices of shape {picks} do not fit a value of shape {shape}"));
    if picks.rank() != shape.rank() {
        return Err(misfit());
    }
    let Some(length) = shape.fixed_at(axis) else { return Err(across_the_batch("GatherElements")) };
    if let Some(vector) = expanded_vector(importer, x, axis) {
        let vector = importer.constant(vector);
        return importer.one(Op::Gather { axis: 0 }, &[vector, indices]);
    }
    let mut values = x;
    for other in (0..shape.rank()).filter(|&other| other != axis) {
        match (shape.dims()[other], picks.dims()[other]) {
            (own, pick) if own == pick => {}
            (Dim::Fixed(own), Dim::Fixed(pick)) if pick < own => {
                values =
                    importer.add(Op::Slice { axis: other, start: 0, step: 1, length: pick }, &[values])?;
            }
            (Dim::Fixed(_), Dim::Fixed(_)) => return Err(misfit()),
            _ => return Err(across_the_batch("GatherElements")),
        }
    }
    let compared = [picks.dims(), &[Dim::Fixed(length)]].concat();
    let of_a_sample: Vec<usize> = compared.iter().map(|d| d.fixed().unwrap_or(1)).collect();
    if element_count(&of_a_sample).is_none_or(|n| n > MOST_COMPARED) {
        return Err(Error::unsupported(format!(
            "GatherElements with indices of shape {picks} along an axis of {length} compares too many elements"
        )));
    }
    // The values with their axis last, one row of them for every index.
    let mut last: Vec<usize> = (0..shape.rank()).filter(|&other| other != axis).collect();
    last.push(axis);
    let moved = importer.add(Op::Transpose { axes: last.clone() }, &[values])?;
    let mut rows = importer.shape(moved).dims().to_vec();
    rows.insert(rows.len() - 1, Dim::Fixed(1));
    let rows = importer.add(Op::Reshape { shape: Shape::new(rows) }, &[moved])?;
    let indices = counted_from_the_end(importer, indices, length)?;
    let indices = importer.add(Op::Transpose { axes: last.clone() }, &[indices])?;
    let columns = Shape::new([importer.shape(indices).dims(), &[Dim::Fixed(1)]].concat());
    let indices = importer.add(Op::Reshape { shape: columns }, &[indices])?;
    let positions = Tensor::vector((0..length as i64).collect::<Vec<_>>());
    let chosen = where_equal(importer, indices, positions, rows, shape.rank())?;
    let mut back: Vec<usize> = (0..shape.rank() - 1).collect();
    back.insert(axis, shape.rank() - 1);
    importer.one(Op::Transpose { axes: back }, &[chosen])
}

/// The elements along an axis, where they are constant and the same wherever one looks on the other axes.
fn expanded_vector(importer: &Importer, x: NodeId, axis: usize) -> Option<Tensor> {
    let node = importer.graph.node(x);
    let from = match node.op {
        Op::Expand { .. } => node.inputs[0],
        _ => x,
    };
    let constant = importer.graph.constant_value(from)?;
    let (rank, length) = (node.shape.rank(), node.shape.fixed_at(axis)?);
    let own = constant.shape();
    let only = own.iter().enumerate().all(|(at, &n)| n == 1 || at + rank == axis + own.len());
    if !only {
        return None;
    }
    let flat = constant.clone().reshaped(vec![constant.len()]).ok()?;
    let positions = broadcast_positions(&[constant.len()], &[length]).ok()?;
    StaticArray::of(&flat)?.select(vec![length], &positions).ok()?.tensor()
}
