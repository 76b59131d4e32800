//! Common subexpression elimination.

use std::collections::HashMap;

use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Op, OpKey};
use crate::tensor::{Data, Tensor};

use super::rewrite::{Rewrite, Step};

/// Constants with more elements than this are not compared.
const MOST_COMPARED: usize = 4096;

/// Merges equal constants, and nodes with the same op and the same constant operands, such as the magnitudes of a weight
/// that several rules need. Named nodes are kept.
pub fn share_constants(graph: &Graph) -> Result<Graph> {
    share(graph, Node::is_constant)
}

/// Merges equal constants, and nodes with the same op and the same operands. Named nodes are kept.
pub fn share_computations(graph: &Graph) -> Result<Graph> {
    share(graph, |_| true)
}

fn share(graph: &Graph, is_shared: impl Fn(&Node) -> bool) -> Result<Graph> {
    let mut constants: HashMap<ConstantKey, NodeId> = HashMap::new();
    let mut computed: HashMap<(OpKey, Vec<NodeId>), NodeId> = HashMap::new();
    Rewrite::run(graph, |rewrite, _, node| {
        if !is_shared(node) {
            return Ok(Step::Keep);
        }
        let named = !node.label.tensor.is_empty();
        let value = match &node.op {
            Op::Constant(_) if named => return Ok(Step::Keep),
            Op::Constant(tensor) => match ConstantKey::of(tensor) {
                Some(content) => {
                    *constants.entry(content).or_insert_with(|| rewrite.target.constant(tensor.clone()))
                }
                None => return Ok(Step::Keep),
            },
            op => {
                let Some(key) = OpKey::of(op) else { return Ok(Step::Keep) };
                let inputs = rewrite.inputs(node);
                let key = (key, in_one_order(op, &inputs));
                match computed.get(&key).filter(|_| !named) {
                    Some(&found) => found,
                    None => {
                        let id = rewrite.target.add(op.clone(), &inputs)?;
                        computed.entry(key).or_insert(id);
                        id
                    }
                }
            }
        };
        Ok(Step::Replace(value))
    })
}

/// The operands of a node, sorted where their order changes no bit of the result.
fn in_one_order(op: &Op, inputs: &[NodeId]) -> Vec<NodeId> {
    let mut inputs = inputs.to_vec();
    if let Op::Binary(function) = op
        && function.is_commutative()
    {
        inputs.sort_unstable();
    }
    inputs
}

/// The type, shape and bits of a constant.
#[derive(PartialEq, Eq, Hash)]
struct ConstantKey(u8, Vec<usize>, Vec<u64>);

impl ConstantKey {
    fn of(tensor: &Tensor) -> Option<Self> {
        if tensor.len() > MOST_COMPARED {
            return None;
        }
        let (kind, bits) = match tensor.data() {
            Data::F32(v) => (0, v.iter().map(|v| u64::from(v.to_bits())).collect()),
            Data::F64(v) => (1, v.iter().map(|v| v.to_bits()).collect()),
            Data::I64(v) => (2, v.iter().map(|&v| v as u64).collect()),
            Data::Bool(v) => (3, v.iter().map(|&v| u64::from(v)).collect()),
        };
        Some(ConstantKey(kind, tensor.shape().to_vec(), bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Label;
    use crate::op::Binary;
    use crate::shape::Shape;
    use crate::tensor::Kind;

    #[test]
    fn equal_computations_on_constants_are_done_once() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2]), Kind::Float);
        let w = g.constant(Tensor::vector(vec![1f32, -2.0]));
        let (a, b) = (g.magnitude(w).unwrap(), g.magnitude(w).unwrap());
        let (two, also_two) = (g.number(2.0), g.number(2.0));
        let y = g.times(x, a).unwrap();
        let z = g.times(y, b).unwrap();
        let z = g.times(z, two).unwrap();
        let z = g.times(z, also_two).unwrap();
        g.output("z", z);
        let shared = share_constants(&g).unwrap();
        assert_eq!(shared.len(), g.len() - 2);
        assert_eq!(shared.node(shared.outputs()[0].node).op, Op::Binary(Binary::Mul));
    }

    #[test]
    fn equal_computations_on_values_are_done_once_and_names_stay() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2]), Kind::Float);
        let row = |g: &mut Graph| g.constant(Tensor::vector(vec![1f32, -2.0]));
        let (a, b) = (row(&mut g), row(&mut g));
        let (first, second) = (g.plus(x, a).unwrap(), g.plus(b, x).unwrap());
        let named = g.add_named(Label::named("mine"), Op::Binary(Binary::Add), &[x, b]).unwrap();
        let y = g.times(first, second).unwrap();
        let y = g.minus(y, named).unwrap();
        g.output("y", y);
        let shared = share_computations(&g).unwrap();
        // One row and one sum less.
        assert_eq!(shared.len(), g.len() - 2);
        assert!(shared.nodes().any(|(_, node)| node.label.tensor == "mine"));
        let constants_only = share_constants(&g).unwrap();
        assert_eq!(constants_only.len(), g.len() - 1);
        // Quotients depend on the order.
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2]), Kind::Float);
        let y = g.plus(x, x).unwrap();
        let (over, under) = (g.over(x, y).unwrap(), g.over(y, x).unwrap());
        let sum = g.plus(over, under).unwrap();
        g.output("sum", sum);
        assert_eq!(share_computations(&g).unwrap().len(), g.len());
    }
}
