//! The network under explanation: a graph prepared for backward walks from its class scores to its first input.

use std::ops::Deref;

use monosplit_autodiff::ActiveGraph;
use monosplit_graph::batch::sample_axis;
use monosplit_graph::op::AlongAxis;
use monosplit_graph::{Dim, Error, Graph, Kind, Node, NodeId, Op, Output, Result, Shape};

use crate::channels::Axes;
use crate::explanation_graph::inputs;

/// A network prepared for rewriting: the [`ActiveGraph`] whose one input is what is explained and whose output are the
/// class scores. The graph under construction starts as a copy of its graph, so a node has the same id in both.
#[derive(Clone, Debug)]
pub(crate) struct Network(ActiveGraph);

impl Deref for Network {
    type Target = ActiveGraph;

    fn deref(&self) -> &ActiveGraph {
        &self.0
    }
}

impl Network {
    /// Prepares `source`: its first input is what is explained, its first output holds the class scores.
    pub(crate) fn new(source: &Graph) -> Result<Self> {
        let names = source.inputs().iter().skip(1).map(|&id| source.node(id).label.tensor.as_str());
        if let Some(name) = names.into_iter().find(|name| inputs::ALL.contains(name)) {
            return Err(Error::argument(format!(
                "the network's input '{name}' has the name of one that an explanation adds"
            )));
        }
        let mut source = source.clone();
        flatten_scores(&mut source)?;
        let input = source.inputs().first();
        let input = *input.ok_or_else(|| Error::argument("the network has no input to explain"))?;
        let logits = source.outputs().first();
        let logits = logits.ok_or_else(|| Error::argument("the network has no output"))?.node;
        check_real(&source, input)?;
        let network = Network(ActiveGraph::new(&source, logits, &[input])?);
        let node = network.graph().node(network.logits());
        let shape = &node.shape;
        if shape.rank() != 2 || shape.fixed_at(1).is_none() {
            return Err(Error::shape(format!("expected class scores of shape [N, classes], found {shape}"))
                .at(node.label.display()));
        }
        if shape.dims().first() != Some(&network.samples()) {
            return Err(Error::shape(format!(
                "the scores have the shape {shape} for an input of shape {}, expected as many samples along the first axis of \
                 both; export the network with the samples along the first axis of all it reads and returns",
                network.graph().node(network.input()).shape
            ))
            .at(node.label.display()));
        }
        Ok(network)
    }

    /// The explained input.
    pub(crate) fn input(&self) -> NodeId {
        self.0.inputs()[0]
    }

    /// The class scores.
    pub(crate) fn logits(&self) -> NodeId {
        self.0.output()
    }

    /// Number of classes.
    pub(crate) fn classes(&self) -> usize {
        self.graph().node(self.logits()).shape.fixed_at(1).unwrap_or(0)
    }

    /// The length of the sample axis of the explained input.
    pub(crate) fn samples(&self) -> Dim {
        self.graph().node(self.input()).shape.dims().first().copied().unwrap_or(Dim::Fixed(1))
    }

    /// Whether something is computed from several samples at once, as the statistics of a batch are.
    pub(crate) fn mixes_samples(&self) -> bool {
        self.nodes().filter(|(id, _)| self.is_active(*id)).any(|(id, node)| {
            self.active_inputs(id).into_iter().any(|(index, operand)| {
                let dims = self.graph().node(operand).shape.dims();
                sample_axis(dims, self.samples()).is_some_and(|(axis, _)| {
                    node.op.along_axis(index, dims.len(), axis) == AlongAxis::Combined
                })
            })
        })
    }

    /// The axes of a value that a map is made of; an error if its first axis does not run over the samples.
    pub(crate) fn axes(&self, at: NodeId) -> Result<Axes> {
        let node = self.graph().node(at);
        if node.shape.dims().first() != Some(&self.samples()) {
            return Err(Error::shape(format!(
                "the value has the shape {}, expected samples along its first axis; name a layer before or after it",
                node.shape
            ))
            .at(node.label.display()));
        }
        Ok(Axes::of(self.graph(), at, self.input()))
    }
}

/// An error if the explained input does not hold real numbers, which explanations follow.
fn check_real(graph: &Graph, input: NodeId) -> Result<()> {
    let node = graph.node(input);
    if node.kind == Kind::Float {
        return Ok(());
    }
    let is_index = |node: &Node| matches!(node.op, Op::Gather { .. }) && node.inputs.get(1) == Some(&input);
    let (reason, step) = match graph.nodes().any(|(_, node)| is_index(node)) {
        true => ("select rows of a table, as the token ids of a text do", "from its embedded tokens on"),
        false => ("are not turned into real numbers right away", "from its first real numbers on"),
    };
    Err(Error::unsupported(format!(
        "input '{}' holds numbers of kind {} that {reason}, and explanations follow real numbers; export the network \
         {step} to explain it",
        node.label.tensor, node.kind
    )))
}

/// The part of a network that computes its class scores `[N, classes]` from its first output. They are its only output.
pub fn class_scores(network: &Graph) -> Result<Graph> {
    let mut scores = network.clone();
    flatten_scores(&mut scores)?;
    scores.set_outputs(scores.outputs().iter().take(1).cloned().collect());
    scores.pruned()
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
