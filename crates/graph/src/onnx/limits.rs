//! What an ONNX file may ask of its reader. All messages of a file are counted before the first is read: a message of two
//! bytes takes a hundred times as much in memory, and graphs inside graphs take room on the stack.

use bytes::Buf;
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::model::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetId, StringStringEntry, TensorProto,
    ValueInfoProto,
};
use super::tensor_proto::DimensionProto;
use crate::error::{Error, Result};

/// How deep graphs may be nested in attributes of nodes.
const MAX_DEPTH: usize = 16;

/// How many bytes of memory messages may take for a byte of the file; lists take up to three times as much while they grow.
/// Small files are free. The networks of the tests take three to eight.
const MEMORY_PER_BYTE: usize = 16;
const FREE_MEMORY: usize = 1 << 24;

/// An error if reading `file` would take more memory or stack than an honest file does.
pub(crate) fn check(file: &[u8]) -> Result<()> {
    let limit = file.len().saturating_mul(MEMORY_PER_BYTE).saturating_add(FREE_MEMORY);
    Counter { left: limit, graphs: 0 }.count(file, Kind::Model, 0)
}

/// The kinds of messages that are read.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Function,
    OperatorSet,
    Property,
    Value,
    Type,
    TensorType,
    Shape,
    Axis,
}

impl Kind {
    /// The kind of message in the field `tag` of a message of this kind.
    fn field(self, tag: u32) -> Option<Kind> {
        Some(match (self, tag) {
            (Kind::Model, 7) | (Kind::Attribute, 6) => Kind::Graph,
            (Kind::Model, 8) | (Kind::Function, 9) => Kind::OperatorSet,
            (Kind::Model, 14) | (Kind::Node, 9) | (Kind::Tensor, 13) => Kind::Property,
            (Kind::Model, 25) => Kind::Function,
            (Kind::Graph, 1) | (Kind::Function, 7) => Kind::Node,
            (Kind::Graph, 5) | (Kind::Attribute, 5) => Kind::Tensor,
            (Kind::Graph, 11..=13) => Kind::Value,
            (Kind::Node, 5) | (Kind::Function, 11) => Kind::Attribute,
            (Kind::Value, 2) => Kind::Type,
            (Kind::Type, 1) => Kind::TensorType,
            (Kind::TensorType, 2) => Kind::Shape,
            (Kind::Shape, 1) => Kind::Axis,
            _ => return None,
        })
    }

    /// What a message takes in memory beside its lists and texts.
    fn memory(self) -> usize {
        match self {
            Kind::Graph => size_of::<GraphProto>(),
            Kind::Node => size_of::<NodeProto>(),
            Kind::Attribute => size_of::<AttributeProto>(),
            Kind::Tensor => size_of::<TensorProto>(),
            Kind::Function => size_of::<FunctionProto>(),
            Kind::OperatorSet => size_of::<OperatorSetId>(),
            Kind::Property => size_of::<StringStringEntry>(),
            Kind::Value => size_of::<ValueInfoProto>(),
            Kind::Axis => size_of::<DimensionProto>(),
            // These are parts of the message around them.
            Kind::Model | Kind::Type | Kind::TensorType | Kind::Shape => 0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Model => "the model",
            Kind::Graph => "the graph",
            Kind::Node => "a node",
            Kind::Attribute => "an attribute",
            Kind::Tensor => "a tensor",
            Kind::Function => "a function",
            Kind::OperatorSet => "an operator set",
            Kind::Property => "a property",
            Kind::Value => "a value",
            Kind::Type => "a type",
            Kind::TensorType => "a tensor type",
            Kind::Shape => "a shape",
            Kind::Axis => "an axis",
        }
    }
}

struct Counter {
    /// Bytes of memory that messages may still take.
    left: usize,
    /// Graphs of the model itself.
    graphs: usize,
}

impl Counter {
    /// Counts the messages in `rest`, a message of this kind inside of `depth` attributes.
    fn count(&mut self, mut rest: &[u8], kind: Kind, depth: usize) -> Result<()> {
        let corrupt = |_: DecodeError| {
            Error::malformed(format!("not an ONNX file, or a corrupt one: {} cannot be read", kind.name()))
        };
        while rest.has_remaining() {
            let (tag, wire_type) = decode_key(&mut rest).map_err(corrupt)?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, tag, &mut rest, DecodeContext::default()).map_err(corrupt)?;
                continue;
            }
            let length = decode_varint(&mut rest).map_err(corrupt)?;
            let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
            let (content, after) = split.ok_or_else(|| {
                Error::malformed(format!(
                    "not a complete ONNX file: {} needs {length} bytes where {} are left",
                    kind.name(),
                    rest.len()
                ))
            })?;
            if let Some(inner) = kind.field(tag) {
                self.graphs += usize::from(kind == Kind::Model && inner == Kind::Graph);
                if self.graphs > 1 {
                    return Err(Error::malformed(
                        "the file holds two networks, one after the other; expected one",
                    ));
                }
                let nested = kind == Kind::Attribute && inner == Kind::Graph;
                self.message(content, inner, depth + usize::from(nested))?;
            }
            rest = after;
        }
        Ok(())
    }

    fn message(&mut self, content: &[u8], kind: Kind, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::malformed(format!("graphs are nested deeper than {MAX_DEPTH} levels")));
        }
        self.left = self.left.checked_sub(kind.memory()).ok_or_else(|| {
            Error::malformed("the file consists of more empty messages than a network has nodes and weights")
        })?;
        self.count(content, kind, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::model::ModelProto;
    use prost::Message;

    /// A model whose graph has a graph in an attribute, and so on.
    fn nested(levels: usize) -> ModelProto {
        let mut graph = GraphProto::default();
        for _ in 0..levels {
            let attributes = vec![AttributeProto::graph(std::mem::take(&mut graph))];
            graph.nodes = vec![NodeProto { attributes, ..NodeProto::default() }];
        }
        ModelProto { graph: Some(graph), ..ModelProto::default() }
    }

    #[test]
    fn graphs_nest_to_a_bound() {
        let read = |levels| ModelProto::read(nested(levels).encode_to_vec().into());
        assert_eq!(read(MAX_DEPTH).unwrap(), nested(MAX_DEPTH));
        for levels in [MAX_DEPTH + 1, 30, 100] {
            let error = read(levels).unwrap_err().to_string();
            assert!(error.contains("nested deeper than 16"), "{error}");
        }
    }

    /// Written byte by byte, since our own messages cannot nest so deep on the stack.
    #[test]
    fn a_hundred_thousand_levels_are_refused() {
        // Backwards, so that putting a level around is an append.
        let mut reversed = Vec::new();
        for number in [6, 5, 1].into_iter().cycle().take(300_000).chain([7]) {
            let mut head = vec![number << 3 | 2];
            prost::encoding::encode_varint(reversed.len() as u64, &mut head);
            reversed.extend(head.iter().rev());
        }
        reversed.reverse();
        let error = ModelProto::read(reversed.into()).unwrap_err().to_string();
        assert!(error.contains("nested"), "{error}");
    }

    #[test]
    fn two_models_in_a_file_are_refused() {
        let bytes = nested(1).encode_to_vec();
        check(&bytes).unwrap();
        let said = check(&[bytes.clone(), bytes].concat()).unwrap_err().to_string();
        assert!(said.contains("two networks"), "{said}");
    }

    #[test]
    fn files_of_empty_messages_are_refused() {
        // Two bytes each: nodes, weights, inputs of a graph.
        for tag in [0x0a, 0x2a, 0x5a] {
            let content = [tag, 0].repeat(1 << 20);
            let mut bytes = vec![0x3a];
            prost::encoding::encode_varint(content.len() as u64, &mut bytes);
            bytes.extend(content);
            assert!(check(&bytes).unwrap_err().to_string().contains("empty messages"));
        }
    }
}
