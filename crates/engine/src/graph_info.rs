//! What a program keeps of the graph it was compiled from: name, shape and kind of every value, the inputs and the outputs.
//! Tensors given to a run are checked against it.

use monosplit_graph::op::MultiplyAdds;
use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Result, Shape, Tensor, element_count};

use crate::footprint::ScratchRule;
use crate::plan::{BufferLocation, Plan};

/// A value of the graph.
pub(crate) struct ValueInfo {
    pub(crate) name: String,
    pub(crate) op: &'static str,
    /// What defines it, not what a fast algorithm needs.
    pub(crate) multiply_adds: MultiplyAdds,
    pub(crate) shape: Shape,
    pub(crate) kind: Kind,
    pub(crate) inputs: Vec<NodeId>,
    /// What its kernel needs besides.
    pub(crate) scratch: ScratchRule,
}

/// The values of a graph, by node.
pub(crate) struct GraphInfo {
    pub(crate) values: Vec<ValueInfo>,
    pub(crate) inputs: Vec<NodeId>,
    pub(crate) outputs: Vec<NodeId>,
}

/// The label of a node, or else its op and number.
pub(crate) fn name_of(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    match node.label.display() {
        "" => format!("{} {}", node.op.name(), id.index()),
        name => name.to_string(),
    }
}

impl GraphInfo {
    /// The values of `graph`. A node is replaced by its representative in `plan`.
    pub(crate) fn new(graph: &Graph, plan: &Plan) -> Self {
        let representative = |id: &NodeId| plan.representative[id.index()];
        let value = |(id, node): (NodeId, &monosplit_graph::Node)| ValueInfo {
            name: name_of(graph, id),
            op: node.op.name(),
            multiply_adds: graph.multiply_adds(node),
            shape: node.shape.clone(),
            kind: node.kind,
            inputs: node.inputs.iter().map(representative).collect(),
            scratch: ScratchRule::of(node),
        };
        GraphInfo {
            values: graph.nodes().map(value).collect(),
            inputs: graph.inputs().to_vec(),
            outputs: graph.outputs().iter().map(|output| representative(&output.node)).collect(),
        }
    }

    pub(crate) fn name(&self, id: NodeId) -> &str {
        &self.values[id.index()].name
    }

    pub(crate) fn unavailable(&self, id: NodeId) -> Error {
        Error::argument("a value was read before it was computed").at(self.name(id))
    }

    /// The batch size the inputs agree on; 1 if none has a batch axis.
    pub(crate) fn batch(&self, inputs: &[Tensor]) -> Result<usize> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<&str> = self.inputs.iter().map(|&id| self.name(id)).collect();
            return Err(Error::argument(format!(
                "expected {} input{} ({}), found {}",
                names.len(),
                if names.len() == 1 { "" } else { "s" },
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

    /// Checks that a tensor fits the input `id`. The first input with a batch axis decides the batch size.
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

    /// Concrete shapes of all values that `plan` computes.
    pub(crate) fn shapes(&self, plan: &Plan, batch: usize) -> Result<Vec<Vec<usize>>> {
        let mut shapes = vec![Vec::new(); self.values.len()];
        let mut computed: Vec<bool> =
            plan.locations.iter().map(|location| *location != BufferLocation::NotStored).collect();
        // A convolution before an epilogue has a shape though it is not stored.
        plan.steps
            .iter()
            .flat_map(|step| step.partition.kernels())
            .for_each(|id| computed[id.index()] = true);
        for (index, value) in self.values.iter().enumerate() {
            if computed[index] {
                let shape = value.shape.at(batch).filter(|shape| element_count(shape).is_some());
                shapes[index] = shape.ok_or_else(|| {
                    Error::argument(format!("shape {} is too large at batch size {batch}", value.shape))
                        .at(&value.name)
                })?;
            }
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
