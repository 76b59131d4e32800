//! The materialised pair: `g` and `h` as separate networks with non-negative weights and two inputs `x⁺`, `x⁻`. Needed to export
//! the two networks, and to test the theory on other inputs.

mod linear;
mod nonlinear;

use std::collections::HashMap;

use monosplit_graph::op::{Binary, Padding, Reduction, Unary};
use monosplit_graph::passes::drop_rounding;
use monosplit_graph::{Error, Graph, Hint, Kind, Node, NodeId, Op, Result};

use crate::network::Network;

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
    /// How many nodes that round activations were left out, as quantisers are: `g − h` are the scores of the network without
    /// them.
    pub rounding_dropped: usize,
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
/// Nodes that only round activations are left out first. An error names the first node that is not made of affine maps, ReLUs, maxima and products; smooth functions can be
/// replaced by piecewise-linear ones beforehand.
pub fn materialise(source: &Graph) -> Result<Pair> {
    let Written { graph, logits, products, rounding_dropped } = write(source, |_, streams| Ok(streams))?;
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
        rounding_dropped,
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
    rounding_dropped: usize,
}

/// Both streams in one graph, `after` applied to the pair of every node.
fn write(source: &Graph, after: impl Fn(&mut Graph, Streams) -> Result<Streams>) -> Result<Written> {
    let (plain, rounding_dropped) = drop_rounding(source)?;
    let network = Network::new(&plain)?;
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
    Ok(Written { graph: writer.graph, logits, products: writer.products, rounding_dropped })
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
                let mut padded = |x: NodeId, fill: f64| {
                    let padding = Padding::Constant(fill.max(0.0));
                    self.graph.add(Op::Pad { padding, pads: pads.clone() }, &[x])
                };
                Ok(Streams { plus: padded(a.plus, *fill)?, minus: padded(a.minus, -fill)? })
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
