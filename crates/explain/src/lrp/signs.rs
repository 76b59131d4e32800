//! Which values have no negative elements, whatever the image: half of some rules is about those that do.

use monosplit_graph::op::{Binary, Padding, Reduction, Unary};
use monosplit_graph::{Graph, Node, Op};

/// For every value of a graph, whether it is known to have no negative elements.
pub(super) fn non_negative(graph: &Graph) -> Vec<bool> {
    let mut known = vec![false; graph.len()];
    for (id, node) in graph.nodes() {
        known[id.index()] = keeps_above_zero(node, &|index| known[node.inputs[index].index()]);
    }
    known
}

fn keeps_above_zero(node: &Node, input: &dyn Fn(usize) -> bool) -> bool {
    match &node.op {
        Op::Unary(function) => match function {
            Unary::Relu | Unary::Sigmoid | Unary::HardSigmoid { .. } | Unary::Softplus => true,
            Unary::Exp | Unary::Sqrt | Unary::Abs => true,
            Unary::Clip { min, .. } => *min >= 0.0 || input(0),
            Unary::LeakyRelu { .. } | Unary::Elu { .. } | Unary::Silu | Unary::Gelu => input(0),
            _ => false,
        },
        Op::Softmax { .. } => true,
        Op::Binary(Binary::Add | Binary::Mul | Binary::Min) => input(0) && input(1),
        Op::Binary(Binary::Max) => input(0) || input(1),
        Op::Concat { .. } => (0..node.inputs.len()).all(input),
        Op::Where => input(1) && input(2),
        Op::Pad { padding: Padding::Constant(number), .. } => *number >= 0.0 && input(0),
        Op::Reduce { reduction, .. } => *reduction != Reduction::Product && input(0),
        Op::MaxPool(_)
        | Op::AveragePool { .. }
        | Op::Slice { .. }
        | Op::Pad { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Expand { .. }
        | Op::Gather { .. }
        | Op::Identity
        | Op::Dropout { .. } => input(0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::{Kind, Shape};

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
