//! Reading a file into a graph, node by node: what is known is computed, what is not becomes nodes that carry
//! the names of the file. The ops themselves are in the neighbouring files.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::call::Call;
use super::declared_value::DeclaredValue;
use super::element_types::{check_types, result_type};
use super::elements;
use super::evaluate;
use super::files::Files;
use super::input_shape::ImportOptions;
use super::integer_input::IntegerInput;
use super::model::{FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetId, ValueInfoProto};
use super::names::Names;
use super::operators::operator;
use super::order::reading_order;
use super::quantiser::{as_quantised, integers, on_real_numbers, passed_on};
use super::remark::{Notes, Remark};
use super::schema;
use super::value::{Content, Known, Value};
use crate::element::Element;
use crate::error::{Error, Hint, Result};
use crate::file::FileBytes;
use crate::graph::{Graph, Label, NodeId};
use crate::op::Op;
use crate::shape::{Dim, Shape};
use crate::tensor::{Kind, Tensor};

/// The most nodes a file may have.
const MAX_NODES: usize = 1 << 18;

/// The most nodes functions may unfold into, written out wherever they are called, and the most values of a sequence.
pub(crate) const MAX_UNFOLDED: usize = 1 << 15;

/// The most elements that may be computed while a file is read, in all.
const MAX_COMPUTED: usize = 1 << 25;

/// The most characters the names of all nodes may have.
const MAX_TEXT: usize = 1 << 26;

/// The most elements a value may have that depends on no input.
const MAX_CONSTANT: usize = 1 << 28;

/// Something in a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The node.
    pub node: String,
    /// Its op.
    pub op: String,
    /// What is wrong; its node is `node`.
    pub error: Error,
}

/// What a file holds and what of it cannot be read.
#[derive(Clone, Debug)]
pub struct ImportReport {
    /// Version of ONNX's operator set the file is written in.
    pub opset: i64,
    /// The program that wrote it.
    pub producer: String,
    /// Everything that cannot be read, in file order.
    pub problems: Vec<Problem>,
    /// The network, if there are no problems.
    pub graph: Option<Graph>,
    /// What could be read of it.
    pub read: Graph,
    /// The inputs that [`ImportOptions::optional_input`] kept, and what each is if it is left out.
    pub defaults: Vec<(String, Tensor)>,
    /// The files of external data that were read, by name.
    pub external: Vec<Arc<FileBytes>>,
    /// What a person should know of how the file was read.
    pub remarks: Vec<Remark>,
    /// The inputs that hold integers.
    pub integer_inputs: Vec<IntegerInput>,
    /// The inputs as the file declares them, without those that are weights.
    pub declared_inputs: Vec<DeclaredValue>,
    /// The outputs as the file declares them.
    pub declared_outputs: Vec<DeclaredValue>,
}

/// The names visible to the nodes being read.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) values: HashMap<String, Value>,
    /// The types of the values, as far as they are known.
    pub(crate) elements: HashMap<String, Element>,
    /// Names of the enclosing scope are not visible (in a function).
    pub(crate) closed: bool,
    pub(crate) opset: i64,
    /// What the names of nodes begin with.
    pub(crate) prefix: String,
}

/// A file being read.
pub(crate) struct Importer<'m> {
    pub(crate) graph: Graph,
    pub(crate) files: Files<'m>,
    pub(crate) functions: HashMap<(&'m str, &'m str), &'m FunctionProto>,
    /// The bytes of the functions that have been called.
    pub(crate) function_sizes: HashMap<(&'m str, &'m str), usize>,
    pub(crate) scopes: Vec<Scope>,
    /// The functions being written out, to notice one that contains itself.
    pub(crate) active: Vec<(&'m str, &'m str)>,
    model: &'m ModelProto,
    source: &'m GraphProto,
    options: &'m ImportOptions,
    pub(crate) names: Names,
    /// How many nodes of the file read a value.
    pub(crate) readers: HashMap<&'m str, usize>,
    nodes_read: usize,
    nodes_unfolded: usize,
    computed: usize,
    text: usize,
    problems: Option<Vec<Problem>>,
    defaults: Vec<(String, Tensor)>,
    /// The types of what the function or branch read last returns.
    pub(crate) returned: Vec<Option<Element>>,
    /// What a person should know of how the file was read.
    pub(crate) notes: Notes,
    integer_inputs: Vec<IntegerInput>,
}

/// How many nodes read each value.
fn readers(graph: &GraphProto) -> HashMap<&str, usize> {
    let mut readers = HashMap::new();
    for name in graph.nodes.iter().flat_map(|node| &node.inputs) {
        *readers.entry(&**name).or_insert(0) += 1;
    }
    readers
}

impl<'m> Importer<'m> {
    pub(crate) fn new(model: &'m ModelProto, files: Files<'m>, options: &'m ImportOptions) -> Result<Self> {
        let source = model.graph.as_ref().ok_or_else(|| {
            Error::malformed(
                "not an ONNX model: it contains no graph (is the file complete and really ONNX?)",
            )
        })?;
        let functions = model.functions.iter().map(|f| ((&*f.domain, &*f.name), f)).collect();
        Ok(Importer {
            graph: Graph::new(),
            files,
            functions,
            function_sizes: HashMap::new(),
            scopes: vec![Scope { opset: opset_of(&model.opsets)?, ..Scope::default() }],
            active: Vec::new(),
            model,
            source,
            options,
            names: Names::default(),
            readers: readers(source),
            nodes_read: 0,
            nodes_unfolded: 0,
            computed: 0,
            text: 0,
            problems: None,
            defaults: Vec::new(),
            returned: Vec::new(),
            notes: Notes::default(),
            integer_inputs: Vec::new(),
        })
    }

    /// Reads the file; the first problem is an error.
    pub(crate) fn graph(mut self) -> Result<Graph> {
        self.read_all()?;
        Ok(self.graph)
    }

    /// Reads the file as far as that is possible.
    pub(crate) fn import_report(mut self) -> Result<ImportReport> {
        self.problems = Some(Vec::new());
        let opset = self.scopes[0].opset;
        self.read_all()?;
        let problems = self.problems.unwrap_or_default();
        let producer = format!("{} {}", self.model.producer_name, self.model.producer_version);
        let weights: HashSet<&str> = self.source.initializers.iter().map(|t| t.name.as_str()).collect();
        let inputs = self.source.inputs.iter().filter(|info| !weights.contains(info.name.as_str()));
        Ok(ImportReport {
            declared_inputs: inputs.map(DeclaredValue::new).collect(),
            declared_outputs: self.source.outputs.iter().map(DeclaredValue::new).collect(),
            opset,
            producer: producer.trim().to_owned(),
            graph: problems.is_empty().then(|| self.graph.clone()),
            problems,
            read: self.graph,
            defaults: self.defaults,
            remarks: self.notes.remarks(),
            integer_inputs: self.integer_inputs,
            external: self.files.external(),
        })
    }

    fn read_all(&mut self) -> Result<()> {
        let source = self.source;
        if source.outputs.is_empty() {
            return Err(Error::malformed("the graph has no outputs"));
        }
        self.bind_initializers(source)?;
        self.bind_inputs()?;
        let wanted: Vec<&str> = source.outputs.iter().map(|o| o.name.as_str()).collect();
        self.read_nodes(&source.nodes, &wanted)?;
        for output in &source.outputs {
            let name = output.name.as_str();
            let declared = self.check_declared_type(output);
            self.tolerate(declared, name, "Output")?;
            let value = self
                .lookup(name)
                .ok_or_else(|| Error::malformed(format!("the output '{name}' is produced by nothing")))?;
            if matches!(value, Value::Unknown) {
                continue;
            }
            let read = self.node_of(&value).and_then(|id| self.as_declared(id, name)).map_err(|e| e.at(name));
            if let Some(id) = self.tolerate(read, name, "Output")? {
                self.graph.output(name, id);
            }
        }
        for property in &self.model.metadata {
            self.graph.set_metadata(&property.key, &property.value);
        }
        Ok(())
    }

    /// Records a failure and continues if a report is wanted; otherwise returns it.
    fn tolerate<T>(&mut self, result: Result<T>, node: &str, op: &str) -> Result<Option<T>> {
        match (result, &mut self.problems) {
            (Ok(value), _) => Ok(Some(value)),
            (Err(error), None) => Err(error),
            (Err(error), Some(problems)) => {
                let error = error.without_node();
                problems.push(Problem { node: node.to_owned(), op: op.to_owned(), error });
                Ok(None)
            }
        }
    }

    /// Makes the weights of a graph known; they are not looked at until something reads them.
    pub(crate) fn bind_initializers(&mut self, graph: &'m GraphProto) -> Result<()> {
        if !graph.sparse_initializers.is_empty() {
            return Err(Error::unsupported("sparse weights are not supported; store them as dense ones"));
        }
        let mut seen = HashSet::new();
        for proto in &graph.initializers {
            if !seen.insert(proto.name.as_str()) {
                return Err(Error::malformed(format!("two weights are named '{}'", proto.name)));
            }
        }
        let read: HashSet<&str> = names_read(graph);
        for proto in graph.initializers.iter().filter(|t| read.contains(t.name.as_str())) {
            let tensor = elements::tensor(proto, &self.files);
            let value = match self.tolerate(tensor, &proto.name, "Initializer")? {
                Some(tensor) => Value::known(&proto.name, Content::Tensor(tensor)),
                None => Value::Unknown,
            };
            self.bind(&proto.name, value);
            self.bind_element(&proto.name, elements::element(proto.data_type).ok());
        }
        Ok(())
    }

    fn bind_inputs(&mut self) -> Result<()> {
        let source = self.source;
        let weights: HashSet<&str> = source.initializers.iter().map(|t| t.name.as_str()).collect();
        let inputs: Vec<_> = source.inputs.iter().filter(|i| !weights.contains(i.name.as_str())).collect();
        self.options.check_names(&inputs)?;
        let mut seen = HashSet::new();
        for info in &inputs {
            if !seen.insert(info.name.as_str()) {
                return Err(Error::malformed(format!("two inputs are named '{}'", info.name)));
            }
            let shape = self.options.shape_of(info, inputs.len() == 1);
            self.declare(info, shape)?;
        }
        let is_kept =
            |info: &&ValueInfoProto| weights.contains(&*info.name) && self.options.keeps(&info.name);
        for info in source.inputs.iter().filter(is_kept).collect::<Vec<_>>() {
            self.keep_optional(info)?;
        }
        Ok(())
    }

    /// Makes an input of a value that may be left out, if it is known what it is then.
    fn keep_optional(&mut self, info: &ValueInfoProto) -> Result<()> {
        let Some(Value::Known(known)) = self.lookup(&info.name) else { return Ok(()) };
        let Content::Tensor(default) = &known.content else { return Ok(()) };
        self.defaults.push((info.name.clone(), default.clone()));
        let samples = self.graph.inputs().first().and_then(|&id| self.graph.node(id).shape.dims().first());
        let samples = samples.copied().unwrap_or(Dim::Batch(1));
        let shape = self.options.shape_of(info, false).map(|shape| {
            let open = |&dim: &Dim| if dim == Dim::Batch(1) { samples } else { dim };
            Shape::new(shape.dims().iter().map(open).collect::<Vec<_>>())
        });
        self.declare(info, shape)
    }

    fn declare(&mut self, info: &ValueInfoProto, shape: Result<Shape>) -> Result<()> {
        let element = elements::element(info.tensor().map_or(0, |tensor| tensor.data_type));
        self.bind_element(&info.name, element.clone().ok());
        if let Ok(element) = &element
            && element.kind() == Kind::Int
        {
            self.integer_inputs.push(IntegerInput::new(&info.name, *element));
        }
        let kind = element.map(Element::kind);
        let declared = shape.and_then(|shape| Ok((shape, kind?)));
        let declared = declared.map_err(|e| e.at(&info.name));
        let value = match self.tolerate(declared, &info.name, "Input")? {
            Some((shape, kind)) => Value::Node(self.graph.input(&info.name, shape, kind)),
            None => Value::Unknown,
        };
        self.names.take(&info.name);
        self.bind(&info.name, value);
        Ok(())
    }

    pub(crate) fn bind(&mut self, name: &str, value: Value) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.values.insert(name.to_owned(), value);
        }
    }

    pub(crate) fn lookup(&self, name: &str) -> Option<Value> {
        for scope in self.scopes.iter().rev() {
            if let Some(value) = scope.values.get(name) {
                return Some(value.clone());
            }
            if scope.closed {
                break;
            }
        }
        None
    }

    pub(crate) fn opset(&self) -> i64 {
        self.scopes.last().map_or(0, |scope| scope.opset)
    }

    /// Reads the nodes that `wanted` depends on.
    pub(crate) fn read_nodes(&mut self, nodes: &[NodeProto], wanted: &[&str]) -> Result<()> {
        let order = reading_order(nodes, wanted, |name| self.lookup(name).is_some())?;
        let read: HashSet<usize> = order.iter().copied().collect();
        for index in order {
            self.read_node(&nodes[index], index)?;
        }
        for node in (0..nodes.len()).filter(|index| !read.contains(index)).map(|index| &nodes[index]) {
            self.check_unread(node)?;
        }
        Ok(())
    }

    /// Holds a node to its schema that nothing reads: a file with such a fault is not what its writer meant.
    fn check_unread(&mut self, node: &NodeProto) -> Result<()> {
        if self.functions.contains_key(&(&*node.domain, &*node.op_type)) {
            return Ok(());
        }
        let checked = schema::check(node, self.opset()).map_err(|e| e.at(&node.name));
        self.tolerate(checked, &node.name, &node.op_type).map(|_| ())
    }

    fn read_node(&mut self, node: &NodeProto, index: usize) -> Result<()> {
        self.nodes_read += 1;
        if self.nodes_read > MAX_NODES {
            return Err(Error::malformed(format!("the file has more than {MAX_NODES} nodes")));
        }
        self.nodes_unfolded += usize::from(!self.active.is_empty());
        if self.nodes_unfolded > MAX_UNFOLDED {
            return Err(Error::malformed(format!("the file unfolds into more than {MAX_UNFOLDED} nodes")));
        }
        let name = self.unique_name(node, index);
        self.count_text(name.len())?;
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            inputs.push(if input.is_empty() { None } else { self.lookup(input) });
        }
        let elements = node.inputs.iter().map(|input| self.element_of(input)).collect();
        let call = Call { node, opset: self.opset(), inputs, elements };
        self.note_types(&call, &name);
        self.returned.clear();
        let outputs = self.outputs_of(&call, &name).map_err(|e| e.at(&name));
        for (index, output) in node.outputs.iter().enumerate() {
            let returned = self.returned.get(index).copied();
            self.bind_element(output, returned.unwrap_or_else(|| result_type(&call, index)));
        }
        match self.tolerate(outputs, &name, &node.op_type)? {
            Some(values) => {
                for (output, value) in node.outputs.iter().zip(values) {
                    self.bind(output, value.renamed(output));
                }
                let missing = node.outputs.iter().filter(|o| !o.is_empty());
                for output in missing {
                    if self.scopes.last().is_some_and(|s| !s.values.contains_key(output)) {
                        let error = Error::unsupported(format!(
                            "{} with the output '{output}' is not supported",
                            node.op_type
                        ));
                        self.tolerate::<()>(Err(error.at(&name)), &name, &node.op_type)?;
                        self.bind(output, Value::Unknown);
                    }
                }
            }
            None => node.outputs.iter().for_each(|output| self.bind(output, Value::Unknown)),
        }
        Ok(())
    }

    fn outputs_of(&mut self, call: &Call, name: &str) -> Result<Vec<Value>> {
        let unreadable = call.inputs.iter().flatten().any(|v| matches!(v, Value::Unknown));
        if let Some(&function) = self.functions.get(&(&*call.node.domain, call.op())) {
            return if unreadable { Ok(unknown(call)) } else { self.call_function(function, call, name) };
        }
        let import = operator(&call.node.domain, call.op())?;
        schema::check(call.node, call.opset)?;
        check_types(call)?;
        if unreadable {
            return Ok(unknown(call));
        }
        if let Some(values) = evaluate::evaluate(self, call)? {
            return Ok(values);
        }
        let first = self.graph.len();
        self.names.take(name);
        let label = Label { node: name.to_owned(), ..Label::default() };
        let values = match passed_on(call) {
            Some(quantiser) => import(self, &on_real_numbers(call))
                .map(|values| values.into_iter().map(|value| as_quantised(value, &quantiser)).collect()),
            None => import(self, call),
        };
        let values = values.map_err(|e| e.at(label.display()))?;
        self.label_nodes(call, name, first, &values);
        let label = |n: &crate::graph::Node| n.label.node.len() + n.label.tensor.len() + n.label.module.len();
        let made = self.graph.nodes().rev().take(self.graph.len() - first);
        self.count_text(made.map(|(_, n)| label(n)).sum())?;
        Ok(values)
    }

    /// Counts characters of names, which grow with every function that calls another.
    fn count_text(&mut self, characters: usize) -> Result<()> {
        self.text = self.text.saturating_add(characters);
        if self.text > MAX_TEXT {
            return Err(Error::malformed("the names in the file are absurdly long"));
        }
        Ok(())
    }

    /// Counts elements computed while reading, so that a small file cannot ask for endless work.
    pub(crate) fn spend(&mut self, elements: usize) -> Result<()> {
        self.computed = self.computed.saturating_add(elements);
        if self.computed > MAX_COMPUTED {
            return Err(Error::malformed("the file computes more constants than a network needs"));
        }
        Ok(())
    }

    /// Adds a node on behalf of the node being read.
    pub(crate) fn add(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let id = self.graph.add(op, inputs).map_err(Error::without_node)?;
        let node = self.graph.node(id);
        match node.shape.count() {
            Some(Dim::Fixed(n) | Dim::Batch(n)) if node.is_constant() && n > MAX_CONSTANT => {
                Err(Error::unsupported(format!("a constant of shape {} is too large", node.shape)))
            }
            _ => Ok(id),
        }
    }

    /// Adds a node and hands it out as the only value.
    pub(crate) fn one(&mut self, op: Op, inputs: &[NodeId]) -> Result<Vec<Value>> {
        Ok(vec![Value::Node(self.add(op, inputs)?)])
    }

    /// Adds a constant.
    pub(crate) fn constant(&mut self, tensor: Tensor) -> NodeId {
        self.graph.constant(tensor)
    }

    /// The shape of a node.
    pub(crate) fn shape(&self, id: NodeId) -> Shape {
        self.graph.node(id).shape.clone()
    }

    /// The node behind a value, made a constant if it is only known so far.
    pub(crate) fn node_of(&mut self, value: &Value) -> Result<NodeId> {
        match value {
            Value::Node(id) => Ok(*id),
            Value::Known(known) => self.constant_of(known),
            Value::Quantised(quantised) => integers(self, quantised),
            Value::Positions(_) => Err(batch_position("positions in the batch")),
            Value::Sequence(_) => Err(Error::unsupported("reads a sequence where one value is expected")),
            Value::Unknown => Err(Error::unsupported("reads a value that could not be read")),
        }
    }

    fn constant_of(&mut self, known: &Known) -> Result<NodeId> {
        if let Some(id) = known.node.get() {
            return Ok(id);
        }
        let Content::Tensor(tensor) = &known.content else {
            return Err(batch_position(&format!("'{}'", known.name)));
        };
        let label = Label { tensor: known.name.clone(), ..Label::default() };
        let id = self.graph.named_constant(label, tensor.clone());
        known.node.set(Some(id));
        Ok(id)
    }

    /// The node behind an input that must be there.
    pub(crate) fn operand(&mut self, call: &Call, index: usize) -> Result<NodeId> {
        let value = call.input(index)?.clone();
        self.node_of(&value)
    }

    /// The nodes behind the first `count` inputs, those after the first that is left out not included.
    pub(crate) fn operands(&mut self, call: &Call, count: usize) -> Result<Vec<NodeId>> {
        let present = (0..count).take_while(|&i| call.optional(i).is_some()).count();
        (0..present).map(|i| self.operand(call, i)).collect()
    }
}

fn batch_position(what: &str) -> Error {
    Error::unsupported(format!(
        "computes with the batch size itself ({what}), which only shapes and the indices of gathers may depend on"
    ))
    .hint(Hint::FIXED_BATCH)
}

fn unknown(call: &Call) -> Vec<Value> {
    vec![Value::Unknown; call.node.outputs.len()]
}

fn names_read(graph: &GraphProto) -> HashSet<&str> {
    fn collect<'g>(graph: &'g GraphProto, names: &mut HashSet<&'g str>) {
        names.extend(graph.outputs.iter().map(|o| o.name.as_str()));
        for node in &graph.nodes {
            names.extend(node.inputs.iter().map(String::as_str));
            for attribute in &node.attributes {
                if let super::model::AttributeValue::Graph(inner) = attribute.value() {
                    collect(inner, names);
                }
            }
        }
    }
    let mut names = HashSet::new();
    collect(graph, &mut names);
    names
}

/// The version of ONNX's own operator set.
pub(crate) fn opset_of(opsets: &[OperatorSetId]) -> Result<i64> {
    let own = opsets.iter().find(|o| o.domain().is_empty() || o.domain() == "ai.onnx");
    match own {
        Some(id) => schema::check_version(id.version).map(|()| id.version),
        None => Err(Error::malformed(
            "not an ONNX model: it names no operator set (is the file complete and really ONNX?)",
        )),
    }
}
