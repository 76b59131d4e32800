//! Removal of a final softmax: explanations are about logits, not probabilities.

use std::collections::HashSet;

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::{Op, Unary};
use crate::shape::{Dim, Shape};

use super::rewrite::{Rewrite, Step};

/// What [`strip_softmax`] found at the outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stripped {
    /// Names of the outputs that were a softmax or its logarithm and are logits now.
    pub softmax: Vec<String>,
    /// Names of the outputs that are a sigmoid, and still are.
    pub sigmoid: Vec<String>,
}

/// Removes a softmax or log-softmax at the end of each output, also where only reshapes, identities or dropout
/// follow it. Outputs keep their names, and other readers of the softmax keep reading it.
///
/// A trailing sigmoid is reported but not removed: besides a score per class it may be a mask, an image or a gate
/// whose meaning is the number in `[0, 1]`, and nothing in the graph tells which.
pub fn strip_softmax(graph: &Graph) -> Result<(Graph, Stripped)> {
    let mut stripped = Stripped::default();
    let mut rewrite = Rewrite::new(graph);
    rewrite.walk(|_, _, _| Ok(Step::Keep))?;
    let mut done = HashSet::new();
    for output in graph.outputs() {
        let (followers, end) = end_of(graph, output.node);
        let node = graph.node(end);
        match node.op {
            Op::Softmax { axis } | Op::LogSoftmax { axis } if is_over_classes(&node.shape, axis) => {
                stripped.softmax.push(output.name.clone());
            }
            Op::Unary(Unary::Sigmoid) => {
                stripped.sigmoid.push(output.name.clone());
                continue;
            }
            _ => continue,
        }
        if !done.insert(output.node) {
            continue;
        }
        let mut logits = rewrite.value(node.inputs[0]);
        rewrite.target.label_mut(logits).absorb(node.label.clone());
        for follower in followers.into_iter().rev() {
            logits = rewrite.target.add_copy(graph.node(follower), &[logits])?;
        }
        rewrite.redirect(output.node, logits);
    }
    Ok((rewrite.finish()?, stripped))
}

/// Whether a softmax runs over classes: along axis 1, or along the only axis of a sample that has any length.
fn is_over_classes(shape: &Shape, axis: usize) -> bool {
    let mut others = shape.dims().iter().enumerate().skip(1).filter(|(other, _)| *other != axis);
    axis == 1 || (axis > 1 && others.all(|(_, &dim)| dim == Dim::Fixed(1)))
}

/// The node that gives `output` its numbers, and the nodes that only pass them on, last first.
fn end_of(graph: &Graph, output: NodeId) -> (Vec<NodeId>, NodeId) {
    let (mut followers, mut end) = (Vec::new(), output);
    while let Op::Identity | Op::Dropout { .. } | Op::Reshape { .. } = graph.node(end).op {
        followers.push(end);
        end = graph.node(end).inputs[0];
    }
    (followers, end)
}

#[cfg(test)]
mod tests {
    use super::super::reference::count;
    use super::*;
    use crate::graph::Label;
    use crate::tensor::Kind;

    fn network(end: Op) -> (Graph, NodeId) {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2, 3]), Kind::Float);
        let logits = g.add_named(Label::named("logits"), Op::Unary(Unary::Neg), &[x]).unwrap();
        let end = g.add_named(Label::named("end"), end, &[logits]).unwrap();
        let flat = g.add(Op::Reshape { shape: Shape::batched(&[6]) }, &[end]).unwrap();
        let y = g.add(Op::Identity, &[flat]).unwrap();
        g.output("y", y);
        (g, end)
    }

    #[test]
    fn the_end_of_a_classifier_is_its_logits() {
        for end in [Op::Softmax { axis: 1 }, Op::LogSoftmax { axis: 1 }] {
            let (g, _) = network(end);
            let (stripped, report) = strip_softmax(&g).unwrap();
            assert_eq!(report.softmax, ["y"]);
            let output = &stripped.outputs()[0];
            assert_eq!(
                (output.name.as_str(), &stripped.node(output.node).shape),
                ("y", &Shape::batched(&[6]))
            );
            assert_eq!(
                stripped.nodes().find(|(_, n)| n.label.node == "logits").unwrap().1.label.aliases,
                ["end"]
            );
            assert_eq!(count(&stripped, "Softmax") + count(&stripped, "LogSoftmax"), 0);
        }
    }

    #[test]
    fn a_softmax_over_anything_but_classes_stays() {
        let (g, _) = network(Op::Softmax { axis: 2 });
        let (kept, report) = strip_softmax(&g).unwrap();
        assert_eq!((report.softmax.len(), count(&kept, "Softmax")), (0, 1));
    }

    #[test]
    fn a_softmax_read_elsewhere_stays_for_that_reader() {
        let (mut g, end) = network(Op::Softmax { axis: 1 });
        let attention = g.unary(Unary::Exp, end).unwrap();
        g.output("attention", attention);
        let (stripped, report) = strip_softmax(&g).unwrap();
        assert_eq!(report.softmax, ["y"]);
        assert_eq!(count(&stripped, "Softmax"), 1);
    }

    #[test]
    fn a_sigmoid_is_only_reported() {
        let (g, _) = network(Op::Unary(Unary::Sigmoid));
        let (stripped, report) = strip_softmax(&g).unwrap();
        assert_eq!((report.softmax.len(), report.sigmoid), (0, vec!["y".to_string()]));
        assert_eq!(stripped.len(), g.len());
    }
}
