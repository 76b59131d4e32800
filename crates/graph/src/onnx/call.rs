//! One node of a file with the values it reads: typed access to its attributes and inputs, with messages that
//! say what was expected.

use super::model::{AttributeValue, NodeProto, TensorProto};
use super::static_array::StaticArray;
use super::symbolic_int::SymbolicInt;
use super::value::{Known, Value};
use crate::element::Element;
use crate::error::{Error, Hint, Result};

/// A node and its inputs.
pub(crate) struct Call<'c> {
    pub(crate) node: &'c NodeProto,
    /// Version of the operator set it is written in.
    pub(crate) opset: i64,
    /// Its inputs; `None` where an optional one is left out.
    pub(crate) inputs: Vec<Option<Value>>,
    /// The types of its inputs, as far as they are known.
    pub(crate) elements: Vec<Option<Element>>,
}

impl<'c> Call<'c> {
    /// The type of an input, if it is known.
    pub(crate) fn element(&self, index: usize) -> Option<Element> {
        self.elements.get(index).copied().flatten()
    }

    /// The name of the op.
    pub(crate) fn op(&self) -> &'c str {
        &self.node.op_type
    }

    /// Whether output `index` is read. Outputs that nothing reads lost their names when the file was read.
    pub(crate) fn has_output(&self, index: usize) -> bool {
        self.node.outputs.get(index).is_some_and(|name| !name.is_empty())
    }

    /// Refuses a node whose outputs after the first are used.
    pub(crate) fn only_first_output(&self, reason: &str) -> Result<()> {
        if (1..self.node.outputs.len()).any(|i| self.has_output(i)) {
            return Err(Error::unsupported(format!("{} with {reason} is not supported", self.op())));
        }
        Ok(())
    }

    fn mistyped(&self, name: &str, expected: &str) -> Error {
        Error::malformed(format!("attribute '{name}' of {} should be {expected}", self.op()))
    }

    /// Whether an attribute is present.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.node.attribute(name).is_some()
    }

    /// An integer attribute.
    pub(crate) fn int(&self, name: &str, default: i64) -> Result<i64> {
        match self.node.attribute(name) {
            None => Ok(default),
            Some(AttributeValue::Int(v)) => Ok(v),
            Some(_) => Err(self.mistyped(name, "an integer")),
        }
    }

    /// An integer attribute that says yes or no.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.int(name, i64::from(default))? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.mistyped(name, "0 or 1")),
        }
    }

    /// A real attribute.
    pub(crate) fn float(&self, name: &str, default: f64) -> Result<f64> {
        match self.node.attribute(name) {
            None => Ok(default),
            Some(AttributeValue::Float(v)) => Ok(decimal(v)),
            Some(_) => Err(self.mistyped(name, "a number")),
        }
    }

    /// An attribute that is a list of integers.
    pub(crate) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        match self.node.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Ints(v)) => Ok(Some(v.to_vec())),
            Some(_) => Err(self.mistyped(name, "a list of integers")),
        }
    }

    /// An attribute that is a list of numbers.
    pub(crate) fn floats(&self, name: &str) -> Result<Option<Vec<f64>>> {
        match self.node.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Floats(v)) => Ok(Some(v.iter().map(|&v| v.into()).collect())),
            Some(_) => Err(self.mistyped(name, "a list of numbers")),
        }
    }

    /// An attribute that is a tensor.
    pub(crate) fn tensor(&self, name: &str) -> Result<Option<&'c TensorProto>> {
        match self.node.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Tensor(t)) => Ok(Some(t)),
            Some(_) => Err(self.mistyped(name, "a tensor")),
        }
    }

    /// An attribute that is text.
    pub(crate) fn text(&self, name: &str, default: &str) -> Result<String> {
        match self.node.attribute(name) {
            None => Ok(default.to_owned()),
            Some(AttributeValue::Text(v)) => {
                String::from_utf8(v.to_vec()).map_err(|_| self.mistyped(name, "valid text"))
            }
            Some(_) => Err(self.mistyped(name, "text")),
        }
    }

    /// An input, if it is there.
    pub(crate) fn optional(&self, index: usize) -> Option<&Value> {
        self.inputs.get(index).and_then(Option::as_ref)
    }

    /// An input that must be there.
    pub(crate) fn input(&self, index: usize) -> Result<&Value> {
        self.optional(index)
            .ok_or_else(|| Error::malformed(format!("{} is missing its input {index}", self.op())))
    }

    /// What is known of an input, if it is there and known.
    pub(crate) fn known(&self, index: usize) -> Option<&Known> {
        match self.optional(index)? {
            Value::Known(known) => Some(known),
            _ => None,
        }
    }

    /// An optional input that has to be known while the file is read.
    pub(crate) fn array(&self, index: usize, role: &str) -> Result<Option<StaticArray>> {
        if self.optional(index).is_none() {
            return Ok(None);
        }
        self.known(index).and_then(Known::array).map(Some).ok_or_else(|| {
            Error::unsupported(format!(
                "the {role} of {} must not depend on the network's input; export it with constant {role}",
                self.op()
            ))
        })
    }

    /// An optional input that is a list of integers which may contain the batch size.
    pub(crate) fn extents(&self, index: usize, role: &str) -> Result<Option<Vec<SymbolicInt>>> {
        match self.array(index, role)? {
            Some(array) if array.shape.len() > 1 => Err(Error::malformed(format!(
                "the {role} of {} should be a list, found an array of shape {:?}",
                self.op(),
                array.shape
            ))),
            Some(array) => Ok(Some(array.as_ints()?.to_vec())),
            None => Ok(None),
        }
    }

    /// An optional input that is a list of integers.
    pub(crate) fn int_list(&self, index: usize, role: &str) -> Result<Option<Vec<i64>>> {
        let Some(extents) = self.extents(index, role)? else { return Ok(None) };
        let known = extents.iter().map(|e| e.known()).collect::<Option<Vec<_>>>();
        known.map(Some).ok_or_else(|| {
            Error::unsupported(format!("the {role} of {} must not depend on the batch size", self.op()))
                .hint(Hint::FIXED_BATCH)
        })
    }

    /// Integers given as an input since some operator set and as an attribute before.
    pub(crate) fn ints_or_input(&self, name: &str, index: usize) -> Result<Option<Vec<i64>>> {
        match self.ints(name)? {
            Some(ints) => Ok(Some(ints)),
            None => self.int_list(index, name),
        }
    }

    /// An optional input that is one number.
    pub(crate) fn scalar(&self, index: usize, role: &str) -> Result<Option<f64>> {
        let Some(array) = self.array(index, role)? else { return Ok(None) };
        match array.floats().as_deref() {
            Some([value]) => Ok(Some(*value)),
            _ => Err(Error::unsupported(format!("the {role} of {} should be one number", self.op()))),
        }
    }
}

/// The shortest decimal that rounds to this single-precision number, in double precision: what a person who
/// wrote `1e-5` meant.
pub(crate) fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// A possibly negative axis of a value of this rank.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize> {
    let signed = rank as i64;
    let wrapped = if axis < 0 { axis.checked_add(signed) } else { Some(axis) };
    wrapped
        .and_then(|a| usize::try_from(a).ok())
        .filter(|&a| a < rank)
        .ok_or_else(|| Error::shape(format!("axis {axis} is outside a value of {rank} axes")))
}

/// Possibly negative axes, ascending and without repetition.
pub(crate) fn sorted_axes(axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut sorted = axes.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>>>()?;
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::malformed(format!("an axis is named twice in {axes:?}")));
    }
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_what_was_written() {
        assert_eq!(decimal(1e-5), 1e-5);
        assert_eq!(decimal(0.1), 0.1);
        assert_eq!(decimal(f32::INFINITY), f64::INFINITY);
        assert_eq!(decimal(-3.4028235e38) as f32, f32::MIN);
    }

    #[test]
    fn axes_wrap_and_are_checked() {
        assert_eq!(axis(-1, 4).unwrap(), 3);
        assert!(axis(4, 4).is_err() && axis(-5, 4).is_err() && axis(i64::MIN, 4).is_err());
        assert_eq!(sorted_axes(&[-1, 0], 3).unwrap(), [0, 2]);
        assert!(sorted_axes(&[-1, 2], 3).is_err());
    }
}
