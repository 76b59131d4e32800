//! What a program of ONNX Runtime will hold, estimated from shapes as for the engine `cpu`, and how many samples fit the memory
//! budget. The library plans its memory itself, so this is no exact account of it.

use monosplit_graph::{Graph, Op, Result};

use crate::footprint::{Footprint, HeldConstants};
use crate::graph_info::GraphInfo;
use crate::plan::{Plan, known};
use crate::samples_within;
use crate::schedule::Optimisations;
use crate::split_batch::is_splittable;

/// Bytes of a real number.
const REAL: usize = size_of::<f32>();

/// The memory of a program and its limit.
pub(super) struct RunBudget {
    pub(super) info: GraphInfo,
    plan: Plan,
    weights: HeldConstants,
    splittable: bool,
    limit: usize,
}

impl RunBudget {
    /// An error if a run of one sample would hold more than `limit`.
    pub(super) fn new(graph: &Graph, limit: usize) -> Result<Self> {
        let plan = Plan::new(graph, &known(graph), &graph.live(), Optimisations::CPU);
        let mut weights = HeldConstants::default();
        let constants = graph.nodes().filter(|(_, node)| matches!(node.op, Op::Constant(_)));
        constants.for_each(|(id, _)| weights.add(graph, id, REAL, 1));
        let (info, splittable) = (GraphInfo::new(graph, &plan), is_splittable(graph));
        let budget = RunBudget { info, plan, weights, splittable, limit };
        budget.samples(1)?;
        Ok(budget)
    }

    fn footprint(&self, batch: usize) -> Result<Footprint> {
        let shapes = self.info.shapes(&self.plan, batch)?;
        Ok(Footprint::buffers(&self.info, &self.plan, &shapes, REAL, &self.weights))
    }

    /// The bytes of a run beside the weights.
    pub(super) fn run_bytes(&self, batch: usize) -> usize {
        let bytes = self.footprint(batch).map_or(usize::MAX, |footprint| footprint.bytes);
        bytes.saturating_sub(self.weights.bytes)
    }

    /// What is left of the budget beside the weights.
    pub(super) fn bytes_left(&self) -> usize {
        self.limit.saturating_sub(self.weights.bytes)
    }

    /// How many of `batch` samples are run at once; an error if that cannot be fewer, and is too many.
    pub(super) fn samples(&self, batch: usize) -> Result<usize> {
        let whole = self.footprint(batch)?;
        if whole.bytes <= self.limit {
            return Ok(batch);
        }
        match self.splittable && batch > 1 && self.run_bytes(1) <= self.bytes_left() {
            true => Ok(samples_within(batch - 1, self.bytes_left(), |samples| self.run_bytes(samples))),
            false => Err(whole.refused(&self.info, self.limit, 0)),
        }
    }
}
