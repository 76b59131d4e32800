//! Dropout as in training, with the masks as inputs of the graph.

use crate::error::Result;
use crate::graph::Graph;
use crate::op::{Binary, Op};
use crate::tensor::Kind;

use super::rewrite::{Rewrite, Step};

/// Replaces every dropout node by a product with a mask, a new input of the graph called `NAME.mask` after the
/// node. A mask holds 0 where an element is dropped and `1/(1 − ratio)` where it is kept.
pub fn mask_dropout(graph: &Graph) -> Result<Graph> {
    Rewrite::run(graph, |rewrite, _, node| {
        let Op::Dropout { .. } = node.op else { return Ok(Step::Keep) };
        let x = rewrite.inputs(node)[0];
        let mask =
            rewrite.target.input(format!("{}.mask", node.label.display()), node.shape.clone(), Kind::Float);
        rewrite.target.add(Op::Binary(Binary::Mul), &[x, mask]).map(Step::Replace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Label;
    use crate::shape::Shape;

    #[test]
    fn every_dropout_reads_a_mask_of_its_own() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[4]), Kind::Float);
        let first = g.add_named(Label::named("drop1"), Op::Dropout { ratio: 0.5 }, &[x]).unwrap();
        let second = g.add_named(Label::named("drop2"), Op::Dropout { ratio: 0.1 }, &[first]).unwrap();
        g.output("y", second);
        let masked = mask_dropout(&g).unwrap();
        let names: Vec<&str> =
            masked.inputs().iter().map(|&id| masked.node(id).label.tensor.as_str()).collect();
        assert_eq!(names, ["x", "drop1.mask", "drop2.mask"]);
        assert!(masked.nodes().all(|(_, node)| !matches!(node.op, Op::Dropout { .. })));
    }
}
