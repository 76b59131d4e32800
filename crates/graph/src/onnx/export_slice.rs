//! Slices: the graph has one for each axis, and ONNX one for several.

use std::collections::HashMap;

use super::export::Exporter;
use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::Op;

/// What a node of ONNX takes of a value.
pub(crate) struct Cuts {
    /// The value.
    origin: NodeId,
    along: Vec<Cut>,
    /// Whether the only reader is a slice that takes this too.
    is_taken_further: bool,
}

/// What is taken along an axis.
#[derive(Clone, Copy)]
struct Cut {
    axis: usize,
    start: usize,
    step: isize,
    length: usize,
}

/// What each slice takes. A nameless one that only a slice along another axis reads is taken with that.
pub(crate) fn cuts(graph: &Graph) -> HashMap<NodeId, Cuts> {
    let uses = graph.use_counts();
    let mut found: HashMap<NodeId, Cuts> = HashMap::new();
    for (id, node) in graph.nodes() {
        let Op::Slice { axis, start, step, length } = node.op else { continue };
        let mut cuts = Cuts { origin: node.inputs[0], along: Vec::new(), is_taken_further: false };
        let alone = uses[cuts.origin.index()] == 1 && graph.node(cuts.origin).label.is_empty();
        if let Some(before) = found
            .get_mut(&cuts.origin)
            .filter(|before| alone && before.along.iter().all(|cut| cut.axis != axis))
        {
            before.is_taken_further = true;
            cuts.origin = before.origin;
            cuts.along.clone_from(&before.along);
        }
        cuts.along.push(Cut { axis, start, step, length });
        found.insert(id, cuts);
    }
    found
}

impl Cut {
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
        let Some(cuts) = self.cuts.remove(&id).filter(|cuts| !cuts.is_taken_further) else { return Ok(()) };
        let mut list = |role: &str, of: fn(&Cut) -> i64| self.ints(role, cuts.along.iter().map(of).collect());
        let starts = list("starts", |cut| cut.start as i64)?;
        let ends = list("ends", Cut::end)?;
        let axes = list("axes", |cut| cut.axis as i64)?;
        let x = self.name(cuts.origin).to_owned();
        let mut inputs = vec![x, starts, ends, axes];
        if cuts.along.iter().any(|cut| cut.step != 1) {
            inputs.push(self.ints("steps", cuts.along.iter().map(|cut| cut.step as i64).collect())?);
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        self.finish("Slice", &inputs, &[]);
        Ok(())
    }
}
