//! A graph prepared for backward walks: which of its values are active, who uses them, and how composite nodes are
//! decomposed into nodes that have rules.

use std::collections::HashMap;

use monosplit_graph::passes::primitive;
use monosplit_graph::{Error, Graph, Kind, Node, NodeId, Op, Result};

/// A copy of a graph with what a [`Walk`](crate::Walk) needs to know about it.
///
/// A value is *active* if it holds real numbers and depends on one of the inputs that were named. Only active values
/// have messages.
///
/// A node without a rule of its own (`LogSoftmax`, `LayerNorm`, …) is *decomposed*: nodes that compute the same value from
/// primitive ops are inserted before it, and the walk goes through them. The original node stays, and what used its value
/// still does, so no value of the graph changes by a bit.
///
/// The graph that a walk writes starts as a copy of [`ActiveGraph::graph`]. A node has the same id in both.
#[derive(Clone, Debug)]
pub struct ActiveGraph {
    graph: Graph,
    ids: Vec<NodeId>,
    active: Vec<bool>,
    decompositions: HashMap<NodeId, NodeId>,
    inner: Vec<bool>,
    users: Vec<Vec<User>>,
    inputs: Vec<NodeId>,
    output: NodeId,
}

/// A node that uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The node.
    pub node: NodeId,
    /// Which of its inputs the value is; none if the value is the result of the node's decomposition.
    pub input: Option<usize>,
}

impl ActiveGraph {
    /// Prepares `source` for walks from the value `output` back to the values `inputs`. Ids change, because
    /// decompositions are inserted: [`ActiveGraph::output`] and [`ActiveGraph::inputs`] return the new ones.
    ///
    /// Fails if `output` does not depend on any of `inputs` through real numbers.
    pub fn new(source: &Graph, output: NodeId, inputs: &[NodeId]) -> Result<Self> {
        let copy = decomposed(source)?;
        let find = |id: &NodeId| {
            let copied = copy.map.get(id.index()).copied();
            copied.ok_or_else(|| Error::argument(format!("{id} is not a value of the graph")))
        };
        let (output, inputs) = (find(&output)?, inputs.iter().map(find).collect::<Result<Vec<NodeId>>>()?);
        let Decomposed { graph, decompositions, inner, .. } = copy;
        let mut active = vec![false; graph.len()];
        for (id, node) in graph.nodes() {
            let depends = node.inputs.iter().any(|i| active[i.index()]);
            active[id.index()] = node.kind == Kind::Float && (depends || inputs.contains(&id));
        }
        if !active[output.index()] {
            let name = graph.node(output).label.display();
            return Err(
                Error::argument("the value does not depend on the inputs through real numbers").at(name)
            );
        }
        let ids = graph.nodes().map(|(id, _)| id).collect();
        let users = Vec::new();
        let mut prepared = ActiveGraph { graph, ids, active, decompositions, inner, users, inputs, output };
        prepared.users = prepared.find_users();
        Ok(prepared)
    }

    /// The name of a node; of one inside a decomposition, that of the node which is decomposed.
    pub(crate) fn display(&self, id: NodeId) -> &str {
        let owner = match self.inner.get(id.index()) {
            // It is inserted after its decomposition.
            Some(true) => self.ids[id.index()..].iter().find(|id| self.decompositions.contains_key(id)),
            _ => None,
        };
        self.graph.node(*owner.unwrap_or(&id)).label.display()
    }

    /// The graph, with the decompositions.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The values that walks lead to, in the order in which they were named.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// The value that walks start from.
    pub fn output(&self) -> NodeId {
        self.output
    }

    /// The node at a position in topological order.
    pub(crate) fn id(&self, index: usize) -> NodeId {
        self.ids[index]
    }

    /// All nodes in topological order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.graph.nodes()
    }

    /// Whether the value depends on one of the inputs. False for nodes that were added to a copy of the graph.
    pub fn is_active(&self, id: NodeId) -> bool {
        self.active.get(id.index()).copied().unwrap_or(false)
    }

    /// For a node that is decomposed: the node that computes the same value from primitive ops.
    pub fn decomposition(&self, id: NodeId) -> Option<NodeId> {
        self.decompositions.get(&id).copied()
    }

    /// Whether the node is an intermediate step of a decomposition. Its result does not count as one.
    pub fn is_decomposition_step(&self, id: NodeId) -> bool {
        self.inner[id.index()]
    }

    /// The active nodes that use a value, the last one first.
    pub fn users(&self, id: NodeId) -> &[User] {
        &self.users[id.index()]
    }

    fn find_users(&self) -> Vec<Vec<User>> {
        let mut users = vec![Vec::new(); self.graph.len()];
        for &node in self.ids.iter().rev().filter(|&&id| self.is_active(id)) {
            match self.decomposition(node) {
                Some(result) => users[result.index()].push(User { node, input: None }),
                None => {
                    for (index, input) in self.active_inputs(node) {
                        users[input.index()].push(User { node, input: Some(index) });
                    }
                }
            }
        }
        users
    }

    /// The active inputs of a node, with their positions.
    pub fn active_inputs(&self, id: NodeId) -> Vec<(usize, NodeId)> {
        let inputs = self.graph.node(id).inputs.iter().copied().enumerate();
        inputs.filter(|&(_, input)| self.is_active(input)).collect()
    }

    /// The values that a node's value is computed from, as the walk sees it: the result of its decomposition, or its
    /// active inputs.
    pub fn predecessors(&self, id: NodeId) -> Vec<NodeId> {
        match self.decomposition(id) {
            Some(result) => vec![result],
            None => self.active_inputs(id).into_iter().map(|(_, input)| input).collect(),
        }
    }

    /// For each value, whether it depends on one of `values`. These depend on themselves.
    pub fn dependents(&self, values: &[NodeId]) -> Vec<bool> {
        let mut dependents = vec![false; self.graph.len()];
        for &id in &self.ids {
            let depends = || self.predecessors(id).iter().any(|before| dependents[before.index()]);
            dependents[id.index()] = self.is_active(id) && (values.contains(&id) || depends());
        }
        dependents
    }

    /// For each value, whether the output depends on it.
    pub fn output_dependencies(&self) -> Vec<bool> {
        let mut reached = vec![false; self.graph.len()];
        reached[self.output.index()] = true;
        for &id in self.ids.iter().rev() {
            let used = self.users(id).iter().any(|user| reached[user.node.index()]);
            reached[id.index()] |= used;
        }
        reached
    }
}

/// A graph copied with a decomposition before each node that has no rule of its own.
struct Decomposed {
    graph: Graph,
    /// Where each node of the source went.
    map: Vec<NodeId>,
    decompositions: HashMap<NodeId, NodeId>,
    inner: Vec<bool>,
}

fn decomposed(source: &Graph) -> Result<Decomposed> {
    let mut graph = Graph::new();
    let mut decompositions = HashMap::new();
    let mut inner = Vec::new();
    let mut map: Vec<NodeId> = Vec::with_capacity(source.len());
    for (_, node) in source.nodes() {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|i| map[i.index()]).collect();
        let decomposition = if node.is_constant() {
            None
        } else {
            primitive(&mut graph, &node.op, &inputs).map_err(|e| e.at(node.label.display()))?
        };
        inner.resize(graph.len(), true);
        if let Some(result) = decomposition {
            inner[result.index()] = false;
        }
        let id = match &node.op {
            Op::Input => {
                let id = graph.input(node.label.tensor.clone(), node.shape.clone(), node.kind);
                *graph.label_mut(id) = node.label.clone();
                id
            }
            Op::Constant(tensor) => graph.named_constant(node.label.clone(), tensor.clone()),
            op => graph.add_named(node.label.clone(), op.clone(), &inputs)?,
        };
        inner.push(false);
        if let Some(result) = decomposition {
            decompositions.insert(id, result);
        }
        map.push(id);
    }
    for output in source.outputs() {
        graph.output(output.name.clone(), map[output.node.index()]);
    }
    Ok(Decomposed { graph, map, decompositions, inner })
}

#[cfg(test)]
mod tests {
    use monosplit_graph::Shape;
    use monosplit_graph::op::Unary;

    use super::*;

    #[test]
    fn a_decomposed_node_is_reached_through_its_decomposition() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::fixed(&[2, 3]), Kind::Float);
        let softmax = g.add(Op::Softmax { axis: 1 }, &[x]).unwrap();
        let y = g.unary(Unary::Exp, softmax).unwrap();
        let active = ActiveGraph::new(&g, y, &[x]).unwrap();
        let (x, y) = (active.inputs()[0], active.output());
        let [(_, softmax)] = active.active_inputs(y)[..] else { panic!("one input") };
        let result = active.decomposition(softmax).expect("a softmax has no rule of its own");
        assert_eq!(active.users(result), [User { node: softmax, input: None }]);
        assert_eq!(active.predecessors(softmax), [result]);
        assert!(!active.is_decomposition_step(result));
        assert!(active.users(x).iter().all(|user| active.is_decomposition_step(user.node)));
        // Its value is still computed by the original node.
        assert!(matches!(active.graph().node(softmax).op, Op::Softmax { .. }));
        assert_eq!(active.graph().node(y).inputs, [softmax]);
    }

    #[test]
    fn only_what_lies_between_input_and_output_is_active_and_needed() {
        let mut g = Graph::new();
        let a = g.input("a", Shape::fixed(&[3]), Kind::Float);
        let b = g.input("b", Shape::fixed(&[3]), Kind::Float);
        let sum = g.plus(a, b).unwrap();
        let aside = g.unary(Unary::Exp, a).unwrap();
        let active = ActiveGraph::new(&g, sum, &[a]).unwrap();
        assert_eq!([a, b, sum, aside].map(|id| active.is_active(id)), [true, false, true, true]);
        let dependencies = active.output_dependencies();
        assert_eq!([a, sum, aside].map(|id| dependencies[id.index()]), [true, true, false]);
        let dependents = active.dependents(&[sum]);
        assert_eq!([a, sum, aside].map(|id| dependents[id.index()]), [false, true, false]);
        assert!(ActiveGraph::new(&g, b, &[a]).is_err());
    }
}
