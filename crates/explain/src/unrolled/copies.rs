//! The network behind a value, written for several copies of that value at once. Copies are `[K, N, …]`: `K` perturbed
//! versions of each of `N` samples.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use monosplit_graph::batch::sample_axis;
use monosplit_graph::op::Reduction;
use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Op, Result, Shape, Tensor};

use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::ClassInput;
use crate::network::Network;
use crate::scorer::{check_batch, check_samples};
use crate::target::held::held_nodes;

/// The most nodes that the passes of one map may take. Runtimes need minutes to load files with more.
const MOST_NODES: usize = 400_000;

/// The part of the network behind a value, to be written for copies of the value.
pub(crate) struct CopiedNetwork {
    /// Reads the value, then what else crosses the cut, then the class. Returns the scores and, where asked for, the gradient.
    graph: Graph,
    /// The values of the network that cross the cut.
    crossing: Vec<NodeId>,
    /// Where the constants of `graph` went; they are the same for all copies.
    constants: HashMap<NodeId, NodeId>,
    samples: Dim,
    batch: usize,
}

/// The outputs of the network for copies.
#[derive(Clone, Copy)]
pub(crate) struct CopyOutputs {
    /// The class scores, `[K, N, classes]`.
    scores: NodeId,
    /// The gradient of the explained score, `[K, N, …]`; that of the scores where none was asked for.
    pub(crate) gradient: NodeId,
}

impl CopiedNetwork {
    /// For the scores of copies of the value `at`, at most `batch` copies of a sample at a time.
    pub(crate) fn scores(builder: &ExplanationBuilder<'_>, at: NodeId, batch: usize) -> Result<Self> {
        CopiedNetwork::new(builder, at, None, batch)
    }

    /// For the scores of copies of the value `at`, and their gradients with respect to the value `of`.
    pub(crate) fn gradients(
        builder: &ExplanationBuilder<'_>,
        at: NodeId,
        of: NodeId,
        batch: usize,
    ) -> Result<Self> {
        CopiedNetwork::new(builder, at, Some(of), batch)
    }

    fn new(builder: &ExplanationBuilder<'_>, at: NodeId, of: Option<NodeId>, batch: usize) -> Result<Self> {
        let batch = builder.copies.unwrap_or(batch);
        check_batch(batch)?;
        let network = builder.network;
        check_samples(network.graph())?;
        let cut = HeldCut::new(network, at, of)?;
        let behind = Rc::new(Network::new(&cut.graph)?);
        let mut walk = ExplanationBuilder::new(&behind, ClassInput::Given)?;
        walk.graph.output("scores", behind.logits());
        if of.is_some() {
            let of = behind.graph().outputs()[1].node;
            let gradient = walk.gradient(of)?;
            walk.graph.output("gradient", gradient);
        }
        let graph = walk.graph.pruned()?;
        let constants = known_constants(&graph, &builder.graph);
        let samples = network.samples();
        Ok(CopiedNetwork { graph, crossing: cut.crossing, constants, samples, batch })
    }

    /// So many copies, divided into chunks. A network of fixed batch size takes one copy of all its samples at a time.
    pub(crate) fn chunks(&self, total: usize) -> Result<Vec<Range<usize>>> {
        let size = match self.samples {
            Dim::Batch(_) => self.batch,
            Dim::Fixed(_) => 1,
        };
        let (count, nodes) = (total.div_ceil(size), self.graph.len());
        if count.saturating_mul(nodes) > MOST_NODES {
            return Err(Error::argument(format!(
                "{total} copies of each sample, {size} at a time, would write the {nodes} nodes of the network {count} \
                 times; take more at a time, or fewer in all"
            )));
        }
        Ok((0..count).map(|chunk| chunk * size..((chunk + 1) * size).min(total)).collect())
    }

    /// Writes the network for `copies`, `[K, N, …]`.
    pub(crate) fn run(
        &mut self,
        builder: &mut ExplanationBuilder<'_>,
        copies: NodeId,
    ) -> Result<CopyOutputs> {
        let count = copy_count(&builder.graph, copies)?;
        let class = builder.class();
        let mut given = Vec::with_capacity(self.crossing.len() + 2);
        given.push(joined(&mut builder.graph, copies)?);
        for &id in self.crossing.iter().chain([&class]) {
            given.push(repeated(&mut builder.graph, id, self.samples, count)?);
        }
        let g = &mut builder.graph;
        let mut values: Vec<NodeId> = Vec::with_capacity(self.graph.len());
        let mut given = given.into_iter();
        for (id, node) in self.graph.nodes() {
            let inputs: Vec<NodeId> = node.inputs.iter().map(|input| values[input.index()]).collect();
            values.push(match (&node.op, self.constants.get(&id)) {
                (_, Some(&known)) => known,
                (Op::Input, None) => given.next().ok_or_else(|| {
                    Error::argument("the part behind the layer reads more than crosses the cut")
                })?,
                (op, None) => {
                    let value = match op {
                        Op::Constant(tensor) => g.constant(tensor.clone()),
                        op => {
                            g.add(for_copies(op, count), &inputs).map_err(|e| e.at(node.label.display()))?
                        }
                    };
                    // What is made for each sample has another length in a chunk of another number of copies.
                    let of_samples = node.shape.dims().iter().any(|dim| matches!(dim, Dim::Batch(_)));
                    if node.is_constant() && !of_samples {
                        self.constants.insert(id, value);
                    }
                    value
                }
            });
        }
        let outputs = self.graph.outputs();
        let mut found = outputs.iter().map(|output| apart(g, values[output.node.index()], count));
        let missing = || Error::argument("the network has no scores");
        let scores = found.next().ok_or_else(missing)??;
        let gradient = found.next().transpose()?.unwrap_or(scores);
        Ok(CopyOutputs { scores, gradient })
    }
}

impl CopyOutputs {
    /// The score of the explained class, `[K, N]`.
    pub(crate) fn score(self, builder: &mut ExplanationBuilder<'_>) -> Result<NodeId> {
        explained_score(builder, self.scores)
    }

    /// Its probability, `[K, N]`: the softmax of the scores. Scores of a target have none and stand for themselves.
    pub(crate) fn probability(self, builder: &mut ExplanationBuilder<'_>) -> Result<NodeId> {
        if !builder.has_probabilities {
            return self.score(builder);
        }
        let axis = builder.graph.node(self.scores).shape.rank() - 1;
        let shares = builder.graph.add(Op::Softmax { axis }, &[self.scores])?;
        explained_score(builder, shares)
    }
}

/// The score of the explained class of each sample, of scores `[N, classes]` or `[K, N, classes]`.
pub(super) fn explained_score(builder: &mut ExplanationBuilder<'_>, scores: NodeId) -> Result<NodeId> {
    let seed = builder.seed();
    let g = &mut builder.graph;
    let is_class = g.more_than(seed, 0.5)?;
    let own = g.masked(is_class, scores)?;
    let axis = g.node(own).shape.rank() - 1;
    g.reduced(Reduction::Sum, own, &[axis], false)
}

/// A value `[N, …]` as one copy, `[1, N, …]`.
pub(super) fn one_copy(g: &mut Graph, value: NodeId) -> Result<NodeId> {
    let dims = [&[Dim::Fixed(1)], g.node(value).shape.dims()].concat();
    g.reshaped(value, Shape::new(dims))
}

/// The sum over copies `[K, N, …]`, added to a sum so far.
pub(super) fn add_up(g: &mut Graph, sum: Option<NodeId>, copies: NodeId) -> Result<Option<NodeId>> {
    let own = g.reduced(Reduction::Sum, copies, &[0], false)?;
    Ok(Some(match sum {
        Some(sum) => g.plus(sum, own)?,
        None => own,
    }))
}

/// The result of a loop over chunks; an error if there was none.
pub(super) fn total(sum: Option<NodeId>) -> Result<NodeId> {
    sum.ok_or_else(|| Error::argument("the method makes no copies"))
}

/// One number for each of some copies, as `[K, 1, …]` for values of this rank `[N, …]`.
pub(super) fn per_copy(
    g: &mut Graph,
    rank: usize,
    numbers: impl ExactSizeIterator<Item = f64>,
) -> Result<NodeId> {
    let shape = [vec![numbers.len()], vec![1; rank]].concat();
    Ok(g.constant(Tensor::new(shape, numbers.collect::<Vec<f64>>())?))
}

/// Numbers `[K, N]` as `[K, N, 1, …]`, for copies of values of this rank `[N, …]`.
pub(super) fn as_factors(g: &mut Graph, numbers: NodeId, rank: usize) -> Result<NodeId> {
    let dims = [g.node(numbers).shape.dims(), &vec![Dim::Fixed(1); rank - 1]].concat();
    g.reshaped(numbers, Shape::new(dims))
}

fn copy_count(g: &Graph, copies: NodeId) -> Result<usize> {
    let shape = &g.node(copies).shape;
    shape
        .fixed_at(0)
        .ok_or_else(|| Error::shape(format!("expected copies along the first axis, found {shape}")))
}

/// Copies `[K, N, …]` as one batch `[K·N, …]`.
fn joined(g: &mut Graph, copies: NodeId) -> Result<NodeId> {
    let dims = g.node(copies).shape.dims().to_vec();
    let rows = dims[0].times(dims[1]).ok_or_else(|| Error::shape("there are too many copies"))?;
    g.reshaped(copies, Shape::new([&[rows], &dims[2..]].concat()))
}

/// A batch `[K·N, …]` as copies `[K, N, …]`.
fn apart(g: &mut Graph, batch: NodeId, count: usize) -> Result<NodeId> {
    let dims = g.node(batch).shape.dims().to_vec();
    let samples = dims[0].over(Dim::Fixed(count)).ok_or_else(|| {
        Error::shape(format!("expected a batch of {count} copies, found {}", g.node(batch).shape))
    })?;
    g.reshaped(batch, Shape::new([&[Dim::Fixed(count), samples], &dims[1..]].concat()))
}

/// A value of the network repeated along its sample axis; the value itself if it is the same for all samples.
fn repeated(g: &mut Graph, value: NodeId, samples: Dim, count: usize) -> Result<NodeId> {
    let dims = g.node(value).shape.dims().to_vec();
    let Some((axis, _)) = sample_axis(&dims, samples).filter(|_| count > 1) else { return Ok(value) };
    let (before, after) = dims.split_at(axis);
    let with = |copies: usize| Shape::new([before, &[Dim::Fixed(copies)], after].concat());
    let one = g.reshaped(value, with(1))?;
    let several = g.add(Op::Expand { shape: with(count) }, &[one])?;
    let rows = after[0].times(Dim::Fixed(count)).ok_or_else(|| Error::shape("there are too many copies"))?;
    g.reshaped(several, Shape::new([before, &[rows], &after[1..]].concat()))
}

/// The op for so many times as many samples.
fn for_copies(op: &Op, count: usize) -> Op {
    let enlarged = |shape: &Shape| {
        let dims = shape.dims().iter().map(|dim| match dim {
            Dim::Batch(samples) => Dim::Batch(samples * count),
            fixed => *fixed,
        });
        Shape::new(dims.collect::<Vec<_>>())
    };
    match op {
        Op::Reshape { shape } => Op::Reshape { shape: enlarged(shape) },
        Op::Expand { shape } => Op::Expand { shape: enlarged(shape) },
        // No other op holds the number of samples.
        Op::Input | Op::Constant(_) | Op::Identity | Op::Dropout { .. } => op.clone(),
        Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } => op.clone(),
        Op::BatchNorm { .. } | Op::LayerNorm { .. } | Op::GroupNorm { .. } => op.clone(),
        Op::LocalResponseNorm { .. } | Op::Softmax { .. } | Op::LogSoftmax { .. } => op.clone(),
        Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast { .. } => op.clone(),
        Op::MaxPool(_) | Op::AveragePool { .. } | Op::AveragePoolTranspose { .. } => op.clone(),
        Op::WinnerGather(_) | Op::WinnerScatter(_) => op.clone(),
        Op::Reduce { .. } | Op::ArgMax { .. } | Op::Resize { .. } => op.clone(),
        Op::Concat { .. } | Op::Slice { .. } | Op::Pad { .. } => op.clone(),
        Op::Transpose { .. } | Op::Gather { .. } => op.clone(),
    }
}

/// For the constants of `graph` that `target` has too, where they are there: weights are stored once.
fn known_constants(graph: &Graph, target: &Graph) -> HashMap<NodeId, NodeId> {
    let mut by_shape: HashMap<&[usize], Vec<(&Tensor, NodeId)>> = HashMap::new();
    for (id, _) in target.nodes() {
        if let Some(tensor) = target.constant_value(id) {
            by_shape.entry(tensor.shape()).or_default().push((tensor, id));
        }
    }
    let found = |id: NodeId| {
        let tensor = graph.constant_value(id)?;
        let alike = by_shape.get(tensor.shape())?;
        alike.iter().find(|(known, _)| known.is(tensor)).map(|(_, known)| (id, *known))
    };
    graph.nodes().filter_map(|(id, _)| found(id)).collect()
}

/// The part of a network behind a value. Values that a target holds at the unperturbed sample cross the cut.
struct HeldCut {
    graph: Graph,
    crossing: Vec<NodeId>,
}

impl HeldCut {
    fn new(network: &Network, at: NodeId, of: Option<NodeId>) -> Result<Self> {
        let source = network.graph();
        let held = held_nodes(source);
        let mut dependent = vec![false; source.len()];
        for (id, node) in source.nodes() {
            let depends = node.inputs.iter().any(|input| dependent[input.index()]);
            dependent[id.index()] = id == at || (depends && !held.contains(&id));
        }
        let wanted = [Some(network.logits()), of];
        if wanted.into_iter().flatten().any(|id| !dependent[id.index()]) {
            let message = "the class scores do not depend on the layer; name one that they depend on";
            return Err(Error::argument(message).at(source.node(of.unwrap_or(at)).label.display()));
        }
        let crosses = |id: NodeId| !dependent[id.index()] && !source.node(id).is_constant();
        let needed = source.ancestors_until(wanted.into_iter().flatten(), |id| id == at || crosses(id));
        let crossing = source.nodes().map(|(id, _)| id).filter(|&id| needed[id.index()] && crosses(id));
        let crossing: Vec<NodeId> = crossing.collect();
        let mut graph = Graph::new();
        let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
        for (number, &id) in [at].iter().chain(&crossing).enumerate() {
            let node = source.node(id);
            copies.insert(id, graph.input(format!("value {number}"), node.shape.clone(), node.kind));
        }
        for (id, node) in source.nodes().filter(|(id, _)| needed[id.index()]) {
            if !copies.contains_key(&id) {
                let inputs: Vec<NodeId> =
                    node.inputs.iter().filter_map(|input| copies.get(input).copied()).collect();
                copies.insert(id, graph.add_copy(node, &inputs)?);
            }
        }
        for id in wanted.into_iter().flatten() {
            graph.output("", copies[&id]);
        }
        debug_assert!(source.node(at).kind == Kind::Float);
        Ok(HeldCut { graph, crossing })
    }
}

/// Masks over positions `[K, N, …]` with an axis of length one where the value they are for has its channels.
pub(super) fn over_channels(g: &mut Graph, masks: NodeId, channels: Option<usize>) -> Result<NodeId> {
    let Some(channels) = channels else { return Ok(masks) };
    let dims = g.node(masks).shape.dims().to_vec();
    let (before, after) = dims.split_at((channels + 1).min(dims.len()));
    g.reshaped(masks, Shape::new([before, &[Dim::Fixed(1)], after].concat()))
}
