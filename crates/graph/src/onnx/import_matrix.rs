//! Matrix products: `Gemm`, `MatMul` and `Einsum`, all as one batched product.

use super::call::Call;
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::{Binary, Op, Reduction};
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

pub(crate) fn gemm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let operands = importer.operands(call, 3)?;
    let [a, b, ref c @ ..] = operands[..] else {
        return Err(Error::malformed("Gemm reads at least two values"));
    };
    let op = Op::MatMul { trans_a: call.flag("transA", false)?, trans_b: call.flag("transB", false)? };
    let (alpha, beta) = (call.float("alpha", 1.0)?, call.float("beta", 1.0)?);
    let mut bias = c.first().copied().filter(|_| beta != 0.0);
    if let Some(unscaled) = bias.filter(|_| beta != 1.0) {
        bias = Some(scaled(importer, unscaled, beta)?);
    }
    match bias {
        Some(bias) if alpha == 1.0 => importer.one(op, &[a, b, bias]),
        _ => {
            let mut y = importer.add(op, &[a, b])?;
            if alpha != 1.0 {
                y = scaled(importer, y, alpha)?;
            }
            if let Some(bias) = bias {
                y = importer.add(Op::Binary(Binary::Add), &[y, bias])?;
            }
            Ok(vec![Value::Node(y)])
        }
    }
}

fn scaled(importer: &mut Importer, x: NodeId, factor: f64) -> Result<NodeId> {
    let factor = importer.constant(Tensor::scalar(factor as f32));
    importer.add(Op::Binary(Binary::Mul), &[x, factor])
}

/// `MatMul`; a vector on either side is a matrix of one row or column whose axis disappears again.
pub(crate) fn matmul(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let (mut a, mut b) = (importer.operand(call, 0)?, importer.operand(call, 1)?);
    let (shape_a, shape_b) = (importer.shape(a), importer.shape(b));
    let op = Op::MatMul { trans_a: false, trans_b: false };
    if shape_a.rank() > 1 && shape_b.rank() > 1 {
        return importer.one(op, &[a, b]);
    }
    if shape_a.rank() == 0 || shape_b.rank() == 0 {
        return Err(Error::shape("MatMul reads vectors or matrices, found a single number"));
    }
    if shape_a.rank() == 1 {
        let row = Shape::new([Dim::Fixed(1), shape_a.dims()[0]]);
        a = importer.add(Op::Reshape { shape: row }, &[a])?;
    }
    if shape_b.rank() == 1 {
        let column = Shape::new([shape_b.dims()[0], Dim::Fixed(1)]);
        b = importer.add(Op::Reshape { shape: column }, &[b])?;
    }
    let product = importer.add(op, &[a, b])?;
    let mut dims = importer.shape(product).dims().to_vec();
    if shape_b.rank() == 1 {
        dims.pop();
    }
    if shape_a.rank() == 1 {
        dims.remove(dims.len() - if shape_b.rank() == 1 { 1 } else { 2 });
    }
    importer.one(Op::Reshape { shape: Shape::new(dims) }, &[product])
}

/// A value whose axes have letters.
struct EinsumOperand {
    id: NodeId,
    letters: Vec<char>,
}

pub(crate) fn einsum(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let equation: String = call.text("equation", "")?.split_whitespace().collect();
    let unsupported = || Error::unsupported(format!("Einsum '{equation}' is not supported"));
    let (terms, result) = equation.split_once("->").ok_or_else(unsupported)?;
    let wanted: Vec<char> = result.chars().collect();
    let terms: Vec<Vec<char>> = terms.split(',').map(|t| t.chars().collect()).collect();
    let plain = |t: &Vec<char>| {
        t.iter().all(|c| c.is_ascii_alphabetic()) && (1..t.len()).all(|i| !t[..i].contains(&t[i]))
    };
    let known = |c: &char| terms.iter().any(|t| t.contains(c));
    if terms.len() != call.inputs.len()
        || !terms.iter().all(plain)
        || !plain(&wanted)
        || !wanted.iter().all(known)
    {
        return Err(unsupported());
    }
    let mut values = Vec::new();
    for (index, letters) in terms.iter().enumerate() {
        let id = importer.operand(call, index)?;
        if importer.shape(id).rank() != letters.len() {
            return Err(Error::shape(format!("Einsum '{equation}' does not fit {}", importer.shape(id))));
        }
        let elsewhere = |c: &char| {
            wanted.contains(c) || terms.iter().enumerate().any(|(i, t)| i != index && t.contains(c))
        };
        values.push(summed(importer, EinsumOperand { id, letters: letters.clone() }, elsewhere)?);
    }
    let mut values = values.into_iter();
    let product = match (values.next(), values.next(), values.next()) {
        (Some(a), None, None) => a,
        (Some(a), Some(b), None) => product(importer, a, b, &wanted)?,
        _ => return Err(unsupported()),
    };
    let position = |c: &char| product.letters.iter().position(|l| l == c);
    let axes = wanted.iter().map(position).collect::<Option<Vec<_>>>().ok_or_else(unsupported)?;
    importer.one(Op::Transpose { axes }, &[product.id])
}

/// Sums over the axes that do not appear in the result.
fn summed(
    importer: &mut Importer,
    value: EinsumOperand,
    kept: impl Fn(&char) -> bool,
) -> Result<EinsumOperand> {
    let axes: Vec<usize> = (0..value.letters.len()).filter(|&i| !kept(&value.letters[i])).collect();
    if axes.is_empty() {
        return Ok(value);
    }
    let letters = value.letters.iter().copied().filter(|c| kept(c)).collect();
    let id = importer.add(Op::Reduce { reduction: Reduction::Sum, axes, keep: false }, &[value.id])?;
    Ok(EinsumOperand { id, letters })
}

/// The product over the axes both have and the result does not.
fn product(
    importer: &mut Importer,
    a: EinsumOperand,
    b: EinsumOperand,
    wanted: &[char],
) -> Result<EinsumOperand> {
    let shared: Vec<char> = a.letters.iter().copied().filter(|c| b.letters.contains(c)).collect();
    let (batch, inner): (Vec<char>, Vec<char>) = shared.iter().partition(|c| wanted.contains(c));
    let own =
        |v: &EinsumOperand| v.letters.iter().copied().filter(|c| !shared.contains(c)).collect::<Vec<_>>();
    let (rows, columns) = (own(&a), own(&b));
    let (left, row_dims) = arranged(importer, &a, &batch, &rows, &inner)?;
    let (right, column_dims) = arranged(importer, &b, &batch, &columns, &inner)?;
    let id = importer.add(Op::MatMul { trans_a: false, trans_b: true }, &[left, right])?;
    let batch_dims = importer.shape(id).dims()[..batch.len()].to_vec();
    let shape = Shape::new([batch_dims, row_dims, column_dims].concat());
    let id = importer.add(Op::Reshape { shape }, &[id])?;
    Ok(EinsumOperand { id, letters: [batch, rows, columns].concat() })
}

/// A value as matrices `[batch…, outer, inner]`, and the axes behind `outer`.
fn arranged(
    importer: &mut Importer,
    value: &EinsumOperand,
    batch: &[char],
    outer: &[char],
    inner: &[char],
) -> Result<(NodeId, Vec<Dim>)> {
    let order: Vec<char> = [batch, outer, inner].concat();
    let axes = order.iter().filter_map(|c| value.letters.iter().position(|l| l == c)).collect();
    let id = importer.add(Op::Transpose { axes }, &[value.id])?;
    let shape = importer.shape(id);
    let (batch_dims, rest) = shape.dims().split_at(batch.len());
    let (outer_dims, inner_dims) = rest.split_at(outer.len());
    let joined = |dims: &[Dim]| {
        Shape::new(dims).count().ok_or_else(|| Error::shape(format!("axes of {shape} cannot be joined")))
    };
    let matrix = Shape::new([batch_dims, &[joined(outer_dims)?, joined(inner_dims)?]].concat());
    let id = if matrix == shape { id } else { importer.add(Op::Reshape { shape: matrix }, &[id])? };
    Ok((id, outer_dims.to_vec()))
}
