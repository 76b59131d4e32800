//! Calls of modules. A network may call a module several times, as blocks of a ResNet do with their ReLU; all nodes then
//! carry the name of the module. The calls are numbered in topological order: `layer4.1.relu#1`, `layer4.1.relu#2`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use crate::address::{Layer, is_inside};
use crate::graph::{Graph, Label, Node, NodeId};

/// Between the name of a module and the number of a call of it.
const NUMBER: char = '#';

/// The nodes of one call, in topological order.
type Group = Vec<NodeId>;

/// `layer4.1.relu#2`.
pub(crate) fn numbered(module: &str, index: usize) -> String {
    format!("{module}{NUMBER}{}", index + 1)
}

/// `layer4.1.relu#2` → `layer4.1.relu` and the index 1.
fn split_number(name: &str) -> Option<(&str, usize)> {
    let (module, number) = name.rsplit_once(NUMBER)?;
    Some((module, number.parse::<usize>().ok()?.checked_sub(1)?))
}

impl Graph {
    /// Nodes in topological order, divided into groups that are connected through them: what a pass or an exporter made of
    /// one call of a module. Groups are in the order of their first nodes.
    pub(crate) fn connected(&self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of: HashMap<NodeId, usize> = HashMap::new();
        for id in nodes {
            let mut joined: Vec<usize> =
                self.node(id).inputs.iter().filter_map(|input| group_of.get(input).copied()).collect();
            joined.sort_unstable();
            joined.dedup();
            let Some((&group, others)) = joined.split_first() else {
                group_of.insert(id, groups.len());
                groups.push(vec![id]);
                continue;
            };
            for &other in others {
                let moved = std::mem::take(&mut groups[other]);
                group_of.extend(moved.iter().map(|&node| (node, group)));
                groups[group].extend(moved);
            }
            groups[group].push(id);
            group_of.insert(id, group);
        }
        groups.retain(|group| !group.is_empty());
        groups.iter_mut().for_each(|group| group.sort_unstable());
        groups
    }

    /// The nodes that are not constant and whose label matches.
    pub(crate) fn labelled(&self, matches: impl Fn(&Label) -> bool) -> impl Iterator<Item = NodeId> {
        self.nodes().filter(move |(_, node)| !node.is_constant() && matches(&node.label)).map(|(id, _)| id)
    }

    /// The calls of a module without others inside. Parts of a module that do not touch each other are calls of it only
    /// if they do the same; else the first of them stands for the module.
    pub(crate) fn calls(&self, module: &str) -> Vec<Layer> {
        let nodes = self.labelled(|label| !module.is_empty() && label.module == module);
        self.as_calls(self.connected(nodes))
    }

    fn as_calls(&self, groups: Vec<Group>) -> Vec<Layer> {
        let does = |group: &Group| group.iter().map(|&id| self.node(id).op.name()).collect::<Vec<_>>();
        let alike = groups.windows(2).all(|pair| does(&pair[0]) == does(&pair[1]));
        let layers = groups.iter().filter_map(|group| Layer::between(*group.first()?, *group.last()?));
        if alike { layers.collect() } else { layers.take(1).collect() }
    }

    /// The call that a name with a number stands for. PyTorch's older exporter numbers calls itself, `relu` and `relu_1`:
    /// those are found too.
    pub(crate) fn numbered_call(&self, name: &str) -> Option<Layer> {
        let (module, index) = split_number(name)?;
        self.all_calls(module).get(index).copied()
    }

    /// The calls of a module, those that PyTorch's older exporter gives names of their own included: `relu_1` is a call of
    /// `relu` if it does the same with the same weights, or both have none.
    pub(crate) fn all_calls(&self, module: &str) -> Vec<Layer> {
        let mut calls = self.calls(module);
        let &[own] = calls.as_slice() else { return calls };
        let others = (1..).map(|index| self.calls(&format!("{module}_{index}")));
        let alike = |other: &Vec<Layer>| other.len() == 1 && self.does(other[0]) == self.does(own);
        calls.extend(others.take_while(alike).flatten());
        calls
    }

    /// The ops of a call and the names of the weights it reads.
    fn does(&self, call: Layer) -> Vec<(&'static str, Vec<&str>)> {
        let module = &self.node(call.first).label.module;
        let nodes = self.nodes().skip(call.first.index()).take_while(|(id, _)| *id <= call.last);
        let own = nodes.filter(|(_, node)| !node.is_constant() && node.label.module == *module);
        let weights = |node: &Node| {
            let constants =
                node.inputs.iter().map(|&input| self.node(input)).filter(|node| node.is_constant());
            constants.map(|constant| constant.label.tensor.as_str()).collect()
        };
        own.map(|(_, node)| (node.op.name(), weights(node))).collect()
    }

    /// The names of the first nodes of calls, for all modules that are called several times.
    pub(crate) fn call_names(&self) -> HashMap<NodeId, String> {
        let mut modules: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
        for (id, node) in self.nodes().filter(|(_, node)| !node.is_constant()) {
            modules.entry(&node.label.module).or_default().push(id);
        }
        // Paths inside a module follow it in the order of the map: '.' and '/' are neighbours.
        let has_inside = |module: &str| {
            let inside =
                modules.range::<str, _>((Bound::Excluded(format!("{module}.").as_str()), Bound::Unbounded));
            inside.map(|(path, _)| *path).next().is_some_and(|path| is_inside(module, path))
        };
        let mut names = HashMap::new();
        for (&module, nodes) in modules.iter().filter(|(module, nodes)| nodes.len() > 1 && !module.is_empty())
        {
            if has_inside(module) {
                continue;
            }
            let calls = self.as_calls(self.connected(nodes.iter().copied()));
            let named = calls.iter().enumerate().map(|(index, call)| (call.first, numbered(module, index)));
            names.extend(named.filter(|_| calls.len() > 1));
        }
        names
    }

    /// A name for the value that a node produces, such that the layer of that name ends in it; `None` if it has none.
    pub fn output_name(&self, value: NodeId) -> Option<String> {
        self.names_of(value).into_iter().find(|name| self.layer(name).is_ok_and(|layer| layer.last == value))
    }

    /// A name for a node, such that the layer of that name begins with it; `None` if it has none.
    pub fn input_name(&self, node: NodeId) -> Option<String> {
        let begins = |layer: Layer| layer.first == node && !layer.merged;
        self.names_of(node).into_iter().find(|name| self.layer(name).is_ok_and(begins))
    }

    /// Names that may stand for a node, the best first.
    fn names_of(&self, id: NodeId) -> Vec<String> {
        let label = &self.node(id).label;
        let mut names = vec![label.module.clone()];
        let calls = self.calls(&label.module);
        let position = calls.iter().position(|call| (call.first..=call.last).contains(&id));
        names.extend(position.map(|index| numbered(&label.module, index)));
        names.extend([&label.node, &label.tensor].map(Clone::clone));
        names.retain(|name| !name.is_empty());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::LayerName;
    use crate::error::ErrorKind;
    use crate::op::{Binary, Op, Unary};
    use crate::shape::Shape;
    use crate::tensor::Kind;

    fn label(module: &str, node: &str) -> Label {
        Label { module: module.into(), node: node.into(), tensor: format!("{node}_out"), aliases: Vec::new() }
    }

    /// A residual block that calls its ReLU twice, the way PyTorch's newer exporter names it, or its older one.
    fn block(second: &str) -> (Graph, [NodeId; 2]) {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let act = |g: &mut Graph, module: &str, node: &str, x| {
            g.add_named(label(module, node), Op::Unary(Unary::Relu), &[x]).unwrap()
        };
        let first = act(&mut g, "block.relu", "node_relu_1", x);
        let conv = g.add_named(label("block.conv", "node_conv"), Op::Unary(Unary::Neg), &[first]).unwrap();
        let sum = g.add_named(label("block", "node_add"), Op::Binary(Binary::Add), &[conv, x]).unwrap();
        let second = act(&mut g, second, "node_relu_2", sum);
        g.output("y", second);
        (g, [first, second])
    }

    #[test]
    fn issue_27_a_module_called_twice_is_asked_which_call_is_meant() {
        let (g, [first, second]) = block("block.relu");
        assert_eq!(LayerName::parse("block.relu#1:out").value(&g).unwrap(), first);
        assert_eq!(LayerName::parse("block.relu#2:out").value(&g).unwrap(), second);
        let error = g.layer("block.relu").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownName);
        let said = error.to_string();
        assert!(said.contains("'block.relu#1' (node_relu_1), 'block.relu#2' (node_relu_2)"), "{said}");
        assert!(g.layer("block.relu#3").unwrap_err().to_string().contains("'block.relu#2'"));
        for wrong in ["block.relu#0", "block.relu#", "block.relu#-1", "block.relu#99999999999999999999", "#1"]
        {
            assert!(g.layer(wrong).is_err(), "{wrong}");
        }
        let listed: Vec<String> = g.layers().into_iter().map(|layer| layer.name).collect();
        assert_eq!(listed, ["x", "block.relu#1", "block.conv", "block", "block.relu#2"]);
        for (name, node) in listed.iter().zip(g.layers()) {
            assert_eq!(g.layer(name).unwrap().last == node.node, name != "block", "{name}");
        }
        assert_eq!(g.output_name(second).unwrap(), "block.relu#2");
        assert_eq!(g.input_name(second).unwrap(), "block.relu#2");
    }

    #[test]
    fn issue_27_calls_are_found_where_the_older_exporter_numbers_them() {
        let (g, [first, second]) = block("block.relu_1");
        let said = g.layer("block.relu").unwrap_err().to_string();
        assert!(said.contains("'block.relu#1' (node_relu_1), 'block.relu#2' (node_relu_2)"), "{said}");
        assert_eq!(g.output_name(first).unwrap(), "block.relu#1");
        assert_eq!(g.layer("block.relu#1").unwrap().last, first);
        assert_eq!(g.layer("block.relu#2").unwrap().last, second);
        assert_eq!(g.output_name(second).unwrap(), "block.relu_1");
        assert!(g.layer("block.relu#3").is_err());
    }

    #[test]
    fn modules_with_weights_of_their_own_are_no_calls_of_each_other() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let scaled = |g: &mut Graph, module: &str, weight: &str, x: NodeId| {
            let one = crate::Tensor::vector(vec![1f32; 3]);
            let weight = g.named_constant(Label { tensor: weight.into(), ..Label::default() }, one);
            g.add_named(label(module, module), Op::Binary(Binary::Mul), &[x, weight]).unwrap()
        };
        let first = scaled(&mut g, "scale", "scale.weight", x);
        let second = scaled(&mut g, "scale_1", "scale_1.weight", first);
        assert_eq!(g.layer("scale").unwrap().last, first);
        assert!(g.layer("scale#2").is_err());
        let shared = scaled(&mut g, "scale_2", "scale.weight", second);
        assert_eq!(g.all_calls("scale").len(), 1);
        assert_eq!(g.layer("scale_2").unwrap().last, shared);
    }

    #[test]
    fn parts_of_one_call_are_no_calls() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let a = g.add_named(label("gate", "a"), Op::Unary(Unary::Exp), &[x]).unwrap();
        let b = g.add_named(label("gate", "b"), Op::Unary(Unary::Neg), &[x]).unwrap();
        assert_eq!(g.layer("gate").unwrap().last, a);
        let product = g.add_named(label("gate", "c"), Op::Binary(Binary::Mul), &[a, b]).unwrap();
        assert_eq!(g.layer("gate").unwrap(), Layer::between(a, product).unwrap());
        assert_eq!(g.output_name(b).unwrap(), "b");
    }
}
