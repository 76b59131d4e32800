//! The forward sum stream `s = a⁺ + a⁻`: the one new tensor per node that the split adds to a forward pass. The
//! difference stream is the network itself, so `a⁺ − a⁻ = a` holds by construction.

mod linear;
mod stabiliser;

pub(crate) use linear::{affine_bias, bias_shaped};

use std::collections::HashMap;

use monosplit_autodiff::window_max::{WindowMax, selects_first};
use monosplit_autodiff::{Rectifier, rectifier};
use monosplit_graph::op::{Binary, Linearity, Role, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use crate::constant_elements::{ConstantElements, unmarked};
use crate::network::Network;
use crate::scaled::{ACTIVATION_BOUND, Scale, Scaled};
use crate::split::{InputSplit, Pooling, Split};
use crate::target::is_choice;

/// The sum stream of every active node of a network.
pub(crate) struct SumStream {
    streams: HashMap<NodeId, Scaled>,
    /// `|W|s` of affine nodes, before the bias.
    contributions: HashMap<NodeId, Scaled>,
    /// Elements that are constants, which contribute to no sum: found where contributions are kept.
    constants: ConstantElements,
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
        let constants = ConstantElements::default();
        let stream = SumStream { streams: HashMap::new(), contributions: HashMap::new(), constants };
        let mut builder = Builder { network, split, scale, thresholds, stream, keep_contributions };
        for (id, node) in network.nodes() {
            if network.is_active(id) {
                if keep_contributions {
                    builder.stream.constants.visit(g, network, id, node)?;
                }
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

    /// Where a value is a constant, if it is one anywhere.
    pub(crate) fn constants(&self, id: NodeId) -> Option<NodeId> {
        self.constants.mask(id)
    }

    /// The constant elements of the operand whose elements a node adds up.
    pub(crate) fn summed_constants(&self, node: &Node) -> Option<NodeId> {
        let mixes = match node.op.properties().linearity {
            Linearity::WeightedSum(_) | Linearity::Product(_) => {
                !matches!(node.op, Op::Binary(_) | Op::BatchNorm { .. })
            }
            Linearity::Selection(_) | Linearity::Nonlinear => false,
        };
        let mut active = node.inputs.iter().filter(|&input| self.streams.contains_key(input));
        match (mixes, active.next(), active.next()) {
            (true, Some(&only), None) => self.constants(only),
            _ => None,
        }
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
        if let Some(result) = self.network.decomposition(id) {
            return Ok(self.stream.at(result));
        }
        let raw = self.raw(g, id, node)?;
        let moves_only = node.op.is_selection() && !self.is_flatten(node);
        let rounds_only = matches!(node.op, Op::Unary(function) if function.is_straight_through());
        if moves_only || rounds_only || is_choice(node) || self.network.is_decomposition_step(id) {
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
            Op::Unary(function) if function.is_straight_through() => Ok(self.stream.at(node.inputs[0])),
            op if op.is_linear() => {
                let value = self.multilinear(g, id, node)?;
                if let Some(mask) = self.stream.summed_constants(node) {
                    self.keep_without_constants(g, id, node, mask)?;
                }
                Ok(value)
            }
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

    /// Keeps the contributions to a sum of all elements but those that are constants.
    fn keep_without_constants(&mut self, g: &mut Graph, id: NodeId, node: &Node, mask: NodeId) -> Result<()> {
        let Some(&input) = node.inputs.iter().find(|input| self.stream.streams.contains_key(input)) else {
            return Ok(());
        };
        let all = self.stream.at(input);
        let rest = all.map(g, |g, value| unmarked(g, mask, value))?;
        self.stream.streams.insert(input, rest);
        let summed = self.multilinear(g, id, node);
        self.stream.streams.insert(input, all);
        summed.map(|_| ())
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
}

fn relu_of_difference(g: &mut Graph, bound: f64, z: NodeId) -> Result<NodeId> {
    let bound = g.number(bound);
    let difference = g.minus(bound, z)?;
    g.rectified(difference)
}
