//! Slices. The graph slices one axis at a time, ONNX several; consecutive slices are written as one node.

use std::collections::HashMap;

use super::export::Exporter;
use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::Op;

/// One ONNX `Slice` over several axes.
pub(crate) struct MultiAxisSlice {
    /// The value that is sliced.
    origin: NodeId,
    along: Vec<AxisSlice>,
    /// Whether it is part of a later slice and not written itself.
    is_merged: bool,
}

/// The slice along one axis.
#[derive(Clone, Copy)]
struct AxisSlice {
    axis: usize,
    start: usize,
    step: isize,
    length: usize,
}

/// For each slice, the ONNX node it becomes. A slice without a name that only a slice along another axis reads is
/// merged into that one.
pub(crate) fn merged_slices(graph: &Graph) -> HashMap<NodeId, MultiAxisSlice> {
    let uses = graph.use_counts();
    let mut found: HashMap<NodeId, MultiAxisSlice> = HashMap::new();
    for (id, node) in graph.nodes() {
        let Op::Slice { axis, start, step, length } = node.op else { continue };
        let mut slice = MultiAxisSlice { origin: node.inputs[0], along: Vec::new(), is_merged: false };
        let alone = uses[slice.origin.index()] == 1 && graph.node(slice.origin).label.is_empty();
        if let Some(before) = found
            .get_mut(&slice.origin)
            .filter(|before| alone && before.along.iter().all(|other| other.axis != axis))
        {
            before.is_merged = true;
            slice.origin = before.origin;
            slice.along.clone_from(&before.along);
        }
        slice.along.push(AxisSlice { axis, start, step, length });
        found.insert(id, slice);
    }
    found
}

impl AxisSlice {
    fn end(&self) -> i64 {
        let (start, step) = (self.start as i64, self.step as i64);
        match start.saturating_add(step.saturating_mul(self.length as i64)) {
            _ if self.length == 0 => start,
            // A negative end would count from the back.
            end if end < 0 => i64::MIN + 1,
            end => end,
        }
    }
}

impl Exporter<'_> {
    pub(crate) fn slice(&mut self, id: NodeId) -> Result<()> {
        let Some(slice) = self.slices.remove(&id).filter(|slice| !slice.is_merged) else {
            return Ok(());
        };
        let mut list =
            |role: &str, of: fn(&AxisSlice) -> i64| self.ints(role, slice.along.iter().map(of).collect());
        let starts = list("starts", |axis| axis.start as i64)?;
        let ends = list("ends", AxisSlice::end)?;
        let axes = list("axes", |axis| axis.axis as i64)?;
        let x = self.name(slice.origin).to_owned();
        let mut inputs = vec![x, starts, ends, axes];
        if slice.along.iter().any(|axis| axis.step != 1) {
            inputs.push(self.ints("steps", slice.along.iter().map(|axis| axis.step as i64).collect())?);
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        self.finish("Slice", &inputs, &[]);
        Ok(())
    }
}
