//! Elementwise functions of two or more values.

use super::call::Call;
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Result};
use crate::op::{Binary, Op, Unary};
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

fn function(name: &str) -> Result<Binary> {
    let pairwise = match name {
        "Sum" | "Mean" => Binary::Add.name(),
        other => other,
    };
    Binary::from_onnx(pairwise).ok_or_else(|| Error::unsupported(format!("the op {name} is not supported")))
}

pub(crate) fn binary(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    if call.has("broadcast") || call.has("axis") {
        return Err(Error::unsupported("broadcasting as before operator set 7 is not supported"));
    }
    let (a, b) = (importer.operand(call, 0)?, importer.operand(call, 1)?);
    let (first, second) = (importer.shape(a), importer.shape(b));
    if call.opset < 7 && first != second {
        return Err(Error::shape(format!(
            "{} of the shapes {first} and {second} in operator set {}, where operands are not broadcast unless an attribute \
             says so",
            call.op(),
            call.opset
        )));
    }
    importer.one(Op::Binary(function(call.op())?), &[a, b])
}

/// `Mod` of integers by a positive constant: what is left lies from 0 up to it.
pub(crate) fn modulo(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let divisor = match importer.graph.node(x).kind {
        Kind::Int if !call.flag("fmod", false)? => call.int_list(1, "divisor")?,
        _ => None,
    };
    match divisor.as_deref() {
        Some(&[divisor]) if divisor > 0 => {
            importer.one(Op::Unary(Unary::Wrap { min: 0.0, max: (divisor - 1) as f64 }), &[x])
        }
        _ => Err(Error::unsupported(
            "Mod of what depends on the input is supported for integers by one positive constant (fmod 0)",
        )),
    }
}

/// Sum, Mean, Max and Min of any number of values, pair by pair.
pub(crate) fn variadic(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let operands = importer.operands(call, call.inputs.len())?;
    let (&first, rest) =
        operands.split_first().ok_or_else(|| Error::malformed(format!("{} reads nothing", call.op())))?;
    if rest.is_empty() {
        return importer.one(Op::Identity, &[first]);
    }
    let function = function(call.op())?;
    let mut result = first;
    for &other in rest {
        result = importer.add(Op::Binary(function), &[result, other])?;
    }
    if call.op() == "Mean" {
        let count = importer.constant(Tensor::scalar(operands.len() as f32));
        result = importer.add(Op::Binary(Binary::Div), &[result, count])?;
    }
    Ok(vec![Value::Node(result)])
}

pub(crate) fn prelu(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let (x, mut slope) = (importer.operand(call, 0)?, importer.operand(call, 1)?);
    let (shape, own) = (importer.shape(x), importer.shape(slope));
    // Before operator set 7, and in files that still do it, one slope per channel is a plain list.
    let per_channel = own.rank() == 1
        && own.dims()[0] != Dim::Fixed(1)
        && shape.rank() > 2
        && shape.dims().get(1) == own.dims().first()
        && shape.dims().last() != own.dims().first();
    if per_channel {
        let mut dims = vec![own.dims()[0]];
        dims.resize(shape.rank() - 1, Dim::Fixed(1));
        slope = importer.add(Op::Reshape { shape: Shape::new(dims) }, &[slope])?;
    }
    importer.one(Op::Binary(Binary::PRelu), &[x, slope])
}

pub(crate) fn select(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let operands = importer.operands(call, 3)?;
    importer.one(Op::Where, &operands)
}
