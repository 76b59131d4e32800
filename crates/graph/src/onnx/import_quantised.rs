//! Quantised operators, computed on the real numbers that integers stand for. A quantiser whose scale depends on the input
//! is left out, so that samples do not depend on each other.

use super::call::{self, Call};
use super::evaluate::value_shape;
use super::import::Importer;
use super::quantiser::{as_quantised, dequantised, dequantised_weights, operand, quantiser, rounded};
use super::value::{Content, Quantiser, Value};
use super::{elements, import_conv, import_matrix, import_pool};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::{Binary, Op, Unary};
use crate::shape::Shape;
use crate::tensor::{Kind, Tensor};

fn no_blocks(call: &Call) -> Result<()> {
    if call.int("block_size", 0)? != 0 {
        return Err(Error::unsupported(format!("{} in blocks is not supported", call.op())));
    }
    Ok(())
}

/// The axis along which there may be several scales; one that does not exist is of no consequence for a single scale.
fn axis_of(call: &Call, rank: usize) -> Result<usize> {
    match call.int("axis", 1)? {
        1 if rank < 2 => Ok(0),
        axis => call::axis(axis, rank.max(1)),
    }
}

pub(crate) fn quantize_linear(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    no_blocks(call)?;
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let quantiser = quantiser(call, (Some(1), 2), axis_of(call, shape.rank())?, &shape)?;
    let x = match importer.graph.node(x).kind {
        Kind::Float => x,
        _ => importer.add(Op::Cast { to: Kind::Float }, &[x])?,
    };
    Ok(vec![rounded(importer, x, &quantiser, quantised_type(call)?)?])
}

/// The type that `QuantizeLinear` returns.
pub(crate) fn quantised_type(call: &Call) -> Result<Element> {
    match (call.element(2), call.int("output_dtype", 0)?) {
        (Some(element), _) => Ok(element),
        (None, 0) => Ok(Element::U8),
        (None, number) => elements::element(number),
    }
}

pub(crate) fn dequantize_linear(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    no_blocks(call)?;
    let value = call.input(0)?.clone();
    let shape = value_shape(importer, &value);
    let quantiser = quantiser(call, (Some(1), 2), axis_of(call, shape.rank())?, &shape)?;
    if let Value::Known(known) = &value
        && let Content::Tensor(tensor) = &known.content
    {
        importer.notes.quantised_weights = true;
        return Ok(vec![Value::known("", Content::Tensor(dequantised_weights(tensor, &quantiser)?))]);
    }
    Ok(vec![Value::Node(dequantised(importer, &value, &quantiser)?)])
}

/// The value itself: its scale would depend on all samples of a batch.
pub(crate) fn dynamic_quantize_linear(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    importer.notes.dynamic_quantisers += 1;
    let x = importer.operand(call, 0)?;
    let one = Value::known("", Content::Tensor(Tensor::scalar(1f32)));
    let zero = Value::known("", Content::Tensor(Tensor::scalar(0i64)));
    let quantiser = Quantiser::plain(vec![0.0], 0);
    Ok(vec![as_quantised(Value::Node(x), &quantiser), one, zero])
}

/// A call of another op on these nodes with the attributes of this one.
fn with_inputs<'c>(call: &Call<'c>, nodes: &[NodeId]) -> Call<'c> {
    let inputs: Vec<Option<Value>> = nodes.iter().map(|&node| Some(Value::Node(node))).collect();
    Call { elements: vec![None; inputs.len()], inputs, ..*call }
}

fn first(values: Vec<Value>) -> Result<NodeId> {
    match values.first() {
        Some(Value::Node(id)) => Ok(*id),
        _ => Err(Error::unsupported("a quantised op gave no value")),
    }
}

/// Quantises a result by the scale and the zero point at `index` and the one after it.
fn result(importer: &mut Importer, call: &Call, real: NodeId, index: usize) -> Result<Vec<Value>> {
    let quantiser = quantiser(call, (Some(index), index + 1), 0, &Shape::default())?;
    let element = call.element(index + 1).unwrap_or(Element::U8);
    Ok(vec![rounded(importer, real, &quantiser, element)?])
}

pub(crate) fn qlinear_conv(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let (x, input) = operand(importer, call, 0, 0)?;
    let (w, weight) = operand(importer, call, 3, 0)?;
    let mut nodes = vec![x, w];
    if let Some(bias) = call.optional(8).cloned() {
        nodes.push(dequantised(importer, &bias, &input.bias(&weight, 1.0))?);
    }
    let conv = first(import_conv::conv(importer, &with_inputs(call, &nodes))?)?;
    result(importer, call, conv, 6)
}

pub(crate) fn qlinear_matmul(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let columns = last_axis(importer, call, 3)?;
    let (a, _) = operand(importer, call, 0, 0)?;
    let (b, _) = operand(importer, call, 3, columns)?;
    let product = first(import_matrix::matmul(importer, &with_inputs(call, &[a, b]))?)?;
    result(importer, call, product, 6)
}

fn last_axis(importer: &Importer, call: &Call, index: usize) -> Result<usize> {
    Ok(value_shape(importer, call.input(index)?).rank().saturating_sub(1))
}

pub(crate) fn qgemm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let columns = usize::from(!call.flag("transB", false)?);
    let (a, left) = operand(importer, call, 0, 0)?;
    let (b, right) = operand(importer, call, 3, columns)?;
    let mut nodes = vec![a, b];
    if let Some(bias) = call.optional(6).cloned() {
        let scales = left.bias(&right, call.float("alpha", 1.0)?);
        let rank = value_shape(importer, &bias).rank();
        nodes.push(dequantised(importer, &bias, &Quantiser { axis: rank.saturating_sub(1), ..scales })?);
    }
    let product = first(import_matrix::gemm(importer, &with_inputs(call, &nodes))?)?;
    match call.optional(7) {
        Some(_) => result(importer, call, product, 7),
        None => Ok(vec![Value::Node(product)]),
    }
}

pub(crate) fn qlinear_binary(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let function = if call.op() == "QLinearAdd" { Binary::Add } else { Binary::Mul };
    let (a, _) = operand(importer, call, 0, 0)?;
    let (b, _) = operand(importer, call, 3, 0)?;
    let sum = importer.add(Op::Binary(function), &[a, b])?;
    result(importer, call, sum, 6)
}

pub(crate) fn qlinear_concat(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let parts: Vec<usize> = (2..call.inputs.len()).step_by(3).collect();
    let nodes = parts.iter().map(|&index| Ok(operand(importer, call, index, 0)?.0));
    let nodes = nodes.collect::<Result<Vec<NodeId>>>()?;
    let &node = nodes.first().ok_or_else(|| Error::malformed("QLinearConcat reads nothing"))?;
    let axis = call::axis(call.int("axis", 1)?, importer.shape(node).rank())?;
    let joined = importer.add(Op::Concat { axis }, &nodes)?;
    result(importer, call, joined, 0)
}

pub(crate) fn qlinear_pool(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    if call.flag("channels_last", false)? {
        return Err(Error::unsupported(format!("{} with channels last is not supported", call.op())));
    }
    let (x, _) = operand(importer, call, 0, 0)?;
    let pooled = with_inputs(call, &[x]);
    let mean = match call.op() {
        "QLinearAveragePool" => import_pool::average_pool(importer, &pooled)?,
        _ => import_pool::global_pool(importer, &pooled)?,
    };
    let mean = first(mean)?;
    result(importer, call, mean, 3)
}

pub(crate) fn qlinear_activation(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let (x, _) = operand(importer, call, 0, 0)?;
    let rank = importer.shape(x).rank();
    let op = match call.op() {
        "QLinearSigmoid" => Op::Unary(Unary::Sigmoid),
        "QLinearLeakyRelu" => Op::Unary(Unary::LeakyRelu { slope: call.float("alpha", 0.01)? }),
        _ => Op::Softmax { axis: call::axis(call.int("axis", -1)?, rank)? },
    };
    let y = importer.add(op, &[x])?;
    result(importer, call, y, 3)
}

/// `ConvInteger` and `MatMulInteger`: products of integers less their zero points, computed on real numbers.
pub(crate) fn integer_product(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let convolution = call.op() == "ConvInteger";
    let mut nodes = Vec::with_capacity(2);
    for (index, axis) in [(0, 0), (1, if convolution { 0 } else { last_axis(importer, call, 1)? })] {
        let value = call.input(index)?.clone();
        let shape = value_shape(importer, &value);
        let plain = quantiser(call, (None, index + 2), axis, &shape)?;
        nodes.push(dequantised(importer, &value, &plain)?);
    }
    let product = with_inputs(call, &nodes);
    if convolution {
        import_conv::conv(importer, &product)
    } else {
        import_matrix::matmul(importer, &product)
    }
}

/// `DynamicQuantizeMatMul` and `MatMulIntegerToFloat`, which quantise the left side by the input or find it quantised.
pub(crate) fn matmul_to_float(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let columns = last_axis(importer, call, 1)?;
    let (left, scale, zero, bias) = match call.op() {
        "DynamicQuantizeMatMul" => {
            importer.notes.dynamic_quantisers += 1;
            (importer.operand(call, 0)?, 2, 3, 4)
        }
        _ => {
            let value = call.input(0)?.clone();
            let by = quantiser(call, (Some(2), 4), 0, &Shape::default())?;
            (dequantised(importer, &value, &by)?, 3, 5, 6)
        }
    };
    let value = call.input(1)?.clone();
    let shape = value_shape(importer, &value);
    let by = quantiser(call, (Some(scale), zero), columns, &shape)?;
    let right = dequantised(importer, &value, &by)?;
    let product = import_matrix::matmul(importer, &with_inputs(call, &[left, right]))?;
    if call.optional(bias).is_none() {
        return Ok(product);
    }
    let (product, bias) = (first(product)?, importer.operand(call, bias)?);
    importer.one(Op::Binary(Binary::Add), &[product, bias])
}
