//! Graph rewriting: a walk over the nodes of a graph in topological order that builds a new graph.
//! Every pass is such a walk, and a graph copied into a larger one is the same walk with nothing changed.

use std::collections::HashMap;
use std::ops::Index;

use crate::error::Result;
use crate::graph::{Graph, Label, Node, NodeId, Output};
use crate::op::Op;

/// Where the values of one graph went in another.
#[derive(Clone, Debug, Default)]
pub struct NodeMap(Vec<NodeId>);

impl Index<NodeId> for NodeMap {
    type Output = NodeId;

    fn index(&self, old: NodeId) -> &NodeId {
        &self.0[old.index()]
    }
}

/// What becomes of the node a [`Rewrite`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is copied, reading the new values.
    Keep,
    /// This value of the new graph stands for it. A value just made takes over the node's names; a value that
    /// has names already keeps them and gets the node's as aliases.
    Replace(NodeId),
}

/// A walk over a graph that builds another.
///
/// ```
/// use monosplit_graph::op::Unary;
/// use monosplit_graph::passes::{Rewrite, Step};
/// use monosplit_graph::{Graph, Kind, Op, Shape};
///
/// let mut graph = Graph::new();
/// let x = graph.input("x", Shape::batched(&[3]), Kind::Float);
/// let y = graph.add(Op::Unary(Unary::Abs), &[x])?;
/// graph.output("y", y);
///
/// let softened = Rewrite::run(&graph, |rewrite, _, node| match node.op {
///     Op::Unary(Unary::Abs) => {
///         let x = rewrite.value(node.inputs[0]);
///         rewrite.target.unary(Unary::Softplus, x).map(Step::Replace)
///     }
///     _ => Ok(Step::Keep),
/// })?;
/// assert_eq!(softened.node(softened.outputs()[0].node).op.name(), "Softplus");
/// # Ok::<(), monosplit_graph::Error>(())
/// ```
#[derive(Debug)]
pub struct Rewrite<'a> {
    /// The graph being built.
    pub target: Graph,
    source: &'a Graph,
    values: NodeMap,
}

impl<'a> Rewrite<'a> {
    /// The beginning of a rewrite of `source`.
    pub fn new(source: &'a Graph) -> Self {
        Rewrite { target: Graph::new(), source, values: NodeMap(Vec::with_capacity(source.len())) }
    }

    /// Walks `source`, asks `visit` about every node but the inputs, and returns the finished graph.
    pub fn run(
        source: &'a Graph,
        visit: impl FnMut(&mut Rewrite<'a>, NodeId, &'a Node) -> Result<Step>,
    ) -> Result<Graph> {
        let mut rewrite = Rewrite::new(source);
        rewrite.walk(visit)?;
        rewrite.finish()
    }

    /// Asks `visit` about every node but the inputs, in topological order. An error is said to concern the old node.
    pub fn walk(
        &mut self,
        mut visit: impl FnMut(&mut Rewrite<'a>, NodeId, &'a Node) -> Result<Step>,
    ) -> Result<()> {
        for (id, node) in self.source.nodes() {
            let first_new = self.target.len();
            let step = match node.op {
                Op::Input => Step::Keep,
                _ => visit(self, id, node).map_err(|e| e.at(node.label.display()))?,
            };
            let value = match step {
                Step::Keep => {
                    let inputs = self.inputs(node);
                    self.target.add_copy(node, &inputs)?
                }
                Step::Replace(value) => {
                    self.hand_over_names(&node.label, value, first_new);
                    value
                }
            };
            self.values.0.push(value);
        }
        Ok(())
    }

    /// The value inside a replacement keeps the old tensor's name; what leads to it shares node and module, so that
    /// the layer is still found from its first node to its last.
    fn hand_over_names(&mut self, old: &Label, value: NodeId, first_new: usize) {
        let made = self.target.len() - first_new;
        let made_now: Vec<NodeId> = self.target.nodes().rev().take(made).map(|(id, _)| id).collect();
        for id in made_now {
            if id != value && !self.target.node(id).is_constant() && self.target.node(id).label.is_empty() {
                let label = self.target.label_mut(id);
                label.node.clone_from(&old.node);
                label.module.clone_from(&old.module);
            }
        }
        let label = self.target.label_mut(value);
        if value.index() >= first_new && label.is_empty() {
            label.clone_from(old);
        } else {
            label.absorb(old.clone());
        }
    }

    /// The graph being rewritten.
    pub fn source(&self) -> &'a Graph {
        self.source
    }

    /// The new value that stands for a node already walked over.
    pub fn value(&self, old: NodeId) -> NodeId {
        self.values[old]
    }

    /// The new values that stand for what `node`, of the old graph, reads.
    pub fn inputs(&self, node: &Node) -> Vec<NodeId> {
        node.inputs.iter().map(|&id| self.value(id)).collect()
    }

    /// From here on `new` stands for the node `old`, already walked over.
    pub fn redirect(&mut self, old: NodeId, new: NodeId) {
        self.values.0[old.index()] = new;
    }

    /// The new graph with the old one's outputs and properties, without the nodes that no output depends on.
    pub fn finish(mut self) -> Result<Graph> {
        let outputs = self.source.outputs().iter();
        let outputs = outputs.map(|o| Output { name: o.name.clone(), node: self.values[o.node] }).collect();
        self.target.set_outputs(outputs);
        for (key, value) in self.source.metadata() {
            self.target.set_metadata(key, value);
        }
        self.target.pruned()
    }
}

impl Graph {
    /// Adds a copy of `node`, which may belong to another graph, reading `inputs` of this one.
    pub fn add_copy(&mut self, node: &Node, inputs: &[NodeId]) -> Result<NodeId> {
        match &node.op {
            Op::Input => {
                let id = self.input("", node.shape.clone(), node.kind);
                self.label_mut(id).clone_from(&node.label);
                Ok(id)
            }
            Op::Constant(tensor) => Ok(self.named_constant(node.label.clone(), tensor.clone())),
            op => self.add_named(node.label.clone(), op.clone(), inputs),
        }
    }

    /// Copies all nodes into `target`, inputs as further inputs of it, and says where each went. Outputs and
    /// properties are not copied.
    pub fn copy_into(&self, target: &mut Graph) -> Result<NodeMap> {
        self.copy_into_with(target, &HashMap::new())
    }

    /// Like [`Graph::copy_into`], except that the nodes in `given` are not copied: the value of `target` it names
    /// stands for each. Bind the inputs to run one network on another's values.
    pub fn copy_into_with(&self, target: &mut Graph, given: &HashMap<NodeId, NodeId>) -> Result<NodeMap> {
        let mut map = NodeMap(Vec::with_capacity(self.len()));
        for (id, node) in self.nodes() {
            let new = match given.get(&id) {
                Some(&value) => value,
                None => {
                    let inputs: Vec<NodeId> = node.inputs.iter().map(|&input| map[input]).collect();
                    target.add_copy(node, &inputs)?
                }
            };
            map.0.push(new);
        }
        Ok(map)
    }

    /// The graph without the nodes that no output depends on; inputs always stay.
    pub fn pruned(&self) -> Result<Graph> {
        let outputs = self.outputs().iter().map(|output| output.node);
        let live = self.ancestors(self.inputs().iter().copied().chain(outputs));
        let mut target = Graph::new();
        let mut values: Vec<Option<NodeId>> = vec![None; self.len()];
        for (id, node) in self.nodes().filter(|(id, _)| live[id.index()]) {
            let inputs: Vec<NodeId> = node.inputs.iter().filter_map(|input| values[input.index()]).collect();
            values[id.index()] = Some(target.add_copy(node, &inputs)?);
        }
        for output in self.outputs() {
            if let Some(node) = values[output.node.index()] {
                target.output(output.name.clone(), node);
            }
        }
        for (key, value) in self.metadata() {
            target.set_metadata(key, value);
        }
        Ok(target)
    }

    /// For every node, how often it is read, by nodes and as an output.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut uses = vec![0; self.len()];
        let read =
            self.nodes().flat_map(|(_, node)| &node.inputs).chain(self.outputs().iter().map(|o| &o.node));
        read.for_each(|id| uses[id.index()] += 1);
        uses
    }
}

impl Label {
    /// Whether there is no name at all.
    pub fn is_empty(&self) -> bool {
        self.display().is_empty() && self.aliases.is_empty()
    }

    /// Takes all names of `other` as aliases.
    pub fn absorb(&mut self, mut other: Label) {
        if other.aliases.len() > self.aliases.len() {
            std::mem::swap(&mut self.aliases, &mut other.aliases);
        }
        let Label { module, node, tensor, aliases } = other;
        for name in [module, node, tensor].into_iter().chain(aliases) {
            let own = [&self.module, &self.node, &self.tensor].contains(&&name);
            if !name.is_empty() && !own && self.aliases.last() != Some(&name) {
                self.aliases.push(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Binary, Unary};
    use crate::shape::Shape;
    use crate::tensor::Kind;

    fn two_layers() -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        g.input("unused", Shape::batched(&[1]), Kind::Float);
        let a = g.add_named(Label::named("a"), Op::Unary(Unary::Relu), &[x]).unwrap();
        g.add_named(Label::named("dead"), Op::Unary(Unary::Exp), &[a]).unwrap();
        let b = g.add_named(Label::named("b"), Op::Unary(Unary::Abs), &[a]).unwrap();
        g.output("y", b);
        g.set_metadata("author", "nobody");
        g
    }

    #[test]
    fn keeping_everything_changes_nothing_but_drops_what_is_dead() {
        let g = two_layers();
        let same = Rewrite::run(&g, |_, _, _| Ok(Step::Keep)).unwrap();
        let names: Vec<&str> = same.nodes().map(|(_, n)| n.label.display()).collect();
        assert_eq!(names, ["x", "unused", "a", "b"]);
        assert_eq!(same.inputs().len(), 2);
        assert_eq!(same.outputs()[0].name, "y");
        assert_eq!(same.metadata(), g.metadata());
    }

    #[test]
    fn a_replacement_takes_the_names_and_what_leads_to_it_shares_the_node() {
        let g = two_layers();
        let new = Rewrite::run(&g, |rw, _, node| match node.op {
            Op::Unary(Unary::Abs) => {
                let x = rw.value(node.inputs[0]);
                let negative = rw.target.unary(Unary::Neg, x)?;
                rw.target.binary(Binary::Max, x, negative).map(Step::Replace)
            }
            _ => Ok(Step::Keep),
        })
        .unwrap();
        let last = new.node(new.outputs()[0].node);
        assert_eq!(last.label, Label::named("b"));
        assert_eq!(new.node(last.inputs[1]).label.node, "b");
        assert_eq!(new.node(last.inputs[1]).label.tensor, "");
    }

    #[test]
    fn a_dropped_node_leaves_its_names_as_aliases() {
        let g = two_layers();
        let new = Rewrite::run(&g, |rw, _, node| match node.op {
            Op::Unary(Unary::Abs) => Ok(Step::Replace(rw.value(node.inputs[0]))),
            _ => Ok(Step::Keep),
        })
        .unwrap();
        let last = &new.node(new.outputs()[0].node).label;
        assert_eq!((last.node.as_str(), last.aliases.as_slice()), ("a", &["b".to_string()][..]));
    }

    #[test]
    fn a_graph_is_copied_behind_another() {
        let g = two_layers();
        let mut twice = Graph::new();
        let first = g.copy_into(&mut twice).unwrap();
        let y = first[g.outputs()[0].node];
        let second = g.copy_into_with(&mut twice, &HashMap::from([(g.inputs()[0], y)])).unwrap();
        let relu = second[g.nodes().nth(2).unwrap().0];
        assert_eq!(twice.node(relu).inputs, [y]);
        assert_eq!(twice.inputs().len(), 3);
    }
}
