//! Where the time of a run went. Every entry stands for itself, so that profiles of several programs can be
//! read as one.

use std::time::Duration;

use monosplit_graph::NodeId;

use crate::Precision;

/// The time of one node, or of several that ran together.
#[derive(Clone, Debug)]
pub struct NodeTime {
    /// The node, in the graph that was compiled; the first of those that ran together.
    pub node: NodeId,
    /// The others that ran together with it.
    pub others: Vec<NodeId>,
    /// The name of the node.
    pub name: String,
    /// Its op.
    pub op: &'static str,
    /// The lengths of the axes of its value.
    pub shape: Vec<usize>,
    /// Which kernel ran it.
    pub kernel: &'static str,
    /// How long it took.
    pub time: Duration,
    /// The additions and multiplications of a convolution or a matrix product as it is defined, for all nodes that
    /// ran together; 0 for other ops.
    pub operations: u64,
    /// Additions and multiplications this machine can do in a second in the precision and on the threads used, as
    /// measured; fast algorithms that need fewer than the definition may exceed it.
    pub peak: f64,
    /// The precision it was computed in.
    pub precision: Precision,
}

impl NodeTime {
    /// Operations in a second, in thousand millions; `None` where they are not counted.
    pub fn gigaflops(&self) -> Option<f64> {
        let seconds = self.time.as_secs_f64();
        (self.operations > 0 && seconds > 0.0).then(|| 1e-9 * self.operations as f64 / seconds)
    }

    /// Operations in a second as a share of what the machine can do.
    pub fn share_of_peak(&self) -> Option<f64> {
        self.gigaflops().filter(|_| self.peak > 0.0).map(|g| 1e9 * g / self.peak)
    }
}

/// The times of all nodes of one run or more, in the order they ran.
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

    /// Adds the times of another run, of this program or another.
    pub fn append(&mut self, other: Profile) {
        self.nodes.extend(other.nodes);
    }
}
