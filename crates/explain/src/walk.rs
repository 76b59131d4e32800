//! The one backward walk. A method is a rule set: the message it carries and what a node does to it. The walk
//! visits nodes from the output towards the input, joins the messages that reach a value from its readers,
//! and hands each node the message of its value.

use std::collections::HashMap;

use monosplit_graph::{Graph, NodeId, Result};

use crate::network::Network;

/// What a method carries backwards and how nodes change it.
pub(crate) trait Rules {
    /// What is known of a value's influence on the output: nodes of the graph being written.
    type Message: Clone;

    /// Two messages that reach the same value through different readers, as one.
    fn join(&mut self, g: &mut Graph, a: Self::Message, b: Self::Message) -> Result<Self::Message>;

    /// The messages a node passes on to its inputs, given the message of the value it produces. Only inputs
    /// that depend on the explained input need one.
    fn back(
        &mut self,
        g: &mut Graph,
        id: NodeId,
        message: Self::Message,
    ) -> Result<Vec<(NodeId, Self::Message)>>;
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
            None => rules.back(g, id, message)?,
        };
        for (input, message) in passed_on.into_iter().filter(|(input, _)| above[input.index()]) {
            let joined = match messages.remove(&input) {
                Some(earlier) => rules.join(g, earlier, message)?,
                None => message,
            };
            messages.insert(input, joined);
        }
    }
    Ok(messages)
}
