//! The time each step of a run took. An entry is complete in itself, so that profiles of several programs can be joined.

use std::collections::HashMap;
use std::time::Duration;

use monosplit_graph::NodeId;

use crate::Precision;

/// The time of one node, or of several that ran as one step.
#[derive(Clone, Debug)]
pub struct NodeTime {
    /// The node of the compiled graph; the first one if several ran as one step.
    pub node: NodeId,
    /// The other nodes of the step.
    pub others: Vec<NodeId>,
    /// The name of the node.
    pub name: String,
    /// Its op.
    pub op: &'static str,
    /// The lengths of the axes of its value; in the largest batch if it ran more than once.
    pub shape: Vec<usize>,
    /// Which kernel ran it.
    pub kernel: &'static str,
    /// How often it ran.
    pub runs: usize,
    /// How long all runs took together.
    pub time: Duration,
    /// The additions and multiplications that define the convolutions and matrix products of all runs; 0 for other ops.
    pub operations: u64,
    /// The additions and multiplications per second this machine reaches in this precision on these threads, as
    /// measured. An algorithm that needs fewer than the definition may exceed it.
    pub peak: f64,
    /// The precision it was computed in.
    pub precision: Precision,
    /// The vector instructions of the processor that computed it; empty if another device did, or if it was only moved.
    pub instructions: &'static str,
}

impl NodeTime {
    /// Operations per second in units of 10⁹; `None` if they are not counted.
    pub fn gigaflops(&self) -> Option<f64> {
        let seconds = self.time.as_secs_f64();
        (self.operations > 0 && seconds > 0.0).then(|| 1e-9 * self.operations as f64 / seconds)
    }

    /// Operations per second as a fraction of the peak.
    pub fn share_of_peak(&self) -> Option<f64> {
        self.gigaflops().filter(|_| self.peak > 0.0).map(|g| 1e9 * g / self.peak)
    }
}

/// The times of all nodes of one run or more, in the order they ran.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// One entry per step.
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

    /// One entry for all runs of a step: those of the same node by the same kernel, with values of the same shape but for the
    /// first axis, the samples. Entries are in the order of the first runs.
    #[must_use]
    pub fn merged(self) -> Profile {
        let mut positions = HashMap::with_capacity(self.nodes.len());
        let mut merged: Vec<NodeTime> = Vec::new();
        for timed in self.nodes {
            let sample = timed.shape.get(1..).map(<[usize]>::to_vec);
            let key = (timed.node, timed.name.clone(), timed.op, timed.kernel, timed.precision, sample);
            let position = *positions.entry(key).or_insert(merged.len());
            let Some(known) = merged.get_mut(position) else {
                merged.push(timed);
                continue;
            };
            known.runs += timed.runs;
            known.time += timed.time;
            known.operations += timed.operations;
            known.peak = known.peak.max(timed.peak);
            known.shape = timed.shape.max(std::mem::take(&mut known.shape));
        }
        Profile { nodes: merged }
    }
}
