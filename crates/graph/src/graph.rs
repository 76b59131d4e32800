//! A network: nodes in topological order, each producing one value. A graph is only ever appended to, every
//! node's shape is inferred as it is added, so a graph that exists is acyclic, in SSA form and well-shaped.

use std::fmt;

use crate::error::{Error, Result};
use crate::infer::infer;
use crate::op::{MultiplyAdds, Op};
use crate::shape::Shape;
use crate::tensor::{Kind, Tensor};

/// A node of a graph, and the value it produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// Position in topological order.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// The names a node goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Name of the node, as in the ONNX file.
    pub node: String,
    /// Name of the value it produces, as in the ONNX file.
    pub tensor: String,
    /// Path of the module it came from, as PyTorch names it (`layer4.1.conv2`); empty if not known.
    pub module: String,
    /// Names of nodes that were merged into this one.
    pub aliases: Vec<String>,
}

impl Label {
    /// A label with one name for node and value.
    pub fn named(name: impl Into<String>) -> Self {
        let node = name.into();
        Label { tensor: node.clone(), node, ..Label::default() }
    }

    /// The name a person would use: the module path, else the node name, else the tensor name.
    pub fn display(&self) -> &str {
        [&self.module, &self.node, &self.tensor].into_iter().find(|s| !s.is_empty()).map_or("", |s| s)
    }
}

/// One operation with the values it reads and what is known of the value it produces.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is done.
    pub op: Op,
    /// The values read.
    pub inputs: Vec<NodeId>,
    /// Shape of the value produced.
    pub shape: Shape,
    /// Kind of number produced.
    pub kind: Kind,
    /// Names.
    pub label: Label,
    constant: bool,
}

impl Node {
    /// Whether the value depends on no graph input.
    pub fn is_constant(&self) -> bool {
        self.constant
    }
}

/// An output of the graph: a value and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The name.
    pub name: String,
    /// The node that produces it.
    pub node: NodeId,
}

/// A network.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    inputs: Vec<NodeId>,
    outputs: Vec<Output>,
    metadata: Vec<(String, String)>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Graph::default()
    }

    /// Adds an input.
    pub fn input(&mut self, name: impl Into<String>, shape: Shape, kind: Kind) -> NodeId {
        let node = Node {
            op: Op::Input,
            inputs: Vec::new(),
            shape,
            kind,
            label: Label::named(name),
            constant: false,
        };
        let id = self.push(node);
        self.inputs.push(id);
        id
    }

    /// Adds a constant without a name.
    pub fn constant(&mut self, tensor: Tensor) -> NodeId {
        self.named_constant(Label::default(), tensor)
    }

    /// Adds a constant, a weight for instance.
    pub fn named_constant(&mut self, label: Label, tensor: Tensor) -> NodeId {
        let (shape, kind) = (Shape::fixed(tensor.shape()), tensor.kind());
        self.push(Node { op: Op::Constant(tensor), inputs: Vec::new(), shape, kind, label, constant: true })
    }

    /// Adds a node without a name.
    pub fn add(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        self.add_named(Label::default(), op, inputs)
    }

    /// Adds a node; an error, naming it, if its inputs do not fit its op. The bounds of a clip are put in order: the node's lower
    /// bound is never above its upper one, and neither is NaN.
    pub fn add_named(&mut self, label: Label, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        let op = if let Op::Unary(function) = op { Op::Unary(function.with_ordered_bounds()) } else { op };
        let mut operands = Vec::with_capacity(inputs.len());
        for id in inputs {
            let node = self.nodes.get(id.index()).ok_or_else(|| {
                Error::argument(format!("reads {id}, which is not in this graph")).at(label.display())
            })?;
            operands.push(node);
        }
        let (shape, kind) = infer(&op, &operands).map_err(|e| {
            let name = label.display();
            if name.is_empty() { e.at(format!("{} {}", op.name(), self.nodes.len())) } else { e.at(name) }
        })?;
        let constant = !operands.is_empty() && operands.iter().all(|n| n.constant);
        Ok(self.push(Node { op, inputs: inputs.to_vec(), shape, kind, label, constant }))
    }

    fn push(&mut self, node: Node) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("a graph has fewer than 2^32 nodes"));
        self.nodes.push(node);
        id
    }

    /// Adds an output named `name` with the value of `node`.
    pub fn output(&mut self, name: impl Into<String>, node: NodeId) {
        self.outputs.push(Output { name: name.into(), node });
    }

    /// Replaces the list of outputs.
    pub fn set_outputs(&mut self, outputs: Vec<Output>) {
        self.outputs = outputs;
    }

    /// The node behind an id of this graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The names of a node, to change them.
    pub fn label_mut(&mut self, id: NodeId) -> &mut Label {
        &mut self.nodes[id.index()].label
    }

    /// All nodes in topological order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> + ExactSizeIterator {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId(i as u32), n))
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The inputs, in the order they are to be given.
    pub fn inputs(&self) -> &[NodeId] {
        &self.inputs
    }

    /// The outputs, in the order they are returned.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The tensor of a constant node.
    pub fn constant_value(&self, id: NodeId) -> Option<&Tensor> {
        match &self.node(id).op {
            Op::Constant(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The multiplications with addition that define a node.
    pub fn multiply_adds(&self, node: &Node) -> MultiplyAdds {
        let operands: Vec<&Shape> = node.inputs.iter().map(|&input| &self.node(input).shape).collect();
        node.op.properties().cost.multiply_adds(&operands)
    }

    /// For every node, the nodes that read it, in topological order (twice if read twice).
    pub fn readers(&self) -> Vec<Vec<NodeId>> {
        let mut readers = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes() {
            for input in &node.inputs {
                readers[input.index()].push(id);
            }
        }
        readers
    }

    /// For every node, whether one of `nodes` is computed from it or is it.
    pub fn ancestors(&self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<bool> {
        self.ancestors_until(nodes, |_| false)
    }

    /// The same where the values for which `is_known` holds are known: what these are computed from does not count.
    pub fn ancestors_until(
        &self,
        nodes: impl IntoIterator<Item = NodeId>,
        is_known: impl Fn(NodeId) -> bool,
    ) -> Vec<bool> {
        let mut ancestors = vec![false; self.nodes.len()];
        nodes.into_iter().for_each(|id| ancestors[id.index()] = true);
        for (id, node) in self.nodes().rev() {
            if ancestors[id.index()] && !is_known(id) {
                node.inputs.iter().for_each(|input| ancestors[input.index()] = true);
            }
        }
        ancestors
    }

    /// For every node, whether an output is computed from it or is it.
    pub fn live(&self) -> Vec<bool> {
        self.ancestors(self.outputs.iter().map(|output| output.node))
    }

    /// For every node, whether it is computed from one of `nodes` or is one of them.
    pub fn descendants(&self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<bool> {
        let mut descendants = vec![false; self.nodes.len()];
        nodes.into_iter().for_each(|id| descendants[id.index()] = true);
        for (id, node) in self.nodes() {
            descendants[id.index()] |= node.inputs.iter().any(|input| descendants[input.index()]);
        }
        descendants
    }

    /// Free-form properties that travel with the graph (ONNX `metadata_props`).
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// Sets a property, replacing one of the same key.
    pub fn set_metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        match self.metadata.iter_mut().find(|(k, _)| *k == key) {
            Some(entry) => entry.1 = value,
            None => self.metadata.push((key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Binary, Unary};

    #[test]
    fn constness_follows_the_inputs() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let w = g.constant(Tensor::vector(vec![1f32, 2.0, 3.0]));
        let abs = g.add(Op::Unary(Unary::Abs), &[w]).unwrap();
        let y = g.add(Op::Binary(Binary::Mul), &[x, abs]).unwrap();
        assert!(g.node(abs).is_constant());
        assert!(!g.node(y).is_constant());
        assert_eq!(g.node(y).shape, Shape::batched(&[3]));
        assert_eq!(g.readers()[abs.index()], vec![y]);
    }

    #[test]
    fn ancestors_and_descendants_follow_the_inputs() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let w = g.constant(Tensor::vector(vec![1f32, 2.0, 3.0]));
        let unread = g.add(Op::Unary(Unary::Abs), &[w]).unwrap();
        let product = g.add(Op::Binary(Binary::Mul), &[x, w]).unwrap();
        let y = g.add(Op::Unary(Unary::Relu), &[product]).unwrap();
        g.output("y", y);
        let of = |marks: Vec<bool>| [x, w, unread, product, y].map(|id| marks[id.index()]);
        assert_eq!(of(g.live()), [true, true, false, true, true]);
        assert_eq!(of(g.ancestors([product, unread])), [true, true, true, true, false]);
        assert_eq!(of(g.descendants([w])), [false, true, true, true, true]);
        assert_eq!(of(g.descendants([x])), [true, false, false, true, true]);
    }

    #[test]
    fn a_misfit_names_the_node() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let w = g.constant(Tensor::vector(vec![1f32, 2.0]));
        let error = g.add_named(Label::named("head"), Op::Binary(Binary::Add), &[x, w]).unwrap_err();
        assert_eq!(error.node(), Some("head"));
        assert!(error.to_string().contains("[N, 3]"), "{error}");
    }
}
