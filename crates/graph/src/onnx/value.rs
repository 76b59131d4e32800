//! The value of a name in an ONNX file while the file is read: a node of the graph, something already
//! known, or (in an import report) something that cannot be read.

use std::cell::Cell;
use std::rc::Rc;

use super::batch_positions::{Positions, Ramp};
use super::static_array::StaticArray;
use crate::graph::NodeId;
use crate::shape::Shape;
use crate::tensor::{Kind, Tensor};

/// The value behind a name.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Node(NodeId),
    Known(Rc<Known>),
    /// Integers that stand for real numbers.
    Quantised(Rc<Quantised>),
    /// Integers that count the batch, among them some that are only known when the graph is run.
    Positions(Rc<Positions>),
    /// Several values under one name.
    Sequence(Rc<Vec<Value>>),
    /// Could not be read; only where an import report is made.
    Unknown,
}

/// A quantised value: the real numbers that its integers stand for, and how they do.
#[derive(Debug)]
pub(crate) struct Quantised {
    pub(crate) real: NodeId,
    pub(crate) quantiser: Quantiser,
}

/// How integers `q` stand for real numbers: `scale·(q − zero)`. One scale and zero point, or one for each position along an
/// axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantiser {
    pub(crate) scale: Vec<f64>,
    pub(crate) zero: Vec<f64>,
    pub(crate) axis: usize,
}

/// A value known without running anything.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its name in the file.
    pub(crate) name: String,
    pub(crate) content: Content,
    /// The constant it became, once something in the graph reads it.
    pub(crate) node: Cell<Option<NodeId>>,
}

/// What is known.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Tensor(Tensor),
    /// Integers that contain the batch size.
    Symbolic(StaticArray),
    /// `stride·n + base` for every `n` of a leading batch axis.
    Ramp(Ramp),
    /// Integers that contain the position in the batch, of which only the shape is known.
    Shaped(Shape),
}

impl Value {
    pub(crate) fn known(name: impl Into<String>, content: Content) -> Self {
        Value::Known(Rc::new(Known { name: name.into(), content, node: Cell::new(None) }))
    }

    /// A computed value: a tensor if the batch size is not in it.
    pub(crate) fn array(name: impl Into<String>, array: StaticArray) -> Self {
        let content = match array.tensor() {
            Some(tensor) => Content::Tensor(tensor),
            None => Content::Symbolic(array),
        };
        Value::known(name, content)
    }

    /// The same known value under another name; nodes stay as they are.
    pub(crate) fn renamed(&self, name: &str) -> Self {
        match self {
            Value::Known(known) => Value::known(name, known.content.clone()),
            other => other.clone(),
        }
    }
}

impl Known {
    /// The value to compute with, if it is small enough.
    pub(crate) fn array(&self) -> Option<StaticArray> {
        match &self.content {
            Content::Tensor(tensor) => StaticArray::of(tensor),
            Content::Symbolic(array) => Some(array.clone()),
            Content::Ramp(_) | Content::Shaped(_) => None,
        }
    }

    /// The kind of its elements.
    pub(crate) fn kind(&self) -> Kind {
        match &self.content {
            Content::Tensor(tensor) => tensor.kind(),
            Content::Symbolic(_) | Content::Ramp(_) | Content::Shaped(_) => Kind::Int,
        }
    }

    /// Number of elements; those of one element of the batch, where it grows with the batch.
    pub(crate) fn len(&self) -> usize {
        match &self.content {
            Content::Tensor(tensor) => tensor.len(),
            Content::Symbolic(array) => array.elements.len(),
            Content::Ramp(ramp) => ramp.base.elements.len(),
            Content::Shaped(_) => 0,
        }
    }

    /// The axis lengths.
    pub(crate) fn shape(&self) -> Shape {
        match &self.content {
            Content::Tensor(tensor) => Shape::fixed(tensor.shape()),
            Content::Symbolic(array) => Shape::fixed(&array.shape),
            Content::Ramp(ramp) => Shape::batched(&ramp.base.shape),
            Content::Shaped(shape) => shape.clone(),
        }
    }
}
