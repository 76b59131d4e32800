//! Integers that count the batch. Exporters compute them to pick something of every sample: `x[arange(N), i]` becomes a gather at
//! `stride·n + i` from the flattened batch, or at the pairs `(n, i)`. They never become nodes: what reads them is a gather within
//! each sample.

use super::call::Call;
use super::elements;
use super::evaluate::value_shape;
use super::evaluate_arithmetic as arithmetic;
use super::import::Importer;
use super::import_shape::{reshaped, squeezed, stated_shape, unsqueezed};
use super::static_array::{self, Elements, StaticArray};
use super::symbolic_int::SymbolicInt;
use super::value::{Content, Known, Value};
use crate::error::Result;
use crate::graph::NodeId;
use crate::op::{Binary, Op};
use crate::shape::{Dim, Shape};
use crate::tensor::Kind;

/// `stride·n + base` for every `n` of a leading batch axis.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    /// Growth from one element of the batch to the next.
    pub(crate) stride: i64,
    /// The integers of the first element of the batch.
    pub(crate) base: StaticArray,
}

/// Positions in the batch together with integers that are only known when the graph is run.
#[derive(Clone, Debug)]
pub(crate) enum Positions {
    /// `stride·n + within`, where `within` has a leading batch axis.
    Rows { stride: i64, within: NodeId },
    /// Tuples along a last axis: its elements, each with a last axis of one.
    Tuples(Vec<Value>),
}

impl Ramp {
    /// Multiplied by a number.
    fn times(&self, factor: i64) -> Option<Ramp> {
        let scaled = |e: &SymbolicInt| e.times(factor.into());
        let base = self.base.as_ints().ok()?.iter().map(scaled).collect::<Option<Vec<_>>>()?;
        Some(Ramp {
            stride: self.stride.checked_mul(factor)?,
            base: StaticArray::new(self.base.shape.clone(), Elements::Int(base)).ok()?,
        })
    }

    /// Under another shape; `None` if it does not begin with the batch.
    fn reshaped(&self, shape: &Shape) -> Option<Ramp> {
        let base = self.base.reshaped(rest(shape)?).ok()?;
        Some(Ramp { stride: self.stride, base })
    }

    /// Broadcast to a shape that begins with the batch.
    fn expanded(&self, shape: &Shape) -> Option<Ramp> {
        let lengths = rest(shape)?;
        if lengths.len() != self.base.shape.len() {
            return None;
        }
        Some(Ramp { stride: self.stride, base: self.base.expanded(&lengths).ok()? })
    }

    /// Whether it counts the batch and nothing else.
    pub(crate) fn is_batch_index(&self) -> bool {
        let zero = |all: &[SymbolicInt]| all.iter().all(|e| e.known() == Some(0));
        self.stride == 1 && self.base.as_ints().is_ok_and(zero)
    }
}

impl Positions {
    pub(crate) fn shape(&self, importer: &Importer) -> Shape {
        match self {
            Positions::Rows { within, .. } => importer.shape(*within),
            Positions::Tuples(values) => {
                let first = values.first().map_or_else(Shape::default, |value| value_shape(importer, value));
                let outer = first.dims().get(..first.rank().saturating_sub(1)).unwrap_or_default();
                Shape::new([outer, &[Dim::Fixed(values.len())]].concat())
            }
        }
    }
}

/// The lengths behind a leading batch axis.
fn rest(shape: &Shape) -> Option<Vec<usize>> {
    let (Dim::Batch(1), rest) = shape.dims().split_first()? else { return None };
    rest.iter().map(|d| d.fixed()).collect()
}

fn ramp_of(value: &Value) -> Option<&Ramp> {
    match value {
        Value::Known(known) => match &known.content {
            Content::Ramp(ramp) => Some(ramp),
            _ => None,
        },
        _ => None,
    }
}

fn counts(value: &Value) -> bool {
    match value {
        Value::Known(known) => matches!(known.content, Content::Ramp(_) | Content::Shaped(_)),
        other => matches!(other, Value::Positions(_)),
    }
}

fn of_ramp(ramp: Ramp) -> Value {
    Value::known("", Content::Ramp(ramp))
}

/// What a call makes of positions in the batch; `None` if it has to do with none, or makes something else of them.
pub(crate) fn counted(importer: &mut Importer, call: &Call) -> Result<Option<Value>> {
    if call.op() == "Range" {
        return Ok(batch_range(call).map(of_ramp));
    }
    if !call.inputs.iter().flatten().any(counts) {
        return Ok(None);
    }
    match call.op() {
        "Identity" => call.input(0).cloned().map(Some),
        "Cast" => {
            let to = elements::element(call.int("to", 1)?)?;
            Ok((to.kind() == Kind::Int).then(|| call.input(0).cloned()).transpose()?)
        }
        "Unsqueeze" | "Squeeze" | "Reshape" => relaid(importer, call),
        "Expand" => {
            let shape = value_shape(importer, call.input(0)?).broadcast(&stated_shape(call, 1)?)?;
            Ok(ramp_of(call.input(0)?).and_then(|ramp| ramp.expanded(&shape)).map(of_ramp))
        }
        "Mul" => {
            let scaled = |i: usize, by: usize| ramp_of(call.optional(i)?)?.times(single(call, by)?);
            Ok(scaled(0, 1).or_else(|| scaled(1, 0)).map(of_ramp).or_else(|| shaped(importer, call)))
        }
        "Add" => match sum(importer, call)? {
            Some(sum) => Ok(Some(sum)),
            None => Ok(shaped(importer, call)),
        },
        // Only asked for its shape, to which indices are broadcast.
        "Max" | "Min" | "Sub" => Ok(shaped(importer, call)),
        "Concat" => Ok(tuples(importer, call)),
        _ => Ok(None),
    }
}

/// `Range` over the batch.
fn batch_range(call: &Call) -> Option<Ramp> {
    let ints: Vec<SymbolicInt> =
        (0..3).map(|i| call.known(i)?.array()?.as_ints().ok()?.first().copied()).collect::<Option<_>>()?;
    let counts_the_batch = ints[0].known() == Some(0)
        && ints[1] == SymbolicInt { fixed: 0, batch: 1 }
        && ints[2].known() == Some(1);
    counts_the_batch.then(|| Ramp { stride: 1, base: StaticArray::int(0.into()) })
}

fn relaid(importer: &mut Importer, call: &Call) -> Result<Option<Value>> {
    let value = call.input(0)?;
    let own = value_shape(importer, value);
    let shape = match call.op() {
        "Unsqueeze" => unsqueezed(call, &own)?,
        "Squeeze" => squeezed(call, &own)?,
        _ => reshaped(call, &own)?,
    };
    if let Some(ramp) = ramp_of(value) {
        return Ok(ramp.reshaped(&shape).map(of_ramp));
    }
    match value {
        Value::Positions(positions) => match (&**positions, rest(&shape)) {
            (&Positions::Rows { stride, within }, Some(_)) => {
                let within = importer.add(Op::Reshape { shape }, &[within])?;
                Ok(Some(Value::Positions(Positions::Rows { stride, within }.into())))
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn sum(importer: &mut Importer, call: &Call) -> Result<Option<Value>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let (Some(ramp), other) = (match (ramp_of(a), ramp_of(b)) {
        (Some(ramp), _) => (Some(ramp), b),
        (_, ramp) => (ramp, a),
    }) else {
        return Ok(None);
    };
    if let Value::Known(known) = other {
        return Ok(known.array().and_then(|array| shifted(ramp, &array)).map(of_ramp));
    }
    let &Value::Node(node) = other else { return Ok(None) };
    let shape = importer.shape(node);
    let is_batch = importer.graph.node(node).kind == Kind::Int
        && shape.rank() == ramp.base.shape.len() + 1
        && rest(&shape).is_some();
    let Some(base) = ramp.base.tensor().filter(|_| is_batch) else { return Ok(None) };
    let base = importer.constant(base);
    let within = importer.add(Op::Binary(Binary::Add), &[node, base])?;
    let positions = Positions::Rows { stride: ramp.stride, within };
    Ok(Some(Value::Positions(positions.into())))
}

fn shifted(ramp: &Ramp, by: &StaticArray) -> Option<Ramp> {
    let rank = ramp.base.shape.len() + 1;
    let rest = match by.shape.len() {
        n if n == rank && by.shape[0] == 1 => by.reshaped(by.shape[1..].to_vec()).ok()?,
        n if n < rank => by.clone(),
        _ => return None,
    };
    let base = arithmetic::binary(Binary::Add, &ramp.base, &rest).ok().flatten()?;
    (base.shape.len() + 1 == rank).then_some(Ramp { stride: ramp.stride, base })
}

fn single(call: &Call, index: usize) -> Option<i64> {
    let array = call.known(index)?.array()?;
    match array.as_ints().ok()? {
        [only] => only.known(),
        _ => None,
    }
}

/// A value of which only the shape is known.
fn shaped(importer: &Importer, call: &Call) -> Option<Value> {
    let mut shape = Shape::default();
    for value in call.inputs.iter().flatten() {
        shape = shape.broadcast(&value_shape(importer, value)).ok()?;
    }
    Some(Value::known("", Content::Shaped(shape)))
}

/// Indices of several axes joined along a last one.
fn tuples(importer: &Importer, call: &Call) -> Option<Value> {
    let values: Vec<Value> = call.inputs.iter().flatten().cloned().collect();
    let first = value_shape(importer, values.first()?);
    let last = first.rank().checked_sub(1).filter(|&last| last > 0)?;
    let axis = super::call::axis(call.int("axis", 1).ok()?, first.rank()).ok()?;
    let fits = |value: &Value| value_shape(importer, value) == first;
    let single = first.dims()[last] == Dim::Fixed(1) && values.iter().all(fits);
    let readable = |value: &Value| ramp_of(value).is_some() || matches!(value, Value::Node(_));
    (axis == last && single && values.iter().all(readable))
        .then(|| Value::Positions(Positions::Tuples(values).into()))
}

/// The integers of every sample, where they are the same for all: those of a constant that was expanded over the batch.
pub(crate) fn same_for_all(importer: &Importer, value: &Value) -> Option<StaticArray> {
    let of_tensor = |array: StaticArray, lengths: Vec<usize>| {
        let own = match array.shape.len() {
            rank if rank == lengths.len() + 1 && array.shape[0] == 1 => {
                array.reshaped(array.shape[1..].to_vec()).ok()?
            }
            rank if rank <= lengths.len() => array,
            _ => return None,
        };
        own.expanded(&lengths).ok()
    };
    match value {
        Value::Known(known) => match &known.content {
            Content::Ramp(ramp) if ramp.stride == 0 => Some(ramp.base.clone()),
            _ => None,
        },
        &Value::Node(id) => {
            let node = importer.graph.node(id);
            let lengths = rest(&node.shape)?;
            match node.op {
                Op::Expand { .. } => {
                    let constant = importer.graph.constant_value(node.inputs[0])?;
                    of_tensor(StaticArray::of(constant)?, lengths)
                }
                Op::Reshape { .. } | Op::Identity => {
                    same_for_all(importer, &Value::Node(node.inputs[0]))?.reshaped(lengths).ok()
                }
                _ => None,
            }
        }
        _ => None,
    }
    .filter(|array| array.elements.len() <= static_array::LIMIT)
}

/// The ramp behind a known input.
pub(crate) fn known_ramp(known: Option<&Known>) -> Option<&Ramp> {
    match &known?.content {
        Content::Ramp(ramp) => Some(ramp),
        _ => None,
    }
}

/// Whether a value counts the batch and nothing else.
pub(crate) fn batch_index(value: &Value) -> bool {
    ramp_of(value).is_some_and(Ramp::is_batch_index)
}
