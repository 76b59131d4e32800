//! `RNN`, `GRU` and `LSTM` over a fixed number of steps, written out step by step.

use super::call::Call;
use super::import::Importer;
use super::model::AttributeValue;
use super::value::{Known, Value};
use crate::error::{Error, Result};
use crate::graph::NodeId;
use crate::op::{Binary, Op, Unary};
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

/// The largest number of steps that is written out.
const MAX_STEPS: usize = 1024;

/// The kinds of recurrent layers, by the number of their gates.
#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Plain,
    Gru { linear_before_reset: bool },
    Lstm { input_forget: bool },
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Plain => 1,
            Cell::Gru { .. } => 3,
            Cell::Lstm { .. } => 4,
        }
    }

    /// The default activations of a direction.
    fn activations(self) -> &'static [&'static str] {
        match self {
            Cell::Plain => &["Tanh"],
            Cell::Gru { .. } => &["Sigmoid", "Tanh"],
            Cell::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// One direction of a layer.
struct Direction {
    cell: Cell,
    hidden: usize,
    /// `[gates·hidden, hidden]`, or for a GRU that resets before its product that of each gate.
    recurrence: NodeId,
    /// What the recurrent product adds, `[gates·hidden]`.
    bias: Option<NodeId>,
    /// `[3·hidden]`: input, output, forget.
    peepholes: Option<NodeId>,
    activations: Vec<Unary>,
}

pub(crate) fn recurrent(importer: &mut Importer, call: &Call) -> Result<Vec<Value>> {
    let cell = match call.op() {
        "GRU" => Cell::Gru { linear_before_reset: call.flag("linear_before_reset", false)? },
        "LSTM" => Cell::Lstm { input_forget: call.flag("input_forget", false)? },
        _ => Cell::Plain,
    };
    for attribute in ["clip", "activation_alpha", "activation_beta"] {
        if call.has(attribute) {
            return Err(Error::unsupported(format!("{} with {attribute} is not supported", call.op())));
        }
    }
    let batch_first = call.flag("layout", false)?;
    let x = turned(importer, call, 0, batch_first)?;
    let shape = importer.shape(x);
    let &[Dim::Fixed(steps), samples, _] = shape.dims() else {
        return Err(Error::unsupported(format!(
            "{} reads {shape}, expected a fixed number of steps along its first axis",
            call.op()
        )));
    };
    if steps == 0 || steps > MAX_STEPS {
        return Err(Error::unsupported(format!(
            "{} over {steps} steps is not supported; 1 to {MAX_STEPS} are written out",
            call.op()
        )));
    }
    check_lengths(call, steps)?;
    let directions = directions(call)?;
    let weights = importer.operand(call, 1)?;
    let rows = importer.shape(weights).fixed_at(1).unwrap_or(0);
    let hidden = rows / cell.gates();
    if hidden == 0 || importer.shape(weights).fixed_at(0) != Some(directions.len()) {
        let found = importer.shape(weights);
        return Err(Error::shape(format!("the weights {found} of {} have no hidden size", call.op())));
    }
    let (mut all, mut last, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for (index, &backward) in directions.iter().enumerate() {
        let part = |importer: &mut Importer, input: usize| part(importer, call, input, index);
        let activations = activations(call, cell, index)?;
        let (input, recurrence) = (part(importer, 1)?, part(importer, 2)?);
        let (Some(input), Some(recurrence)) = (input, recurrence) else {
            return Err(Error::malformed(format!("{} has no weights", call.op())));
        };
        let width = cell.gates() * hidden;
        let (own, bias) = match part(importer, 3)? {
            Some(both) => {
                let take = |start| Op::Slice { axis: 0, start, step: 1, length: width };
                (Some(importer.add(take(0), &[both])?), Some(importer.add(take(width), &[both])?))
            }
            None => (None, None),
        };
        let peepholes = if cell.gates() == 4 { part(importer, 7)? } else { None };
        let mut inputs = importer.add(Op::MatMul { trans_a: false, trans_b: true }, &[x, input])?;
        if let Some(own) = own {
            inputs = importer.graph.plus(inputs, own)?;
        }
        let direction = Direction { cell, hidden, recurrence, bias, peepholes, activations };
        let state = |importer: &mut Importer, input: usize| -> Result<NodeId> {
            let given = match call.optional(input) {
                Some(_) => {
                    let all = turned(importer, call, input, batch_first)?;
                    Some(first_axis(importer, all, index)?)
                }
                None => None,
            };
            let shape = Shape::new([samples, Dim::Fixed(hidden)]);
            match given {
                Some(given) => Ok(given),
                None => {
                    let zero = importer.constant(Tensor::new([1, hidden], vec![0f32; hidden])?);
                    importer.add(Op::Expand { shape }, &[zero])
                }
            }
        };
        let mut h = state(importer, 5)?;
        let mut c = if cell.gates() == 4 { Some(state(importer, 6)?) } else { None };
        let mut each = vec![h; steps];
        let order: Vec<usize> = if backward { (0..steps).rev().collect() } else { (0..steps).collect() };
        for step in order {
            let input = first_axis(importer, inputs, step)?;
            (h, c) = direction.step(importer, input, h, c)?;
            each[step] = h;
        }
        let with_axes = |importer: &mut Importer, value: NodeId, axes: usize| {
            let mut dims = vec![Dim::Fixed(1); axes];
            dims.extend([samples, Dim::Fixed(hidden)]);
            importer.add(Op::Reshape { shape: Shape::new(dims) }, &[value])
        };
        let each = each.into_iter().map(|h| with_axes(importer, h, 2)).collect::<Result<Vec<_>>>()?;
        all.push(importer.add(Op::Concat { axis: 0 }, &each)?);
        last.push(with_axes(importer, h, 1)?);
        if let Some(c) = c {
            memory.push(with_axes(importer, c, 1)?);
        }
    }
    let mut found =
        vec![importer.add(Op::Concat { axis: 1 }, &all)?, importer.add(Op::Concat { axis: 0 }, &last)?];
    if !memory.is_empty() {
        found.push(importer.add(Op::Concat { axis: 0 }, &memory)?);
    }
    if batch_first {
        found[0] = importer.add(Op::Transpose { axes: vec![2, 0, 1, 3] }, &[found[0]])?;
        for state in &mut found[1..] {
            *state = importer.add(Op::Transpose { axes: vec![1, 0, 2] }, &[*state])?;
        }
    }
    Ok(found.into_iter().map(Value::Node).collect())
}

/// An input of three axes with its first two exchanged if the layer has its samples first.
fn turned(importer: &mut Importer, call: &Call, index: usize, batch_first: bool) -> Result<NodeId> {
    let value = importer.operand(call, index)?;
    match batch_first {
        true => importer.add(Op::Transpose { axes: vec![1, 0, 2] }, &[value]),
        false => Ok(value),
    }
}

/// What an input holds for a direction; none if it is left out.
fn part(importer: &mut Importer, call: &Call, input: usize, direction: usize) -> Result<Option<NodeId>> {
    match call.optional(input) {
        Some(_) => {
            let all = importer.operand(call, input)?;
            first_axis(importer, all, direction).map(Some)
        }
        None => Ok(None),
    }
}

/// The element of the first axis at `index`.
fn first_axis(importer: &mut Importer, value: NodeId, index: usize) -> Result<NodeId> {
    let rest = importer.shape(value).dims().get(1..).unwrap_or_default().to_vec();
    let one = importer.add(Op::Slice { axis: 0, start: index, step: 1, length: 1 }, &[value])?;
    importer.add(Op::Reshape { shape: Shape::new(rest) }, &[one])
}

/// An error unless all samples have all steps.
fn check_lengths(call: &Call, steps: usize) -> Result<()> {
    if call.optional(4).is_none() {
        return Ok(());
    }
    let lengths = call.known(4).and_then(Known::array).and_then(|array| array.floats());
    match lengths {
        Some(lengths) if lengths.iter().all(|&length| length == steps as f64) => Ok(()),
        _ => Err(Error::unsupported(format!(
            "{} with a number of steps for each sample is not supported; export it without sequence_lens",
            call.op()
        ))),
    }
}

/// For each direction, whether it goes backward.
fn directions(call: &Call) -> Result<&'static [bool]> {
    match call.text("direction", "forward")?.as_str() {
        "forward" => Ok(&[false]),
        "reverse" => Ok(&[true]),
        "bidirectional" => Ok(&[false, true]),
        other => Err(Error::malformed(format!("there is no direction '{other}' of {}", call.op()))),
    }
}

/// The activations of a direction.
fn activations(call: &Call, cell: Cell, direction: usize) -> Result<Vec<Unary>> {
    let usual = cell.activations();
    let named: Vec<String> = match call.node.attribute("activations") {
        Some(AttributeValue::Texts(texts)) => {
            texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
        }
        _ => Vec::new(),
    };
    let names = (0..usual.len()).map(|index| {
        let own = named.get(direction * usual.len() + index);
        own.map_or(usual[index], String::as_str).to_owned()
    });
    names
        .map(|name| match name.to_ascii_lowercase().as_str() {
            "sigmoid" => Ok(Unary::Sigmoid),
            "tanh" => Ok(Unary::Tanh),
            "relu" => Ok(Unary::Relu),
            "softplus" => Ok(Unary::Softplus),
            "hardsigmoid" => Ok(Unary::HardSigmoid { alpha: 0.2, beta: 0.5 }),
            _ => Err(Error::unsupported(format!(
                "{} with the activation '{name}' is not supported",
                call.op()
            ))),
        })
        .collect()
}

impl Direction {
    /// The state after a step, and the memory of an LSTM. `input` holds the products of the input for all gates.
    fn step(
        &self,
        importer: &mut Importer,
        input: NodeId,
        h: NodeId,
        c: Option<NodeId>,
    ) -> Result<(NodeId, Option<NodeId>)> {
        let activate = |importer: &mut Importer, index: usize, value: NodeId| {
            importer.add(Op::Unary(self.activations[index]), &[value])
        };
        if let (Cell::Gru { linear_before_reset }, _) = (self.cell, c) {
            return self.gru(importer, input, h, linear_before_reset).map(|h| (h, None));
        }
        let product = self.product(importer, self.recurrence, self.bias, h)?;
        let sum = importer.graph.plus(input, product)?;
        let Some(c) = c else {
            return Ok((activate(importer, 0, sum)?, None));
        };
        let Cell::Lstm { input_forget } = self.cell else {
            return Err(Error::malformed("a recurrent layer with a memory that is no LSTM"));
        };
        let mut gate = Vec::with_capacity(4);
        for index in 0..4 {
            gate.push(self.gate(importer, sum, index)?);
        }
        let through =
            |importer: &mut Importer, value: NodeId, memory: NodeId, index: usize| match self.peepholes {
                Some(all) => {
                    let (start, length) = (index * self.hidden, self.hidden);
                    let weights = importer.add(Op::Slice { axis: 0, start, step: 1, length }, &[all])?;
                    let seen = importer.graph.times(memory, weights)?;
                    importer.graph.plus(value, seen)
                }
                None => Ok(value),
            };
        let input_gate = through(importer, gate[0], c, 0)?;
        let input_gate = activate(importer, 0, input_gate)?;
        let forget = if input_forget {
            let negated = importer.graph.negated(input_gate)?;
            importer.graph.offset(1.0, negated)?
        } else {
            let forget = through(importer, gate[2], c, 2)?;
            activate(importer, 0, forget)?
        };
        let candidate = activate(importer, 1, gate[3])?;
        let (kept, new) = (importer.graph.times(forget, c)?, importer.graph.times(input_gate, candidate)?);
        let c = importer.graph.plus(kept, new)?;
        let output = through(importer, gate[1], c, 1)?;
        let output = activate(importer, 0, output)?;
        let shown = activate(importer, 2, c)?;
        Ok((importer.graph.times(output, shown)?, Some(c)))
    }

    fn gru(&self, importer: &mut Importer, input: NodeId, h: NodeId, linear: bool) -> Result<NodeId> {
        let (hidden, gates) = (self.hidden, 2 * self.hidden);
        let rows = |importer: &mut Importer, value: NodeId, start: usize, length: usize| {
            importer.add(Op::Slice { axis: 0, start, step: 1, length }, &[value])
        };
        let first = rows(importer, self.recurrence, 0, gates)?;
        let last = rows(importer, self.recurrence, gates, hidden)?;
        let (first_bias, last_bias) = match self.bias {
            Some(bias) => (Some(rows(importer, bias, 0, gates)?), Some(rows(importer, bias, gates, hidden)?)),
            None => (None, None),
        };
        let product = self.product(importer, first, first_bias, h)?;
        let own = importer.add(Op::Slice { axis: 1, start: 0, step: 1, length: gates }, &[input])?;
        let both = importer.graph.plus(own, product)?;
        let both = importer.add(Op::Unary(self.activations[0]), &[both])?;
        let (update, reset) = (self.gate(importer, both, 0)?, self.gate(importer, both, 1)?);
        let recurrent = if linear {
            let product = self.product(importer, last, last_bias, h)?;
            importer.graph.times(reset, product)?
        } else {
            let kept = importer.graph.times(reset, h)?;
            self.product(importer, last, last_bias, kept)?
        };
        let own = self.gate(importer, input, 2)?;
        let sum = importer.graph.plus(own, recurrent)?;
        let candidate = importer.add(Op::Unary(self.activations[1]), &[sum])?;
        let negated = importer.graph.negated(update)?;
        let share = importer.graph.offset(1.0, negated)?;
        let (new, old) = (importer.graph.times(share, candidate)?, importer.graph.times(update, h)?);
        importer.graph.plus(new, old)
    }

    /// `h·weightsᵀ + bias`
    fn product(
        &self,
        importer: &mut Importer,
        weights: NodeId,
        bias: Option<NodeId>,
        h: NodeId,
    ) -> Result<NodeId> {
        let product = importer.add(Op::MatMul { trans_a: false, trans_b: true }, &[h, weights])?;
        match bias {
            Some(bias) => importer.add(Op::Binary(Binary::Add), &[product, bias]),
            None => Ok(product),
        }
    }

    /// The columns of a gate.
    fn gate(&self, importer: &mut Importer, value: NodeId, index: usize) -> Result<NodeId> {
        let (start, length) = (index * self.hidden, self.hidden);
        importer.add(Op::Slice { axis: 1, start, step: 1, length }, &[value])
    }
}
