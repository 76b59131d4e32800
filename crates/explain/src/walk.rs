//! The one backward walk. A method is a rule set: the message it carries and what a node does to it. The walk
//! visits nodes from the output towards the input, joins the messages that reach a value from its readers,
//! and hands each node the message of its value.

use std::collections::HashMap;

use monosplit_graph::{Graph, Node, NodeId, Result};

use crate::network::Network;

/// One input of one node, seen from the node.
pub(crate) struct Edge<'a> {
    /// The node.
    pub(crate) id: NodeId,
    /// What it is.
    pub(crate) node: &'a Node,
    /// Which of its inputs.
    pub(crate) index: usize,
    /// How many of its inputs depend on the explained input.
    pub(crate) active: usize,
}

/// What a method carries backwards and how nodes change it.
pub(crate) trait Rules {
    /// What is known of a value's influence on the output: nodes of the graph being written.
    type Message: Clone;

    /// Two messages that reach the same value through different readers, as one.
    fn join(&mut self, g: &mut Graph, a: Self::Message, b: Self::Message) -> Result<Self::Message>;

    /// The message that crosses an edge towards a node's input, given the message of the value the node produces;
    /// `None` if nothing passes. Only edges that lead to the explained input are asked.
    fn pass(
        &mut self,
        g: &mut Graph,
        edge: &Edge<'_>,
        message: Self::Message,
    ) -> Result<Option<Self::Message>>;
}

/// Walks from `start`, whose message is `seed`, down to the `wanted` values; the messages of all values passed. Nodes
/// that lead to none of them are not asked.
pub(crate) fn walk<R: Rules>(
    g: &mut Graph,
    network: &Network,
    rules: &mut R,
    start: NodeId,
    seed: R::Message,
    wanted: &[NodeId],
) -> Result<HashMap<NodeId, R::Message>> {
    let above = network.above(wanted);
    let mut messages = HashMap::from([(start, seed)]);
    for index in (0..=start.index()).rev() {
        let id = network.id(index);
        let Some(message) = messages.get(&id).cloned() else { continue };
        let leads_on = network.sources(id).iter().any(|source| above[source.index()]);
        let passed_on = match network.stand_in(id) {
            _ if !leads_on => continue,
            Some(stand_in) => vec![(stand_in, message)],
            None => across(g, network, rules, id, message, &above)?,
        };
        for (input, message) in passed_on {
            let joined = match messages.remove(&input) {
                Some(earlier) => rules.join(g, earlier, message)?,
                None => message,
            };
            messages.insert(input, joined);
        }
    }
    Ok(messages)
}

/// The messages that leave a node towards inputs that lead on.
fn across<R: Rules>(
    g: &mut Graph,
    network: &Network,
    rules: &mut R,
    id: NodeId,
    message: R::Message,
    above: &[bool],
) -> Result<Vec<(NodeId, R::Message)>> {
    let node = network.graph().node(id);
    let inputs = network.active_inputs(id);
    let mut messages = Vec::with_capacity(inputs.len());
    for &(index, input) in inputs.iter().filter(|(_, input)| above[input.index()]) {
        let edge = Edge { id, node, index, active: inputs.len() };
        let passed = rules.pass(g, &edge, message.clone()).map_err(|e| e.at(node.label.display()))?;
        messages.extend(passed.map(|passed| (input, passed)));
    }
    Ok(messages)
}
