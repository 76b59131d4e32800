//! The sum stream of linear nodes: the node with every coefficient replaced by its magnitude.

use monosplit_autodiff::linear::{batch_norm_scale, resized_in_magnitude};
use monosplit_graph::op::{AffineLayer, Binary, Padding, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use super::Builder;
use crate::operator_norm::{Direction, log2_norm_bound};
use crate::scaled::{ACTIVATION_BOUND, Scaled};

impl Builder<'_> {
    /// The node with every coefficient replaced by its magnitude, applied to the streams.
    pub(super) fn multilinear(&mut self, g: &mut Graph, id: NodeId, node: &Node) -> Result<Scaled> {
        let grows = log2_norm_bound(g, node, Direction::Forward);
        match &node.op {
            Op::Binary(Binary::Add | Binary::Sub) => {
                let a = self.stream.operand(g, node.inputs[0])?;
                let b = self.stream.operand(g, node.inputs[1])?;
                self.scale.sum(g, a, b)
            }
            Op::Unary(Unary::Neg) => Ok(self.stream.at(node.inputs[0])),
            Op::Binary(Binary::Mul) => {
                let a = self.stream.operand(g, node.inputs[0])?;
                let b = self.stream.operand(g, node.inputs[1])?;
                let product = self.scale.product(g, a, b)?;
                self.keep(id, product);
                Ok(product)
            }
            Op::Concat { .. } => self.joined(g, node),
            Op::Where => {
                let a = self.stream.operand(g, node.inputs[1])?;
                let b = self.stream.operand(g, node.inputs[2])?;
                self.scale.combine(g, a, b, |g, a, b| g.select(node.inputs[0], a, b))
            }
            Op::Resize { .. } => {
                let s = self.scale.ready(g, self.stream.at(node.inputs[0]), grows)?;
                let value = resized_in_magnitude(g, node, s.value)?;
                let resized = s.grown(value, grows);
                self.keep(id, resized);
                Ok(resized)
            }
            Op::BatchNorm { epsilon } => self.batch_norm(g, id, node, *epsilon, grows),
            Op::Conv { .. } | Op::ConvTranspose { .. } => {
                let w = g.magnitude(node.inputs[1])?;
                let s = self.active_only(g, node, 0, grows)?;
                let bias = node.inputs.get(2).copied();
                self.with_bias(g, id, node, &[s.value, w], s.grown(s.value, grows), bias)
            }
            Op::MatMul { .. } => {
                let (a, b) =
                    (self.stream.operand(g, node.inputs[0])?, self.stream.operand(g, node.inputs[1])?);
                // For a constant matrix the norm is known; for two activations only their bounds are.
                let (a, b, bound) = match [0, 1].map(|i| g.node(node.inputs[i]).is_constant()) {
                    [true, _] => {
                        let b = self.scale.ready(g, b, grows)?;
                        (a, b, b.bound + grows)
                    }
                    [_, true] => {
                        let a = self.scale.ready(g, a, grows)?;
                        (a, b, a.bound + grows)
                    }
                    _ => {
                        let (a, b) = self.scale.ready_pair(g, a, b, grows)?;
                        (a, b, a.bound + b.bound + grows)
                    }
                };
                let exponent = self.scale.exponent_sum(g, a.exponent, b.exponent)?;
                let product = Scaled { value: a.value, exponent, bound };
                self.with_bias(g, id, node, &[a.value, b.value], product, node.inputs.get(2).copied())
            }
            Op::Pad { padding: Padding::Constant(c), pads } if *c != 0.0 => {
                let s = self.stream.at(node.inputs[0]);
                let pad = |c: f64| Op::Pad { padding: Padding::Constant(c), pads: pads.clone() };
                let padded = g.add(pad(0.0), &[s.value])?;
                let zero = g.scaled(0.0, node.inputs[0])?;
                let frame = g.add(pad(c.abs()), &[zero])?;
                let frame = self.scale.under(g, frame, s.grown(padded, 0.0))?;
                Ok(s.grown(g.plus(padded, frame)?, 1.0))
            }
            // All their coefficients other than a divisor are non-negative.
            op @ (Op::AveragePool { .. }
            | Op::AveragePoolTranspose { .. }
            | Op::Reduce { .. }
            | Op::Slice { .. }
            | Op::Pad { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Gather { .. }
            | Op::Cast { .. }
            | Op::Identity
            | Op::Dropout { .. }
            | Op::Binary(Binary::Div)) => {
                let s = self.active_only(g, node, 0, grows)?;
                let mut operands = node.inputs.clone();
                operands[0] = s.value;
                if let Op::Binary(Binary::Div) = op {
                    operands[1] = g.magnitude(node.inputs[1])?;
                }
                let value = g.add(op.clone(), &operands)?;
                let applied = s.grown(value, grows);
                self.keep(id, applied);
                Ok(applied)
            }
            op => Err(Error::unsupported(format!("{} is not linear and cannot be split so", op.name()))),
        }
    }

    pub(super) fn active_only(
        &self,
        g: &mut Graph,
        node: &Node,
        index: usize,
        growth: f64,
    ) -> Result<Scaled> {
        let input = node.inputs[index];
        if !self.network.is_active(input) {
            return Err(Error::unsupported(format!(
                "{} whose coefficients depend on the input cannot be split",
                node.op.name()
            )));
        }
        self.scale.ready(g, self.stream.at(input), growth)
    }

    pub(super) fn batch_norm(
        &mut self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        epsilon: f64,
        grows: f64,
    ) -> Result<Scaled> {
        let s = self.active_only(g, node, 0, grows)?;
        let scale = batch_norm_scale(g, node, epsilon)?;
        let magnitude = g.magnitude(scale)?;
        let contribution = s.grown(g.times(s.value, magnitude)?, grows);
        self.keep(id, contribution);
        let shift = batch_norm_shift(g, node, scale)?;
        let shift = g.magnitude(shift)?;
        let shift = self.scale.under(g, shift, contribution)?;
        Ok(contribution.grown(g.plus(contribution.value, shift)?, 1.0))
    }

    /// A linear op on `operands`, plus the magnitude of its bias.
    pub(super) fn with_bias(
        &mut self,
        g: &mut Graph,
        id: NodeId,
        node: &Node,
        operands: &[NodeId],
        like: Scaled,
        bias: Option<NodeId>,
    ) -> Result<Scaled> {
        let Some(bias) = bias else {
            let value = g.add(node.op.clone(), operands)?;
            let contribution = Scaled { value, ..like };
            self.keep(id, contribution);
            return Ok(contribution);
        };
        let bias = g.magnitude(bias)?;
        let bound = like.bound.max(ACTIVATION_BOUND) + 1.0;
        if like.exponent.is_none() && !self.keep_contributions {
            let value = g.add(node.op.clone(), &[operands, &[bias]].concat())?;
            return Ok(Scaled { value, bound, ..like });
        }
        let value = g.add(node.op.clone(), operands)?;
        let contribution = Scaled { value, ..like };
        self.keep(id, contribution);
        let bias = bias_shaped(g, node, bias)?;
        let bias = self.scale.under(g, bias, contribution)?;
        Ok(Scaled { value: g.plus(value, bias)?, bound, ..like })
    }

    pub(super) fn keep(&mut self, id: NodeId, contribution: Scaled) {
        if self.keep_contributions {
            self.stream.contributions.insert(id, contribution);
        }
    }

    pub(super) fn joined(&self, g: &mut Graph, node: &Node) -> Result<Scaled> {
        let mut parts = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            parts.push(self.stream.operand(g, input)?);
        }
        let mut exponent = None;
        for part in &parts {
            exponent = match (exponent, part.exponent) {
                (Some(a), Some(b)) if a != b => Some(g.binary(Binary::Max, a, b)?),
                (a, b) => a.or(b),
            };
        }
        let zero = g.number(0.0);
        let mut values = Vec::with_capacity(parts.len());
        for part in &parts {
            values.push(match exponent {
                Some(exponent) if part.exponent != Some(exponent) => {
                    let drop = g.minus(exponent, part.exponent.unwrap_or(zero))?;
                    let factor = self.scale.power(g, drop, part.value, -1.0)?;
                    g.times(part.value, factor)?
                }
                _ => part.value,
            });
        }
        let bound = parts.iter().map(|p| p.bound).fold(0.0, f64::max);
        Ok(Scaled { value: g.add(node.op.clone(), &values)?, exponent, bound })
    }
}

/// `bias − mean·scale/√(variance + ε)`, given the quotient.
fn batch_norm_shift(g: &mut Graph, node: &Node, scale: NodeId) -> Result<NodeId> {
    let rank = node.shape.rank();
    let (bias, mean) = (g.per_channel(node.inputs[2], rank)?, g.per_channel(node.inputs[3], rank)?);
    let moved = g.times(mean, scale)?;
    g.minus(bias, moved)
}

/// The bias of an affine node, shaped to be added to its output.
pub(crate) fn bias_shaped(g: &mut Graph, node: &Node, bias: NodeId) -> Result<NodeId> {
    match node.op.affine_layer() {
        Some(AffineLayer::Convolution) => g.per_channel(bias, node.shape.rank()),
        Some(AffineLayer::Dense | AffineLayer::Normalisation) | None => Ok(bias),
    }
}

/// The bias of an affine node, if it has one. Other nodes have none.
pub(crate) fn affine_bias(g: &mut Graph, node: &Node) -> Result<Option<NodeId>> {
    match (node.op.affine_layer(), &node.op) {
        (Some(AffineLayer::Convolution | AffineLayer::Dense), _) => {
            node.inputs.get(2).map(|&bias| bias_shaped(g, node, bias)).transpose()
        }
        (Some(AffineLayer::Normalisation), Op::BatchNorm { epsilon }) => {
            let scale = batch_norm_scale(g, node, *epsilon)?;
            batch_norm_shift(g, node, scale).map(Some)
        }
        (Some(AffineLayer::Normalisation) | None, _) => Ok(None),
    }
}
