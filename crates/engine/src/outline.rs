//! What a program remembers of the graph it was made from: every value's name, shape and kind, what goes in and what comes
//! out, and whether what it is given fits.

use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Result, Shape, Tensor, element_count};

use crate::plan::{Place, Plan};
use monosplit_graph::op::MultiplyAdds;

/// What is kept of a node.
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) op: &'static str,
    /// What defines it, not what a fast algorithm needs.
    pub(crate) multiply_adds: MultiplyAdds,
    pub(crate) shape: Shape,
    pub(crate) kind: Kind,
    pub(crate) inputs: Vec<NodeId>,
}

/// The values of a graph, by node.
pub(crate) struct Outline {
    pub(crate) values: Vec<Value>,
    pub(crate) inputs: Vec<NodeId>,
    pub(crate) outputs: Vec<NodeId>,
}

fn name_of(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match node.label.display() {
        "" => format!("{} {}", node.op.name(), id.index()),
        name => name.to_string(),
    }
}

impl Outline {
    /// Nodes that compute the same stand for each other as `plan` has it.
    pub(crate) fn new(graph: &Graph, plan: &Plan) -> Self {
        let same = |id: &NodeId| plan.same[id.index()];
        let value = |(id, node): (NodeId, &monosplit_graph::Node)| Value {
            name: name_of(graph, id),
            op: node.op.name(),
            multiply_adds: graph.multiply_adds(node),
            shape: node.shape.clone(),
            kind: node.kind,
            inputs: node.inputs.iter().map(same).collect(),
        };
        Outline {
            values: graph.nodes().map(value).collect(),
            inputs: graph.inputs().to_vec(),
            outputs: graph.outputs().iter().map(|output| same(&output.node)).collect(),
        }
    }

    pub(crate) fn name(&self, id: NodeId) -> &str {
        &self.values[id.index()].name
    }

    pub(crate) fn lost(&self, id: NodeId) -> Error {
        Error::argument("a value was read before it was computed").at(self.name(id))
    }

    pub(crate) fn too_large(&self, id: NodeId, limit: usize) -> Error {
        let value = &self.values[id.index()];
        Error::memory(format!(
            "a value of shape {} takes the run over the memory limit of {} MiB; use a smaller batch or raise the limit",
            value.shape,
            limit >> 20
        ))
        .at(&value.name)
    }

    /// The batch size the inputs agree on; 1 if none has a batch axis.
    pub(crate) fn batch(&self, inputs: &[Tensor]) -> Result<usize> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<&str> = self.inputs.iter().map(|&id| self.name(id)).collect();
            return Err(Error::argument(format!(
                "expected {} inputs ({}), found {}",
                names.len(),
                names.join(", "),
                inputs.len()
            )));
        }
        let mut batch = None;
        for (&id, tensor) in self.inputs.iter().zip(inputs) {
            self.check(id, tensor, &mut batch)?;
        }
        Ok(batch.unwrap_or(1))
    }

    /// Whether a tensor can be what the input `id` is given, at the batch size so far, which it may settle.
    pub(crate) fn check(&self, id: NodeId, tensor: &Tensor, batch: &mut Option<usize>) -> Result<()> {
        let value = &self.values[id.index()];
        let misfit = |why: &str| {
            Error::shape(format!(
                "input '{}' should be {} values of shape {}, found {} of shape {:?}{why}",
                value.name,
                value.kind,
                value.shape,
                tensor.kind(),
                tensor.shape()
            ))
        };
        if tensor.kind() != value.kind || tensor.shape().len() != value.shape.rank() {
            return Err(misfit(""));
        }
        for (&dim, &length) in value.shape.dims().iter().zip(tensor.shape()) {
            match dim {
                Dim::Fixed(n) if n != length => return Err(misfit("")),
                Dim::Batch(0) if length != 0 => return Err(misfit("")),
                Dim::Fixed(_) | Dim::Batch(0) => {}
                Dim::Batch(k) if !length.is_multiple_of(k) => return Err(misfit("")),
                Dim::Batch(k) => match *batch.get_or_insert(length / k) {
                    n if n == length / k => {}
                    n => return Err(misfit(&format!("; the batch size so far is {n}"))),
                },
            }
        }
        Ok(())
    }

    /// Concrete shapes of all values that `plan` computes, if they fit into `limit` bytes; real numbers have
    /// `real_bytes`.
    pub(crate) fn shapes(
        &self,
        plan: &Plan,
        batch: usize,
        real_bytes: usize,
        limit: usize,
    ) -> Result<Vec<Vec<usize>>> {
        let mut shapes = vec![Vec::new(); self.values.len()];
        let mut computed: Vec<bool> = plan.places.iter().map(|place| *place != Place::Nowhere).collect();
        // What a step begins with may have no place of its own.
        plan.steps.iter().flat_map(|step| step.work.kernels()).for_each(|id| computed[id.index()] = true);
        for (index, value) in self.values.iter().enumerate() {
            if computed[index] {
                shapes[index] = value.shape.at(batch).ok_or_else(|| {
                    Error::argument(format!("shape {} is too large at batch size {batch}", value.shape))
                        .at(&value.name)
                })?;
            }
        }
        let mut total = 0usize;
        for slot in &plan.slots {
            let mut largest = 0;
            for (id, parts) in &slot.tenants {
                let bytes = element_count(&shapes[id.index()])
                    .and_then(|n| n.checked_mul(element_bytes(slot.kind, real_bytes))?.checked_mul(*parts))
                    .filter(|&bytes| total.checked_add(bytes).is_some_and(|n| n <= limit))
                    .ok_or_else(|| self.too_large(*id, limit))?;
                largest = largest.max(bytes);
            }
            total += largest;
        }
        Ok(shapes)
    }
}

/// Bytes of one element of `kind` where a real number has `real_bytes`.
pub(crate) fn element_bytes(kind: Kind, real_bytes: usize) -> usize {
    match kind {
        Kind::Float => real_bytes,
        Kind::Int => size_of::<i64>(),
        Kind::Bool => size_of::<bool>(),
    }
}
