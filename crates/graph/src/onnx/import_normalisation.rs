//! Normalisation over channels, groups and trailing axes.

use super::call::{self, Call, decimal};
use super::import::Importer;
use super::value::Value;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::infer::infer;
use crate::op::{Binary, Op, Reduction, Unary};
use crate::passes::normalised;
use crate::shape::Shape;

const EPSILON: f64 = 1e-5;

/// How much of the running averages stays unless the node says otherwise.
const MOMENTUM: f64 = 0.9;

pub(crate) fn batch_norm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    if call.has("spatial") && !call.flag("spatial", true)? {
        return Err(Error::unsupported("BatchNormalization per activation (spatial = 0) is not supported"));
    }
    let operands = importer.operands(call, 5)?;
    // Before operator set 14 a node with outputs for statistics is in training mode.
    let hands_out = (1..call.node.outputs.len()).any(|index| call.has_output(index));
    if call.flag("training_mode", false)? || (call.opset < 14 && hands_out) {
        return batch_norm_in_training(importer, call, &operands);
    }
    call.only_first_output("its running statistics as outputs, but not in training mode,")?;
    importer.one(Op::BatchNorm { epsilon: call.float("epsilon", EPSILON)? }, &operands)
}

/// Batch norm by the mean and the (biased) variance of the batch, spelled out; then the running averages with these
/// put in, and before operator set 14 also mean and variance themselves.
fn batch_norm_in_training(importer: &mut Importer, call: &Call, operands: &[NodeId]) -> Result<Vec<Value>> {
    let (epsilon, momentum) = (call.float("epsilon", EPSILON)?, call.float("momentum", MOMENTUM)?);
    let g = &mut importer.graph;
    let nodes: Vec<_> = operands.iter().map(|&id| g.node(id)).collect();
    let (shape, _) = infer(&Op::BatchNorm { epsilon }, &nodes)?;
    let axes: Vec<usize> = (0..shape.rank()).filter(|&axis| axis != 1).collect();
    let batch = normalised(g, operands[0], &axes, epsilon)?;
    let [scale, bias] = [operands[1], operands[2]].map(|vector| g.per_channel(vector, shape.rank()));
    let scaled = g.times(batch.value, scale?)?;
    let mut found = vec![g.plus(scaled, bias?)?];
    if call.node.outputs.len() > 1 {
        let vector = g.node(operands[3]).shape.clone();
        let (mean, variance) = (g.reshaped(batch.mean, vector.clone())?, g.reshaped(batch.variance, vector)?);
        for (running, new) in [(operands[3], mean), (operands[4], variance)] {
            let (kept, added) = (g.scaled(momentum, running)?, g.scaled(1.0 - momentum, new)?);
            found.push(g.plus(kept, added)?);
        }
        found.extend([mean, variance].into_iter().filter(|_| call.opset < 14));
    }
    Ok(found.into_iter().map(Value::Node).collect())
}

pub(crate) fn instance_norm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let operands = importer.operands(call, 3)?;
    let shape = importer.shape(first(&operands)?);
    let groups = shape.fixed_at(1).ok_or_else(|| Error::shape(format!("{shape} has no fixed channels")))?;
    importer.one(Op::GroupNorm { groups, epsilon: call.float("epsilon", EPSILON)? }, &operands)
}

fn first(operands: &[NodeId]) -> Result<NodeId> {
    operands.first().copied().ok_or_else(|| Error::malformed("a normalisation without inputs"))
}

pub(crate) fn group_norm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let mut operands = importer.operands(call, 3)?;
    let shape = importer.shape(first(&operands)?);
    let groups = call.int("num_groups", 0)?;
    let channels = shape.fixed_at(1);
    let groups = usize::try_from(groups).ok().filter(|&g| g > 0 && channels.is_some_and(|c| c % g == 0));
    let (Some(groups), Some(channels)) = (groups, channels) else {
        return Err(Error::shape(format!("the channels of {shape} cannot be put into groups")));
    };
    // Before operator set 21 there was one scale and bias per group.
    if call.opset < 21 && groups != channels {
        for parameter in &mut operands[1..] {
            let column = importer.add(Op::Reshape { shape: Shape::fixed(&[groups, 1]) }, &[*parameter])?;
            let full = Shape::fixed(&[groups, channels / groups]);
            let table = importer.add(Op::Expand { shape: full }, &[column])?;
            *parameter = importer.add(Op::Reshape { shape: Shape::fixed(&[channels]) }, &[table])?;
        }
    }
    importer.one(Op::GroupNorm { groups, epsilon: call.float("epsilon", EPSILON)? }, &operands)
}

pub(crate) fn layer_norm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    call.only_first_output("its mean or deviation as outputs")?;
    let operands = importer.operands(call, 3)?;
    let rank = importer.shape(first(&operands)?).rank();
    let axis = call::axis(call.int("axis", -1)?, rank)?;
    importer.one(Op::LayerNorm { axis, epsilon: call.float("epsilon", EPSILON)? }, &operands)
}

/// `x/√(mean(x²) + ε)·scale` over the axes from `axis` on.
pub(crate) fn rms_norm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let (x, scale) = (importer.operand(call, 0)?, importer.operand(call, 1)?);
    let rank = importer.shape(x).rank();
    let axes: Vec<usize> = (call::axis(call.int("axis", -1)?, rank)?..rank).collect();
    let epsilon = call.float("epsilon", EPSILON)?;
    let g = &mut importer.graph;
    let squared = g.times(x, x)?;
    let mean = g.reduced(Reduction::Mean, squared, &axes, true)?;
    let raised = g.offset(epsilon, mean)?;
    let size = g.unary(Unary::Sqrt, raised)?;
    let inverse = g.unary(Unary::Reciprocal, size)?;
    let normalised = g.times(x, inverse)?;
    Ok(vec![Value::Node(g.times(normalised, scale)?)])
}

pub(crate) fn local_response_norm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let size = call.int("size", 0)?;
    let size = usize::try_from(size).map_err(|_| Error::malformed(format!("LRN over {size} channels")))?;
    let op = Op::LocalResponseNorm {
        size,
        alpha: call.float("alpha", decimal(1e-4))?,
        beta: call.float("beta", 0.75)?,
        bias: call.float("bias", 1.0)?,
    };
    importer.one(op, &[x])
}

/// `x / ‖x‖` along an axis.
pub(crate) fn lp_norm(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let x = importer.operand(call, 0)?;
    let shape = importer.shape(x);
    let axis = call::axis(call.int("axis", -1)?, shape.rank())?;
    let sum = |axes| Op::Reduce { reduction: Reduction::Sum, axes, keep: true };
    let norm = match call.int("p", 2)? {
        1 => {
            let size = importer.add(Op::Unary(Unary::Abs), &[x])?;
            importer.add(sum(vec![axis]), &[size])?
        }
        2 => {
            let square = importer.add(Op::Binary(Binary::Mul), &[x, x])?;
            let total = importer.add(sum(vec![axis]), &[square])?;
            importer.add(Op::Unary(Unary::Sqrt), &[total])?
        }
        p => return Err(Error::malformed(format!("LpNormalization has no norm {p}"))),
    };
    importer.one(Op::Binary(Binary::Div), &[x, norm])
}
