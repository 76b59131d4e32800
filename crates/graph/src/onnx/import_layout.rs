//! Ops that move elements without computing with them, and those that do nothing at evaluation.

use super::call::{self, Call, sorted_axes};
use super::elements;
use super::evaluate::like;
use super::import::Importer;
use super::value::{Known, Value};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::{Op, Padding, Unary};
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

pub(crate) fn identity(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    importer.one(Op::Identity, &[x])
}

pub(crate) fn dropout(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    call.only_first_output("its mask used")?;
    let training = match call.optional(2) {
        None => false,
        Some(_) => call
            .known(2)
            .and_then(Known::array)
            .and_then(|h| h.floats())
            .is_none_or(|v| v.first().is_some_and(|&flag| flag != 0.0)),
    };
    if training {
        return Err(Error::unsupported("Dropout in training mode is not supported; export for evaluation"));
    }
    let ratio = match call.scalar(1, "ratio")? {
        Some(ratio) => ratio,
        None => call.float("ratio", 0.5)?,
    };
    let x = importer.operand(call, 0)?;
    importer.one(Op::Dropout { ratio }, &[x])
}

/// A value of type `from` as one of type `to`: an integer of fewer bits keeps the lowest, half precision rounds.
fn cast_to(importer: &mut Importer, x: NodeId, from: Option<Element>, to: Element) -> Result<Vec<Value>> {
    let same = importer.graph.node(x).kind == to.kind();
    let cast = importer.add(if same { Op::Identity } else { Op::Cast { to: to.kind() } }, &[x])?;
    let narrowing = match (to, to.range()) {
        _ if from == Some(to) => None,
        (Element::F16, _) => Some(Unary::Half),
        (Element::BF16, _) => Some(Unary::Bfloat16),
        (_, Some((min, max))) if !holds(to, from) => Some(Unary::Wrap { min, max }),
        _ => None,
    };
    match narrowing {
        Some(function) => importer.one(Op::Unary(function), &[cast]),
        None => Ok(vec![Value::Node(cast)]),
    }
}

/// Whether every number of type `from` is one of the integer type `to`.
fn holds(to: Element, from: Option<Element>) -> bool {
    let Some(((low, high), from)) = to.range().zip(from) else { return false };
    match from.range() {
        Some((min, max)) => low <= min && max <= high,
        None => from == Element::Bool,
    }
}

pub(crate) fn cast(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    cast_to(importer, x, call.element(0), elements::element(call.int("to", 0)?)?)
}

pub(crate) fn cast_like(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    cast_to(importer, x, call.element(0), like(importer, call)?)
}

pub(crate) fn concat(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let mut operands = importer.operands(call, call.inputs.len())?;
    let first = *operands.first().ok_or_else(|| Error::malformed("Concat reads nothing"))?;
    let axis = call::axis(call.int("axis", 1)?, importer.shape(first).rank())?;
    // PyTorch lets an empty list of rank one stand for nothing.
    let empty = |s: Shape| s == Shape::fixed(&[0]);
    if operands.len() > 1 && importer.shape(first).rank() > 1 {
        operands.retain(|&id| !empty(importer.shape(id)));
    }
    importer.one(Op::Concat { axis }, &operands)
}

/// The order `Transpose` puts axes in.
pub(crate) fn permutation(call: &Call, rank: usize) -> Result<Vec<usize>> {
    let Some(axes) = call.ints("perm")? else { return Ok((0..rank).rev().collect()) };
    if axes.len() != rank {
        return Err(Error::shape(format!("{axes:?} does not reorder {rank} axes")));
    }
    sorted_axes(&axes, rank)?;
    axes.iter().map(|&a| call::axis(a, rank)).collect()
}

pub(crate) fn transpose(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let axes = permutation(call, importer.shape(x).rank())?;
    importer.one(Op::Transpose { axes }, &[x])
}

pub(crate) fn pad(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let rank = importer.shape(x).rank();
    let pads = match call.ints("pads")? {
        Some(pads) => pads,
        None => call.int_list(1, "pads")?.ok_or_else(|| Error::malformed("Pad has no pads"))?,
    };
    let axes = match call.int_list(3, "axes")? {
        Some(axes) => {
            call::sorted_axes(&axes, rank)?;
            axes.iter().map(|&a| call::axis(a, rank)).collect::<Result<Vec<_>>>()?
        }
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(Error::shape(format!("pads {pads:?} do not fit {} axes", axes.len())));
    }
    let wraps = call.text("mode", "constant")? == "wrap";
    let padding = if wraps { Padding::Edge } else { padding(call)? };
    let mut around = vec![(0, 0); rank];
    for (i, &axis) in axes.iter().enumerate() {
        around[axis] = (pads[i], pads[i + axes.len()]);
    }
    let cut = cropped(importer, x, &around)?;
    let grow = |n: i64| usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    let pads: Vec<(usize, usize)> = around.iter().map(|&(b, a)| (grow(b), grow(a))).collect();
    if pads.iter().all(|&p| p == (0, 0)) && cut != x {
        return Ok(vec![Value::Node(cut)]);
    }
    if wraps {
        return wrapped(importer, cut, &pads);
    }
    importer.one(Op::Pad { padding, pads }, &[cut])
}

/// Padding with what lies at the other end, as often as it takes.
fn wrapped(importer: &mut Importer, x: NodeId, pads: &[(usize, usize)]) -> Result<Vec<Value>> {
    let mut value = x;
    for (axis, &(before, after)) in pads.iter().enumerate().filter(|(_, pad)| **pad != (0, 0)) {
        let shape = importer.shape(value);
        let own = shape.fixed_at(axis).filter(|&own| own > 0);
        let length = own.and_then(|own| own.checked_add(before)?.checked_add(after));
        let (Some(own), Some(length)) = (own, length) else {
            return Err(Error::shape(format!("axis {axis} of {shape} cannot be wrapped around")));
        };
        importer.spend(length)?;
        // The first element is that which lies `before` elements ahead of a multiple of the length.
        let shift = own - before % own;
        let indices: Vec<i64> = (0..length).map(|i| ((i + shift) % own) as i64).collect();
        let indices = importer.constant(Tensor::vector(indices));
        value = importer.add(Op::Gather { axis }, &[value, indices])?;
    }
    match value == x {
        true => importer.one(Op::Identity, &[x]),
        false => Ok(vec![Value::Node(value)]),
    }
}

fn padding(call: &Call) -> Result<Padding> {
    match call.text("mode", "constant")?.as_str() {
        "constant" => {
            let value = match call.scalar(2, "value")? {
                Some(value) => value,
                None => call.float("value", 0.0)?,
            };
            Ok(Padding::Constant(value))
        }
        "reflect" => Ok(Padding::Reflect),
        "edge" => Ok(Padding::Edge),
        other => Err(Error::unsupported(format!("Pad in mode '{other}' is not supported"))),
    }
}

/// Negative padding takes elements away.
fn cropped(importer: &mut Importer, x: NodeId, around: &[(i64, i64)]) -> Result<NodeId> {
    let mut result = x;
    for (axis, &(before, after)) in around.iter().enumerate() {
        if before >= 0 && after >= 0 {
            continue;
        }
        let shape = importer.shape(result);
        let lost = |n: i64| usize::try_from(n.min(0).unsigned_abs()).ok();
        let start = lost(before);
        let length = shape.fixed_at(axis).and_then(|n| n.checked_sub(start?)?.checked_sub(lost(after)?));
        let (Some(start), Some(length)) = (start, length) else {
            return Err(Error::shape(format!("axis {axis} of {shape} cannot lose what Pad takes away")));
        };
        let start = if length == 0 { 0 } else { start };
        result = importer.add(Op::Slice { axis, start, step: 1, length }, &[result])?;
    }
    Ok(result)
}

fn blocks(importer: &mut Importer, call: &Call) -> Result<(NodeId, [Dim; 4], usize)> {
    let x = importer.operand(call, 0)?;
    let size = usize::try_from(call.int("blocksize", 0)?).ok().filter(|&b| b > 0);
    match (importer.shape(x).dims(), size) {
        (&[n, c, h, w], Some(size)) => Ok((x, [n, c, h, w], size)),
        (dims, _) => Err(Error::shape(format!("{} does not fit {}", call.op(), Shape::new(dims)))),
    }
}

fn rearranged(
    importer: &mut Importer,
    x: NodeId,
    apart: Option<[Dim; 6]>,
    axes: [usize; 6],
    joined: Option<[Dim; 4]>,
) -> Result<Vec<Value>> {
    let (Some(apart), Some(joined)) = (apart, joined) else {
        let shape = importer.shape(x);
        return Err(Error::shape(format!("{shape} cannot be cut into blocks")));
    };
    let apart = importer.add(Op::Reshape { shape: Shape::new(apart) }, &[x])?;
    let moved = importer.add(Op::Transpose { axes: axes.to_vec() }, &[apart])?;
    importer.one(Op::Reshape { shape: Shape::new(joined) }, &[moved])
}

pub(crate) fn depth_to_space(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let (x, [n, c, h, w], size) = blocks(importer, call)?;
    let b = Dim::Fixed(size);
    let rest = size.checked_mul(size).and_then(|area| c.over(Dim::Fixed(area)));
    let joined = rest.and_then(|rest| Some([n, rest, h.times(b)?, w.times(b)?]));
    match call.text("mode", "DCR")?.as_str() {
        "CRD" => rearranged(importer, x, rest.map(|r| [n, r, b, b, h, w]), [0, 1, 4, 2, 5, 3], joined),
        _ => rearranged(importer, x, rest.map(|r| [n, b, b, r, h, w]), [0, 3, 4, 1, 5, 2], joined),
    }
}

pub(crate) fn space_to_depth(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let (x, [n, c, h, w], size) = blocks(importer, call)?;
    let b = Dim::Fixed(size);
    let small = h.over(b).zip(w.over(b));
    let apart = small.map(|(h, w)| [n, c, h, b, w, b]);
    let joined = small.and_then(|(h, w)| Some([n, c.times(b)?.times(b)?, h, w]));
    rearranged(importer, x, apart, [0, 3, 5, 1, 2, 4], joined)
}
