//! The forward sum stream `s = a⁺ + a⁻`: the one new tensor per node that the split adds to a forward pass. The
//! difference stream is the network itself, so `a⁺ − a⁻ = a` holds by construction.

use std::collections::HashMap;

use monosplit_autodiff::linear::{batch_norm_scale, resized_in_magnitude};
use monosplit_autodiff::window_max::{WindowMax, selects_first};
use monosplit_autodiff::{Rectifier, rectifier};
use monosplit_graph::op::{Binary, Padding, Role, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use crate::network::Network;
use crate::operator_norm::{Direction, log2_norm_bound};
use crate::scaled::{ACTIVATION_BOUND, Scale, Scaled};
use crate::split::{InputSplit, Pooling, Split, Stabiliser};

/// The sum stream of every active node of a network.
pub(crate) struct SumStream {
    streams: HashMap<NodeId, Scaled>,
    /// `|W|s` of affine nodes, before the bias.
    contributions: HashMap<NodeId, Scaled>,
}

/// The graph inputs θ and Θ of the stabiliser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds {
    pub(crate) theta: NodeId,
    pub(crate) limit: NodeId,
}

struct Builder<'a> {
    network: &'a Network,
    split: &'a Split,
    scale: Scale,
    thresholds: Option<Thresholds>,
    stream: SumStream,
    keep_contributions: bool,
}

impl SumStream {
    /// Adds the sum stream of `network` to `g`, which starts with the nodes of the network.
    pub(crate) fn build(
        g: &mut Graph,
        network: &Network,
        split: &Split,
        thresholds: Option<Thresholds>,
        keep_contributions: bool,
    ) -> Result<Self> {
        let scale = Scale::of(network);
        let stream = SumStream { streams: HashMap::new(), contributions: HashMap::new() };
        let mut builder = Builder { network, split, scale, thresholds, stream, keep_contributions };
        for (id, node) in network.nodes() {
            if network.is_active(id) {
                let s = builder.node(g, id, node).map_err(|e| e.at(node.label.display()))?;
                builder.stream.streams.insert(id, s);
            }
        }
        Ok(builder.stream)
    }

    /// The stream at an active node.
    pub(crate) fn at(&self, id: NodeId) -> Scaled {
        self.streams[&id]
    }

    /// `|W|s` of an affine node, before the bias.
    pub(crate) fn contribution(&self, id: NodeId) -> Option<Scaled> {
        self.contributions.get(&id).copied()
    }

    /// The stream of an operand; the magnitude of an operand that does not depend on the explained input.
    pub(crate) fn operand(&self, g: &mut Graph, id: NodeId) -> Result<Scaled> {
        match self.streams.get(&id) {
            Some(stream) => Ok(*stream),
            None => Ok(Scaled::plain(g.magnitude(id)?, ACTIVATION_BOUND)),
        }
    }
}

impl Builder<'_> {
    fn node(&mut self, g: &mut Graph, id: NodeId, node: &Node) -> Result<Scaled> {
        if id == self.network.input() {
            return self.input(g, id);
        }
        if let Some(stand_in) = self.network.decomposition(id) {
            return Ok(self.stream.at(stand_in));
        }
        let raw = self.raw(g, id, node)?;
        let moves_only = node.op.is_selection() && !self.is_flatten(node);
        if moves_only || self.network.is_decomposition_step(id) {
            Ok(raw)
        } else {
            self.stabilised(g, id, raw)
        }
    }

    /// Flattening counts as a layer, unlike other nodes that move elements, as in the reference implementation.
    fn is_flatten(&self, node: &Node) -> bool {
        let from = node.inputs.first().map_or(0, |&input| self.network.graph().node(input).shape.rank());
        matches!(node.op, Op::Reshape { .. }) && node.shape.rank() == 2 && from > 2
    }

    fn input(&self, g: &mut Graph, x: NodeId) -> Result<Scaled> {
        let value = match self.split.input_split {
            InputSplit::Half => g.scaled(0.0, x)?,
            InputSplit::Signed => g.magnitude(x)?,
            InputSplit::Positive => x,
            InputSplit::Negative => g.negated(x)?,
        };
        Ok(Scaled::plain(value, ACTIVATION_BOUND))
    }

    /// The stream before it is stabilised.
    fn raw(&mut self, g: &mut Graph, id: NodeId, node: &Node) -> Result<Scaled> {
        if let Some(rectifier) = rectifier(g, node)? {
            return self.rectified(g, node.inputs[0], rectifier);
        }
        if let Some(maximum) = WindowMax::of(g, node)? {
            return self.maximum(g, id, node, &maximum);
        }
        match &node.op {
            Op::Binary(binary @ (Binary::Max | Binary::Min)) => self.extremum(g, id, node, *binary),
            Op::Unary(Unary::Clip { min, max }) => self.clipped(g, node.inputs[0], *min, *max),
            Op::Unary(Unary::Abs) => self.absolute(g, id, node.inputs[0]),
            op if op.is_linear() => self.multilinear(g, id, node),
            op => match op.role() {
                // Smooth functions, and what has been decomposed: all that is known is the value itself.
                Role::Elementwise | Role::Normalisation | Role::Softmax | Role::Reduction => {
                    Ok(Scaled::plain(g.magnitude(id)?, ACTIVATION_BOUND))
                }
                Role::Source
                | Role::Movement(_)
                | Role::Convolution
                | Role::MatrixProduct
                | Role::Pooling
                | Role::Resampling => Err(Error::unsupported(format!("{} cannot be split", op.name()))),
            },
        }
    }

    fn rectified(&self, g: &mut Graph, z: NodeId, rectifier: Rectifier) -> Result<Scaled> {
        let s = self.scale.ready(g, self.stream.at(z), 1.0)?;
        let sign = self.split.relu.sign();
        if sign == 0.0 {
            return Ok(s);
        }
        let negative = g.negated(z)?;
        let mut lost = g.rectified(negative)?;
        if let Some(slope) = rectifier.slope {
            let one = g.number(1.0);
            let share = g.minus(one, slope)?;
            lost = g.times(share, lost)?;
        }
        let lost = self.scale.under(g, lost, s)?;
        let value = if sign > 0.0 { g.plus(s.value, lost)? } else { g.minus(s.value, lost)? };
        Ok(Scaled { value, bound: s.bound.max(ACTIVATION_BOUND) + 1.0, ..s })
    }

    fn maximum(&self, g: &mut Graph, id: NodeId, node: &Node, maximum: &WindowMax) -> Result<Scaled> {
        let growth = (maximum.window_size() as f64).log2() + 1.0;
        let s = self.scale.ready(g, self.stream.at(node.inputs[0]), growth)?;
        if self.split.pooling == Pooling::Winner {
            return s.map(g, |g, value| maximum.select(g, value));
        }
        let a = self.scale.under(g, node.inputs[0], s)?;
        let rest = if maximum.minimum { g.plus(s.value, a)? } else { g.minus(s.value, a)? };
        let total = maximum.sum(g, rest)?;
        let won = self.scale.under(g, id, s.grown(total, 0.0))?;
        let value = if maximum.minimum { g.minus(total, won)? } else { g.plus(total, won)? };
        Ok(Scaled { value, bound: s.bound.max(ACTIVATION_BOUND) + growth, ..s })
    }

    fn extremum(&self, g: &mut Graph, id: NodeId, node: &Node, binary: Binary) -> Result<Scaled> {
        let [a, b] = [node.inputs[0], node.inputs[1]];
        let (sa, sb) = (self.stream.operand(g, a)?, self.stream.operand(g, b)?);
        if self.split.pooling == Pooling::Winner {
            let wins = selects_first(g, node, binary)?;
            return self.scale.combine(g, sa, sb, |g, sa, sb| g.select(wins, sa, sb));
        }
        let maximum = binary == Binary::Max;
        let mut rest = |s: Scaled, a: NodeId| -> Result<Scaled> {
            let s = self.scale.ready(g, s, 2.0)?;
            let a = self.scale.under(g, a, s)?;
            let value = if maximum { g.minus(s.value, a)? } else { g.plus(s.value, a)? };
            Ok(s.grown(value, 1.0))
        };
        let (ra, rb) = (rest(sa, a)?, rest(sb, b)?);
        let total = self.scale.sum(g, ra, rb)?;
        let won = self.scale.under(g, id, total)?;
        let value = if maximum { g.plus(total.value, won)? } else { g.minus(total.value, won)? };
        Ok(total.grown(value, 1.0))
    }

    /// `|z| = relu(z) + relu(−z)`
    fn absolute(&self, g: &mut Graph, id: NodeId, z: NodeId) -> Result<Scaled> {
        let s = self.scale.ready(g, self.stream.at(z), 2.0)?;
        let doubled = g.scaled(2.0, s.value)?;
        let lost = g.scaled(self.split.relu.sign(), id)?;
        let lost = self.scale.under(g, lost, s)?;
        let bound = s.bound.max(ACTIVATION_BOUND) + 2.0;
        Ok(Scaled { value: g.plus(doubled, lost)?, bound, ..s })
    }

    /// `clip(z) = low + relu(z − low) − relu(z − high)`, a bound that is infinite left out.
    fn clipped(&self, g: &mut Graph, z: NodeId, low: f64, high: f64) -> Result<Scaled> {
        let s = self.scale.ready(g, self.stream.at(z), 3.0)?;
        let mut total = s.value;
        if low.is_finite() {
            let extra = self.lost_below(g, low, z)?;
            let extra = g.offset(2.0 * low.abs(), extra)?;
            let extra = self.scale.under(g, extra, s)?;
            total = g.plus(total, extra)?;
        }
        if high.is_finite() {
            let extra = self.lost_below(g, high, z)?;
            let extra = g.offset(high.abs(), extra)?;
            let extra = self.scale.under(g, extra, s)?;
            let branch = g.plus(s.value, extra)?;
            total = g.plus(total, branch)?;
        }
        Ok(Scaled { value: total, bound: s.bound.max(ACTIVATION_BOUND) + 3.0, ..s })
    }

    /// What `relu(z − bound)` adds to the sum stream of its input, as the ReLU mode says.
    fn lost_below(&self, g: &mut Graph, bound: f64, z: NodeId) -> Result<NodeId> {
        let lost = relu_of_difference(g, bound, z)?;
        g.scaled(self.split.relu.sign(), lost)
    }

    /// The node with every coefficient replaced by its magnitude, applied to the streams.
    fn multilinear(&mut self, g: &mut Graph, id: NodeId, node: &Node) -> Result<Scaled> {
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
            op @ (Op::Input
            | Op::Constant(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::LayerNorm { .. }
            | Op::GroupNorm { .. }
            | Op::LocalResponseNorm { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::MaxPool(_)
            | Op::WinnerGather(_)
            | Op::WinnerScatter(_)
            | Op::ArgMax { .. }) => {
                Err(Error::unsupported(format!("{} is not linear and cannot be split so", op.name())))
            }
        }
    }

    fn active_only(&self, g: &mut Graph, node: &Node, index: usize, growth: f64) -> Result<Scaled> {
        let input = node.inputs[index];
        if !self.network.is_active(input) {
            return Err(Error::unsupported(format!(
                "{} whose coefficients depend on the input cannot be split",
                node.op.name()
            )));
        }
        self.scale.ready(g, self.stream.at(input), growth)
    }

    fn batch_norm(
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
    fn with_bias(
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

    fn keep(&mut self, id: NodeId, contribution: Scaled) {
        if self.keep_contributions {
            self.stream.contributions.insert(id, contribution);
        }
    }

    fn joined(&self, g: &mut Graph, node: &Node) -> Result<Scaled> {
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

    fn stabilised(&self, g: &mut Graph, id: NodeId, s: Scaled) -> Result<Scaled> {
        match (self.split.stabiliser, self.thresholds) {
            (Stabiliser::Shift, _) => Ok(Scaled::plain(g.scaled(0.0, id)?, 0.0)),
            (Stabiliser::Recentre, _) => Ok(Scaled::plain(g.magnitude(id)?, ACTIVATION_BOUND)),
            (Stabiliser::Scale, Some(Thresholds { theta, limit })) => {
                let a = self.scale.under(g, id, s)?;
                let (sum, a) = (g.magnitude(s.value)?, g.magnitude(a)?);
                let doubled = g.plus(sum, a)?;
                let largest = self.scale.largest(g, doubled)?;
                let mut allowed = g.scaled(2.0, limit)?;
                if let Some(exponent) = s.exponent {
                    let factor = self.scale.power(g, exponent, exponent, -1.0)?;
                    allowed = g.times(allowed, factor)?;
                }
                let past = g.binary(Binary::Greater, largest, allowed)?;
                let one = g.number(1.0);
                let factor = g.select(past, theta, one)?;
                let factor = self.scale.per_sample(g, factor, s.value)?;
                Ok(Scaled { value: g.times(s.value, factor)?, ..s })
            }
            _ => Ok(s),
        }
    }
}

fn relu_of_difference(g: &mut Graph, bound: f64, z: NodeId) -> Result<NodeId> {
    let bound = g.number(bound);
    let difference = g.minus(bound, z)?;
    g.rectified(difference)
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
    match node.op {
        Op::Conv { .. } | Op::ConvTranspose { .. } => g.per_channel(bias, node.shape.rank()),
        _ => Ok(bias),
    }
}

/// The bias of an affine node, if it has one.
pub(crate) fn affine_bias(g: &mut Graph, node: &Node) -> Result<Option<NodeId>> {
    match &node.op {
        Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } => {
            node.inputs.get(2).map(|&bias| bias_shaped(g, node, bias)).transpose()
        }
        Op::BatchNorm { epsilon } => {
            let scale = batch_norm_scale(g, node, *epsilon)?;
            batch_norm_shift(g, node, scale).map(Some)
        }
        _ => Ok(None),
    }
}
