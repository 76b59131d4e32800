//! Reductions over axes, and running sums.

use super::call::{self, Call, sorted_axes};
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::{Binary, Op, Reduction, Unary};
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

/// The longest axis of a running sum: its matrix has the square of it.
const LONGEST_SUM: usize = 4096;

/// The axes a reduction goes over; `None` if it does nothing.
pub(crate) fn reduced_axes(call: &Call, rank: usize) -> Result<Option<Vec<usize>>> {
    let stated = call.ints_or_input("axes", 1)?.filter(|axes| !axes.is_empty());
    match stated {
        Some(axes) => sorted_axes(&axes, rank).map(Some),
        None if call.flag("noop_with_empty_axes", false)? => Ok(None),
        None => Ok(Some((0..rank).collect())),
    }
}

pub(crate) fn reduce(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let Some(axes) = reduced_axes(call, importer.shape(x).rank())? else {
        return importer.one(Op::Identity, &[x]);
    };
    let keep = call.flag("keepdims", true)?;
    let plain = |reduction| Op::Reduce { reduction, axes: axes.clone(), keep };
    let op = match call.op() {
        "ReduceMean" => plain(Reduction::Mean),
        "ReduceSum" => plain(Reduction::Sum),
        "ReduceMax" => plain(Reduction::Max),
        "ReduceMin" => plain(Reduction::Min),
        "ReduceProd" => plain(Reduction::Product),
        "ReduceL1" => {
            let size = importer.add(Op::Unary(Unary::Abs), &[x])?;
            return importer.one(plain(Reduction::Sum), &[size]);
        }
        "ReduceSumSquare" | "ReduceL2" => {
            let square = importer.add(Op::Binary(Binary::Mul), &[x, x])?;
            let sum = importer.add(plain(Reduction::Sum), &[square])?;
            if call.op() == "ReduceSumSquare" {
                return Ok(vec![Value::Node(sum)]);
            }
            return importer.one(Op::Unary(Unary::Sqrt), &[sum]);
        }
        "ReduceLogSum" => {
            let sum = importer.add(plain(Reduction::Sum), &[x])?;
            return importer.one(Op::Unary(Unary::Log), &[sum]);
        }
        "ReduceLogSumExp" => return log_sum_exp(importer, x, &axes, keep),
        other => return Err(Error::unsupported(format!("the op {other} is not supported"))),
    };
    importer.one(op, &[x])
}

/// `m + log Σ e^(x − m)` with the maximum `m`, so that nothing overflows.
fn log_sum_exp(importer: &mut Importer, x: NodeId, axes: &[usize], keep: bool) -> Result<Vec<Value>> {
    let over = |reduction, keep| Op::Reduce { reduction, axes: axes.to_vec(), keep };
    let largest = importer.add(over(Reduction::Max, true), &[x])?;
    let below = importer.add(Op::Binary(Binary::Sub), &[x, largest])?;
    let powers = importer.add(Op::Unary(Unary::Exp), &[below])?;
    let sum = importer.add(over(Reduction::Sum, keep), &[powers])?;
    let log = importer.add(Op::Unary(Unary::Log), &[sum])?;
    let shape = importer.shape(log);
    let largest = if keep { largest } else { importer.add(Op::Reshape { shape }, &[largest])? };
    importer.one(Op::Binary(Binary::Add), &[log, largest])
}

pub(crate) fn arg_max(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    if call.flag("select_last_index", false)? {
        return Err(Error::unsupported(format!("{} of the last of equals is not supported", call.op())));
    }
    let mut x = importer.operand(call, 0)?;
    let axis = call::axis(call.int("axis", 0)?, importer.shape(x).rank())?;
    if call.op() == "ArgMin" {
        x = importer.add(Op::Unary(Unary::Neg), &[x])?;
    }
    importer.one(Op::ArgMax { axis, keep: call.flag("keepdims", true)? }, &[x])
}

/// `y_j = Σ_i x_i T_ij` with a triangular matrix `T` of ones: a running sum is a linear layer, and is explained as one.
pub(crate) fn cum_sum(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let axis = match call.int_list(1, "the axis")?.as_deref() {
        Some(&[axis]) => call::axis(axis, shape.rank())?,
        _ => return Err(Error::malformed("CumSum reads one axis")),
    };
    let length = shape.fixed_at(axis).filter(|&length| length <= LONGEST_SUM).ok_or_else(|| {
        Error::unsupported(format!(
            "CumSum over an axis of length {}; expected a fixed length of at most {LONGEST_SUM}",
            shape.dims()[axis]
        ))
    })?;
    importer.spend(length * length)?;
    let ones = triangle(length, call.flag("exclusive", false)?, call.flag("reverse", false)?)?;
    let ones = importer.constant(ones);
    let kind = importer.graph.node(x).kind;
    let mut y = if kind == Kind::Float { x } else { importer.add(Op::Cast { to: Kind::Float }, &[x])? };
    // The axis becomes the last, of a matrix at least; exchanging two axes is its own inverse.
    let mut order: Vec<usize> = (0..shape.rank()).collect();
    order.swap(axis, shape.rank() - 1);
    let moved = axis + 1 != shape.rank();
    if shape.rank() == 1 {
        let row = Shape::new([Dim::Fixed(1), Dim::Fixed(length)]);
        y = importer.add(Op::Reshape { shape: row }, &[y])?;
    }
    if moved {
        y = importer.add(Op::Transpose { axes: order.clone() }, &[y])?;
    }
    y = importer.add(Op::MatMul { trans_a: false, trans_b: false }, &[y, ones])?;
    if moved {
        y = importer.add(Op::Transpose { axes: order }, &[y])?;
    }
    if shape.rank() == 1 {
        y = importer.add(Op::Reshape { shape }, &[y])?;
    }
    if kind != Kind::Float {
        y = importer.add(Op::Cast { to: kind }, &[y])?;
    }
    Ok(vec![Value::Node(y)])
}

/// The matrix of a running sum.
fn triangle(length: usize, exclusive: bool, reverse: bool) -> Result<Tensor> {
    let counts = |i: usize, j: usize| {
        let (first, last) = if reverse { (j, i) } else { (i, j) };
        if exclusive { first < last } else { first <= last }
    };
    let ones: Vec<f32> =
        (0..length * length).map(|at| f32::from(u8::from(counts(at / length, at % length)))).collect();
    Tensor::new([length, length], ones)
}
