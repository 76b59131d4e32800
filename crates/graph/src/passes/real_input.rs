//! Integer inputs that are only ever read as real numbers, made real: pictures of bytes that the network casts and scales
//! itself. Everything that is computed from such an input keeps its value, and can be explained down to the input.

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::tensor::Kind;

/// The graph with `input` as real numbers; `None` unless it holds integers that are only moved and then cast to real
/// numbers.
pub fn with_real_input(graph: &Graph, input: NodeId) -> Result<Option<Graph>> {
    if graph.node(input).kind != Kind::Int || !is_only_cast(graph, input) {
        return Ok(None);
    }
    let mut real = Graph::new();
    let mut map = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let inputs: Vec<NodeId> = node.inputs.iter().map(|input| map[input.index()]).collect();
        map.push(match id == input {
            true => {
                let new = real.input(node.label.tensor.clone(), node.shape.clone(), Kind::Float);
                *real.label_mut(new) = node.label.clone();
                new
            }
            false => real.add_copy(node, &inputs)?,
        });
    }
    for output in graph.outputs() {
        real.output(output.name.clone(), map[output.node.index()]);
    }
    for (key, value) in graph.metadata() {
        real.set_metadata(key, value);
    }
    Ok(Some(real))
}

fn is_only_cast(graph: &Graph, input: NodeId) -> bool {
    let mut moved = vec![false; graph.len()];
    moved[input.index()] = true;
    for (id, node) in graph.nodes() {
        if !node.inputs.iter().any(|input| moved[input.index()]) {
            continue;
        }
        match &node.op {
            Op::Cast { to: Kind::Float } => {}
            // Several values may be joined only if all of them become real.
            op if op.is_selection() && node.inputs.len() == 1 => moved[id.index()] = true,
            Op::Identity | Op::Reshape { .. } | Op::Transpose { .. } => moved[id.index()] = true,
            _ => return false,
        }
    }
    graph.outputs().iter().all(|output| !moved[output.node.index()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Binary, Unary};
    use crate::shape::Shape;
    use crate::tensor::Tensor;

    fn network(scaled_as_integers: bool) -> (Graph, NodeId) {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2, 2, 3]), Kind::Int);
        let mut moved = g.add(Op::Transpose { axes: vec![0, 3, 1, 2] }, &[x]).unwrap();
        if scaled_as_integers {
            let two = g.constant(Tensor::scalar(2i64));
            moved = g.binary(Binary::Mul, moved, two).unwrap();
        }
        let real = g.add(Op::Cast { to: Kind::Float }, &[moved]).unwrap();
        let y = g.unary(Unary::Relu, real).unwrap();
        g.output("y", y);
        (g, x)
    }

    #[test]
    fn an_input_of_bytes_that_is_cast_becomes_real() {
        let (graph, x) = network(false);
        let real = with_real_input(&graph, x).unwrap().unwrap();
        assert_eq!(real.len(), graph.len());
        assert!(real.nodes().all(|(_, node)| node.kind == Kind::Float));
        assert_eq!(real.node(real.inputs()[0]).label.tensor, "x");
    }

    #[test]
    fn an_input_that_is_computed_with_as_integers_stays() {
        let (graph, x) = network(true);
        assert!(with_real_input(&graph, x).unwrap().is_none());
    }
}
