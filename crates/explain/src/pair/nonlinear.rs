//! The streams of activations and maxima.

use monosplit_graph::op::{Binary, Reduction, Unary, Window};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use super::{Streams, Writer, not_split};

impl Writer<'_> {
    pub(super) fn nonlinear(&mut self, node: &Node) -> Result<Streams> {
        let within = |slope: f64| (0.0..=1.0).contains(&slope);
        match &node.op {
            Op::Unary(Unary::Neg) => Ok(self.streams[&node.inputs[0]].swapped()),
            Op::Unary(Unary::Relu) => self.rectified(self.streams[&node.inputs[0]]),
            Op::Unary(Unary::LeakyRelu { slope }) if within(*slope) => {
                let slope = self.graph.number(*slope);
                self.leaky(self.streams[&node.inputs[0]], slope)
            }
            Op::Binary(Binary::PRelu) => {
                let slopes = self.network.graph().constant_value(node.inputs[1]);
                if !slopes.is_some_and(|t| t.to_f64().iter().all(|&c| within(c))) {
                    return Err(not_split(node));
                }
                let slope = self.constant(node.inputs[1])?;
                self.leaky(self.streams[&node.inputs[0]], slope)
            }
            Op::Unary(Unary::Abs) => {
                let z = self.streams[&node.inputs[0]];
                let (right, left) = (self.rectified(z)?, self.rectified(z.swapped())?);
                self.added(right, left)
            }
            Op::Unary(Unary::Clip { min, max }) => self.clipped(self.streams[&node.inputs[0]], *min, *max),
            Op::Unary(Unary::HardSigmoid { alpha, beta }) => self.hard_sigmoid(node.inputs[0], *alpha, *beta),
            Op::Unary(Unary::HardSwish) => {
                let gate = self.hard_sigmoid(node.inputs[0], 1.0 / 6.0, 0.5)?;
                self.convex_product(self.streams[&node.inputs[0]], gate, |g, a, b| g.times(a, b))
            }
            Op::Binary(Binary::Max) => {
                let operands = [self.operand(node.inputs[0])?, self.operand(node.inputs[1])?];
                self.maximum(&operands)
            }
            Op::Binary(Binary::Min) => {
                let operands =
                    [self.operand(node.inputs[0])?.swapped(), self.operand(node.inputs[1])?.swapped()];
                Ok(self.maximum(&operands)?.swapped())
            }
            Op::MaxPool(window) => self.max_pool(node, window),
            Op::Reduce { reduction: Reduction::Max, axes, .. } => self.reduced_maximum(node, axes, false),
            Op::Reduce { reduction: Reduction::Min, axes, .. } => self.reduced_maximum(node, axes, true),
            _ => Err(not_split(node)),
        }
    }

    /// `a⁺ = max(z⁺, z⁻)`, `a⁻ = z⁻`
    pub(super) fn rectified(&mut self, z: Streams) -> Result<Streams> {
        Ok(Streams { plus: self.graph.binary(Binary::Max, z.plus, z.minus)?, minus: z.minus })
    }

    /// `max(z, c·z)` for a slope `c` between 0 and 1.
    pub(super) fn leaky(&mut self, z: Streams, slope: NodeId) -> Result<Streams> {
        let g = &mut self.graph;
        let low = z.map(|stream| g.times(slope, stream))?;
        self.maximum(&[z, low])
    }

    /// `clip(z) = low + relu(z − low) − relu(z − high)`
    pub(super) fn clipped(&mut self, z: Streams, low: f64, high: f64) -> Result<Streams> {
        let mut result = z;
        if low.is_finite() {
            let below = self.number(low);
            let moved = self.added(z, below.swapped())?;
            let rectified = self.rectified(moved)?;
            result = self.added(rectified, below)?;
        }
        if high.is_finite() {
            let above = self.number(high);
            let moved = self.added(z, above.swapped())?;
            let rectified = self.rectified(moved)?;
            result = self.added(result, rectified.swapped())?;
        }
        Ok(result)
    }

    /// `clip(αx + β, 0, 1)`
    pub(super) fn hard_sigmoid(&mut self, x: NodeId, alpha: f64, beta: f64) -> Result<Streams> {
        let slope = self.graph.number(alpha);
        let line = self.scaled(self.streams[&x], slope, |g, a, b| g.times(a, b))?;
        let beta = self.number(beta);
        let line = self.added(line, beta)?;
        self.clipped(line, 0.0, 1.0)
    }

    pub(super) fn number(&mut self, value: f64) -> Streams {
        Streams { plus: self.graph.number(value.max(0.0)), minus: self.graph.number((-value).max(0.0)) }
    }

    /// `max_j(a_j) = max_j(a⁺_j + Σ_{i≠j} a⁻_i) − Σ_i a⁻_i`, sums only.
    pub(super) fn maximum(&mut self, operands: &[Streams]) -> Result<Streams> {
        let g = &mut self.graph;
        let join = |g: &mut Graph, a: Option<NodeId>, b: NodeId| a.map_or(Ok(b), |a| g.plus(a, b));
        let n = operands.len();
        let (mut before, mut after) = (vec![None; n + 1], vec![None; n + 1]);
        for j in 0..n {
            before[j + 1] = Some(join(g, before[j], operands[j].minus)?);
            after[n - 1 - j] = Some(join(g, after[n - j], operands[n - 1 - j].minus)?);
        }
        let mut best: Option<NodeId> = None;
        for (j, operand) in operands.iter().enumerate() {
            let mut candidate = operand.plus;
            for others in [before[j], after[j + 1]].into_iter().flatten() {
                candidate = g.plus(candidate, others)?;
            }
            best = Some(best.map_or(Ok(candidate), |b| g.binary(Binary::Max, b, candidate))?);
        }
        match (best, before[n]) {
            (Some(plus), Some(minus)) => Ok(Streams { plus, minus }),
            _ => Err(Error::shape("a maximum of nothing")),
        }
    }

    /// The maximum over a window is taken along one axis after the other, which gives the same sums. Positions in the padding are
    /// left out, so no value of minus infinity is needed.
    pub(super) fn max_pool(&mut self, node: &Node, window: &Window) -> Result<Streams> {
        let mut streams = self.streams[&node.inputs[0]];
        for axis in 0..window.axes() {
            let length = self.graph.node(streams.plus).shape.fixed_at(axis + 2).unwrap_or(0);
            let positions = node.shape.fixed_at(axis + 2).unwrap_or(1);
            let mut blocks = Vec::new();
            for clipped in clipped_windows(window, axis, length, positions) {
                let taps = clipped.starts.iter().map(|&start| {
                    let step = window.stride[axis] as isize;
                    let op = Op::Slice { axis: axis + 2, start, step, length: clipped.positions };
                    let g = &mut self.graph;
                    streams.map(|stream| g.add(op.clone(), &[stream]))
                });
                let taps = taps.collect::<Result<Vec<_>>>()?;
                blocks.push(self.maximum(&taps)?);
            }
            streams = self.concatenated(&blocks, axis + 2)?;
        }
        Ok(streams)
    }

    pub(super) fn concatenated(&mut self, blocks: &[Streams], axis: usize) -> Result<Streams> {
        if let [only] = blocks {
            return Ok(*only);
        }
        let (plus, minus): (Vec<NodeId>, Vec<NodeId>) = blocks.iter().map(|b| (b.plus, b.minus)).unzip();
        let op = Op::Concat { axis };
        Ok(Streams { plus: self.graph.add(op.clone(), &plus)?, minus: self.graph.add(op, &minus)? })
    }

    pub(super) fn reduced_maximum(&mut self, node: &Node, axes: &[usize], minimum: bool) -> Result<Streams> {
        let a = self.streams[&node.inputs[0]];
        let mut operands = vec![if minimum { a.swapped() } else { a }];
        for &axis in axes {
            let mut slices = Vec::new();
            for streams in operands {
                let length =
                    self.graph.node(streams.plus).shape.fixed_at(axis).ok_or_else(|| not_split(node))?;
                for start in 0..length {
                    let g = &mut self.graph;
                    slices.push(streams.map(|s| g.add(Op::Slice { axis, start, step: 1, length: 1 }, &[s]))?);
                }
            }
            operands = slices;
        }
        let best = self.maximum(&operands)?;
        let best = if minimum { best.swapped() } else { best };
        let g = &mut self.graph;
        best.map(|stream| g.reshaped(stream, node.shape.clone()))
    }
}

/// Neighbouring positions of a window at which the same of its taps lie within the input.
struct ClippedWindow {
    /// Number of positions.
    positions: usize,
    /// For each tap within the input, its input position at the first of them.
    starts: Vec<usize>,
}

fn clipped_windows(window: &Window, axis: usize, length: usize, positions: usize) -> Vec<ClippedWindow> {
    let within = |position: usize| -> Vec<(usize, usize)> {
        let reached = (0..window.kernel[axis]).map(|tap| {
            let position = position * window.stride[axis] + tap * window.dilation[axis];
            (tap, position.checked_sub(window.pad[axis].0).filter(|&position| position < length))
        });
        reached.filter_map(|(tap, position)| position.map(|position| (tap, position))).collect()
    };
    let mut clipped_windows: Vec<ClippedWindow> = Vec::new();
    let mut last: Vec<usize> = Vec::new();
    for position in 0..positions {
        let (taps, starts): (Vec<usize>, Vec<usize>) = within(position).into_iter().unzip();
        match clipped_windows.last_mut() {
            Some(clipped) if taps == last => clipped.positions += 1,
            _ => clipped_windows.push(ClippedWindow { positions: 1, starts }),
        }
        last = taps;
    }
    clipped_windows
}
