//! Ops that take part of a value: slices, splits and gathers.

use super::call::{self, Call, sorted_axes};
use super::evaluate::triangle;
use super::import::{Importer, MAX_UNFOLDED};
use super::static_array::checked_count;
use super::symbolic_int::SymbolicInt;
use super::value::Value;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::Op;
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

/// Elements taken along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) axis: usize,
    start: usize,
    step: isize,
    pub(crate) length: usize,
}

impl Part {
    /// The elements' positions.
    pub(crate) fn positions(&self) -> Vec<usize> {
        (0..self.length as isize).map(|i| (self.start as isize + i * self.step) as usize).collect()
    }

    fn op(self) -> Op {
        Op::Slice { axis: self.axis, start: self.start, step: self.step, length: self.length }
    }
}

/// What `Slice` takes of a value, axes it takes whole left out.
pub(crate) fn slices(call: &Call, shape: &Shape) -> Result<Vec<Part>> {
    let list = |name: &str, index: usize| match call.ints(name)? {
        Some(ints) => Ok(Some(ints.into_iter().map(SymbolicInt::from).collect::<Vec<_>>())),
        None => call.extents(index, name),
    };
    let missing = || Error::malformed("Slice has no starts or ends");
    let starts = list("starts", 1)?.ok_or_else(missing)?;
    let ends = list("ends", 2)?.ok_or_else(missing)?;
    let axes = match call.ints_or_input("axes", 3)? {
        Some(axes) => axes,
        None => (0..starts.len() as i64).collect(),
    };
    let steps = call.int_list(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&n| n != starts.len()) {
        return Err(Error::malformed("starts, ends, axes and steps of Slice differ in number"));
    }
    sorted_axes(&axes, shape.rank())?;
    let mut parts = Vec::new();
    for i in 0..starts.len() {
        let axis = call::axis(axes[i], shape.rank())?;
        parts.extend(part(axis, shape.dims()[axis], starts[i], ends[i], steps[i])?);
    }
    Ok(parts)
}

/// One axis of a slice; `None` if all of it is taken.
fn part(axis: usize, dim: Dim, start: SymbolicInt, end: SymbolicInt, step: i64) -> Result<Option<Part>> {
    if step == 0 {
        return Err(Error::malformed("Slice has a step of zero"));
    }
    let Dim::Fixed(length) = dim else {
        let whole = start.known() == Some(0)
            && (SymbolicInt::of(dim) == Some(end) || end.known().is_some_and(|e| e >= i64::from(i32::MAX)));
        return if whole && step == 1 {
            Ok(None)
        } else {
            Err(Error::unsupported(format!("axis {axis} is the batch and cannot be sliced")))
        };
    };
    let too_long = |_| Error::shape(format!("axis {axis} has more elements than can be addressed"));
    let signed = i64::try_from(length).map_err(too_long)?;
    let bound = |e: SymbolicInt| {
        // A bound that grows with the batch lies past the end of a fixed axis or is meant to.
        e.known()
            .or((e.batch > 0 && e.fixed >= 0).then_some(i64::MAX))
            .ok_or_else(|| Error::unsupported("a bound of Slice depends on the batch size"))
    };
    let wrapped = |v: i64| if v < 0 { v.saturating_add(signed) } else { v };
    let (start, end) = (wrapped(bound(start)?), wrapped(bound(end)?));
    let (start, end) = match step > 0 {
        true => (start.clamp(0, signed), end.clamp(0, signed)),
        // Backwards, a start before the first element is the first, unlike in Python.
        false => (start.clamp(0.min(signed - 1), signed - 1), end.clamp(-1, signed - 1)),
    };
    let distance = if step > 0 { end - start } else { start - end };
    let count = if distance > 0 { (distance - 1) / step.saturating_abs() + 1 } else { 0 };
    if step == 1 && count == signed {
        return Ok(None);
    }
    let step = if count <= 1 { 1 } else { step as isize };
    Ok(Some(Part { axis, start: if count == 0 { 0 } else { start as usize }, step, length: count as usize }))
}

fn take(importer: &mut Importer, x: NodeId, parts: &[Part]) -> Result<NodeId> {
    let mut result = x;
    for part in parts {
        result = importer.add(part.op(), &[result])?;
    }
    Ok(result)
}

pub(crate) fn slice(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let parts = slices(call, &importer.shape(x))?;
    if parts.is_empty() {
        return importer.one(Op::Identity, &[x]);
    }
    take(importer, x, &parts).map(|id| vec![Value::Node(id)])
}

/// The parts `Split` makes of a value.
pub(crate) fn parts_of(call: &Call, shape: &Shape) -> Result<Vec<Part>> {
    let axis = call::axis(call.int("axis", 0)?, shape.rank())?;
    let Dim::Fixed(length) = shape.dims()[axis] else {
        return Err(Error::unsupported(format!("axis {axis} of {shape} is the batch and cannot be split")));
    };
    let lengths = match call.ints_or_input("split", 1)? {
        Some(stated) => super::import_conv::lengths("split", &stated, stated.len())?,
        None => {
            let default = call.node.outputs.len() as i64;
            let count = usize::try_from(call.int("num_outputs", default)?).ok().filter(|&n| n > 0);
            let count = count.ok_or_else(|| Error::malformed("Split into no parts"))?;
            if !call.has("num_outputs") && length % count != 0 {
                return Err(Error::shape(format!("an axis of length {length} has no {count} equal parts")));
            }
            let chunk = length.div_ceil(count);
            (0..count.min(call.node.outputs.len()))
                .map(|i| chunk.min(length.saturating_sub(i.saturating_mul(chunk))))
                .collect()
        }
    };
    consecutive(axis, length, lengths)
}

/// Parts that follow each other along an axis and leave nothing.
fn consecutive(axis: usize, length: usize, lengths: Vec<usize>) -> Result<Vec<Part>> {
    if lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(length) {
        return Err(Error::shape(format!("an axis of length {length} cannot be split into {lengths:?}")));
    }
    let mut start = 0;
    let parts = lengths.into_iter().map(|length| {
        let part = Part { axis, start: if length == 0 { 0 } else { start }, step: 1, length };
        start += length;
        part
    });
    Ok(parts.collect())
}

pub(crate) fn split(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let parts = parts_of(call, &importer.shape(x))?;
    parts.into_iter().map(|part| importer.add(part.op(), &[x]).map(Value::Node)).collect()
}

/// `SplitToSequence`: the parts as one value.
pub(crate) fn split_to_sequence(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let axis = call::axis(call.int("axis", 0)?, shape.rank())?;
    let length = shape.fixed_at(axis).ok_or_else(|| {
        Error::unsupported(format!("axis {axis} of {shape} is the batch and cannot be split"))
    })?;
    let split = call.array(1, "split")?;
    let drops_axis = split.is_none() && !call.flag("keepdims", true)?;
    let few = |parts: usize| match parts <= MAX_UNFOLDED {
        true => Ok(parts),
        false => Err(Error::unsupported(format!(
            "an axis of length {length} makes a sequence of {parts} values, the limit is {MAX_UNFOLDED}; \
             export it with fewer parts"
        ))),
    };
    let lengths = match &split {
        None => vec![1; few(length)?],
        Some(array) => {
            let stated = call.int_list(1, "split")?.unwrap_or_default();
            let stated = super::import_conv::lengths("split", &stated, stated.len())?;
            match (array.shape.is_empty(), stated[..].first()) {
                (true, Some(&chunk)) if chunk > 0 => {
                    (0..few(length.div_ceil(chunk))?).map(|i| chunk.min(length - i * chunk)).collect()
                }
                _ => stated,
            }
        }
    };
    let mut parts = Vec::new();
    for part in consecutive(axis, length, lengths)? {
        let mut id = importer.add(part.op(), &[x])?;
        if drops_axis {
            let kept = shape.dims().iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, &d)| d);
            id = importer.add(Op::Reshape { shape: Shape::new(kept.collect::<Vec<_>>()) }, &[id])?;
        }
        parts.push(Value::Node(id));
    }
    Ok(vec![Value::Sequence(parts.into())])
}

/// `SequenceAt`: one value of several.
pub(crate) fn sequence_at(_: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let Value::Sequence(values) = call.input(0)? else {
        return Err(Error::unsupported("SequenceAt reads a sequence"));
    };
    let index = call.int_list(1, "position")?.and_then(|v| v.first().copied()).unwrap_or(0);
    Ok(vec![values[call::axis(index, values.len())?].clone()])
}

/// `Trilu`: one triangle of every matrix, zero elsewhere.
pub(crate) fn trilu(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let &[.., Dim::Fixed(rows), Dim::Fixed(columns)] = shape.dims() else {
        return Err(Error::shape(format!("Trilu reads matrices of fixed size, found {shape}")));
    };
    let count = checked_count(&[rows, columns])?;
    let k = call.int_list(1, "diagonal")?.and_then(|v| v.first().copied()).unwrap_or(0);
    let kept = triangle(call, rows, columns, k)?;
    let mask = Tensor::new([rows, columns], (0..count).map(kept).collect::<Vec<bool>>())?;
    let zero = match importer.graph.node(x).kind {
        Kind::Float => Tensor::scalar(0f32),
        Kind::Int => Tensor::scalar(0i64),
        Kind::Bool => Tensor::scalar(false),
    };
    let (mask, zero) = (importer.constant(mask), importer.constant(zero));
    importer.one(Op::Where, &[mask, x, zero])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(length: usize, start: i64, end: i64, step: i64) -> Vec<usize> {
        match part(0, Dim::Fixed(length), start.into(), end.into(), step).unwrap() {
            Some(part) => part.positions(),
            None => (0..length).collect(),
        }
    }

    #[test]
    fn slices_are_pythons() {
        assert_eq!(taken(5, 1, 4, 1), [1, 2, 3]);
        assert_eq!(taken(5, -2, i64::MAX, 1), [3, 4]);
        assert_eq!(taken(5, -1, i64::MIN, -1), [4, 3, 2, 1, 0]);
        assert_eq!(taken(7, 5, 0, -2), [5, 3, 1]);
        assert_eq!(taken(5, -100, 3, 1), [0, 1, 2]);
        assert_eq!(taken(5, 3, 3, 1), [0usize; 0]);
        assert_eq!(taken(5, 9, 2, i64::MIN), [4]);
        assert_eq!(taken(0, 0, 5, 1), [0usize; 0]);
        // As ONNX has it, and ONNX Runtime.
        assert_eq!(taken(5, i64::MIN + 1, i64::MIN, -1), [0]);
        assert_eq!(taken(0, -3, i64::MIN, -1), [0usize; 0]);
    }

    #[test]
    fn the_batch_is_sliced_whole_or_not_at_all() {
        let batch = Dim::Batch(2);
        let whole = |end| part(0, batch, 0.into(), end, 1);
        assert_eq!(whole(SymbolicInt { fixed: 0, batch: 2 }).unwrap(), None);
        assert_eq!(whole(i64::MAX.into()).unwrap(), None);
        assert!(whole(1.into()).is_err() && part(0, batch, 1.into(), i64::MAX.into(), 1).is_err());
    }
}
