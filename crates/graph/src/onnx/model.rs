//! The messages of an ONNX file that matter here, as `onnx.proto` numbers their fields. Weights are slices of the mapped
//! file. Fields that are not listed are skipped.

use std::collections::HashSet;

use bytes::Bytes;
use prost::Message;

use super::limits;
pub(crate) use super::tensor_proto::{DimProto, TensorProto, ValueInfoProto};
use crate::error::{Error, Result};

/// A file.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelProto {
    #[prost(int64, tag = "1")]
    pub(crate) ir_version: i64,
    #[prost(string, tag = "2")]
    pub(crate) producer_name: String,
    #[prost(string, tag = "3")]
    pub(crate) producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) opsets: Vec<OperatorSetId>,
    #[prost(message, repeated, tag = "14")]
    pub(crate) metadata: Vec<StringStringEntry>,
    #[prost(message, repeated, tag = "25")]
    pub(crate) functions: Vec<FunctionProto>,
}

/// What a file says of itself, read without the rest of it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelProperties {
    #[prost(message, repeated, tag = "14")]
    pub(crate) metadata: Vec<StringStringEntry>,
}

/// A version of a set of operators.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperatorSetId {
    /// Empty for ONNX's own, which is written nevertheless, as other exporters do.
    #[prost(string, optional, tag = "1")]
    pub(crate) domain: Option<String>,
    #[prost(int64, tag = "2")]
    pub(crate) version: i64,
}

/// A property.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StringStringEntry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// A graph.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) initializers: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) inputs: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    pub(crate) outputs: Vec<ValueInfoProto>,
    /// Shapes of values between the nodes, for other readers; ours finds them out itself.
    #[prost(message, repeated, tag = "13")]
    pub(crate) inner: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "15")]
    pub(crate) sparse_initializers: Vec<Unread>,
}

/// A message of which only the presence matters.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Unread {}

/// A node.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    pub(crate) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(string, tag = "4")]
    pub(crate) op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) attributes: Vec<AttributeProto>,
    #[prost(string, tag = "7")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "9")]
    pub(crate) metadata: Vec<StringStringEntry>,
}

/// A function: nodes under a name of their own.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FunctionProto {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) inputs: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) outputs: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) nodes: Vec<NodeProto>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) opsets: Vec<OperatorSetId>,
    #[prost(string, tag = "10")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) defaults: Vec<AttributeProto>,
}

/// An attribute of a node. [`AttributeProto::value`] says which of its fields counts.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttributeProto {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(float, optional, tag = "2")]
    f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    i: Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    s: Option<Bytes>,
    #[prost(message, optional, boxed, tag = "5")]
    t: Option<Box<TensorProto>>,
    #[prost(message, optional, boxed, tag = "6")]
    g: Option<Box<GraphProto>>,
    #[prost(float, repeated, tag = "7")]
    floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    ints: Vec<i64>,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    strings: Vec<Bytes>,
    #[prost(int32, tag = "20")]
    kind: i32,
    #[prost(string, tag = "21")]
    reference: String,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AttributeValue<'a> {
    Float(f32),
    Int(i64),
    Text(&'a [u8]),
    Tensor(&'a TensorProto),
    Graph(&'a GraphProto),
    Floats(&'a [f32]),
    Ints(&'a [i64]),
    Texts(&'a [Bytes]),
    Reference(&'a str),
    Other,
}

impl GraphProto {
    fn forget_unread_outputs(&mut self) {
        forget_unread_outputs(&mut self.nodes, self.outputs.iter().map(|output| output.name.as_str()));
    }
}

/// Takes the names from outputs after the first that nothing reads: exporters name masks and indices that nobody asks for. The
/// outputs of a batch norm say by being there that it is in training mode.
fn forget_unread_outputs<'a>(nodes: &mut [NodeProto], returned: impl Iterator<Item = &'a str>) {
    fn remove_read(nodes: &[NodeProto], unread: &mut HashSet<String>) {
        for node in nodes {
            node.inputs.iter().for_each(|input| _ = unread.remove(input));
            for graph in node.attributes.iter().filter_map(|attribute| attribute.g.as_deref()) {
                graph.outputs.iter().for_each(|output| _ = unread.remove(&output.name));
                remove_read(&graph.nodes, unread);
            }
        }
    }
    let further = nodes.iter().flat_map(|node| node.outputs.iter().skip(1));
    let mut unread: HashSet<String> = further.filter(|name| !name.is_empty()).cloned().collect();
    returned.for_each(|name| _ = unread.remove(name));
    remove_read(nodes, &mut unread);
    for node in nodes.iter_mut().filter(|node| node.op_type != "BatchNormalization") {
        node.outputs.iter_mut().skip(1).filter(|name| unread.contains(*name)).for_each(String::clear);
        node.attributes
            .iter_mut()
            .filter_map(|attribute| attribute.g.as_mut())
            .for_each(|graph| graph.forget_unread_outputs());
    }
}

impl ModelProto {
    /// Reads a file, whose weights stay slices of `bytes`.
    pub(crate) fn read(bytes: Bytes) -> Result<Self> {
        limits::check(&bytes)?;
        let mut model = ModelProto::decode(bytes).map_err(|error| corrupt(&error))?;
        if let Some(graph) = &mut model.graph {
            graph.forget_unread_outputs();
        }
        for function in &mut model.functions {
            forget_unread_outputs(&mut function.nodes, function.outputs.iter().map(String::as_str));
        }
        Ok(model)
    }
}

impl ModelProperties {
    /// Reads the properties alone.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        limits::check(bytes)?;
        ModelProperties::decode(bytes).map_err(|error| corrupt(&error))
    }
}

fn corrupt(error: &prost::DecodeError) -> Error {
    let said = error.to_string();
    let place = said.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&said);
    Error::malformed(format!("not an ONNX file, or a corrupt one: {place}"))
}

impl OperatorSetId {
    /// A version of ONNX's own operators.
    pub(crate) fn onnx(version: i64) -> Self {
        OperatorSetId { domain: Some(String::new()), version }
    }
}

impl StringStringEntry {
    pub(crate) fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        StringStringEntry { key: key.into(), value: value.into() }
    }
}

impl NodeProto {
    /// The value of the attribute of this name.
    pub(crate) fn attribute(&self, name: &str) -> Option<AttributeValue<'_>> {
        self.attributes.iter().find(|a| a.name == name).map(AttributeProto::value)
    }
}

impl AttributeProto {
    /// What it says.
    pub(crate) fn value(&self) -> AttributeValue<'_> {
        if !self.reference.is_empty() {
            return AttributeValue::Reference(&self.reference);
        }
        let value = match if self.kind == 0 { self.kind_by_field() } else { self.kind } {
            1 => Some(AttributeValue::Float(self.f.unwrap_or_default())),
            2 => Some(AttributeValue::Int(self.i.unwrap_or_default())),
            3 => Some(AttributeValue::Text(self.s.as_deref().unwrap_or_default())),
            4 => self.t.as_deref().map(AttributeValue::Tensor),
            5 => self.g.as_deref().map(AttributeValue::Graph),
            6 => Some(AttributeValue::Floats(&self.floats)),
            7 => Some(AttributeValue::Ints(&self.ints)),
            8 => Some(AttributeValue::Texts(&self.strings)),
            _ => None,
        };
        value.unwrap_or(AttributeValue::Other)
    }

    /// Files from before the type field existed say it by the field that is set.
    fn kind_by_field(&self) -> i32 {
        let set = [
            self.f.is_some(),
            self.i.is_some(),
            self.s.is_some(),
            self.t.is_some(),
            self.g.is_some(),
            !self.floats.is_empty(),
            !self.ints.is_empty(),
        ];
        set.iter().zip(1..).find(|(set, _)| **set).map_or(0, |(_, kind)| kind)
    }

    /// The same attribute under another name.
    pub(crate) fn named(self, name: impl Into<String>) -> Self {
        AttributeProto { name: name.into(), ..self }
    }

    /// A real number, as yet without a name.
    pub(crate) fn float(value: f32) -> Self {
        AttributeProto { f: Some(value), kind: 1, ..Self::default() }
    }

    /// An integer, as yet without a name.
    pub(crate) fn int(value: i64) -> Self {
        AttributeProto { i: Some(value), kind: 2, ..Self::default() }
    }

    /// A text, as yet without a name.
    pub(crate) fn text(value: &str) -> Self {
        AttributeProto { s: Some(Bytes::copy_from_slice(value.as_bytes())), kind: 3, ..Self::default() }
    }

    /// A list of integers, as yet without a name.
    pub(crate) fn ints(values: Vec<i64>) -> Self {
        AttributeProto { ints: values, kind: 7, ..Self::default() }
    }

    /// A graph, as yet without a name.
    #[cfg(test)]
    pub(crate) fn graph(graph: GraphProto) -> Self {
        AttributeProto { g: Some(Box::new(graph)), kind: 5, ..Self::default() }
    }

    /// The attribute `outer` of the node that calls the function, as yet without a name.
    #[cfg(test)]
    pub(crate) fn reference(outer: &str) -> Self {
        AttributeProto { reference: outer.into(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tensor_proto::DimensionProto;
    use super::*;
    use crate::FileBytes;
    use crate::onnx::{ImportOptions, import_report_of_file};
    use crate::op::Op;
    use crate::tensor::Data;

    fn read(bytes: Vec<u8>) -> Result<ModelProto> {
        ModelProto::read(bytes.into())
    }

    /// A field of the wire format: its number, and bytes whose length is written before them.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8][..], content].concat()
    }

    #[test]
    fn the_examples_of_the_wire_format_are_read() {
        // From the format's description: 150 as a varint, and 3, 270, 86942 packed.
        assert_eq!(read(vec![0x08, 0x96, 0x01]).unwrap().ir_version, 150);
        let packed = field(8, &[0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
        let apart = [&[0x40, 0x03][..], &[0x40, 0x8e, 0x02], &[0x40, 0x9e, 0xa7, 0x05]].concat();
        let mixed = [&[0x40, 0x03][..], &field(8, &[0x8e, 0x02, 0x9e, 0xa7, 0x05])].concat();
        for bytes in [packed, apart, mixed] {
            let attribute = AttributeProto::decode(&bytes[..]).unwrap();
            assert_eq!(attribute.value(), AttributeValue::Ints(&[3, 270, 86942]));
        }
    }

    /// The format's rules: of numbers and texts the last counts, messages merge, lists are joined.
    #[test]
    fn what_is_said_twice_is_merged() {
        let graph = |node: &str, name: &str| {
            field(7, &[field(1, &field(3, node.as_bytes())), field(2, name.as_bytes())].concat())
        };
        let bytes = [&[0x08, 1][..], &graph("a", "first"), &[0x08, 2], &graph("b", "last")].concat();
        let model = ModelProto::decode(&bytes[..]).unwrap();
        let graph = model.graph.unwrap();
        // Two graphs are two files, one after the other, which no exporter means to be one.
        assert!(read(bytes).is_err());
        assert_eq!((model.ir_version, &*graph.name), (2, "last"));
        assert_eq!(graph.nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["a", "b"]);
        let axis = |content: &[u8]| DimensionProto::decode(content).unwrap().length;
        assert_eq!(axis(&[0x08, 3, 0x12, 1, b'N']), Some(DimProto::Param("N".into())));
        assert_eq!(axis(&[0x12, 1, b'N', 0x08, 3]), Some(DimProto::Value(3)));
    }

    #[test]
    fn unknown_fields_of_every_encoding_are_skipped() {
        // Field 100 as a varint, 8 bytes, bytes, a group with a field in it, and 4 bytes.
        let unknown = b"\xa0\x06\x01\xa1\x0612345678\xa2\x06\x03abc\xa3\x06\x08\x01\xa4\x06\xa5\x061234";
        assert_eq!(read([unknown, &[0x08, 7][..], unknown].concat()).unwrap().ir_version, 7);
        let node = NodeProto::decode(&[unknown, &field(3, b"n")[..]].concat()[..]).unwrap();
        assert_eq!(node.name, "n");
    }

    #[test]
    fn an_attribute_without_a_type_is_what_its_field_says() {
        let value = |bytes: &[u8]| AttributeProto::decode(bytes).unwrap();
        assert_eq!(value(&[0x18, 5]).value(), AttributeValue::Int(5));
        assert_eq!(value(b"\x22\x02ab").value(), AttributeValue::Text(b"ab"));
        assert_eq!(value(&[0x15, 0, 0, 0, 0]).value(), AttributeValue::Float(0.0));
        assert_eq!(value(&[]).value(), AttributeValue::Other);
        // The type counts where it is given.
        assert_eq!(value(&[0x18, 5, 0xa0, 0x01, 7]).value(), AttributeValue::Ints(&[]));
    }

    #[test]
    fn bad_keys_lengths_and_numbers_are_errors() {
        for bytes in [
            &[0x0a, 0x05, 1][..],
            &[0x0b],
            &[0x00, 0x01],
            &[0xff; 11],
            &[0x0d, 1, 2],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            // A version that is a text, a graph that is a number, a name that is not UTF-8.
            &[0x0a, 0x01, b'1'],
            &[0x38, 1],
            &[0x12, 0x01, 0xff],
        ] {
            let error = read(bytes.to_vec()).unwrap_err().to_string();
            assert!(error.contains("ONNX file"), "{error}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn weights_are_slices_of_the_mapped_file() {
        let path = std::env::temp_dir().join(format!("monosplit-weights-{}.onnx", std::process::id()));
        const COUNT: usize = 1 << 15;
        let mut used_in_place = 0;
        // The name decides where in the file the weight begins; one of four places is a multiple of four.
        for padding in 0..4 {
            let weight = TensorProto {
                name: "w".repeat(1 + padding),
                dims: vec![COUNT as i64],
                data_type: 1,
                raw: Some(vec![0; COUNT * 4].into()),
                ..TensorProto::default()
            };
            let output = ValueInfoProto::new(weight.name.clone(), 1, [DimProto::Value(COUNT as i64)]);
            let graph =
                GraphProto { initializers: vec![weight], outputs: vec![output], ..GraphProto::default() };
            let opsets = vec![OperatorSetId::onnx(17)];
            let model = ModelProto { graph: Some(graph), opsets, ..ModelProto::default() };
            std::fs::write(&path, model.encode_to_vec()).unwrap();

            let file = FileBytes::open(&path).unwrap();
            let model = ModelProto::read(file.bytes()).unwrap();
            let raw = model.graph.unwrap().initializers[0].raw.clone().unwrap();
            let map = file.as_ptr_range();
            assert!(map.contains(&raw.as_ptr()) && raw.as_ptr_range().end <= map.end);

            let report = import_report_of_file(&file, None, &ImportOptions::default()).unwrap();
            let read = report.graph.unwrap();
            let Op::Constant(tensor) = &read.node(read.outputs()[0].node).op else { panic!("no weight") };
            let Data::F32(elements) = tensor.data() else { panic!("no single precision") };
            used_in_place += usize::from(elements.as_ptr().cast() == raw.as_ptr());
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(used_in_place, 1);
    }
}
