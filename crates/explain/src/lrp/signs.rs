//! Values that have no negative elements for any image. Some rules are cheaper for them.

use monosplit_graph::op::NonNegative;
use monosplit_graph::{Graph, NodeId};

/// For every value of a graph, whether it is known to have no negative elements.
pub(super) fn non_negative(graph: &Graph) -> Vec<bool> {
    let mut known = vec![false; graph.len()];
    for (id, node) in graph.nodes() {
        let mut operands = node.inputs.iter().enumerate();
        let known_at = |(_, input): (usize, &NodeId)| known[input.index()];
        known[id.index()] = match node.op.properties().non_negative {
            NonNegative::Always => true,
            NonNegative::IfAll(range) => operands.filter(|(i, _)| range.contains(i)).all(known_at),
            NonNegative::IfAny(range) => {
                operands.any(|(i, input)| range.contains(&i) && known[input.index()])
            }
            NonNegative::Unknown => false,
        };
    }
    known
}

#[cfg(test)]
mod tests {
    use monosplit_graph::{Kind, Op, Shape};

    use super::*;

    #[test]
    fn what_a_relu_left_stays_above_zero_until_something_is_taken_off() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2, 3]), Kind::Float);
        let a = g.rectified(x).unwrap();
        let sum = g.plus(a, a).unwrap();
        let mixed = g.plus(a, x).unwrap();
        let less = g.minus(sum, a).unwrap();
        let joined = g.add(Op::Concat { axis: 1 }, &[a, sum]).unwrap();
        let known = non_negative(&g);
        let of = |id: monosplit_graph::NodeId| known[id.index()];
        assert_eq!([x, a, sum, mixed, less, joined].map(of), [false, true, true, false, false, true]);
    }
}
