//! Quantised values: integers that stand for real numbers. Weights become those numbers. A quantiser of activations with a
//! fixed scale is kept: it limits and rounds real numbers, and explanations take it for the identity.

use std::rc::Rc;

use super::call::Call;
use super::evaluate::value_shape;
use super::import::Importer;
use super::value::{Content, Quantised, Quantiser, Value};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::graph::{Node, NodeId};
use crate::op::{Binary, NonNegative, Op, Unary};
use crate::shape::Shape;
use crate::tensor::{Data, Kind, Tensor};

/// Ops that pass numbers on, whatever they stand for.
const PASSING: [&str; 18] = [
    "Concat",
    "DepthToSpace",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "GlobalMaxPool",
    "Identity",
    "MaxPool",
    "ReduceMax",
    "Reshape",
    "Resize",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

impl Quantiser {
    /// Integers that stand for themselves, less a zero point.
    pub(crate) fn plain(zero: Vec<f64>, axis: usize) -> Self {
        Quantiser { scale: vec![1.0], zero, axis }
    }

    fn is_single(&self) -> bool {
        self.scale.len() == 1 && self.zero.len() == 1
    }

    /// The product of two scales, for a bias that is added to a product.
    pub(crate) fn bias(&self, other: &Quantiser, factor: f64) -> Self {
        let count = self.scale.len().max(other.scale.len());
        let at = |scale: &[f64], i: usize| scale[i % scale.len()];
        let scale = (0..count).map(|i| factor * at(&self.scale, i) * at(&other.scale, i)).collect();
        Quantiser { scale, zero: vec![0.0], axis: 0 }
    }
}

/// The single quantiser of the quantised values among `inputs`, if an op that passes numbers on keeps it.
pub(crate) fn passed_on(call: &Call) -> Option<Quantiser> {
    let Some(Value::Quantised(first)) = call.optional(0) else { return None };
    let alike = |value: &Option<Value>| match value {
        Some(Value::Quantised(other)) => other.quantiser == first.quantiser,
        _ => call.op() != "Concat",
    };
    let passes = PASSING.contains(&call.op()) && call.inputs.iter().all(alike);
    (passes && first.quantiser.is_single()).then(|| first.quantiser.clone())
}

/// The same call on the real numbers that quantised values stand for.
pub(crate) fn on_real_numbers<'c>(call: &Call<'c>) -> Call<'c> {
    let real = |value: &Option<Value>| match value {
        Some(Value::Quantised(quantised)) => Some(Value::Node(quantised.real)),
        other => other.clone(),
    };
    Call { inputs: call.inputs.iter().map(real).collect(), elements: call.elements.clone(), ..*call }
}

/// Real numbers as quantised ones.
pub(crate) fn as_quantised(value: Value, quantiser: &Quantiser) -> Value {
    match value {
        Value::Node(real) => Value::Quantised(Rc::new(Quantised { real, quantiser: quantiser.clone() })),
        other => other,
    }
}

/// The integers of a quantised value as a node.
pub(crate) fn integers(importer: &mut Importer, quantised: &Quantised) -> Result<NodeId> {
    let Quantiser { zero, .. } = &quantised.quantiser;
    let plain = Quantiser::plain(vec![0.0; zero.len()], quantised.quantiser.axis);
    let real = requantised(importer, quantised, &plain)?;
    let rounded = importer.add(Op::Unary(Unary::Round), &[real])?;
    importer.add(Op::Cast { to: Kind::Int }, &[rounded])
}

/// The scale and the zero point that two inputs of a node hold, for a value of `shape`.
pub(crate) fn quantiser(
    call: &Call,
    (scale, zero): (Option<usize>, usize),
    axis: usize,
    shape: &Shape,
) -> Result<Quantiser> {
    let numbers = |index: usize, role: &str| -> Result<Option<Vec<f64>>> {
        let Some(array) = call.array(index, role)? else { return Ok(None) };
        Ok(array.floats().filter(|values| !values.is_empty()))
    };
    let scale = match scale {
        Some(index) => {
            numbers(index, "scale")?.ok_or_else(|| Error::malformed(format!("{} has no scale", call.op())))?
        }
        None => vec![1.0],
    };
    let zero = numbers(zero, "zero point")?.unwrap_or_else(|| vec![0.0]);
    let fits = |count: usize| count == 1 || shape.fixed_at(axis) == Some(count);
    if !fits(scale.len()) || !fits(zero.len()) {
        return Err(Error::unsupported(format!(
            "{} with {} scales and {} zero points does not fit axis {axis} of {shape}",
            call.op(),
            scale.len(),
            zero.len()
        )));
    }
    if let Some(scale) = scale.iter().find(|scale| !scale.is_finite()) {
        return Err(Error::malformed(format!("the scale {scale} of {} is not finite", call.op())));
    }
    Ok(Quantiser { scale, zero, axis })
}

/// The input at `index` as real numbers, by the scale and the zero point that the next two inputs hold.
pub(crate) fn operand(
    importer: &mut Importer,
    call: &Call,
    index: usize,
    axis: usize,
) -> Result<(NodeId, Quantiser)> {
    let value = call.input(index)?.clone();
    let shape = value_shape(importer, &value);
    let quantiser = quantiser(call, (Some(index + 1), index + 2), axis, &shape)?;
    Ok((dequantised(importer, &value, &quantiser)?, quantiser))
}

/// The real numbers `scale·(q − zero)`.
pub(crate) fn dequantised(importer: &mut Importer, value: &Value, quantiser: &Quantiser) -> Result<NodeId> {
    match value {
        Value::Quantised(quantised) if quantised.quantiser == *quantiser => Ok(quantised.real),
        Value::Quantised(quantised) => requantised(importer, quantised, quantiser),
        Value::Known(known) => match &known.content {
            Content::Tensor(tensor) => {
                importer.notes.quantised_weights = true;
                let real = dequantised_weights(tensor, quantiser)?;
                Ok(importer.constant(real))
            }
            _ => importer.node_of(value),
        },
        _ => {
            let node = importer.node_of(value)?;
            let real = match importer.graph.node(node).kind {
                Kind::Float => node,
                _ => importer.add(Op::Cast { to: Kind::Float }, &[node])?,
            };
            let less: Vec<f64> = quantiser.zero.iter().map(|zero| -zero).collect();
            let shifted = affine(importer, real, (Binary::Add, &less), quantiser.axis)?;
            affine(importer, shifted, (Binary::Mul, &quantiser.scale), quantiser.axis)
        }
    }
}

/// The numbers that the integers of a quantised value stand for by another quantiser.
fn requantised(importer: &mut Importer, from: &Quantised, to: &Quantiser) -> Result<NodeId> {
    let own = &from.quantiser;
    let count = [&own.scale, &own.zero, &to.scale, &to.zero].map(Vec::len).into_iter().max().unwrap_or(1);
    let at = |values: &[f64], i: usize| values[i % values.len()];
    let factor: Vec<f64> = (0..count).map(|i| at(&to.scale, i) / at(&own.scale, i)).collect();
    let shift: Vec<f64> =
        (0..count).map(|i| (at(&own.zero, i) - at(&to.zero, i)) * at(&to.scale, i)).collect();
    let axis = if own.is_single() { to.axis } else { own.axis };
    let scaled = affine(importer, from.real, (Binary::Mul, &factor), axis)?;
    affine(importer, scaled, (Binary::Add, &shift), axis)
}

/// A sum or a product with one number, or with one for each position along an axis.
fn affine(
    importer: &mut Importer,
    x: NodeId,
    (function, numbers): (Binary, &[f64]),
    axis: usize,
) -> Result<NodeId> {
    let neutral = if function == Binary::Mul { 1.0 } else { 0.0 };
    if numbers.iter().all(|&number| number == neutral) {
        return Ok(x);
    }
    let numbers = along(importer, x, numbers, axis)?;
    importer.add(Op::Binary(function), &[x, numbers])
}

fn along(importer: &mut Importer, x: NodeId, numbers: &[f64], axis: usize) -> Result<NodeId> {
    let single: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    let [number] = single[..] else {
        let mut shape = vec![1; importer.shape(x).rank()];
        *shape.get_mut(axis).ok_or_else(|| Error::shape(format!("there is no axis {axis}")))? = single.len();
        return Ok(importer.constant(Tensor::new(shape, single)?));
    };
    Ok(importer.constant(Tensor::scalar(number)))
}

/// Stored integers as the real numbers they stand for, in single precision.
pub(crate) fn dequantised_weights(tensor: &Tensor, quantiser: &Quantiser) -> Result<Tensor> {
    let Data::I64(integers) = tensor.data() else {
        return Err(Error::malformed("a quantised weight holds real numbers"));
    };
    let inner: usize = tensor.shape().get(quantiser.axis + 1..).unwrap_or_default().iter().product();
    let at = |numbers: &[f64], i: usize| numbers[i / inner.max(1) % numbers.len()];
    let real =
        |(i, &q): (usize, &i64)| (q as f64 - at(&quantiser.zero, i)) as f32 * at(&quantiser.scale, i) as f32;
    Tensor::new(tensor.shape().to_vec(), integers.iter().enumerate().map(real).collect::<Vec<f32>>())
}

/// Whether a value comes right out of a rectifier, or a pool or a sum of such values.
fn is_rectified(importer: &Importer, value: NodeId) -> bool {
    let non_negative = |node: &Node| node.op.properties().non_negative == NonNegative::Always;
    let node = importer.graph.node(value);
    let of_operands = matches!(node.op.properties().non_negative, NonNegative::IfAll(_));
    let mut operands = node.inputs.iter().map(|&input| importer.graph.node(input));
    non_negative(node) || (of_operands && operands.all(non_negative))
}

/// Real numbers limited and rounded to those that integers of a type stand for. A quantiser that cannot stand for negative
/// numbers is also the rectifier that was merged into it.
pub(crate) fn rounded(
    importer: &mut Importer,
    real: NodeId,
    quantiser: &Quantiser,
    element: Element,
) -> Result<Value> {
    let (min, max) = element
        .range()
        .ok_or_else(|| Error::unsupported(format!("quantisation to {} is not supported", element.name())))?;
    if let Some(scale) = quantiser.scale.iter().find(|&&scale| scale <= 0.0) {
        return Err(Error::malformed(format!("a quantiser has the scale {scale}, expected one above 0")));
    }
    importer.notes.quantisers += 1;
    let at = |numbers: &[f64], i: usize| numbers[i % numbers.len()];
    let result = if quantiser.is_single() {
        let (step, zero) = (quantiser.scale[0], quantiser.zero[0]);
        let (min, max) = ((min - zero) * step, (max - zero) * step);
        let rectified = match min == 0.0 && !is_rectified(importer, real) {
            true => importer.add(Op::Unary(Unary::Relu), &[real])?,
            false => real,
        };
        importer.add(Op::Unary(Unary::Quantise { step, min, max }), &[rectified])?
    } else {
        let count = quantiser.scale.len().max(quantiser.zero.len());
        let bound = |bound: f64| (0..count).map(|i| bound - at(&quantiser.zero, i)).collect::<Vec<f64>>();
        let per = |importer: &mut Importer, numbers: &[f64]| along(importer, real, numbers, quantiser.axis);
        let scale = per(importer, &quantiser.scale)?;
        let steps = importer.add(Op::Binary(Binary::Div), &[real, scale])?;
        let free = Unary::Quantise { step: 1.0, min: f64::NEG_INFINITY, max: f64::INFINITY };
        let whole = importer.add(Op::Unary(free), &[steps])?;
        let (low, high) = (per(importer, &bound(min))?, per(importer, &bound(max))?);
        let raised = importer.add(Op::Binary(Binary::Max), &[whole, low])?;
        let limited = importer.add(Op::Binary(Binary::Min), &[raised, high])?;
        importer.add(Op::Binary(Binary::Mul), &[limited, scale])?
    };
    Ok(as_quantised(Value::Node(result), quantiser))
}
