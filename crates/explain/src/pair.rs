//! The materialised pair: `g` and `h` as separate networks with non-negative weights and two inputs `x⁺`, `x⁻`. Needed to export
//! the two networks, and to test the theory on other inputs.

use std::collections::HashMap;

use monosplit_autodiff::linear::{apply_parts_transposed, batch_norm_scale, signed_resize};
use monosplit_graph::op::{Binary, Padding, Reduction, Unary, Window};
use monosplit_graph::{Error, Graph, Hint, Kind, Node, NodeId, Op, Result};

use crate::network::Network;
use crate::sum_stream::bias_shaped;

/// The two networks.
#[derive(Clone, Debug)]
pub struct Pair {
    /// `g(x⁺, x⁻)`, convex and non-decreasing in both inputs; with products of activations, where both are not negative.
    pub g: Graph,
    /// `h(x⁺, x⁻)`, likewise; `f(x⁺ − x⁻) = g − h`.
    pub h: Graph,
    /// Both in one graph with outputs `g` and `h`. Shared values are computed once.
    pub both: Graph,
    /// Whether activations are multiplied with each other. Such a product is decomposed into squares of sums of streams, which are
    /// convex and monotone where streams are non-negative. They are if `x⁺` and `x⁻` are.
    pub products: bool,
}

/// The positive and the negative stream of a value.
#[derive(Clone, Copy)]
struct Streams {
    plus: NodeId,
    minus: NodeId,
}

impl Streams {
    fn swapped(self) -> Self {
        Streams { plus: self.minus, minus: self.plus }
    }

    fn map(self, mut f: impl FnMut(NodeId) -> Result<NodeId>) -> Result<Self> {
        Ok(Streams { plus: f(self.plus)?, minus: f(self.minus)? })
    }
}

/// Splits `source` into two monotone convex networks.
///
/// An error names the first node that is not made of affine maps, ReLUs, maxima and products; smooth functions can be
/// replaced by piecewise-linear ones beforehand.
pub fn materialise(source: &Graph) -> Result<Pair> {
    let Written { graph, logits, products } = write(source, |_, streams| Ok(streams))?;
    let with_outputs = |outputs: &[(&str, NodeId)]| {
        let mut graph = graph.clone();
        outputs.iter().for_each(|(name, id)| graph.output(*name, *id));
        graph.pruned()
    };
    Ok(Pair {
        g: with_outputs(&[("g", logits.plus)])?,
        h: with_outputs(&[("h", logits.minus)])?,
        both: with_outputs(&[("g", logits.plus), ("h", logits.minus)])?,
        products,
    })
}

/// The pair with the common part of both streams subtracted after every node, which changes neither their difference nor any
/// gradient (Theorem "Shifting in the forward pass"): `f = g − h` without the cancellation.
pub(crate) fn recentred_pair(source: &Graph) -> Result<Graph> {
    let Written { mut graph, logits, .. } = write(source, |g, streams| {
        let difference = g.minus(streams.plus, streams.minus)?;
        let opposite = g.negated(difference)?;
        Ok(Streams { plus: g.rectified(difference)?, minus: g.rectified(opposite)? })
    })?;
    graph.output("g", logits.plus);
    graph.output("h", logits.minus);
    graph.pruned()
}

struct Written {
    graph: Graph,
    logits: Streams,
    products: bool,
}

/// Both streams in one graph, `after` applied to the pair of every node.
fn write(source: &Graph, after: impl Fn(&mut Graph, Streams) -> Result<Streams>) -> Result<Written> {
    let network = Network::new(source)?;
    let mut writer = Writer {
        network: &network,
        graph: Graph::new(),
        constants: HashMap::new(),
        streams: HashMap::new(),
        products: false,
    };
    let input = network.graph().node(network.input());
    let plus = writer.graph.input("x_plus", input.shape.clone(), Kind::Float);
    let minus = writer.graph.input("x_minus", input.shape.clone(), Kind::Float);
    writer.streams.insert(network.input(), Streams { plus, minus });
    // The steps of decompositions are not among these.
    let needed = network.graph().ancestors([network.logits()]);
    for (id, node) in network.nodes() {
        if needed[id.index()] && network.is_active(id) && id != network.input() {
            let streams = writer.node(id, node).map_err(|e| e.at(node.label.display()))?;
            let streams = after(&mut writer.graph, streams)?;
            writer.streams.insert(id, streams);
        }
    }
    let logits = writer.streams[&network.logits()];
    Ok(Written { graph: writer.graph, logits, products: writer.products })
}

struct Writer<'a> {
    network: &'a Network,
    graph: Graph,
    constants: HashMap<NodeId, NodeId>,
    streams: HashMap<NodeId, Streams>,
    products: bool,
}

impl Writer<'_> {
    fn node(&mut self, id: NodeId, node: &Node) -> Result<Streams> {
        if self.network.decomposition(id).is_some() {
            return Err(not_split(node));
        }
        match &node.op {
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } => {
                let z = self.product(node, |g, x, w| g.add(node.op.clone(), &[x, w]))?;
                self.with_bias(z, node)
            }
            Op::Binary(Binary::Mul) => self.product(node, |g, a, b| g.times(a, b)),
            Op::Binary(Binary::Div) => {
                let divisor = self.constant(node.inputs[1])?;
                let factor = self.graph.unary(Unary::Reciprocal, divisor)?;
                let a = self.operand(node.inputs[0])?;
                self.scaled(a, factor, |g, a, b| g.times(a, b))
            }
            Op::BatchNorm { epsilon } => self.batch_norm(node, *epsilon),
            Op::Binary(Binary::Add) => self.sum(node, false),
            Op::Binary(Binary::Sub) => self.sum(node, true),
            Op::Concat { .. } => self.joined(node),
            Op::Resize { .. } => self.resized(node),
            Op::Gather { .. } => {
                let indices = self.constant(node.inputs[1])?;
                let g = &mut self.graph;
                self.streams[&node.inputs[0]].map(|x| g.add(node.op.clone(), &[x, indices]))
            }
            Op::Pad { padding: Padding::Constant(fill), pads } => {
                let a = self.streams[&node.inputs[0]];
                let mut framed = |x: NodeId, fill: f64| {
                    let padding = Padding::Constant(fill.max(0.0));
                    self.graph.add(Op::Pad { padding, pads: pads.clone() }, &[x])
                };
                Ok(Streams { plus: framed(a.plus, *fill)?, minus: framed(a.minus, -fill)? })
            }
            // Linear with non-negative coefficients.
            op @ (Op::Pad { .. }
            | Op::AveragePool { .. }
            | Op::AveragePoolTranspose { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Slice { .. }
            | Op::Expand { .. }
            | Op::Identity
            | Op::Dropout { .. }
            | Op::Cast { .. }
            | Op::Reduce { reduction: Reduction::Sum | Reduction::Mean, .. }) => {
                let g = &mut self.graph;
                self.streams[&node.inputs[0]].map(|x| g.add(op.clone(), &[x]))
            }
            Op::Unary(_) | Op::Binary(_) | Op::MaxPool(_) | Op::Reduce { .. } => self.nonlinear(node),
            Op::Input | Op::Constant(_) | Op::Where | Op::ArgMax { .. } => Err(not_split(node)),
            Op::LayerNorm { .. } | Op::GroupNorm { .. } | Op::LocalResponseNorm { .. } => {
                Err(not_split(node))
            }
            Op::Softmax { .. } | Op::LogSoftmax { .. } => Err(not_split(node)),
            Op::WinnerGather(_) | Op::WinnerScatter(_) => Err(not_split(node)),
        }
    }

    /// Cubic interpolation has negative weights, which cross from one stream to the other.
    fn resized(&mut self, node: &Node) -> Result<Streams> {
        let a = self.streams[&node.inputs[0]];
        let input = self.network.graph().node(node.inputs[0]).shape.clone();
        let g = &mut self.graph;
        let Some(maps) = signed_resize(node, &input) else {
            return a.map(|x| g.add(node.op.clone(), &[x]));
        };
        let mut pair = (a.plus, a.minus);
        for (axis, map) in maps {
            pair = apply_parts_transposed(g, pair, axis, &map.transposed())?;
        }
        Ok(Streams { plus: pair.0, minus: pair.1 })
    }

    fn nonlinear(&mut self, node: &Node) -> Result<Streams> {
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
                let contestants = [self.operand(node.inputs[0])?, self.operand(node.inputs[1])?];
                self.maximum(&contestants)
            }
            Op::Binary(Binary::Min) => {
                let contestants =
                    [self.operand(node.inputs[0])?.swapped(), self.operand(node.inputs[1])?.swapped()];
                Ok(self.maximum(&contestants)?.swapped())
            }
            Op::MaxPool(window) => self.max_pool(node, window),
            Op::Reduce { reduction: Reduction::Max, axes, .. } => self.reduced_maximum(node, axes, false),
            Op::Reduce { reduction: Reduction::Min, axes, .. } => self.reduced_maximum(node, axes, true),
            _ => Err(not_split(node)),
        }
    }

    /// A product of two activations, or of one with a constant.
    fn product(
        &mut self,
        node: &Node,
        apply: impl Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Streams> {
        let [a, b] = [node.inputs[0], node.inputs[1]];
        match (self.network.is_active(a), self.network.is_active(b)) {
            (true, false) => {
                let w = self.constant(b)?;
                self.scaled(self.streams[&a], w, apply)
            }
            (false, true) => {
                let w = self.constant(a)?;
                self.scaled(self.streams[&b], w, |g, x, w| apply(g, w, x))
            }
            (true, true) => self.convex_product(self.streams[&a], self.streams[&b], apply),
            _ => Err(not_split(node)),
        }
    }

    fn scaled(
        &mut self,
        a: Streams,
        weight: NodeId,
        apply: impl Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Streams> {
        let w = self.parts(weight)?;
        self.multiplied(a, w, apply)
    }

    /// `z⁺ = W⁺a⁺ + W⁻a⁻`, `z⁻ = W⁻a⁺ + W⁺a⁻`
    fn multiplied(
        &mut self,
        a: Streams,
        w: Streams,
        apply: impl Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Streams> {
        let g = &mut self.graph;
        let (pp, nn) = (apply(g, a.plus, w.plus)?, apply(g, a.minus, w.minus)?);
        let (np, pn) = (apply(g, a.plus, w.minus)?, apply(g, a.minus, w.plus)?);
        Ok(Streams { plus: g.plus(pp, nn)?, minus: g.plus(np, pn)? })
    }

    /// `z⁺ = ½(a⁺ + b⁺)² + ½(a⁻ + b⁻)²`, `z⁻ = ½(a⁺ + b⁻)² + ½(a⁻ + b⁺)²`, summed as the product sums. The products of the
    /// streams themselves would do for `z⁺ − z⁻` and never decrease, but `uv` is not convex; both are raised by
    /// `½(a⁺² + a⁻² + b⁺² + b⁻²)`, which makes squares of them.
    fn convex_product(
        &mut self,
        a: Streams,
        b: Streams,
        apply: impl Fn(&mut Graph, NodeId, NodeId) -> Result<NodeId>,
    ) -> Result<Streams> {
        self.products = true;
        let z = self.multiplied(a, b, &apply)?;
        let g = &mut self.graph;
        let half_squares = |g: &mut Graph, streams: Streams| {
            let squares = streams.map(|stream| g.times(stream, stream))?;
            let both = g.plus(squares.plus, squares.minus)?;
            g.scaled(0.5, both)
        };
        let ones = |g: &mut Graph, streams: Streams| {
            let zeros = g.scaled(0.0, streams.plus)?;
            g.offset(1.0, zeros)
        };
        let (of_a, of_b) = (half_squares(g, a)?, half_squares(g, b)?);
        let (beside_a, beside_b) = (ones(g, b)?, ones(g, a)?);
        let (of_a, of_b) = (apply(g, of_a, beside_a)?, apply(g, beside_b, of_b)?);
        let raised = g.plus(of_a, of_b)?;
        z.map(|stream| g.plus(stream, raised))
    }

    fn with_bias(&mut self, z: Streams, node: &Node) -> Result<Streams> {
        let Some(&bias) = node.inputs.get(2) else { return Ok(z) };
        let bias = self.constant(bias)?;
        let bias = bias_shaped(&mut self.graph, node, bias)?;
        let bias = self.parts(bias)?;
        self.added(z, bias)
    }

    fn batch_norm(&mut self, node: &Node, epsilon: f64) -> Result<Streams> {
        let mut local = node.clone();
        for input in local.inputs.iter_mut().skip(1) {
            *input = self.constant(*input)?;
        }
        let g = &mut self.graph;
        let scale = batch_norm_scale(g, &local, epsilon)?;
        let rank = node.shape.rank();
        let (bias, mean) = (g.per_channel(local.inputs[2], rank)?, g.per_channel(local.inputs[3], rank)?);
        let moved = g.times(mean, scale)?;
        let shift = g.minus(bias, moved)?;
        let z = self.scaled(self.streams[&node.inputs[0]], scale, |g, a, b| g.times(a, b))?;
        let shift = self.parts(shift)?;
        self.added(z, shift)
    }

    fn sum(&mut self, node: &Node, difference: bool) -> Result<Streams> {
        let (a, b) = (self.operand(node.inputs[0])?, self.operand(node.inputs[1])?);
        self.added(a, if difference { b.swapped() } else { b })
    }

    fn added(&mut self, a: Streams, b: Streams) -> Result<Streams> {
        Ok(Streams { plus: self.graph.plus(a.plus, b.plus)?, minus: self.graph.plus(a.minus, b.minus)? })
    }

    /// `a⁺ = max(z⁺, z⁻)`, `a⁻ = z⁻`
    fn rectified(&mut self, z: Streams) -> Result<Streams> {
        Ok(Streams { plus: self.graph.binary(Binary::Max, z.plus, z.minus)?, minus: z.minus })
    }

    /// `max(z, c·z)` for a slope `c` between 0 and 1.
    fn leaky(&mut self, z: Streams, slope: NodeId) -> Result<Streams> {
        let g = &mut self.graph;
        let low = z.map(|stream| g.times(slope, stream))?;
        self.maximum(&[z, low])
    }

    /// `clip(z) = low + relu(z − low) − relu(z − high)`
    fn clipped(&mut self, z: Streams, low: f64, high: f64) -> Result<Streams> {
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
    fn hard_sigmoid(&mut self, x: NodeId, alpha: f64, beta: f64) -> Result<Streams> {
        let slope = self.graph.number(alpha);
        let line = self.scaled(self.streams[&x], slope, |g, a, b| g.times(a, b))?;
        let beta = self.number(beta);
        let line = self.added(line, beta)?;
        self.clipped(line, 0.0, 1.0)
    }

    fn number(&mut self, value: f64) -> Streams {
        Streams { plus: self.graph.number(value.max(0.0)), minus: self.graph.number((-value).max(0.0)) }
    }

    /// `max_j(a_j) = max_j(a⁺_j + Σ_{i≠j} a⁻_i) − Σ_i a⁻_i`, sums only.
    fn maximum(&mut self, contestants: &[Streams]) -> Result<Streams> {
        let g = &mut self.graph;
        let join = |g: &mut Graph, a: Option<NodeId>, b: NodeId| a.map_or(Ok(b), |a| g.plus(a, b));
        let n = contestants.len();
        let (mut before, mut after) = (vec![None; n + 1], vec![None; n + 1]);
        for j in 0..n {
            before[j + 1] = Some(join(g, before[j], contestants[j].minus)?);
            after[n - 1 - j] = Some(join(g, after[n - j], contestants[n - 1 - j].minus)?);
        }
        let mut best: Option<NodeId> = None;
        for (j, contestant) in contestants.iter().enumerate() {
            let mut candidate = contestant.plus;
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
    fn max_pool(&mut self, node: &Node, window: &Window) -> Result<Streams> {
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

    fn concatenated(&mut self, blocks: &[Streams], axis: usize) -> Result<Streams> {
        if let [only] = blocks {
            return Ok(*only);
        }
        let (plus, minus): (Vec<NodeId>, Vec<NodeId>) = blocks.iter().map(|b| (b.plus, b.minus)).unzip();
        let op = Op::Concat { axis };
        Ok(Streams { plus: self.graph.add(op.clone(), &plus)?, minus: self.graph.add(op, &minus)? })
    }

    fn reduced_maximum(&mut self, node: &Node, axes: &[usize], minimum: bool) -> Result<Streams> {
        let a = self.streams[&node.inputs[0]];
        let mut contestants = vec![if minimum { a.swapped() } else { a }];
        for &axis in axes {
            let mut slices = Vec::new();
            for streams in contestants {
                let length =
                    self.graph.node(streams.plus).shape.fixed_at(axis).ok_or_else(|| not_split(node))?;
                for start in 0..length {
                    let g = &mut self.graph;
                    slices.push(streams.map(|s| g.add(Op::Slice { axis, start, step: 1, length: 1 }, &[s]))?);
                }
            }
            contestants = slices;
        }
        let best = self.maximum(&contestants)?;
        let best = if minimum { best.swapped() } else { best };
        let g = &mut self.graph;
        best.map(|stream| g.reshaped(stream, node.shape.clone()))
    }

    fn joined(&mut self, node: &Node) -> Result<Streams> {
        let parts = node.inputs.iter().map(|&i| self.operand(i)).collect::<Result<Vec<_>>>()?;
        let plus: Vec<NodeId> = parts.iter().map(|p| p.plus).collect();
        let minus: Vec<NodeId> = parts.iter().map(|p| p.minus).collect();
        Ok(Streams {
            plus: self.graph.add(node.op.clone(), &plus)?,
            minus: self.graph.add(node.op.clone(), &minus)?,
        })
    }

    /// The streams of an active value, or the positive and negative parts of a constant.
    fn operand(&mut self, id: NodeId) -> Result<Streams> {
        if let Some(&streams) = self.streams.get(&id) {
            return Ok(streams);
        }
        let node = self.network.graph().node(id).clone();
        // A constant that is repeated for every sample is split once, before it is repeated.
        if let (Op::Expand { .. }, true) = (&node.op, node.is_constant()) {
            let (parts, g) = (self.operand(node.inputs[0])?, &mut self.graph);
            return parts.map(|part| g.add(node.op.clone(), &[part]));
        }
        let constant = self.constant(id)?;
        self.parts(constant)
    }

    fn parts(&mut self, constant: NodeId) -> Result<Streams> {
        let negative = self.graph.negated(constant)?;
        Ok(Streams { plus: self.graph.rectified(constant)?, minus: self.graph.rectified(negative)? })
    }

    /// A constant of the network, copied over with everything it is computed from.
    fn constant(&mut self, id: NodeId) -> Result<NodeId> {
        if let Some(&copied) = self.constants.get(&id) {
            return Ok(copied);
        }
        let node = self.network.graph().node(id);
        if !node.is_constant() {
            return Err(not_split(node));
        }
        let copied = match &node.op {
            Op::Constant(tensor) => self.graph.named_constant(node.label.clone(), tensor.clone()),
            op => {
                let inputs = node.inputs.iter().map(|&i| self.constant(i)).collect::<Result<Vec<_>>>()?;
                self.graph.add(op.clone(), &inputs)?
            }
        };
        self.constants.insert(id, copied);
        Ok(copied)
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

/// What can be done about an op that is not piecewise linear.
const PIECEWISE: Hint = Hint::new(
    "piecewise",
    "a piecewise-linear approximation replaces exp, 1/x, 1/√x and the usual activations first, and nothing else",
);

fn not_split(node: &Node) -> Error {
    Error::unsupported(format!(
        "{} is not made of affine maps, ReLUs, maxima and products, so the network has no pair of monotone convex \
         networks",
        node.op.name()
    ))
    .hint(PIECEWISE)
    .at(node.label.display())
}
