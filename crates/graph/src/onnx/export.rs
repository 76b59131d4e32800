//! Writing a graph as an ONNX file: names and module paths kept, the batch a named dimension, ops the chosen
//! operator set does not have spelled out in those it has. The ops themselves are in the neighbouring files.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use prost::Message;

use super::compaction::{is_default, shorten_names};
use super::export_layout::keeps_batch;
use super::export_options::ExportOptions;
use super::export_precision::{FLOAT, SINGLE_ONLY};
use super::export_slice::{MultiAxisSlice, merged_slices};
use super::integer_input::IntegerInput;
use super::model::{
    AttributeProto, DimProto, GraphProto, ModelProto, NodeProto, OperatorSetId, StringStringEntry,
    TensorProto, ValueInfoProto,
};
use super::module_path;
use super::names::Names;
use crate::atomic_file::write_atomically;
use crate::error::{Error, Result};
use crate::graph::{Graph, Label, Node, NodeId};
use crate::op::Op;
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

/// What a protocol buffer may hold.
pub(crate) const MAX_BYTES: usize = i32::MAX as usize;

/// Operator sets that can be written.
const OPSETS: std::ops::RangeInclusive<i64> = 13..=26;

/// The bytes of an ONNX file that holds `graph`.
pub fn write(graph: &Graph, options: &ExportOptions) -> Result<Vec<u8>> {
    if !OPSETS.contains(&options.opset) {
        let (least, most) = (OPSETS.start(), OPSETS.end());
        return Err(Error::argument(format!(
            "operator set {} cannot be written, only {least} to {most}",
            options.opset
        )));
    }
    let model = Exporter::new(graph, options).model()?;
    if model.encoded_len() > MAX_BYTES { Err(too_large()) } else { Ok(model.encode_to_vec()) }
}

/// Writes `graph` to an ONNX file, which appears under its name only once it is complete.
pub fn save(graph: &Graph, path: &Path, options: &ExportOptions) -> Result<()> {
    write_atomically(path, &write(graph, options)?)
}

pub(crate) fn too_large() -> Error {
    Error::unsupported("the model is larger than 2 GiB, which is more than one ONNX file can hold")
}

/// A graph being written.
pub(crate) struct Exporter<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) opset: i64,
    pub(crate) double: bool,
    pub(crate) single_outside: bool,
    pub(crate) half: bool,
    compact: bool,
    pub(crate) optional: &'g [(String, Tensor)],
    integers: &'g [IntegerInput],
    pub(crate) nodes: Vec<NodeProto>,
    pub(crate) initializers: Vec<TensorProto>,
    /// The name of every value that is written.
    values: HashMap<NodeId, String>,
    /// What every slice takes, with the slices it reads.
    pub(crate) slices: HashMap<NodeId, MultiAxisSlice>,
    /// The names of inputs that are cast before anything reads them.
    pub(crate) outside: HashMap<NodeId, String>,
    pub(crate) value_names: Names,
    pub(crate) node_names: Names,
    written: HashSet<String>,
    pub(crate) current: Label,
    pub(crate) result: String,
    pub(crate) batch: Option<String>,
    pub(crate) bytes: usize,
    /// Small constants by type, shape and bytes.
    pub(crate) shared: HashMap<(i32, Vec<usize>, Vec<u8>), String>,
}

impl<'g> Exporter<'g> {
    fn new(graph: &'g Graph, options: &'g ExportOptions) -> Self {
        Exporter {
            graph,
            opset: options.opset,
            double: options.double,
            single_outside: options.single_outside,
            half: options.half,
            compact: options.compact,
            optional: &options.optional,
            integers: &options.integers,
            nodes: Vec::new(),
            initializers: Vec::new(),
            values: HashMap::new(),
            slices: merged_slices(graph),
            outside: HashMap::new(),
            value_names: Names::default(),
            node_names: Names::default(),
            written: HashSet::new(),
            current: Label::default(),
            result: String::new(),
            batch: None,
            bytes: 0,
            shared: HashMap::new(),
        }
    }

    fn model(mut self) -> Result<ModelProto> {
        let graph = self.graph;
        if graph.outputs().is_empty() {
            return Err(Error::argument("a graph without outputs cannot be written"));
        }
        self.name_values()?;
        let live = graph.live();
        for (id, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
            self.current = node.label.clone();
            self.result = self.name(id).to_owned();
            match &node.op {
                Op::Input => self.input(id)?,
                Op::Constant(tensor) => self.weight(id, tensor)?,
                Op::Slice { .. } => self.slice(id)?,
                op => self.op(op, node).map_err(|e| e.at(node.label.display()))?,
            }
        }
        let outputs = self.outputs();
        let inputs = graph.inputs().iter().map(|&id| self.input_info(id)).collect();
        let inner = graph.nodes().filter(|(id, _)| live[id.index()]);
        let inner = inner.filter_map(|(id, node)| self.inner_info(id, node)).collect();
        let kept = self.kept_names();
        let mut main = GraphProto {
            name: "monosplit".into(),
            nodes: self.nodes,
            initializers: self.initializers,
            sparse_initializers: Vec::new(),
            inputs,
            outputs,
            inner,
        };
        if self.compact {
            shorten_names(&mut main, &kept);
        }
        let ir_version = match self.opset {
            ..15 => 7,
            15..19 => 8,
            19..21 => 9,
            _ => 10,
        };
        Ok(ModelProto {
            ir_version,
            producer_name: "monosplit".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: Some(main),
            opsets: vec![OperatorSetId::onnx(self.opset)],
            metadata: graph.metadata().iter().map(|(k, v)| StringStringEntry::new(k, v)).collect(),
            functions: Vec::new(),
        })
    }

    /// The names that people ask by: of inputs and outputs, and of what has one in the graph.
    fn kept_names(&self) -> HashSet<String> {
        let graph = self.graph;
        let named = graph.nodes().filter(|(_, node)| !node.label.tensor.is_empty());
        let named = named.map(|(_, node)| node.label.tensor.clone());
        let read = graph.inputs().iter().map(|&id| self.input_name(id).to_owned());
        named.chain(read).chain(graph.outputs().iter().map(|output| output.name.clone())).collect()
    }

    /// Decides what every value is called: outputs and inputs first, they must keep their names.
    fn name_values(&mut self) -> Result<()> {
        let graph = self.graph;
        for output in graph.outputs() {
            if output.name.is_empty() || !self.value_names.take(&output.name) {
                return Err(Error::argument(format!("two outputs are named '{}'", output.name)));
            }
        }
        for output in graph.outputs() {
            let node = graph.node(output.node);
            let own_name = match node.op {
                Op::Input | Op::Constant(_) => node.label.tensor == output.name,
                _ => true,
            };
            if own_name && !self.is_cast(output.node) {
                self.values.entry(output.node).or_insert_with(|| output.name.clone());
            }
        }
        let inputs = graph.inputs().iter().map(|&id| (id, graph.node(id)));
        for (id, node) in inputs.chain(graph.nodes()) {
            if !self.values.contains_key(&id) {
                let target = match (&*node.label.tensor, &*node.label.node) {
                    // Short, since an explanation has thousands of them and each is written three times.
                    ("", "") => format!("v{}", id.index()),
                    ("", name) | (name, _) => name.to_owned(),
                };
                let name = self.value_names.fresh(&target);
                self.values.insert(id, name);
            }
        }
        let is_cast = |&id: &NodeId| self.is_cast(id) || self.integers_at(id).is_some();
        let cast: Vec<NodeId> = graph.inputs().iter().copied().filter(is_cast).collect();
        for id in cast {
            let outside = self.name(id).to_owned();
            let inside = if self.double { "double" } else { "real" };
            self.rename(id, &format!("{outside}/{inside}"));
            self.outside.insert(id, outside);
        }
        // Inner nodes must not take a name that a later node of the graph has.
        for (_, node) in graph.nodes() {
            self.node_names.take(&node.label.node);
        }
        Ok(())
    }

    /// The outputs, with an identity where one has a name that is not its value's.
    fn outputs(&mut self) -> Vec<ValueInfoProto> {
        let graph = self.graph;
        for output in graph.outputs() {
            if self.name(output.node) != output.name {
                let source = self.name(output.node).to_owned();
                self.current = Label::default();
                self.result = output.name.clone();
                match self.is_cast(output.node) {
                    true => self.finish("Cast", &[&source], &[("to", int(FLOAT))]),
                    false => self.finish("Identity", &[&source], &[]),
                }
            }
        }
        graph.outputs().iter().map(|o| self.info(&o.name, o.node)).collect()
    }

    /// The integers that an input of real numbers is read as, if it is.
    fn integers_at(&self, id: NodeId) -> Option<&'g IntegerInput> {
        let node = self.graph.node(id);
        let named = |input: &&IntegerInput| input.name == node.label.tensor;
        self.integers.iter().find(named).filter(|_| node.kind == Kind::Float)
    }

    fn input_info(&self, id: NodeId) -> ValueInfoProto {
        let name = self.input_name(id);
        let default = self.optional.iter().find(|(input, _)| input == name).map(|(_, value)| value);
        // One real number stands for a whole array.
        let is_number =
            default.is_some_and(|value| value.len() == 1) && self.graph.node(id).kind == Kind::Float;
        let data_type = match self.integers_at(id) {
            Some(integers) => integers.data_type,
            None => self.declared_type(id),
        };
        // What may be left out is one for all samples, or one for each.
        self.info_with(name, id, data_type, |axis, dim| match dim {
            DimProto::Value(1) if default.is_some() && axis == 0 => DimProto::Param(format!("{name}_length")),
            DimProto::Value(1) if is_number => DimProto::Param(format!("{name}_axis{axis}")),
            dim => dim,
        })
    }

    /// The shape of a value that readers cannot tell from the node: one with a batch in it that is asked for by an `Expand`,
    /// or by a `Reshape` that changes its axis. ONNX Runtime reuses the memory of values whose shapes it can compare, and takes minutes to
    /// plan that of thousands it cannot.
    fn inner_info(&self, id: NodeId, node: &Node) -> Option<ValueInfoProto> {
        let asked = match node.op {
            Op::Reshape { .. } => !keeps_batch(self.input_shape(node, 0), &node.shape),
            Op::Expand { .. } => true,
            _ => false,
        };
        let asked = asked && node.shape.is_batched();
        let name = self.name(id);
        if !asked || self.graph.outputs().iter().any(|output| output.name == name) {
            return None;
        }
        let dim = |d: &Dim| match d {
            Dim::Fixed(n) => DimProto::Value(*n as i64),
            Dim::Batch(1) => DimProto::Param("N".into()),
            Dim::Batch(k) => DimProto::Param(format!("{k}N")),
        };
        Some(ValueInfoProto::new(name, self.data_type(node.kind), node.shape.dims().iter().map(dim)))
    }

    fn info(&self, name: &str, id: NodeId) -> ValueInfoProto {
        self.info_with(name, id, self.declared_type(id), |_, dim| dim)
    }

    /// The type that a value has outside of the graph.
    fn declared_type(&self, id: NodeId) -> i32 {
        if self.is_cast(id) { FLOAT } else { self.data_type(self.graph.node(id).kind) }
    }

    /// What is declared of an input or output, each axis as `declared` has it.
    fn info_with(
        &self,
        name: &str,
        id: NodeId,
        data_type: i32,
        declared: impl Fn(usize, DimProto) -> DimProto,
    ) -> ValueInfoProto {
        let node = self.graph.node(id);
        let dim = |(axis, d): (usize, &Dim)| {
            let own = match d {
                Dim::Fixed(n) => DimProto::Value(*n as i64),
                Dim::Batch(1) => DimProto::Param("N".into()),
                Dim::Batch(k) => DimProto::Param(format!("{name}_{axis}_{k}N")),
            };
            declared(axis, own)
        };
        ValueInfoProto::new(name, data_type, node.shape.dims().iter().enumerate().map(dim))
    }

    /// The name of a value.
    pub(crate) fn name(&self, id: NodeId) -> &str {
        self.values.get(&id).map_or("", |name| name)
    }

    /// Gives a value a new unique name and returns it.
    pub(crate) fn rename(&mut self, id: NodeId, target: &str) -> String {
        let name = self.value_names.fresh(target);
        self.values.insert(id, name.clone());
        name
    }

    /// The names of the values a node reads.
    pub(crate) fn inputs(&self, node: &Node) -> Vec<String> {
        node.inputs.iter().map(|&id| self.name(id).to_owned()).collect()
    }

    /// The shape of a value a node reads.
    pub(crate) fn input_shape(&self, node: &Node, index: usize) -> &'g Shape {
        &self.graph.node(node.inputs[index]).shape
    }

    /// Adds a node whose result is read by others on the way; its name.
    pub(crate) fn emit(&mut self, op: &str, inputs: &[&str], attributes: &[Attribute]) -> String {
        let base = if self.current.node.is_empty() { &self.result } else { &self.current.node };
        let mut name = self.node_names.fresh(&format!("{base}/{op}"));
        let result = self.value_names.fresh(&name);
        if self.compact {
            name.clear();
        }
        self.push(op, inputs, vec![result.clone()], attributes, name);
        result
    }

    /// Adds a node with more than one result; their names.
    pub(crate) fn emit_two(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[Attribute],
    ) -> (String, String) {
        let first = self.emit(op, inputs, attributes);
        let second = self.value_names.fresh(&format!("{first}.1"));
        if let Some(node) = self.nodes.last_mut() {
            node.outputs.push(second.clone());
        }
        (first, second)
    }

    /// Adds the node that produces the value being written.
    pub(crate) fn finish(&mut self, op: &str, inputs: &[&str], attributes: &[Attribute]) {
        let name = match self.current.node.as_str() {
            // Names of nodes are for people, and the result's says as much.
            "" => String::new(),
            own if self.written.insert(own.to_owned()) => own.to_owned(),
            own => self.node_names.fresh(own),
        };
        let result = self.result.clone();
        self.push(op, inputs, vec![result], attributes, name);
    }

    pub(crate) fn push(
        &mut self,
        op: &str,
        inputs: &[&str],
        outputs: Vec<String>,
        attributes: &[Attribute],
        name: String,
    ) {
        if self.single_outside && SINGLE_ONLY.contains(&op) {
            return self.push_in_single(op, inputs, outputs, attributes, name);
        }
        let module = &self.current.module;
        let metadata = match module.is_empty() {
            true => Vec::new(),
            false => vec![StringStringEntry::new(module_path::PROPERTY, module)],
        };
        let attributes = attributes
            .iter()
            .filter(|(name, value)| !(self.compact && is_default(op, name, value)))
            .map(|(name, value)| value.clone().named(*name));
        self.nodes.push(NodeProto {
            inputs: inputs.iter().map(|s| (*s).to_owned()).collect(),
            outputs,
            name,
            op_type: op.to_owned(),
            domain: String::new(),
            attributes: attributes.collect(),
            metadata,
        });
    }
}

/// A name and value of an attribute.
pub(crate) type Attribute<'a> = (&'a str, AttributeProto);

/// An integer attribute.
pub(crate) fn int(value: impl TryInto<i64>) -> AttributeProto {
    AttributeProto::int(value.try_into().unwrap_or(i64::MAX))
}

/// A yes-or-no attribute.
pub(crate) fn flag(value: bool) -> AttributeProto {
    AttributeProto::int(i64::from(value))
}

/// A real attribute.
pub(crate) fn float(value: f64) -> AttributeProto {
    AttributeProto::float(value as f32)
}

/// A text attribute.
pub(crate) fn text(value: &str) -> AttributeProto {
    AttributeProto::text(value)
}

/// An attribute that is a list of lengths.
pub(crate) fn list(values: impl IntoIterator<Item = usize>) -> AttributeProto {
    AttributeProto::ints(values.into_iter().map(|v| v as i64).collect())
}
