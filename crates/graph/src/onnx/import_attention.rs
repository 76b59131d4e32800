//! Attention and rotary embeddings of operator sets 23 and newer, written as products, softmax and sums.

use super::call::Call;
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::{Op, Unary};
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

/// What stands for −∞ where a key must not be attended to: its exponential is zero beside any other.
const NEVER: f64 = -1e30;

pub(crate) fn attention(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    for (index, what) in [(6, "a number of keys for each sample")] {
        if call.optional(index).is_some() {
            return Err(Error::unsupported(format!("Attention with {what} is not supported")));
        }
    }
    if call.int("left_window_size", -1)? >= 0 || call.int("right_window_size", -1)? >= 0 {
        return Err(Error::unsupported("Attention within a window is not supported"));
    }
    if call.has_output(3) {
        return Err(Error::unsupported("Attention that returns its products is not supported"));
    }
    let query = importer.operand(call, 0)?;
    let is_flat = importer.shape(query).rank() == 3;
    let query = heads(importer, call, query, "q_num_heads")?;
    let [mut key, mut value] = [1, 2].map(|index| {
        let operand = importer.operand(call, index)?;
        heads(importer, call, operand, "kv_num_heads")
    });
    let past = match call.optional(4) {
        Some(_) => {
            let (old_key, old_value) = (importer.operand(call, 4)?, importer.operand(call, 5)?);
            key = Ok(importer.add(Op::Concat { axis: 2 }, &[old_key, key?])?);
            value = Ok(importer.add(Op::Concat { axis: 2 }, &[old_value, value?])?);
            fixed(&importer.shape(old_key), 2)?
        }
        None => 0,
    };
    let (present_key, present_value) = (key?, value?);
    let shape = importer.shape(query);
    let (heads, size) = (fixed(&shape, 1)?, fixed(&shape, 3)?);
    let key = repeated(importer, present_key, heads)?;
    let value = repeated(importer, present_value, heads)?;
    let scale = call.float("scale", 1.0 / (size as f64).sqrt())?;
    let query = importer.graph.scaled(scale, query)?;
    let mut similar = importer.add(Op::MatMul { trans_a: false, trans_b: true }, &[query, key])?;
    let softcap = call.float("softcap", 0.0)?;
    if softcap > 0.0 {
        let small = importer.graph.scaled(1.0 / softcap, similar)?;
        let bounded = importer.add(Op::Unary(Unary::Tanh), &[small])?;
        similar = importer.graph.scaled(softcap, bounded)?;
    }
    let (similar, allowed) = masked(importer, call, similar, past)?;
    let mut weights = importer.add(Op::Softmax { axis: 3 }, &[similar])?;
    if let Some(allowed) = allowed {
        // Who may attend to nothing takes nothing.
        weights = importer.graph.masked(allowed, weights)?;
    }
    let mut found = importer.add(Op::MatMul { trans_a: false, trans_b: false }, &[weights, value])?;
    if is_flat {
        let dims = importer.shape(found).dims().to_vec();
        let joined =
            dims[1].times(dims[3]).ok_or_else(|| Error::shape("the heads of Attention are too wide"))?;
        let rows = importer.add(Op::Transpose { axes: vec![0, 2, 1, 3] }, &[found])?;
        found = importer.add(Op::Reshape { shape: Shape::new([dims[0], dims[2], joined]) }, &[rows])?;
    }
    Ok([found, present_key, present_value].map(Value::Node).to_vec())
}

fn fixed(shape: &Shape, axis: usize) -> Result<usize> {
    let length = shape.fixed_at(axis).filter(|&length| length > 0);
    length.ok_or_else(|| Error::shape(format!("axis {axis} of {shape} has no fixed length")))
}

/// A value as `[N, heads, positions, size]`.
fn heads(importer: &mut Importer, call: &Call, value: NodeId, attribute: &str) -> Result<NodeId> {
    let shape = importer.shape(value);
    match *shape.dims() {
        [_, _, _, _] => Ok(value),
        [samples, positions, Dim::Fixed(width)] => {
            let heads = usize::try_from(call.int(attribute, 0)?).ok().filter(|&n| n > 0 && width % n == 0);
            let heads = heads.ok_or_else(|| {
                Error::malformed(format!("{attribute} of {} does not divide {shape} into heads", call.op()))
            })?;
            split(importer, value, [samples, positions, Dim::Fixed(heads), Dim::Fixed(width / heads)])
        }
        _ => Err(Error::shape(format!("{} reads three or four axes, found {shape}", call.op()))),
    }
}

fn split(importer: &mut Importer, value: NodeId, dims: [Dim; 4]) -> Result<NodeId> {
    let apart = importer.add(Op::Reshape { shape: Shape::new(dims) }, &[value])?;
    importer.add(Op::Transpose { axes: vec![0, 2, 1, 3] }, &[apart])
}

/// Keys or values for so many heads: each head of the value serves as many neighbours.
fn repeated(importer: &mut Importer, value: NodeId, heads: usize) -> Result<NodeId> {
    let shape = importer.shape(value);
    let &[samples, own, positions, size] = shape.dims() else {
        return Err(Error::shape(format!("Attention reads keys of four axes, found {shape}")));
    };
    let own = own
        .fixed()
        .filter(|&own| own > 0 && heads.is_multiple_of(own))
        .ok_or_else(|| Error::shape(format!("{heads} heads of queries cannot share the heads of {shape}")))?;
    if own == heads {
        return Ok(value);
    }
    let (own, times) = (Dim::Fixed(own), Dim::Fixed(heads / own));
    let one = Op::Reshape { shape: Shape::new([samples, own, Dim::Fixed(1), positions, size]) };
    let all = Op::Expand { shape: Shape::new([samples, own, times, positions, size]) };
    let joined = Op::Reshape { shape: Shape::new([samples, Dim::Fixed(heads), positions, size]) };
    let value = importer.add(one, &[value])?;
    let value = importer.add(all, &[value])?;
    importer.add(joined, &[value])
}

/// The similarities with what must not be attended to at [`NEVER`], and the truth values of the mask if it has them.
fn masked(
    importer: &mut Importer,
    call: &Call,
    mut similar: NodeId,
    past: usize,
) -> Result<(NodeId, Option<NodeId>)> {
    let shape = importer.shape(similar);
    let mut allowed = None;
    if call.optional(3).is_some() {
        let mask = importer.operand(call, 3)?;
        let of_mask = importer.shape(mask);
        if shape.broadcast(&of_mask).ok().as_ref() != Some(&shape) {
            return Err(Error::shape(format!("the mask {of_mask} of Attention does not fit {shape}")));
        }
        match importer.graph.node(mask).kind {
            Kind::Bool => allowed = Some(mask),
            _ => similar = importer.graph.plus(similar, mask)?,
        }
    }
    let never = importer.graph.number(NEVER);
    if let Some(allowed) = allowed {
        similar = importer.graph.select(allowed, similar, never)?;
    }
    if call.flag("is_causal", false)? {
        let (queries, keys) = (fixed(&shape, 2)?, fixed(&shape, 3)?);
        importer.spend(queries.saturating_mul(keys))?;
        let seen = (0..queries).flat_map(|i| (0..keys).map(move |j| j <= i + past));
        let seen = importer.constant(Tensor::new([queries, keys], seen.collect::<Vec<bool>>())?);
        similar = importer.graph.select(seen, similar, never)?;
    }
    Ok((similar, allowed))
}

/// Pairs of numbers turned by the angle of their position.
pub(crate) fn rotary_embedding(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let whole = importer.shape(x);
    let is_flat = whole.rank() == 3;
    let apart = heads(importer, call, x, "num_heads")?;
    let shape = importer.shape(apart);
    let (positions, size) = (fixed(&shape, 2)?, fixed(&shape, 3)?);
    let turned = match usize::try_from(call.int("rotary_embedding_dim", 0)?) {
        Ok(0) => size,
        Ok(width) if width <= size => width,
        _ => return Err(Error::malformed(format!("rotary_embedding_dim does not fit heads of size {size}"))),
    };
    if turned % 2 == 1 {
        return Err(Error::malformed(format!(
            "RotaryEmbedding turns pairs of numbers, and heads of size {size} have {turned} to turn; export it with an even \
             rotary_embedding_dim"
        )));
    }
    let half = turned / 2;
    let [cosine, sine] = [1, 2].map(|index| angles(importer, call, index, (positions, half)));
    let (cosine, sine) = (cosine?, sine?);
    let interleaved = call.flag("interleaved", false)?;
    let (step, second) = if interleaved { (2, 1) } else { (1, half) };
    let take = |start, step, length| Op::Slice { axis: 3, start, step, length };
    let first = importer.add(take(0, step, half), &[apart])?;
    let second = importer.add(take(second, step, half), &[apart])?;
    let g = &mut importer.graph;
    let (a, b) = (g.times(cosine, first)?, g.times(sine, second)?);
    let real = g.minus(a, b)?;
    let (a, b) = (g.times(sine, first)?, g.times(cosine, second)?);
    let imaginary = g.plus(a, b)?;
    let mut parts = if interleaved {
        let dims = importer.shape(real).dims().to_vec();
        let column = Shape::new([&dims[..], &[Dim::Fixed(1)]].concat());
        let real = importer.add(Op::Reshape { shape: column.clone() }, &[real])?;
        let imaginary = importer.add(Op::Reshape { shape: column }, &[imaginary])?;
        let pairs = importer.add(Op::Concat { axis: 4 }, &[real, imaginary])?;
        let joined = Shape::new([&dims[..3], &[Dim::Fixed(turned)]].concat());
        vec![importer.add(Op::Reshape { shape: joined }, &[pairs])?]
    } else {
        vec![real, imaginary]
    };
    if turned < size {
        parts.push(importer.add(take(turned, 1, size - turned), &[apart])?);
    }
    let mut result = match parts[..] {
        [only] => only,
        _ => importer.add(Op::Concat { axis: 3 }, &parts)?,
    };
    if is_flat {
        let rows = importer.add(Op::Transpose { axes: vec![0, 2, 1, 3] }, &[result])?;
        result = importer.add(Op::Reshape { shape: whole }, &[rows])?;
    }
    Ok(vec![Value::Node(result)])
}

/// The cosines or sines of each position, `[N or 1, 1, positions, half]`.
fn angles(
    importer: &mut Importer,
    call: &Call,
    index: usize,
    (positions, half): (usize, usize),
) -> Result<NodeId> {
    let mut table = importer.operand(call, index)?;
    if call.optional(3).is_some() {
        let places = importer.operand(call, 3)?;
        let numbers = importer.graph.constant_value(places).and_then(|tensor| tensor.to_i64());
        if let (Some(rows), Some(numbers)) = (importer.shape(table).fixed_at(0), numbers)
            && let Some(bad) = numbers.iter().find(|&&place| place < 0 || place >= rows as i64)
        {
            return Err(Error::shape(format!("the position {bad} is outside a cache of {rows} positions")));
        }
        table = importer.add(Op::Gather { axis: 0 }, &[table, places])?;
    }
    let shape = importer.shape(table);
    match *shape.dims() {
        [samples, Dim::Fixed(rows), Dim::Fixed(width)] if (rows, width) == (positions, half) => {
            let dims = [samples, Dim::Fixed(1), Dim::Fixed(rows), Dim::Fixed(width)];
            importer.add(Op::Reshape { shape: Shape::new(dims) }, &[table])
        }
        _ => Err(Error::shape(format!(
            "RotaryEmbedding of {positions} positions and {half} angles reads a cache of [N, {positions}, {half}], found {shape}"
        ))),
    }
}
