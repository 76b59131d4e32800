//! The one backward walk. It visits nodes in reverse topological order, computes the message of each value from the messages
//! of the nodes that use it, and keeps every message: asking for many values costs no more than asking for the deepest.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::HashMap;

use monosplit_graph::{Error, Graph, Node, NodeId, Result};

use crate::active_graph::{ActiveGraph, User};

/// An edge of the graph: one input of one node.
pub struct Edge<'a> {
    /// The id of the node. In the graph under construction it is also the id of the value the node computes.
    pub id: NodeId,
    /// The node itself: its op, its inputs, its shape.
    pub node: &'a Node,
    /// The position of the input among the inputs of the node.
    pub index: usize,
    /// The number of active inputs of the node.
    pub active: usize,
}

/// A backward method: the message it carries and what nodes do to it.
///
/// Rules add nodes to a graph and compute nothing. They need no state: the walk keeps the messages. `&mut self` lets a rule
/// set keep what it wants to share between nodes.
pub trait Rules {
    /// What is carried for each value: one or more nodes of the graph under construction, such as its gradient.
    type Message: Clone;

    /// Combines the messages that reach one value through two of its users. For gradients this is the sum.
    fn join(&mut self, g: &mut Graph, a: Self::Message, b: Self::Message) -> Result<Self::Message>;

    /// The message at an input of a node, given the `message` at its output; `None` if it is zero. It is called for active
    /// inputs only, and never for nodes that are decomposed.
    fn pass(
        &mut self,
        g: &mut Graph,
        edge: &Edge<'_>,
        message: Self::Message,
    ) -> Result<Option<Self::Message>>;
}

/// A walk: a rule set, and the messages computed so far. The message of a value does not depend on which other messages were
/// asked for.
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

    /// The message of the value `at`; `None` if `start` does not depend on it, or if it is zero.
    ///
    /// `g` is the graph under construction. It must begin with the nodes of `network`, and be the same in all calls. Nodes are
    /// added for the values on paths from `at` to `start` alone.
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
                let message = self.combine(g, network, id)?;
                self.messages.insert(id, message);
            }
        }
        Ok(self.messages.get(&at).cloned().flatten())
    }

    /// The rules, with what they have kept.
    pub fn into_rules(self) -> R {
        self.rules
    }

    /// The message of a value, from those of its users. The last user comes first: the order of the sum is fixed.
    fn combine(&mut self, g: &mut Graph, network: &ActiveGraph, id: NodeId) -> Result<Option<R::Message>> {
        let mut joined: Option<R::Message> = None;
        for &User { node: user, input } in network.users(id) {
            let Some(message) = self.messages.get(&user).cloned().flatten() else { continue };
            let passed = match input {
                None => Some(message),
                Some(index) => {
                    let node = network.graph().node(user);
                    let edge = Edge { id: user, node, index, active: network.active_inputs(user).len() };
                    // What failed is a node of the derivative, which nobody has seen; the network's own is named.
                    let own = |e: Error| match network.display(user) {
                        "" => e,
                        name => e.without_node().at(name),
                    };
                    self.rules.pass(g, &edge, message).map_err(own)?
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
