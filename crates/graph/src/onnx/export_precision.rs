//! In which precision real numbers of a file are read, computed and returned.

use super::export::{Attribute, Exporter, int};
use crate::error::Result;
use crate::graph::{Label, NodeId};
use crate::tensor::Kind;

/// Ops that ONNX Runtime computes in single precision alone, on a processor.
pub(crate) const SINGLE_ONLY: [&str; 12] = [
    "Celu",
    "Erf",
    "Gelu",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "InstanceNormalization",
    "LRN",
    "Mish",
    "PRelu",
    "Resize",
    "Selu",
];

/// ONNX's number for single precision.
pub(crate) const FLOAT: i32 = 1;
/// ONNX's number for double precision.
pub(crate) const DOUBLE: i32 = 11;

impl Exporter<'_> {
    /// ONNX's number for the type a kind of number is written as.
    pub(crate) fn data_type(&self, kind: Kind) -> i32 {
        match kind {
            Kind::Float if self.double => DOUBLE,
            Kind::Float => FLOAT,
            Kind::Int => 7,
            Kind::Bool => 9,
        }
    }

    /// What an input that may be left out is then, and the cast of one that comes in another precision.
    pub(crate) fn input(&mut self, id: NodeId) -> Result<()> {
        let name = self.input_name(id).to_owned();
        let double = self.double;
        self.double = double && !self.single_outside;
        let default = self.optional.iter().find(|(input, _)| *input == name);
        let stored = default.map_or(Ok(()), |(_, value)| self.initializer(name.clone(), value));
        self.double = double;
        stored?;
        if self.outside.contains_key(&id) {
            self.current = Label::default();
            self.finish("Cast", &[&name], &[("to", int(self.data_type(Kind::Float)))]);
        }
        Ok(())
    }

    /// Whether a value is returned, or was read, in another precision than it is computed in.
    pub(crate) fn is_cast(&self, id: NodeId) -> bool {
        self.single_outside && self.graph.node(id).kind == Kind::Float
    }

    /// The name an input has outside.
    pub(crate) fn input_name(&self, id: NodeId) -> &str {
        self.outside.get(&id).map(String::as_str).unwrap_or_else(|| self.name(id))
    }

    /// An op that runtimes have in single precision alone, between casts. Of a resize only the value is real.
    pub(crate) fn push_in_single(
        &mut self,
        op: &str,
        inputs: &[&str],
        outputs: Vec<String>,
        attributes: &[Attribute],
        name: String,
    ) {
        let real = if op == "Resize" { 1 } else { inputs.len() };
        let mut narrowed: Vec<String> = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            narrowed.push(match i < real && !input.is_empty() {
                true => self.emit("Cast", &[input], &[("to", int(FLOAT))]),
                false => (*input).to_owned(),
            });
        }
        let narrowed: Vec<&str> = narrowed.iter().map(String::as_str).collect();
        let found = self.value_names.fresh(&format!("{name}/single"));
        self.single_outside = false;
        self.push(op, &narrowed, vec![found.clone()], attributes, name.clone());
        let cast = self.node_names.fresh(&format!("{name}/Cast"));
        self.push("Cast", &[&found], outputs, &[("to", int(DOUBLE))], cast);
        self.single_outside = true;
    }
}
