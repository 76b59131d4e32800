//! The one backward walk. A method is a rule set: the message it carries and what a node does to it. The walk
//! pulls the message of a value from the values that were made of it, joins what arrives through different readers,
//! and remembers every message, so that asking for many layers costs no more than asking for the deepest.

use std::collections::HashMap;

use monosplit_graph::{Graph, Node, NodeId, Result};

use crate::active_graph::{ActiveGraph, User};

/// One input of one node, seen from the node.
pub struct Edge<'a> {
    /// The node.
    pub id: NodeId,
    /// What it is.
    pub node: &'a Node,
    /// Which of its inputs.
    pub index: usize,
    /// How many of its inputs depend on the explained input.
    pub active: usize,
}

/// What a method carries backwards and how nodes change it.
pub trait Rules {
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

/// A walk under way: the messages found so far. A value's message is the same whatever else was asked for.
pub struct Walk<R: Rules> {
    rules: R,
    start: NodeId,
    messages: HashMap<NodeId, Option<R::Message>>,
}

impl<R: Rules> Walk<R> {
    /// A walk from `start`, whose message is `seed`.
    pub fn new(rules: R, start: NodeId, seed: R::Message) -> Self {
        Walk { rules, start, messages: HashMap::from([(start, Some(seed))]) }
    }

    /// The message of the value `at`; `None` if it has no influence on where the walk began. Nodes that do not lie
    /// above it are not asked.
    pub fn message(
        &mut self,
        g: &mut Graph,
        network: &ActiveGraph,
        at: NodeId,
    ) -> Result<Option<R::Message>> {
        if let Some(known) = self.messages.get(&at) {
            return Ok(known.clone());
        }
        let dependents = network.dependents(&[at]);
        for index in (at.index()..self.start.index()).rev() {
            let id = network.id(index);
            if dependents[index] && !self.messages.contains_key(&id) {
                let pulled = self.pull(g, network, id)?;
                self.messages.insert(id, pulled);
            }
        }
        Ok(self.messages.get(&at).cloned().flatten())
    }

    /// What arrives at a value from its readers, whose messages are known; the last reader's comes first.
    fn pull(&mut self, g: &mut Graph, network: &ActiveGraph, id: NodeId) -> Result<Option<R::Message>> {
        let mut joined: Option<R::Message> = None;
        for &User { node: user, input } in network.users(id) {
            let Some(message) = self.messages.get(&user).cloned().flatten() else { continue };
            let passed = match input {
                None => Some(message),
                Some(index) => {
                    let node = network.graph().node(user);
                    let edge = Edge { id: user, node, index, active: network.active_inputs(user).len() };
                    self.rules.pass(g, &edge, message).map_err(|e| e.at(node.label.display()))?
                }
            };
            joined = match (joined, passed) {
                (Some(earlier), Some(passed)) => Some(self.rules.join(g, earlier, passed)?),
                (earlier, passed) => earlier.or(passed),
            };
        }
        Ok(joined)
    }
}
