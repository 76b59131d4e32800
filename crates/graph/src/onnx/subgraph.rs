//! Nodes that contain nodes: functions of the file, written out where they are called, and `If` whose
//! condition is known.

use prost::Message;

use super::call::Call;
use super::import::{Importer, Scope, opset_of};
use super::model::{AttributeProto, AttributeValue, FunctionProto, GraphProto, NodeProto};
use super::value::{Known, Value};
use crate::error::{Error, Result};

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
        self.spend(function.encoded_len() / size_of::<f32>())?;
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
                "If whose condition depends on the network's input is not supported",
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
