//! The types of numbers that ONNX gives the values of a file. The graph has one kind of real number and one of integers;
//! the types say what a cast can hold, how far a quantiser reaches, and whether other runtimes accept the file.

use super::call::Call;
use super::elements;
use super::import::Importer;
use super::import_quantised::quantised_type;
use super::model::{AttributeValue, ValueInfoProto};
use super::remark::MixedTypes;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::{Op, Unary};
use crate::tensor::Kind;

/// The type of output `index` of a node, if it is known.
pub(crate) fn result_type(call: &Call, index: usize) -> Option<Element> {
    let attribute = |name: &str| match call.node.attribute(name) {
        Some(AttributeValue::Tensor(tensor)) => elements::element(tensor.data_type).ok(),
        _ => None,
    };
    match call.op() {
        "Cast" => elements::element(call.int("to", 0).ok()?).ok(),
        "CastLike" => call.element(1),
        "Constant" if call.has("value") => attribute("value"),
        "Constant" if call.has("value_float") || call.has("value_floats") => Some(Element::F32),
        "Constant" => Some(Element::I64),
        "ConstantOfShape" => attribute("value").or(Some(Element::F32)),
        "Shape" | "Size" | "ArgMax" | "ArgMin" | "NonZero" => Some(Element::I64),
        "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" => Some(Element::Bool),
        "And" | "Or" | "Xor" | "Not" | "IsNaN" | "IsInf" => Some(Element::Bool),
        // Their first input is a count, a condition or a depth; branches say themselves what they return.
        "Loop" | "If" | "Scan" | "EmbedLayerNormalization" => None,
        "OneHot" => call.element(2),
        "Where" => call.element(1),
        "QuantizeLinear" => quantised_type(call).ok(),
        "DequantizeLinear" => call.element(1),
        "DynamicQuantizeLinear" if index == 1 => Some(Element::F32),
        "DynamicQuantizeLinear" => Some(Element::U8),
        "ConvInteger" | "MatMulInteger" => Some(Element::I32),
        "QLinearConv" | "QLinearMatMul" | "QLinearAdd" | "QLinearMul" => call.element(7),
        "QGemm" => call.element(8).or(Some(Element::F32)),
        "QLinearConcat" => call.element(1),
        "DynamicQuantizeMatMul" | "MatMulIntegerToFloat" => Some(Element::F32),
        name if name.starts_with("QLinear") => call.element(4),
        _ if index > 0 && !matches!(call.op(), "Split") => None,
        _ => call.element(0),
    }
}

/// Two different types among inputs of a node that ONNX requires to be of one type.
pub(crate) fn mixed_types(call: &Call) -> Option<(Element, Element)> {
    let count = call.inputs.len();
    let alike = match call.op() {
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Sum" | "Mean" | "PRelu" | "Concat" => 0..count,
        "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" => 0..count,
        "Conv" | "ConvTranspose" | "Gemm" | "MatMul" | "Einsum" | "Clip" => 0..count,
        "InstanceNormalization" | "GroupNormalization" | "LayerNormalization" => 0..count,
        "BatchNormalization" if call.opset < 14 => 0..count,
        "RNN" | "GRU" | "LSTM" => 0..count.min(4),
        "Where" => 1..count,
        _ => return None,
    };
    let mut types = alike.filter_map(|index| call.element(index));
    let first = types.next()?;
    types.find(|&other| other != first).map(|other| (first, other))
}

/// An error if a node reads numbers of two types. Halves beside single numbers are read: files that were converted to half
/// precision have such nodes.
pub(crate) fn check_types(call: &Call) -> Result<()> {
    match mixed_types(call) {
        Some((first, second)) if !are_small([first, second]) => Err(Error::malformed(format!(
            "{} reads {} and {} numbers where ONNX requires one type; cast one of them when you export the network",
            call.op(),
            first.name(),
            second.name()
        ))),
        _ => Ok(()),
    }
}

/// Whether these are types of which files that were converted to half precision mix several.
fn are_small(types: [Element; 2]) -> bool {
    types.iter().all(|element| matches!(element, Element::F16 | Element::BF16 | Element::F32))
}

impl Importer<'_> {
    /// An error if an output is declared to hold numbers of another type than it does, as far as both are known.
    pub(crate) fn check_declared_type(&self, output: &ValueInfoProto) -> Result<()> {
        let declared = output.tensor().and_then(|tensor| elements::element(tensor.data_type).ok());
        let (Some(declared), Some(found)) = (declared, self.element_of(&output.name)) else { return Ok(()) };
        if declared == found || are_small([declared, found]) {
            return Ok(());
        }
        Err(Error::malformed(format!(
            "the output '{}' is declared to hold {} numbers and holds {} numbers; export the network again",
            output.name,
            declared.name(),
            found.name()
        )))
    }

    /// Notes the type of a value, if it is known.
    pub(crate) fn bind_element(&mut self, name: &str, element: Option<Element>) {
        if let (Some(scope), Some(element)) = (self.scopes.last_mut(), element) {
            scope.elements.insert(name.to_owned(), element);
        }
    }

    /// The type of a value, if it is known.
    pub(crate) fn element_of(&self, name: &str) -> Option<Element> {
        for scope in self.scopes.iter().rev() {
            if scope.values.contains_key(name) {
                return scope.elements.get(name).copied();
            }
            if scope.closed {
                break;
            }
        }
        None
    }

    /// Notes what other runtimes refuse or compute otherwise.
    pub(crate) fn note_types(&mut self, call: &Call, name: &str) {
        self.notes.mixed_types.extend(mixed_types(call).map(|(first, second)| MixedTypes {
            node: name.to_owned(),
            op: call.op().to_owned(),
            first,
            second,
        }));
        let is_half = |element: &Option<Element>| matches!(element, Some(Element::F16 | Element::BF16));
        let is_double = |element: &Option<Element>| matches!(element, Some(Element::F64));
        if matches!(call.op(), "Conv" | "Gemm" | "MatMul") {
            self.notes.half_arithmetic |= call.elements.iter().any(is_half);
            self.notes.double_arithmetic |= call.elements.iter().all(is_double);
        }
    }

    /// An output of integers that are computed as real numbers, as integers.
    pub(crate) fn as_declared(&mut self, id: NodeId, name: &str) -> Result<NodeId> {
        let integers = self.element_of(name).is_some_and(|element| element.kind() == Kind::Int);
        if !integers || self.graph.node(id).kind != Kind::Float {
            return Ok(id);
        }
        let rounded = self.add(Op::Unary(Unary::Round), &[id])?;
        self.add(Op::Cast { to: Kind::Int }, &[rounded])
    }
}
