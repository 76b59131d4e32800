//! Maps `scale·x + shift` per channel: batch norms, and sums and products with constants.

use crate::axis_indices::MAX_INDICES;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Op};
use crate::tensor::Tensor;

/// `scale·x + shift`, with one number of each for every channel.
pub(super) struct ChannelMap {
    /// The value that is mapped.
    pub(super) x: NodeId,
    /// The axis of its channels.
    pub(super) axis: usize,
    pub(super) scale: Vec<f64>,
    pub(super) shift: Vec<f64>,
}

impl ChannelMap {
    /// The map of a batch norm with the given inputs; `None` if its parameters are not known or do not give finite numbers.
    pub(super) fn of_batch_norm(graph: &Graph, inputs: &[NodeId], epsilon: f64) -> Option<Self> {
        let parameter = |i: usize| graph.constant_value(inputs[i]).map(Tensor::to_f64);
        let (gamma, beta, mean, variance) = (parameter(1)?, parameter(2)?, parameter(3)?, parameter(4)?);
        let scale: Vec<f64> = gamma.iter().zip(&*variance).map(|(g, v)| g / (v + epsilon).sqrt()).collect();
        let shift: Vec<f64> = scale.iter().zip(&*mean).zip(&*beta).map(|((s, m), b)| b - m * s).collect();
        ChannelMap { x: inputs[0], axis: 1, scale, shift }.finite()
    }

    /// The map of a sum, a difference, a product or a quotient of the result of an affine node and a constant that varies at most
    /// along its channels.
    pub(super) fn of_constant(graph: &Graph, node: &Node, inputs: &[NodeId]) -> Option<Self> {
        let Op::Binary(function) = node.op else { return None };
        let constant_at = |i: usize| Some((i, graph.constant_value(*inputs.get(i)?)?));
        let (at, constant) = constant_at(1).or_else(|| constant_at(0))?;
        let x = inputs[1 - at];
        let numbers = per_channel(constant, graph.node(x)).filter(|_| graph.node(x).shape == node.shape)?;
        let same = |value: f64| vec![value; numbers.len()];
        let (scale, shift) = match (function, at) {
            (Binary::Mul, _) => (numbers.clone(), same(0.0)),
            (Binary::Div, 1) => (numbers.iter().map(|c| 1.0 / c).collect(), same(0.0)),
            (Binary::Add, _) => (same(1.0), numbers.clone()),
            (Binary::Sub, 1) => (same(1.0), numbers.iter().map(|c| -c).collect()),
            (Binary::Sub, _) => (same(-1.0), numbers.clone()),
            _ => return None,
        };
        ChannelMap { x, axis: channel_axis(graph.node(x)), scale, shift }.finite()
    }

    fn finite(self) -> Option<Self> {
        self.scale.iter().chain(&self.shift).all(|v| v.is_finite()).then_some(self)
    }

    /// Whether nothing is added.
    pub(super) fn is_scale(&self) -> bool {
        self.shift.iter().all(|&t| t == 0.0)
    }

    /// Whether nothing is multiplied.
    pub(super) fn is_shift(&self) -> bool {
        self.scale.iter().all(|&s| s == 1.0)
    }
}

/// The axis of the channels that an affine node computes.
pub(super) fn channel_axis(affine: &Node) -> usize {
    match affine.op {
        Op::MatMul { .. } => affine.shape.rank().saturating_sub(1),
        _ => 1,
    }
}

/// The numbers of a constant, one for each channel of an affine node.
fn per_channel(constant: &Tensor, affine: &Node) -> Option<Vec<f64>> {
    let axis = channel_axis(affine);
    let channels = affine.shape.fixed_at(axis).filter(|&channels| channels <= MAX_INDICES)?;
    let missing = affine.shape.rank().checked_sub(constant.shape().len())?;
    let varies = |(i, &length): (usize, &usize)| length != 1 && i + missing != axis;
    if constant.shape().iter().enumerate().any(varies) {
        return None;
    }
    let numbers = constant.to_f64();
    match numbers.len() {
        1 => Some(vec![numbers[0]; channels]),
        count => (count == channels).then(|| numbers.to_vec()),
    }
}
