//! Tensors and what a file declares of its values: the messages that describe data rather than nodes.

use bytes::Bytes;
use prost::{Message, Oneof};

use super::model::{StringStringEntry, Unread};

/// A tensor, its elements not yet looked at.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    pub(crate) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(crate) data_type: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) segment: Option<Unread>,
    #[prost(float, repeated, tag = "4")]
    pub(crate) floats: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) int32s: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub(crate) int64s: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(crate) name: String,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub(crate) raw: Option<Bytes>,
    #[prost(double, repeated, tag = "10")]
    pub(crate) doubles: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(crate) uint64s: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) external: Vec<StringStringEntry>,
    #[prost(int32, tag = "14")]
    pub(crate) location: i32,
}

/// A name and what is declared of its value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueInfoProto {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value_type: Option<TypeProto>,
}

/// The type of a value, which is looked at only if it is a tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TypeProto {
    #[prost(message, optional, tag = "1")]
    pub(crate) tensor: Option<TensorTypeProto>,
}

/// The type of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorTypeProto {
    #[prost(int32, tag = "1")]
    pub(crate) data_type: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) shape: Option<ShapeProto>,
}

/// The lengths of the axes of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ShapeProto {
    #[prost(message, repeated, tag = "1")]
    pub(crate) dims: Vec<DimensionProto>,
}

/// The length of an axis, unknown if nothing is said.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DimensionProto {
    #[prost(oneof = "DimProto", tags = "1, 2")]
    pub(crate) length: Option<DimProto>,
}

/// The length of an axis as declared.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum DimProto {
    #[prost(int64, tag = "1")]
    Value(i64),
    #[prost(string, tag = "2")]
    Param(String),
}

impl TensorProto {
    /// Whether its elements lie in a file of their own.
    pub(crate) fn is_external(&self) -> bool {
        self.location == 1
    }

    /// Its integers, whichever of the typed lists they are in.
    pub(crate) fn ints(&self) -> Vec<i64> {
        let narrow = self.int32s.iter().map(|&v| i64::from(v));
        let unsigned = self.uint64s.iter().map(|&v| v.cast_signed());
        narrow.chain(self.int64s.iter().copied()).chain(unsigned).collect()
    }
}

impl ValueInfoProto {
    /// A tensor of this shape.
    pub(crate) fn new(
        name: impl Into<String>,
        data_type: i32,
        shape: impl IntoIterator<Item = DimProto>,
    ) -> Self {
        let dims = shape.into_iter().map(|length| DimensionProto { length: Some(length) }).collect();
        let tensor = TensorTypeProto { data_type, shape: Some(ShapeProto { dims }) };
        ValueInfoProto { name: name.into(), value_type: Some(TypeProto { tensor: Some(tensor) }) }
    }

    /// Its type, if it is a tensor.
    pub(crate) fn tensor(&self) -> Option<&TensorTypeProto> {
        self.value_type.as_ref()?.tensor.as_ref()
    }
}
