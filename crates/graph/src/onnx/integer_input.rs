//! Inputs of a file that hold integers.

use crate::element::Element;

/// An input of a file that holds integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntegerInput {
    /// Its name.
    pub name: String,
    /// The name of its type, `uint8` for example.
    pub type_name: &'static str,
    /// The least and the largest number of the type.
    pub range: (i64, i64),
    /// ONNX's number for the type.
    pub(crate) data_type: i32,
}

impl IntegerInput {
    pub(crate) fn new(name: &str, element: Element) -> Self {
        let range = element.range().map_or((i64::MIN, i64::MAX), |(min, max)| (min as i64, max as i64));
        IntegerInput { name: name.to_owned(), type_name: element.name(), range, data_type: element.onnx() }
    }
}
