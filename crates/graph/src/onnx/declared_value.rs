//! Inputs and outputs as a file declares them, whether or not the network can be read: with axes of open length, and without
//! shapes.

use std::fmt;

use super::tensor_proto::{DimProto, ValueInfoProto};
use crate::legible::shown;

/// Axes that are listed; ONNX has no limit.
const MOST_AXES: usize = 16;

/// An input or an output as the file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredValue {
    /// Its name.
    pub name: String,
    /// The lengths of its axes; none where the file has no shape for it.
    pub lengths: Option<Vec<DeclaredLength>>,
}

/// The length of an axis as the file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclaredLength {
    /// So many elements.
    Fixed(usize),
    /// Any number of elements, by the name the file has for it; `?` where it has none.
    Open(String),
}

impl DeclaredValue {
    pub(crate) fn new(info: &ValueInfoProto) -> Self {
        let shape = info.tensor().and_then(|tensor| tensor.shape.as_ref());
        let length = |dim: Option<&DimProto>| match dim {
            Some(DimProto::Value(n)) if *n > 0 => {
                DeclaredLength::Fixed(usize::try_from(*n).unwrap_or(usize::MAX))
            }
            Some(DimProto::Param(name)) if !name.is_empty() => DeclaredLength::Open(shown(name)),
            _ => DeclaredLength::Open("?".to_owned()),
        };
        let lengths = shape
            .map(|shape| shape.dims.iter().take(MOST_AXES).map(|dim| length(dim.length.as_ref())).collect());
        DeclaredValue { name: info.name.clone(), lengths }
    }
}

impl fmt::Display for DeclaredLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeclaredLength::Fixed(length) => length.fmt(f),
            DeclaredLength::Open(name) => name.fmt(f),
        }
    }
}

/// The name and the shape, `x [N, 3, H, W]`.
impl fmt::Display for DeclaredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.name))?;
        match &self.lengths {
            Some(lengths) => {
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                write!(f, " [{}]", lengths.join(", "))
            }
            None => f.write_str(" of unknown shape"),
        }
    }
}
