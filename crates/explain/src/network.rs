//! The network under explanation: the graph as it was handed in, and what every rule set needs to know of it.

use std::collections::HashMap;

use monosplit_graph::passes::primitive;
use monosplit_graph::{Dim, Error, Graph, Kind, Node, NodeId, Op, Output, Result, Shape};

use crate::channels::Axes;

use crate::explanation::inputs;

/// A network prepared for rewriting. The graph under construction starts as a copy of [`Network::graph`], so
/// a node of the network has the same id there.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    graph: Graph,
    ids: Vec<NodeId>,
    active: Vec<bool>,
    stand_ins: HashMap<NodeId, NodeId>,
    inner: Vec<bool>,
    readers: Vec<Vec<Reader>>,
    input: NodeId,
    logits: NodeId,
}

/// A node that reads a value, and as which of its inputs; none if it is the node its reader stands in for.
type Reader = (NodeId, Option<usize>);

impl Network {
    /// Prepares `source`: its first input is what is explained, its first output holds the class scores.
    pub(crate) fn new(source: &Graph) -> Result<Self> {
        let names = source.inputs().iter().skip(1).map(|&id| source.node(id).label.tensor.as_str());
        if let Some(name) = names.into_iter().find(|name| inputs::ALL.contains(name)) {
            return Err(Error::argument(format!(
                "the network's input '{name}' has the name of one that an explanation adds"
            )));
        }
        let mut copy = with_stand_ins(source)?;
        flatten_scores(&mut copy.graph)?;
        let input = copy.graph.inputs().first();
        let input = *input.ok_or_else(|| Error::argument("the network has no input to explain"))?;
        let logits = copy.graph.outputs().first();
        let logits = logits.ok_or_else(|| Error::argument("the network has no output"))?.node;
        let network = Network::prepared(copy, &[input], logits).ok_or_else(|| {
            Error::argument("the class scores do not depend on the first input through real numbers")
        })?;
        let graph = &network.graph;
        let shape = &graph.node(logits).shape;
        if shape.rank() != 2 || shape.fixed_at(1).is_none() {
            return Err(Error::shape(format!("expected class scores of shape [N, classes], found {shape}"))
                .at(graph.node(logits).label.display()));
        }
        Ok(network)
    }

    /// Prepares `source` for walks from the value `from` to the values `to`, whatever they are; and the values' ids in
    /// the network's graph.
    pub(crate) fn between(
        source: &Graph,
        from: NodeId,
        to: &[NodeId],
    ) -> Result<(Self, NodeId, Vec<NodeId>)> {
        let copy = with_stand_ins(source)?;
        let find = |id: &NodeId| {
            let copied = copy.map.get(id.index()).copied();
            copied.ok_or_else(|| Error::argument(format!("{id} is not a value of the graph")))
        };
        let (from, to) = (find(&from)?, to.iter().map(find).collect::<Result<Vec<NodeId>>>()?);
        let network = Network::prepared(copy, &to, from).ok_or_else(|| {
            Error::argument("the value does not depend on any of the others through real numbers")
        })?;
        Ok((network, from, to))
    }

    /// The network whose explained values are `explained`; `None` if the `logits` do not depend on them.
    fn prepared(copy: Copy, explained: &[NodeId], logits: NodeId) -> Option<Self> {
        let Copy { graph, stand_ins, mut inner, .. } = copy;
        inner.resize(graph.len(), false);
        let mut active = vec![false; graph.len()];
        for (id, node) in graph.nodes() {
            let reads = node.inputs.iter().any(|i| active[i.index()]);
            active[id.index()] = node.kind == Kind::Float && (reads || explained.contains(&id));
        }
        let input = *explained.first().filter(|_| active[logits.index()])?;
        let ids = graph.nodes().map(|(id, _)| id).collect();
        let readers = Vec::new();
        let mut network = Network { graph, ids, active, stand_ins, inner, readers, input, logits };
        network.readers = network.find_readers();
        Some(network)
    }

    /// The network's own graph.
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The node at a position in topological order.
    pub(crate) fn id(&self, index: usize) -> NodeId {
        self.ids[index]
    }

    /// All nodes in topological order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.graph.nodes()
    }

    /// Whether the value depends on the explained input.
    pub(crate) fn is_active(&self, id: NodeId) -> bool {
        self.active.get(id.index()).copied().unwrap_or(false)
    }

    /// For a node that is treated as a composition of simpler ones: the node that computes the same value by
    /// that composition.
    pub(crate) fn stand_in(&self, id: NodeId) -> Option<NodeId> {
        self.stand_ins.get(&id).copied()
    }

    /// Whether the node is an intermediate step of such a composition, its last step not counted.
    pub(crate) fn is_inner(&self, id: NodeId) -> bool {
        self.inner[id.index()]
    }

    /// The explained input.
    pub(crate) fn input(&self) -> NodeId {
        self.input
    }

    /// The class scores.
    pub(crate) fn logits(&self) -> NodeId {
        self.logits
    }

    /// Number of classes.
    pub(crate) fn classes(&self) -> usize {
        self.graph.node(self.logits).shape.fixed_at(1).unwrap_or(0)
    }

    /// The length of the sample axis of the explained input.
    pub(crate) fn samples(&self) -> Dim {
        self.graph.node(self.input).shape.dims().first().copied().unwrap_or(Dim::Fixed(1))
    }

    /// Whether something is computed from several samples at once, as the statistics of a batch are.
    pub(crate) fn mixes_samples(&self) -> bool {
        let over_samples = |node: &Node, axes: &[usize]| {
            let dims = self.graph.node(node.inputs[0]).shape.dims();
            sample_axis(dims, self.samples()).is_some_and(|(axis, _)| axes.contains(&axis))
        };
        self.nodes().any(|(id, node)| match &node.op {
            Op::Reduce { axes, .. } => self.is_active(id) && over_samples(node, axes),
            _ => false,
        })
    }

    /// The axes of a value that a map is made of; an error if its first axis does not run over the samples.
    pub(crate) fn axes(&self, at: NodeId) -> Result<Axes> {
        let node = self.graph.node(at);
        if node.shape.dims().first() != Some(&self.samples()) {
            return Err(Error::shape(format!(
                "the value has the shape {}, expected samples along its first axis; name a layer before or after it",
                node.shape
            ))
            .at(node.label.display()));
        }
        Ok(Axes::of(&self.graph, at, self.input))
    }

    /// Which values the class scores are made from, themselves included.
    pub(crate) fn reached(&self) -> Vec<bool> {
        let mut reached = vec![false; self.graph.len()];
        reached[self.logits.index()] = true;
        for &id in self.ids.iter().rev() {
            let read = self.readers(id).iter().any(|(reader, _)| reached[reader.index()]);
            reached[id.index()] |= read;
        }
        reached
    }

    /// The active nodes that are made from a value, the last one first.
    pub(crate) fn readers(&self, id: NodeId) -> &[Reader] {
        &self.readers[id.index()]
    }

    fn find_readers(&self) -> Vec<Vec<Reader>> {
        let mut readers = vec![Vec::new(); self.graph.len()];
        for &id in self.ids.iter().rev().filter(|&&id| self.is_active(id)) {
            match self.stand_in(id) {
                Some(stand_in) => readers[stand_in.index()].push((id, None)),
                None => {
                    let inputs = self.active_inputs(id);
                    inputs
                        .into_iter()
                        .for_each(|(index, input)| readers[input.index()].push((id, Some(index))));
                }
            }
        }
        readers
    }

    /// The values an active node's own is made from: its stand-in, or its active inputs.
    pub(crate) fn sources(&self, id: NodeId) -> Vec<NodeId> {
        match self.stand_in(id) {
            Some(stand_in) => vec![stand_in],
            None => self.active_inputs(id).into_iter().map(|(_, input)| input).collect(),
        }
    }

    /// Which values are made from one of `wanted`, themselves included.
    pub(crate) fn above(&self, wanted: &[NodeId]) -> Vec<bool> {
        let mut above = vec![false; self.graph.len()];
        for &id in &self.ids {
            let made_from = || self.sources(id).iter().any(|source| above[source.index()]);
            above[id.index()] = self.is_active(id) && (wanted.contains(&id) || made_from());
        }
        above
    }

    /// Those inputs of a node that depend on the explained input, with their positions.
    pub(crate) fn active_inputs(&self, id: NodeId) -> Vec<(usize, NodeId)> {
        let inputs = self.graph.node(id).inputs.iter().copied().enumerate();
        inputs.filter(|&(_, input)| self.is_active(input)).collect()
    }
}

/// The first axis of a value that runs over samples, and how many of its elements belong to one sample.
pub(crate) fn sample_axis(dims: &[Dim], samples: Dim) -> Option<(usize, usize)> {
    dims.iter().enumerate().find_map(|(axis, &dim)| match (dim.over(samples), samples) {
        (Some(Dim::Fixed(per_sample)), Dim::Batch(_)) => Some((axis, per_sample)),
        (Some(Dim::Fixed(per_sample)), Dim::Fixed(_)) if axis == 0 => Some((axis, per_sample)),
        _ => None,
    })
}

/// A graph copied with a composition of simpler nodes standing before each node that has no rule of its own.
struct Copy {
    graph: Graph,
    /// Where each node of the source went.
    map: Vec<NodeId>,
    stand_ins: HashMap<NodeId, NodeId>,
    inner: Vec<bool>,
}

/// Copies the graph. Readers keep reading the original node, so the network's values stay what they were, to the bit.
fn with_stand_ins(source: &Graph) -> Result<Copy> {
    let mut graph = Graph::new();
    let mut stand_ins = HashMap::new();
    let mut inner = Vec::new();
    let mut map: Vec<NodeId> = Vec::with_capacity(source.len());
    for (_, node) in source.nodes() {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|i| map[i.index()]).collect();
        let composed = if node.is_constant() { None } else { compose(&mut graph, node, &inputs)? };
        inner.resize(graph.len(), true);
        if let Some(stand_in) = composed {
            inner[stand_in.index()] = false;
        }
        let id = match &node.op {
            Op::Input => {
                let id = graph.input(node.label.tensor.clone(), node.shape.clone(), node.kind);
                *graph.label_mut(id) = node.label.clone();
                id
            }
            Op::Constant(tensor) => graph.named_constant(node.label.clone(), tensor.clone()),
            op => graph.add_named(node.label.clone(), op.clone(), &inputs)?,
        };
        inner.push(false);
        if let Some(stand_in) = composed {
            stand_ins.insert(id, stand_in);
        }
        map.push(id);
    }
    for output in source.outputs() {
        graph.output(output.name.clone(), map[output.node.index()]);
    }
    Ok(Copy { graph, map, stand_ins, inner })
}

/// Class scores that a network leaves as `[N, classes, 1, 1]` become `[N, classes]`.
fn flatten_scores(graph: &mut Graph) -> Result<()> {
    let Some(first) = graph.outputs().first().cloned() else { return Ok(()) };
    let dims = graph.node(first.node).shape.dims().to_vec();
    if dims.len() > 2 && dims[2..].iter().all(|&dim| dim == Dim::Fixed(1)) {
        let node = graph.reshaped(first.node, Shape::new(&dims[..2]))?;
        let rest = graph.outputs()[1..].to_vec();
        graph.set_outputs([vec![Output { name: first.name, node }], rest].concat());
    }
    Ok(())
}

fn compose(g: &mut Graph, node: &Node, inputs: &[NodeId]) -> Result<Option<NodeId>> {
    primitive(g, &node.op, inputs).map_err(|e| e.at(node.label.display()))
}
