//! Ops that give a value another shape: what they mean is worked out as a [`Shape`], for values in the graph
//! and for those known while the file is read alike.

use super::call::{self, Call, sorted_axes};
use super::evaluate::fill;
use super::import::Importer;
use super::symbolic_int::SymbolicInt;
use super::value::Value;
use crate::error::{Error, Hint, Result};
use crate::op::Op;
use crate::shape::{Dim, Shape};

/// What `Reshape` makes of a shape.
pub(crate) fn reshaped(call: &Call, shape: &Shape) -> Result<Shape> {
    let target = match call.ints("shape")? {
        Some(attribute) => attribute.into_iter().map(SymbolicInt::from).collect(),
        None => call.extents(1, "shape")?.ok_or_else(|| Error::malformed("Reshape has no shape"))?,
    };
    let copies = !call.flag("allowzero", false)?;
    let mut open = None;
    let mut dims = Vec::with_capacity(target.len());
    for (axis, extent) in target.iter().enumerate() {
        dims.push(match extent.known() {
            Some(-1) if open.is_none() => {
                open = Some(axis);
                Dim::Fixed(1)
            }
            Some(0) if copies => *shape.dims().get(axis).ok_or_else(|| {
                Error::shape(format!("Reshape copies axis {axis} of {shape}, which has no such axis"))
            })?,
            _ => extent.dim().ok_or_else(|| bad_target(shape, &target))?,
        });
    }
    let total = shape.count().ok_or_else(|| bad_target(shape, &target))?;
    let stated = Shape::new(dims.as_slice()).count().ok_or_else(|| bad_target(shape, &target))?;
    match open {
        Some(axis) => dims[axis] = total.over(stated).ok_or_else(|| bad_target(shape, &target))?,
        None if stated != total => return Err(bad_target(shape, &target)),
        None => {}
    }
    Ok(Shape::new(dims))
}

fn bad_target(shape: &Shape, target: &[SymbolicInt]) -> Error {
    let show = |e: &SymbolicInt| match (e.fixed, e.batch) {
        (fixed, 0) => fixed.to_string(),
        (0, batch) => format!("{batch}·N"),
        (fixed, batch) => format!("{fixed} + {batch}·N"),
    };
    let list = target.iter().map(show).collect::<Vec<_>>().join(", ");
    let literal = target.iter().all(|e| e.batch == 0);
    let message = format!("a value of shape {shape} cannot be reshaped to [{list}]");
    if !(shape.is_batched() && literal) {
        return Error::shape(message);
    }
    Error::shape(format!(
        "{message}; the model was exported with a fixed batch size: export it with a dynamic one, or fix the batch"
    ))
    .hint(Hint::FIXED_BATCH)
}

/// What `Flatten` makes of a shape.
pub(crate) fn flattened(call: &Call, shape: &Shape) -> Result<Shape> {
    let axis = call.int("axis", 1)?;
    let axis = if axis == shape.rank() as i64 { shape.rank() } else { call::axis(axis, shape.rank())? };
    let product = |dims: &[Dim]| Shape::new(dims).count();
    match (product(&shape.dims()[..axis]), product(&shape.dims()[axis..])) {
        (Some(before), Some(after)) => Ok(Shape::new([before, after])),
        _ => Err(Error::shape(format!("{shape} cannot be flattened at axis {axis}"))),
    }
}

/// What `Squeeze` makes of a shape.
pub(crate) fn squeezed(call: &Call, shape: &Shape) -> Result<Shape> {
    let dims = shape.dims();
    let axes = match call.ints_or_input("axes", 1)? {
        Some(axes) => sorted_axes(&axes, dims.len())?,
        None => (0..dims.len()).filter(|&a| dims[a] == Dim::Fixed(1)).collect(),
    };
    if let Some(axis) = axes.iter().find(|&&a| dims[a] != Dim::Fixed(1)) {
        return Err(Error::shape(format!("axis {axis} of {shape} cannot be squeezed, its length is not 1")));
    }
    let kept = (0..dims.len()).filter(|a| !axes.contains(a)).map(|a| dims[a]);
    Ok(Shape::new(kept.collect::<Vec<_>>()))
}

/// What `Unsqueeze` makes of a shape.
pub(crate) fn unsqueezed(call: &Call, shape: &Shape) -> Result<Shape> {
    let axes = call.ints_or_input("axes", 1)?.ok_or_else(|| Error::malformed("Unsqueeze has no axes"))?;
    let rank = shape.rank() + axes.len();
    let axes = sorted_axes(&axes, rank)?;
    let mut old = shape.dims().iter().copied();
    let dims = (0..rank).map(|a| if axes.contains(&a) { Some(Dim::Fixed(1)) } else { old.next() });
    dims.collect::<Option<Vec<_>>>()
        .map(Shape::new)
        .ok_or_else(|| Error::malformed("Unsqueeze names no axes"))
}

fn relaid(
    importer: &mut Importer,
    call: &Call,
    to: fn(&Call, &Shape) -> Result<Shape>,
) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = to(call, &importer.shape(x))?;
    importer.one(Op::Reshape { shape }, &[x])
}

pub(crate) fn reshape(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    relaid(importer, call, reshaped)
}

pub(crate) fn flatten(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    relaid(importer, call, flattened)
}

pub(crate) fn squeeze(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    relaid(importer, call, squeezed)
}

pub(crate) fn unsqueeze(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    relaid(importer, call, unsqueezed)
}

/// The shape that an input states.
pub(crate) fn stated_shape(call: &Call, index: usize) -> Result<Shape> {
    let extents = call
        .extents(index, "shape")?
        .ok_or_else(|| Error::malformed(format!("{} has no shape", call.op())))?;
    let dims: Option<Vec<Dim>> = extents.iter().map(|e| e.dim()).collect();
    dims.map(Shape::new)
        .ok_or_else(|| Error::shape(format!("the shape of {} has an axis that is not a length", call.op())))
}

pub(crate) fn expand(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let own = importer.shape(x);
    let shape = own.broadcast(&stated_shape(call, 1)?)?;
    if shape == own {
        return importer.one(Op::Identity, &[x]);
    }
    importer.one(Op::Expand { shape }, &[x])
}

pub(crate) fn constant_of_shape(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let shape = stated_shape(call, 0)?;
    let value = fill(call)?.tensor().ok_or_else(|| Error::malformed("ConstantOfShape has no value"))?;
    let scalar = importer.constant(value);
    importer.one(Op::Expand { shape }, &[scalar])
}

/// `Tile`, by way of an axis of copies in front of each repeated one.
pub(crate) fn tile(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let repeats = call.extents(1, "repeats")?.ok_or_else(|| Error::malformed("Tile has no repeats"))?;
    let counts: Option<Vec<Dim>> = repeats.iter().map(|e| e.dim()).collect();
    let counts = counts
        .filter(|c| c.len() == shape.rank())
        .ok_or_else(|| Error::shape(format!("the repeats of Tile do not fit a value of shape {shape}")))?;
    let (mut apart, mut copied, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    for (&length, &count) in shape.dims().iter().zip(&counts) {
        if count != Dim::Fixed(1) && length != Dim::Fixed(1) {
            apart.push(Dim::Fixed(1));
            copied.push(count);
        }
        apart.push(length);
        copied.push(if length == Dim::Fixed(1) { count } else { length });
        joined.push(length.times(count).ok_or_else(|| Error::shape("Tile repeats the batch by the batch"))?);
    }
    let apart = importer.add(Op::Reshape { shape: Shape::new(apart) }, &[x])?;
    let copied = importer.add(Op::Expand { shape: Shape::new(copied) }, &[apart])?;
    importer.one(Op::Reshape { shape: Shape::new(joined) }, &[copied])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_shape_of_a_batched_value_asks_for_the_shape_of_the_whole_batch() {
        let int = |n| SymbolicInt { fixed: n, batch: 0 };
        let error = bad_target(&Shape::batched(&[8, 20, 28]), &[int(1), int(4480)]);
        assert!(error.to_string().ends_with("1,3,224,224"), "{error}");
    }
}
