//! Elementwise functions of one value, and softmax.

use super::call::{self, Call};
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::{Binary, Op, Unary};
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

pub(crate) fn unary(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let function = Unary::from_onnx(call.op(), |name, default| call.float(name, default))?
        .ok_or_else(|| Error::unsupported(format!("the op {} is not supported", call.op())))?;
    let x = importer.operand(call, 0)?;
    importer.one(Op::Unary(exact(function)), &[x])
}

/// `IsNaN`: what does not equal itself.
pub(crate) fn is_undefined(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let equal = importer.add(Op::Binary(Binary::Equal), &[x, x])?;
    importer.one(Op::Unary(Unary::Not), &[equal])
}

/// `IsInf`, of one sign or both.
pub(crate) fn is_infinite(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let mut equal = |x: NodeId, value: f32| {
        let value = importer.constant(Tensor::scalar(value));
        importer.add(Op::Binary(Binary::Equal), &[x, value])
    };
    let found = match (call.flag("detect_positive", true)?, call.flag("detect_negative", true)?) {
        (true, true) => {
            let (above, below) = (equal(x, f32::INFINITY)?, equal(x, f32::NEG_INFINITY)?);
            importer.add(Op::Binary(Binary::Or), &[above, below])?
        }
        (true, false) => equal(x, f32::INFINITY)?,
        (false, true) => equal(x, f32::NEG_INFINITY)?,
        (false, false) => {
            let equal = importer.add(Op::Binary(Binary::Equal), &[x, x])?;
            let other = importer.add(Op::Unary(Unary::Not), &[equal])?;
            importer.add(Op::Binary(Binary::And), &[equal, other])?
        }
    };
    Ok(vec![Value::Node(found)])
}

/// Constants that exporters round to single precision, as they were meant.
fn exact(function: Unary) -> Unary {
    let is = |value: f64, meant: f64| value as f32 == meant as f32;
    match function {
        Unary::HardSigmoid { alpha, beta } if is(alpha, 1.0 / 6.0) => {
            Unary::HardSigmoid { alpha: 1.0 / 6.0, beta }
        }
        Unary::Selu { alpha, gamma } if is(alpha, SELU_ALPHA) && is(gamma, SELU_GAMMA) => {
            Unary::Selu { alpha: SELU_ALPHA, gamma: SELU_GAMMA }
        }
        other => other,
    }
}

const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_GAMMA: f64 = 1.050_700_987_355_480_5;

pub(crate) fn gelu(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let function = match call.text("approximate", "none")?.as_str() {
        "none" => Unary::Gelu,
        "tanh" => Unary::GeluTanh,
        other => {
            return Err(Error::unsupported(format!("the approximation '{other}' of Gelu is not supported")));
        }
    };
    importer.one(Op::Unary(function), &[x])
}

/// `x·sigmoid(alpha·x)`.
pub(crate) fn swish(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let alpha = call.float("alpha", 1.0)?;
    if alpha == 1.0 {
        return importer.one(Op::Unary(Unary::Silu), &[x]);
    }
    let factor = importer.constant(Tensor::scalar(alpha as f32));
    let scaled = importer.add(Op::Binary(Binary::Mul), &[x, factor])?;
    let gate = importer.add(Op::Unary(Unary::Sigmoid), &[scaled])?;
    importer.one(Op::Binary(Binary::Mul), &[x, gate])
}

/// `x/(1 + |x|)`.
pub(crate) fn softsign(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let size = importer.add(Op::Unary(Unary::Abs), &[x])?;
    let one = importer.constant(Tensor::scalar(1f32));
    let base = importer.add(Op::Binary(Binary::Add), &[size, one])?;
    importer.one(Op::Binary(Binary::Div), &[x, base])
}

/// `x` where it exceeds a threshold, else zero.
pub(crate) fn thresholded_relu(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let threshold = importer.constant(Tensor::scalar(call.float("alpha", 1.0)? as f32));
    let zero = importer.constant(Tensor::scalar(0f32));
    let passes = importer.add(Op::Binary(Binary::Greater), &[x, threshold])?;
    importer.one(Op::Where, &[passes, x, zero])
}

pub(crate) fn clip(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let known = |i: usize| call.optional(i).is_none() || call.known(i).is_some();
    if !(known(1) && known(2)) {
        let mut limited = x;
        for (index, limit) in [(1, Binary::Max), (2, Binary::Min)] {
            if call.optional(index).is_some() {
                let bound = importer.operand(call, index)?;
                limited = importer.add(Op::Binary(limit), &[limited, bound])?;
            }
        }
        return Ok(vec![Value::Node(limited)]);
    }
    // The largest number of single precision is how exporters write that there is no bound.
    let most = f64::from(f32::MAX);
    let bound = |name: &str, index: usize, default: f64| match call.scalar(index, name)? {
        Some(value) => Ok(value),
        None => call.float(name, default),
    };
    let min = bound("min", 1, f64::NEG_INFINITY)?;
    let max = bound("max", 2, f64::INFINITY)?;
    let (min, max) =
        (if min <= -most { f64::NEG_INFINITY } else { min }, if max >= most { f64::INFINITY } else { max });
    if importer.graph.node(x).kind == Kind::Bool {
        return Err(Error::shape("Clip reads numbers, found truth values"));
    }
    importer.one(Op::Unary(Unary::Clip { min, max }), &[x])
}

pub(crate) fn softmax(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let op = |axis| if call.op() == "Softmax" { Op::Softmax { axis } } else { Op::LogSoftmax { axis } };
    if call.opset >= 13 {
        let axis = call::axis(call.int("axis", -1)?, shape.rank())?;
        return importer.one(op(axis), &[x]);
    }
    let axis = call::axis(call.int("axis", 1)?, shape.rank())?;
    if shape.dims()[axis + 1..].iter().all(|&d| d == Dim::Fixed(1)) {
        return importer.one(op(axis), &[x]);
    }
    // Before operator set 13 everything from the axis on was one long axis.
    let product = |dims: &[Dim]| Shape::new(dims).count();
    let (before, after) = (product(&shape.dims()[..axis]), product(&shape.dims()[axis..]));
    let (Some(before), Some(after)) = (before, after) else {
        return Err(Error::shape(format!("{shape} cannot be flattened at axis {axis}")));
    };
    let flat = importer.add(Op::Reshape { shape: Shape::new([before, after]) }, &[x])?;
    let y = importer.add(op(1), &[flat])?;
    importer.one(Op::Reshape { shape }, &[y])
}
