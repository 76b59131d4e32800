//! Values of a target that follow from the data but are not part of what is explained: the region in which a network finds a
//! class, the class that is second best. Methods and metrics that perturb a sample hold them at the unperturbed one. In a graph
//! they are nodes whose names begin with a prefix.

use std::collections::HashMap;

use monosplit_engine::Engine;
use monosplit_graph::{Error, Graph, NodeId, Result, Tensor};

use crate::explain_batch::ExplainBatch;
use crate::network::Network;
use crate::network_partition::PrefixProgram;

/// What the names of held values begin with.
const PREFIX: &str = "target held ";

/// The name of a held value.
pub(super) fn name(what: &str) -> String {
    format!("{PREFIX}{what}")
}

pub(crate) fn held_nodes(graph: &Graph) -> Vec<NodeId> {
    let is_held = |id: &NodeId| graph.node(*id).label.tensor.starts_with(PREFIX);
    graph.nodes().map(|(id, _)| id).filter(is_held).collect()
}

/// Computes the held values of a network.
pub struct HeldValues {
    names: Vec<String>,
    program: PrefixProgram,
}

/// A network that reads its held values, and what computes them.
pub struct HeldNetwork {
    /// The network; held values are inputs of it.
    pub graph: Graph,
    /// What computes them.
    pub values: HeldValues,
}

impl HeldNetwork {
    /// The network with its held values as inputs; none if it has no such values.
    pub fn new(graph: &Graph, engine: &dyn Engine) -> Result<Option<Self>> {
        let nodes = held_nodes(graph);
        if nodes.is_empty() {
            return Ok(None);
        }
        let mut reading = Graph::new();
        let mut given = HashMap::new();
        // The explained input stays the first.
        for &id in graph.inputs() {
            given.insert(id, reading.add_copy(graph.node(id), &[])?);
        }
        let mut names = Vec::with_capacity(nodes.len());
        for &id in &nodes {
            let node = graph.node(id);
            names.push(node.label.tensor.clone());
            given.insert(id, reading.input(node.label.tensor.clone(), node.shape.clone(), node.kind));
        }
        let reading = replaced(graph, reading, &given)?;
        let network = Network::new(graph)?;
        let program = PrefixProgram::new(&network, &held_nodes(network.graph()), engine)?;
        Ok(Some(HeldNetwork { graph: reading, values: HeldValues { names, program } }))
    }
}

impl HeldValues {
    /// The values for a batch by name.
    pub fn of(&self, batch: &ExplainBatch<'_>) -> Result<Vec<(&str, Tensor)>> {
        let values = self.program.values(batch)?;
        Ok(self.names.iter().map(String::as_str).zip(values).collect())
    }
}

/// `graph` copied into `target`, with values of `target` in place of some of its own.
fn replaced(graph: &Graph, mut target: Graph, given: &HashMap<NodeId, NodeId>) -> Result<Graph> {
    let map = graph.copy_into_with(&mut target, given)?;
    graph.outputs().iter().for_each(|output| target.output(output.name.clone(), map[output.node]));
    graph.metadata().iter().for_each(|(key, value)| target.set_metadata(key, value));
    target.pruned()
}

/// `graph` with the values that its target holds settled for one sample `[1, …]`, or a batch of the size it fixes: they are
/// constants, and what is left is a function of the sample like any other.
pub fn settled(graph: &Graph, image: &Tensor, engine: &dyn Engine) -> Result<Graph> {
    let nodes = held_nodes(graph);
    if nodes.is_empty() {
        return Ok(graph.clone());
    }
    if graph.inputs().len() > 1 {
        return Err(Error::unsupported(
            "the choice that the target makes from the forward pass is settled for networks of one input; name the class, \
             or give the mask",
        ));
    }
    let mut asked = graph.clone();
    asked.set_outputs(Vec::new());
    nodes.iter().for_each(|&id| asked.output("", id));
    let values = engine.compile(&asked.pruned()?)?.run(std::slice::from_ref(image))?;
    let mut fixed = Graph::new();
    let given = nodes.iter().zip(values).map(|(&id, value)| (id, fixed.constant(value))).collect();
    replaced(graph, fixed, &given)
}
