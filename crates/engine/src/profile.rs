//! Where the time of a run went.

use std::time::Duration;

use monosplit_graph::NodeId;

/// The time one node took.
#[derive(Clone, Debug)]
pub struct NodeTime {
    /// The node, in the graph that was compiled.
    pub node: NodeId,
    /// Which kernel ran it.
    pub kernel: &'static str,
    /// How long it took.
    pub time: Duration,
}

/// The times of all nodes of one run, in the order they ran.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// One entry per node that did work.
    pub nodes: Vec<NodeTime>,
}

impl Profile {
    /// Time spent in all nodes together.
    pub fn total(&self) -> Duration {
        self.nodes.iter().map(|n| n.time).sum()
    }
}
