//! Nodes that contain nodes: functions of the file, written out where they are called, `If` whose condition is known, and loops
//! of a known number of rounds, written out round by round.

use prost::Message;

use super::call::{self, Call};
use super::import::{Importer, Scope, opset_of};
use super::model::{AttributeProto, AttributeValue, FunctionProto, GraphProto, NodeProto};
use super::value::{Content, Known, Value};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

/// The largest number of rounds of a loop that are written out.
const MAX_ROUNDS: usize = 1024;

/// How deep functions and branches may call each other.
const MAX_DEPTH: usize = 32;

impl<'m> Importer<'m> {
    /// Writes a function out in place of the node that calls it.
    pub(crate) fn call_function(
        &mut self,
        function: &'m FunctionProto,
        call: &Call,
        name: &str,
    ) -> Result<Vec<Value>> {
        let key = (&*function.domain, &*function.name);
        if self.active.contains(&key) {
            return Err(Error::malformed(format!("the function '{}' calls itself", function.name)));
        }
        self.check_depth()?;
        // Its nodes are copied for the call.
        let size = *self.function_sizes.entry(key).or_insert_with(|| function.encoded_len());
        self.spend(size / size_of::<f32>())?;
        let opset = if function.opsets.is_empty() { self.opset() } else { opset_of(&function.opsets)? };
        let mut scope = Scope { closed: true, opset, prefix: format!("{name}/"), ..Scope::default() };
        for (index, input) in function.inputs.iter().enumerate() {
            if let Some(value) = call.optional(index) {
                scope.values.insert(input.clone(), value.clone());
                scope.elements.extend(call.element(index).map(|element| (input.clone(), element)));
            }
        }
        let nodes: Vec<NodeProto> = function.nodes.iter().map(|n| bound(n, function, call)).collect();
        let wanted: Vec<&str> = function.outputs.iter().map(String::as_str).collect();
        self.active.push(key);
        self.scopes.push(scope);
        let read = self.read_nodes(&without_absent(nodes, function, call), &wanted);
        let outputs = read.and_then(|()| self.collect(&wanted));
        self.scopes.pop();
        self.active.pop();
        outputs
    }

    fn collect(&mut self, wanted: &[&str]) -> Result<Vec<Value>> {
        self.returned = wanted.iter().map(|name| self.element_of(name)).collect();
        wanted
            .iter()
            .map(|name| {
                self.lookup(name)
                    .ok_or_else(|| Error::malformed(format!("the output '{name}' is produced by nothing")))
            })
            .collect()
    }

    fn check_depth(&self) -> Result<()> {
        if self.scopes.len() > MAX_DEPTH {
            return Err(Error::malformed(format!("functions are nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(())
    }

    /// `If` with a known condition: the branch taken.
    pub(crate) fn import_if(&mut self, call: &Call) -> Result<Vec<Value>> {
        let condition = call.known(0).and_then(Known::array).and_then(|h| h.floats());
        let Some([condition]) = condition.as_deref() else {
            return Err(Error::unsupported(
                "If whose condition depends on the network's input is not supported; export the branch that is meant, by \
                 tracing the network for example",
            ));
        };
        let name = if *condition != 0.0 { "then_branch" } else { "else_branch" };
        let Some(AttributeValue::Graph(branch)) = call.node.attribute(name) else {
            return Err(Error::malformed(format!("If has no {name}")));
        };
        self.check_depth()?;
        let prefix = self.scopes.last().map_or(String::new(), |s| s.prefix.clone());
        let scope = Scope { opset: self.opset(), prefix, ..Scope::default() };
        self.scopes.push(scope);
        let outputs = self.read_branch(branch);
        self.scopes.pop();
        outputs
    }

    /// `Loop` with a known number of rounds: its body, round by round.
    pub(crate) fn import_loop(&mut self, call: &Call) -> Result<Vec<Value>> {
        let known = |value: Option<&Value>| match value {
            Some(Value::Known(known)) => known.array().and_then(|array| array.floats()?.first().copied()),
            _ => None,
        };
        let depends = |what: &str| {
            Error::unsupported(format!(
                "Loop whose {what} depends on the network's input is not supported; export it with a constant one"
            ))
        };
        let Some(AttributeValue::Graph(body)) = call.node.attribute("body") else {
            return Err(Error::malformed("Loop has no body"));
        };
        let rounds = match call.optional(0) {
            None => f64::INFINITY,
            trips => known(trips).ok_or_else(|| depends("number of rounds"))?,
        };
        let mut goes_on = match call.optional(1) {
            None => 1.0,
            condition => known(condition).ok_or_else(|| depends("condition"))?,
        };
        let mut carried: Vec<Value> =
            (2..call.inputs.len()).map(|index| call.input(index).cloned()).collect::<Result<_>>()?;
        let states = carried.len();
        if body.inputs.len() != states + 2 || body.outputs.len() < states + 1 {
            return Err(Error::malformed(format!(
                "the body of Loop has {} inputs and {} outputs for {states} values that are carried on",
                body.inputs.len(),
                body.outputs.len()
            )));
        }
        let mut kept = vec![Vec::new(); body.outputs.len() - states - 1];
        let mut elements: Vec<_> = (2..call.inputs.len()).map(|index| call.element(index)).collect();
        let mut returned = elements.clone();
        let (size, mut round) = (body.encoded_len(), 0);
        while (round as f64) < rounds && goes_on != 0.0 {
            if round == MAX_ROUNDS {
                return Err(Error::unsupported(format!(
                    "Loop of more than {MAX_ROUNDS} rounds is not supported; export it with fewer, or the network without it"
                )));
            }
            let number = Tensor::new([], vec![round as i64])?;
            let truth = Tensor::new([], vec![true])?;
            let mut given = vec![
                (Value::known("", Content::Tensor(number)), Some(Element::I64)),
                (Value::known("", Content::Tensor(truth)), Some(Element::Bool)),
            ];
            given.extend(carried.into_iter().zip(elements.iter().copied()));
            let mut found = self.read_round((body, size), given, round)?;
            returned = self.returned.split_off(1);
            elements = returned.iter().take(states).copied().collect();
            goes_on = known(found.first()).ok_or_else(|| depends("condition"))?;
            let scanned = found.split_off(states + 1);
            kept.iter_mut().zip(scanned).for_each(|(kept, value)| kept.push(value));
            carried = found.split_off(1);
            round += 1;
        }
        let scanned = kept.iter().map(|values| self.stacked(values, 0)).collect::<Result<Vec<_>>>()?;
        self.returned = returned;
        Ok(carried.into_iter().chain(scanned).collect())
    }

    /// `Scan` over a fixed number of steps: its body, step by step.
    pub(crate) fn import_scan(&mut self, call: &Call) -> Result<Vec<Value>> {
        if call.opset < 9 {
            return Err(Error::unsupported("Scan of operator set 8 is not supported; export a newer one"));
        }
        let Some(AttributeValue::Graph(body)) = call.node.attribute("body") else {
            return Err(Error::malformed("Scan has no body"));
        };
        let scanned = usize::try_from(call.int("num_scan_inputs", 0)?).ok().filter(|&n| n > 0);
        let states = scanned.and_then(|scanned| call.inputs.len().checked_sub(scanned));
        let (Some(scanned), Some(states)) = (scanned, states) else {
            return Err(Error::malformed("num_scan_inputs of Scan does not fit its inputs"));
        };
        if body.inputs.len() != call.inputs.len() || body.outputs.len() < states {
            return Err(Error::malformed("the body of Scan does not fit its inputs and outputs"));
        }
        let list = |name: &str, count: usize| -> Result<Vec<i64>> {
            let found = call.ints(name)?.unwrap_or_else(|| vec![0; count]);
            match found.len() == count {
                true => Ok(found),
                false => Err(Error::malformed(format!(
                    "{name} of Scan has {} numbers, expected {count}",
                    found.len()
                ))),
            }
        };
        let outputs = body.outputs.len() - states;
        let (axes, backward) = (list("scan_input_axes", scanned)?, list("scan_input_directions", scanned)?);
        let (out_axes, out_backward) =
            (list("scan_output_axes", outputs)?, list("scan_output_directions", outputs)?);
        let mut steps = None;
        let mut sources = Vec::with_capacity(scanned);
        for (index, &axis) in axes.iter().enumerate() {
            let value = self.operand(call, states + index)?;
            let shape = self.shape(value);
            let axis = call::axis(axis, shape.rank())?;
            if let Dim::Batch(_) = shape.dims()[axis] {
                return Err(Error::unsupported(format!(
                    "Scan along axis {axis} of {shape} goes from sample to sample; export it with a fixed number of steps, along \
                     another axis than that of the samples"
                )));
            }
            let length = shape.fixed_at(axis).filter(|&length| *steps.get_or_insert(length) == length);
            if length.is_none_or(|length| length == 0 || length > MAX_ROUNDS) {
                return Err(Error::unsupported(format!(
                    "Scan along axis {axis} of {shape} is not supported; export it with 1 to {MAX_ROUNDS} steps, as many for all \
                     its inputs"
                )));
            }
            sources.push((value, axis));
        }
        let steps = steps.unwrap_or(0);
        let mut carried: Vec<Value> =
            (0..states).map(|index| call.input(index).cloned()).collect::<Result<_>>()?;
        let mut elements: Vec<_> = (0..states).map(|index| call.element(index)).collect();
        let mut kept = vec![Vec::with_capacity(steps); outputs];
        let size = body.encoded_len();
        for step in 0..steps {
            let mut given: Vec<_> = carried.into_iter().zip(elements.iter().copied()).collect();
            for (index, &(value, axis)) in sources.iter().enumerate() {
                let start = if backward[index] == 0 { step } else { steps - 1 - step };
                let part = self.add(Op::Slice { axis, start, step: 1, length: 1 }, &[value])?;
                let mut dims = self.shape(value).dims().to_vec();
                dims.remove(axis);
                let part = self.add(Op::Reshape { shape: Shape::new(dims) }, &[part])?;
                given.push((Value::Node(part), call.element(states + index)));
            }
            let mut found = self.read_round((body, size), given, step)?;
            elements = self.returned.iter().take(states).copied().collect();
            let scanned = found.split_off(states);
            kept.iter_mut().zip(scanned).for_each(|(kept, value)| kept.push(value));
            carried = found;
        }
        let mut all = carried;
        for (index, mut values) in kept.into_iter().enumerate() {
            if out_backward[index] != 0 {
                values.reverse();
            }
            all.push(self.stacked(&values, out_axes[index])?);
        }
        Ok(all)
    }

    /// The outputs of a body of `size` bytes for a round, whose inputs have these values.
    fn read_round(
        &mut self,
        (body, size): (&GraphProto, usize),
        given: Vec<(Value, Option<Element>)>,
        round: usize,
    ) -> Result<Vec<Value>> {
        self.check_depth()?;
        // The body is read anew in every round.
        self.spend(size / size_of::<f32>())?;
        let prefix = self.scopes.last().map_or(String::new(), |scope| scope.prefix.clone());
        let scope =
            Scope { opset: self.opset(), prefix: format!("{prefix}round {round}/"), ..Scope::default() };
        self.scopes.push(scope);
        for (input, (value, element)) in body.inputs.iter().zip(given) {
            self.bind(&input.name, value.renamed(&input.name));
            self.bind_element(&input.name, element);
        }
        let outputs = self.read_branch(body);
        self.scopes.pop();
        outputs
    }

    /// Values of one shape along a new axis.
    fn stacked(&mut self, values: &[Value], axis: i64) -> Result<Value> {
        let mut parts = Vec::with_capacity(values.len());
        let mut at = 0;
        for value in values {
            let node = self.node_of(value)?;
            let mut dims = self.shape(node).dims().to_vec();
            at = call::axis(axis, dims.len() + 1)?;
            dims.insert(at, Dim::Fixed(1));
            parts.push(self.add(Op::Reshape { shape: Shape::new(dims) }, &[node])?);
        }
        if parts.is_empty() {
            return Err(Error::unsupported(
                "a loop of no rounds with an output for each is not supported; export it with at least one",
            ));
        }
        self.add(Op::Concat { axis: at }, &parts).map(Value::Node)
    }

    fn read_branch(&mut self, branch: &GraphProto) -> Result<Vec<Value>> {
        for proto in &branch.initializers {
            let tensor = super::elements::tensor(proto, &self.files)?;
            // A branch inside a function is read anew with every call.
            if !self.active.is_empty() {
                self.spend(tensor.len())?;
            }
            self.bind(&proto.name, Value::known(&proto.name, super::value::Content::Tensor(tensor)));
            self.bind_element(&proto.name, super::elements::element(proto.data_type).ok());
        }
        let wanted: Vec<&str> = branch.outputs.iter().map(|o| o.name.as_str()).collect();
        self.read_nodes(&branch.nodes, &wanted)?;
        self.collect(&wanted)
    }
}

/// A node of a function with the attributes that refer to the caller's put in.
fn bound(node: &NodeProto, function: &FunctionProto, call: &Call) -> NodeProto {
    let resolve = |attribute: &AttributeProto| match attribute.value() {
        AttributeValue::Reference(outer) => {
            let mut values = call.node.attributes.iter().chain(&function.defaults);
            values.find(|a| a.name == outer).map(|a| a.clone().named(&attribute.name))
        }
        _ => Some(attribute.clone()),
    };
    NodeProto { attributes: node.attributes.iter().filter_map(resolve).collect(), ..node.clone() }
}

/// Inputs the caller left out are left out inside as well.
fn without_absent(mut nodes: Vec<NodeProto>, function: &FunctionProto, call: &Call) -> Vec<NodeProto> {
    let absent: Vec<&String> = function
        .inputs
        .iter()
        .enumerate()
        .filter(|(i, _)| call.optional(*i).is_none())
        .map(|(_, n)| n)
        .collect();
    for node in &mut nodes {
        node.inputs.iter_mut().filter(|i| absent.iter().any(|a| *a == *i)).for_each(String::clear);
    }
    nodes
}
