//! The names that nodes of a graph take from the file they are read from, made unique.

use std::collections::HashMap;

use super::call::Call;
use super::import::Importer;
use super::model::NodeProto;
use super::module_path::module_path;
use super::value::Value;
use crate::graph::{Label, NodeId};
use crate::op::Op;

impl Importer<'_> {
    /// Gives the nodes made for a call their names: the file's for those that stand for an output.
    pub(crate) fn label_nodes(&mut self, call: &Call, name: &str, first: usize, values: &[Value]) {
        // Exporters store equal weights once: one that several nodes read tells nothing of a single one.
        let alone = |name: &str| self.readers.get(name).is_none_or(|&count| count <= 1);
        let weights = call.inputs.iter().filter_map(|v| match v {
            Some(Value::Known(known)) if alone(&known.name) => Some(known.name.as_str()),
            _ => None,
        });
        let module = module_path(call.node, weights);
        let mut outputs: HashMap<NodeId, usize> = HashMap::new();
        for (index, value) in values.iter().enumerate() {
            match value {
                Value::Node(id) => outputs.entry(*id).or_insert(index),
                Value::Quantised(quantised) => outputs.entry(quantised.real).or_insert(index),
                Value::Known(_) | Value::Positions(_) | Value::Sequence(_) | Value::Unknown => continue,
            };
        }
        let count = self.graph.len() - first;
        let made: Vec<NodeId> = self.graph.nodes().rev().take(count).map(|(id, _)| id).collect();
        for id in made.into_iter().rev() {
            let op = &self.graph.node(id).op;
            if matches!(op, Op::Constant(_)) {
                continue;
            }
            let op_name = op.name();
            let label = match outputs.get(&id) {
                Some(&index) => Label {
                    node: if index == 0 {
                        name.to_owned()
                    } else {
                        self.names.fresh(&format!("{name}.{index}"))
                    },
                    tensor: call.node.outputs.get(index).cloned().unwrap_or_default(),
                    module: module.clone(),
                    aliases: Vec::new(),
                },
                None => {
                    let inner = self.names.fresh(&format!("{name}/{op_name}"));
                    Label { module: module.clone(), ..Label::named(inner) }
                }
            };
            *self.graph.label_mut(id) = label;
        }
        for (&id, &index) in &outputs {
            if id.index() < first && index == 0 {
                self.graph.label_mut(id).aliases.push(name.to_owned());
            }
        }
    }

    /// The name of a node of the file, or one made up for it.
    pub(crate) fn unique_name(&mut self, node: &NodeProto, index: usize) -> String {
        let prefix = self.scopes.last().map_or("", |s| s.prefix.as_str());
        let own = match node.name.as_str() {
            "" => format!("{prefix}{}_{index}", node.op_type),
            name => format!("{prefix}{name}"),
        };
        if self.names.contains(&own) { self.names.fresh(&own) } else { own }
    }
}
