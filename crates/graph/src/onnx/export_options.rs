//! How a graph is written as an ONNX file.

use super::integer_input::IntegerInput;
use crate::tensor::Tensor;

/// How a graph is written.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    pub(crate) opset: i64,
    pub(crate) double: bool,
    pub(crate) single_outside: bool,
    pub(crate) half: bool,
    pub(crate) compact: bool,
    pub(crate) optional: Vec<(String, Tensor)>,
    pub(crate) integers: Vec<IntegerInput>,
}

impl Default for ExportOptions {
    fn default() -> Self {
        ExportOptions {
            opset: 17,
            double: false,
            single_outside: false,
            half: false,
            compact: false,
            optional: Vec::new(),
            integers: Vec::new(),
        }
    }
}

impl ExportOptions {
    /// Version of ONNX's operator set to write, 13 to 26; 17 unless told otherwise.
    #[must_use]
    pub fn opset(mut self, version: i64) -> Self {
        self.opset = version;
        self
    }

    /// Writes real numbers in double precision.
    #[must_use]
    pub fn double(mut self, double: bool) -> Self {
        self.double = double;
        self
    }

    /// Computes in double precision what is read, stored and returned in single precision. Ops that runtimes have in single
    /// precision alone are spelled out; what neither that nor [`matrix_form`](crate::passes::matrix_form) rewrites is still
    /// computed in single precision.
    #[must_use]
    pub fn double_inside(mut self, double: bool) -> Self {
        (self.double, self.single_outside) = (double, double);
        self
    }

    /// Stores weights in half precision; they are cast to single precision when the file is read, and computed with in
    /// that.
    #[must_use]
    pub fn half(mut self, half: bool) -> Self {
        self.half = half;
        self
    }

    /// Leaves out what readers know without it: attributes that are what they are by default, and long names of values that
    /// have none in the graph.
    #[must_use]
    pub fn compact(mut self, compact: bool) -> Self {
        self.compact = compact;
        self
    }

    /// An input of real numbers is read as the integers that `input` describes, and cast.
    #[must_use]
    pub fn integer_input(mut self, input: IntegerInput) -> Self {
        self.integers.push(input);
        self
    }

    /// Whether an input may be left out.
    pub fn is_optional(&self, input: &str) -> bool {
        self.optional.iter().any(|(name, _)| name == input)
    }

    /// Whoever runs the file may leave out the input of this name, and `value` is taken. A first axis of length one may be
    /// given at any length that the graph broadcasts; where `value` is one real number, so may all axes.
    #[must_use]
    pub fn optional(mut self, input: impl Into<String>, value: Tensor) -> Self {
        self.optional.push((input.into(), value));
        self
    }
}
