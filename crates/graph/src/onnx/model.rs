//! The messages of an ONNX file that matter here, read from and written to the wire. Weights stay in the
//! mapped file until they are read.

pub(crate) use super::tensor_proto::{DimProto, TensorProto, ValueInfoProto};
use super::wire::{Reader, Writer};
use crate::error::{Error, Result};

/// How deep graphs may be nested in attributes of nodes.
const MAX_DEPTH: usize = 16;

/// A file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelProto<'a> {
    pub(crate) ir_version: i64,
    pub(crate) producer_name: String,
    pub(crate) producer_version: String,
    pub(crate) graph: Option<GraphProto<'a>>,
    pub(crate) opsets: Vec<OperatorSetId>,
    pub(crate) metadata: Vec<StringStringEntry>,
    pub(crate) functions: Vec<FunctionProto<'a>>,
}

/// A version of a set of operators.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OperatorSetId {
    pub(crate) domain: String,
    pub(crate) version: i64,
}

/// A property.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StringStringEntry {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GraphProto<'a> {
    pub(crate) name: String,
    pub(crate) nodes: Vec<NodeProto<'a>>,
    pub(crate) initializers: Vec<TensorProto<'a>>,
    pub(crate) sparse_initializers: usize,
    pub(crate) inputs: Vec<ValueInfoProto>,
    pub(crate) outputs: Vec<ValueInfoProto>,
    /// Shapes of values between the nodes, for other readers; ours finds them out itself.
    pub(crate) inner: Vec<ValueInfoProto>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeProto<'a> {
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) name: String,
    pub(crate) op_type: String,
    pub(crate) domain: String,
    pub(crate) attributes: Vec<AttributeProto<'a>>,
    pub(crate) metadata: Vec<StringStringEntry>,
}

/// A function: nodes under a name of their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FunctionProto<'a> {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) nodes: Vec<NodeProto<'a>>,
    pub(crate) defaults: Vec<AttributeProto<'a>>,
    pub(crate) opsets: Vec<OperatorSetId>,
    /// How many bytes of the file it takes.
    pub(crate) size: usize,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AttributeValue<'a> {
    Float(f32),
    Int(i64),
    Text(Vec<u8>),
    Tensor(Box<TensorProto<'a>>),
    Graph(Box<GraphProto<'a>>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Reference(String),
    Other,
}

/// An attribute of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttributeProto<'a> {
    pub(crate) name: String,
    pub(crate) value: AttributeValue<'a>,
}

impl<'a> ModelProto<'a> {
    /// Reads a file.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut model = ModelProto::default();
        let mut reader = Reader::new(bytes, "the model");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => model.ir_version = field.int()?,
                2 => model.producer_name = field.text()?,
                3 => model.producer_version = field.text()?,
                7 => model.graph = Some(GraphProto::decode(field.bytes()?, 0)?),
                8 => model.opsets.push(OperatorSetId::decode(field.bytes()?)?),
                14 => model.metadata.push(StringStringEntry::decode(field.bytes()?)?),
                25 => model.functions.push(FunctionProto::decode(field.bytes()?)?),
                _ => {}
            }
        }
        Ok(model)
    }

    /// The file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        self.functions.iter().rev().for_each(|f| w.message(25, |w| f.encode(w)));
        self.metadata.iter().rev().for_each(|p| w.message(14, |w| p.encode(w)));
        self.opsets.iter().rev().for_each(|o| w.message(8, |w| o.encode(w)));
        if let Some(graph) = &self.graph {
            w.message(7, |w| graph.encode(w));
        }
        w.text(3, &self.producer_version);
        w.text(2, &self.producer_name);
        w.int(1, self.ir_version);
        w.into_bytes()
    }
}

impl OperatorSetId {
    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut id = OperatorSetId::default();
        let mut reader = Reader::new(bytes, "an operator set");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => id.domain = field.text()?,
                2 => id.version = field.int()?,
                _ => {}
            }
        }
        Ok(id)
    }

    fn encode(&self, w: &mut Writer) {
        w.int(2, self.version);
        w.bytes(1, self.domain.as_bytes());
    }
}

impl StringStringEntry {
    pub(crate) fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        StringStringEntry { key: key.into(), value: value.into() }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut entry = StringStringEntry::default();
        let mut reader = Reader::new(bytes, "a property");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => entry.key = field.text()?,
                2 => entry.value = field.text()?,
                _ => {}
            }
        }
        Ok(entry)
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.bytes(2, self.value.as_bytes());
        w.bytes(1, self.key.as_bytes());
    }
}

impl<'a> GraphProto<'a> {
    fn decode(bytes: &'a [u8], depth: usize) -> Result<Self> {
        if depth > MAX_DEPTH {
            return Err(Error::malformed(format!("graphs are nested deeper than {MAX_DEPTH} levels")));
        }
        let mut graph = GraphProto::default();
        let mut reader = Reader::new(bytes, "the graph");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => graph.nodes.push(NodeProto::decode(field.bytes()?, depth)?),
                2 => graph.name = field.text()?,
                5 => graph.initializers.push(TensorProto::decode(field.bytes()?)?),
                11 => graph.inputs.push(ValueInfoProto::decode(field.bytes()?)?),
                12 => graph.outputs.push(ValueInfoProto::decode(field.bytes()?)?),
                15 => graph.sparse_initializers += 1,
                _ => {}
            }
        }
        Ok(graph)
    }

    fn encode(&self, w: &mut Writer) {
        self.inner.iter().rev().for_each(|v| w.message(13, |w| v.encode(w)));
        self.outputs.iter().rev().for_each(|v| w.message(12, |w| v.encode(w)));
        self.inputs.iter().rev().for_each(|v| w.message(11, |w| v.encode(w)));
        self.initializers.iter().rev().for_each(|t| w.message(5, |w| t.encode(w)));
        w.text(2, &self.name);
        self.nodes.iter().rev().for_each(|n| w.message(1, |w| n.encode(w)));
    }
}

impl<'a> NodeProto<'a> {
    fn decode(bytes: &'a [u8], depth: usize) -> Result<Self> {
        let mut node = NodeProto::default();
        let mut reader = Reader::new(bytes, "a node");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => node.inputs.push(field.text()?),
                2 => node.outputs.push(field.text()?),
                3 => node.name = field.text()?,
                4 => node.op_type = field.text()?,
                5 => node.attributes.push(AttributeProto::decode(field.bytes()?, depth)?),
                7 => node.domain = field.text()?,
                9 => node.metadata.push(StringStringEntry::decode(field.bytes()?)?),
                _ => {}
            }
        }
        Ok(node)
    }

    fn encode(&self, w: &mut Writer) {
        self.metadata.iter().rev().for_each(|p| w.message(9, |w| p.encode(w)));
        w.text(7, &self.domain);
        self.attributes.iter().rev().for_each(|a| w.message(5, |w| a.encode(w)));
        w.text(4, &self.op_type);
        w.text(3, &self.name);
        self.outputs.iter().rev().for_each(|s| w.bytes(2, s.as_bytes()));
        self.inputs.iter().rev().for_each(|s| w.bytes(1, s.as_bytes()));
    }

    /// The attribute of this name.
    pub(crate) fn attribute(&self, name: &str) -> Option<&AttributeValue<'a>> {
        self.attributes.iter().find(|a| a.name == name).map(|a| &a.value)
    }
}

impl<'a> FunctionProto<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut function = FunctionProto { size: bytes.len(), ..FunctionProto::default() };
        let mut reader = Reader::new(bytes, "a function");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => function.name = field.text()?,
                4 => function.inputs.push(field.text()?),
                5 => function.outputs.push(field.text()?),
                7 => function.nodes.push(NodeProto::decode(field.bytes()?, 0)?),
                9 => function.opsets.push(OperatorSetId::decode(field.bytes()?)?),
                10 => function.domain = field.text()?,
                11 => function.defaults.push(AttributeProto::decode(field.bytes()?, 0)?),
                _ => {}
            }
        }
        Ok(function)
    }

    fn encode(&self, w: &mut Writer) {
        self.defaults.iter().rev().for_each(|a| w.message(11, |w| a.encode(w)));
        w.text(10, &self.domain);
        self.opsets.iter().rev().for_each(|o| w.message(9, |w| o.encode(w)));
        self.nodes.iter().rev().for_each(|n| w.message(7, |w| n.encode(w)));
        self.outputs.iter().rev().for_each(|s| w.bytes(5, s.as_bytes()));
        self.inputs.iter().rev().for_each(|s| w.bytes(4, s.as_bytes()));
        w.text(1, &self.name);
    }
}

impl<'a> AttributeProto<'a> {
    fn decode(bytes: &'a [u8], depth: usize) -> Result<Self> {
        let (mut name, mut reference, mut kind) = (String::new(), String::new(), 0);
        let (mut float, mut int, mut text) = (0.0, 0, Vec::new());
        let (mut tensor, mut graph) = (None, None);
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        let mut seen = 0;
        let mut reader = Reader::new(bytes, "an attribute");
        while let Some((number, field)) = reader.next()? {
            match number {
                1 => name = field.text()?,
                2 => float = field.float()?,
                3 => int = field.int()?,
                4 => text = field.bytes()?.to_vec(),
                5 => tensor = Some(Box::new(TensorProto::decode(field.bytes()?)?)),
                6 => graph = Some(Box::new(GraphProto::decode(field.bytes()?, depth + 1)?)),
                7 => field.floats(&mut floats)?,
                8 => field.ints(&mut ints)?,
                20 => kind = field.int()?,
                21 => reference = field.text()?,
                _ => {}
            }
            if (2..=8).contains(&number) {
                seen = i64::from(number) - 1;
            }
        }
        // Files from before the type field existed say it by the field that is set.
        let value = match if kind == 0 { seen } else { kind } {
            _ if !reference.is_empty() => AttributeValue::Reference(reference),
            1 => AttributeValue::Float(float),
            2 => AttributeValue::Int(int),
            3 => AttributeValue::Text(text),
            4 => tensor.map_or(AttributeValue::Other, AttributeValue::Tensor),
            5 => graph.map_or(AttributeValue::Other, AttributeValue::Graph),
            6 => AttributeValue::Floats(floats),
            7 => AttributeValue::Ints(ints),
            _ => AttributeValue::Other,
        };
        Ok(AttributeProto { name, value })
    }

    fn encode(&self, w: &mut Writer) {
        let kind = match &self.value {
            AttributeValue::Float(v) => {
                w.float(2, *v);
                1
            }
            AttributeValue::Int(v) => {
                w.int(3, *v);
                2
            }
            AttributeValue::Text(v) => {
                w.bytes(4, v);
                3
            }
            AttributeValue::Tensor(t) => {
                w.message(5, |w| t.encode(w));
                4
            }
            AttributeValue::Graph(g) => {
                w.message(6, |w| g.encode(w));
                5
            }
            AttributeValue::Floats(v) => {
                w.floats(7, v);
                6
            }
            AttributeValue::Ints(v) => {
                w.ints(8, v);
                7
            }
            AttributeValue::Reference(name) => {
                w.text(21, name);
                0
            }
            AttributeValue::Other => 0,
        };
        if kind != 0 {
            w.int(20, kind);
        }
        w.text(1, &self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    fn model() -> ModelProto<'static> {
        let attribute = |name: &str, value| AttributeProto { name: name.into(), value };
        let node = NodeProto {
            inputs: vec!["x".into(), String::new(), "w".into()],
            outputs: vec!["y".into()],
            name: "first".into(),
            op_type: "Conv".into(),
            attributes: vec![
                attribute("pads", AttributeValue::Ints(vec![0, -1])),
                attribute("alpha", AttributeValue::Float(0.5)),
                attribute("auto_pad", AttributeValue::Text(b"VALID".to_vec())),
                attribute("body", AttributeValue::Graph(Box::default())),
                attribute("later", AttributeValue::Reference("outer".into())),
            ],
            metadata: vec![StringStringEntry::new("key", "value")],
            ..NodeProto::default()
        };
        let weight = TensorProto {
            name: "w".into(),
            dims: vec![2],
            data_type: 1,
            raw: Some(Cow::Owned(vec![0; 8])),
            ..TensorProto::default()
        };
        let input = ValueInfoProto {
            name: "x".into(),
            is_tensor: true,
            data_type: 1,
            shape: Some(vec![DimProto::Param("N".into()), DimProto::Value(3), DimProto::Unknown]),
        };
        let graph = GraphProto {
            name: "g".into(),
            nodes: vec![node.clone()],
            initializers: vec![weight],
            inputs: vec![input],
            ..GraphProto::default()
        };
        ModelProto {
            ir_version: 8,
            producer_name: "test".into(),
            graph: Some(graph),
            opsets: vec![OperatorSetId { domain: String::new(), version: 17 }],
            metadata: vec![StringStringEntry::new("a", "b")],
            functions: vec![FunctionProto {
                name: "f".into(),
                nodes: vec![node],
                ..FunctionProto::default()
            }],
            ..ModelProto::default()
        }
    }

    #[test]
    fn a_model_survives_the_wire() {
        let bytes = model().encode();
        let mut read = ModelProto::decode(&bytes).unwrap();
        read.functions.iter_mut().for_each(|function| function.size = 0);
        assert_eq!(read, model());
    }

    #[test]
    fn graphs_nested_without_end_are_refused() {
        let mut graph = GraphProto::default();
        for _ in 0..100 {
            let attribute =
                AttributeProto { name: "body".into(), value: AttributeValue::Graph(Box::new(graph)) };
            let node = NodeProto { attributes: vec![attribute], ..NodeProto::default() };
            graph = GraphProto { nodes: vec![node], ..GraphProto::default() };
        }
        let bytes = ModelProto { graph: Some(graph), ..ModelProto::default() }.encode();
        let error = ModelProto::decode(&bytes).unwrap_err();
        assert!(error.to_string().contains("nested"), "{error}");
    }
}
