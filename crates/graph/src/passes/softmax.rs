//! Removal of a final softmax or sigmoid: explanations are about logits, not probabilities.

use std::collections::HashSet;

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::{Op, Unary};
use crate::shape::{Dim, Shape};

use super::rewrite::{Rewrite, Step};

/// What [`strip_probabilities`] found at the outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stripped {
    /// Names of the outputs that were a softmax or its logarithm and are logits now.
    pub softmax: Vec<String>,
    /// Names of the outputs that were a sigmoid for each class and are logits now.
    pub sigmoid: Vec<String>,
    /// Names of the outputs that are a softmax or a sigmoid, and still are.
    pub kept: Vec<String>,
}

/// Removes a softmax, log-softmax or sigmoid at the end of each output, also where only reshapes, identities, dropout or
/// the rounding of quantisers follow it. Outputs keep their names, and other readers of the probabilities keep reading
/// them. With `keep` nothing is removed, and the report says what would be.
///
/// A sigmoid is removed where the output holds one score for each class. Elsewhere it may be a mask or an image whose
/// meaning is the number in `[0, 1]`: there it is removed with `of_maps`.
pub fn strip_probabilities(graph: &Graph, keep: bool, of_maps: bool) -> Result<(Graph, Stripped)> {
    let mut stripped = Stripped::default();
    let mut rewrite = Rewrite::new(graph);
    rewrite.walk(|_, _, _| Ok(Step::Keep))?;
    let mut done = HashSet::new();
    for output in graph.outputs() {
        let (followers, end) = end_of(graph, output.node);
        let node = graph.node(end);
        let found = match node.op {
            Op::LogSoftmax { .. } if keep => continue,
            Op::Softmax { axis } | Op::LogSoftmax { axis } if is_over_classes(&node.shape, axis) && !keep => {
                &mut stripped.softmax
            }
            Op::Unary(Unary::Sigmoid)
                if !keep && (of_maps || is_score_per_class(&graph.node(output.node).shape)) =>
            {
                &mut stripped.sigmoid
            }
            Op::Softmax { .. } | Op::Unary(Unary::Sigmoid) => {
                stripped.kept.push(output.name.clone());
                continue;
            }
            _ => continue,
        };
        found.push(output.name.clone());
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

/// Whether a value holds one number for each class of a sample.
fn is_score_per_class(shape: &Shape) -> bool {
    shape.rank() > 1 && shape.dims()[2..].iter().all(|&dim| dim == Dim::Fixed(1))
}

/// The node that gives `output` its numbers, and the nodes that only pass them on, last first.
fn end_of(graph: &Graph, output: NodeId) -> (Vec<NodeId>, NodeId) {
    let (mut followers, mut end) = (Vec::new(), output);
    loop {
        match graph.node(end).op {
            Op::Identity | Op::Dropout { .. } | Op::Reshape { .. } => followers.push(end),
            // A quantiser of probabilities has no range for logits.
            Op::Unary(Unary::Quantise { .. }) if is_quantised_probability(graph, end) => {}
            _ => break,
        }
        end = graph.node(end).inputs[0];
    }
    (followers, end)
}

/// Whether a node rounds what a softmax or sigmoid returns.
fn is_quantised_probability(graph: &Graph, mut id: NodeId) -> bool {
    while let Op::Unary(Unary::Quantise { .. }) | Op::Identity | Op::Reshape { .. } = graph.node(id).op {
        id = graph.node(id).inputs[0];
    }
    matches!(graph.node(id).op, Op::Softmax { .. } | Op::Unary(Unary::Sigmoid))
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
            let (stripped, report) = strip_probabilities(&g, false, false).unwrap();
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
        let (kept, report) = strip_probabilities(&g, false, false).unwrap();
        assert_eq!((report.softmax.len(), count(&kept, "Softmax")), (0, 1));
    }

    #[test]
    fn a_softmax_read_elsewhere_stays_for_that_reader() {
        let (mut g, end) = network(Op::Softmax { axis: 1 });
        let attention = g.unary(Unary::Exp, end).unwrap();
        g.output("attention", attention);
        let (stripped, report) = strip_probabilities(&g, false, false).unwrap();
        assert_eq!(report.softmax, ["y"]);
        assert_eq!(count(&stripped, "Softmax"), 1);
    }

    #[test]
    fn a_sigmoid_for_each_class_becomes_logits_as_a_softmax_does() {
        let (g, _) = network(Op::Unary(Unary::Sigmoid));
        let (stripped, report) = strip_probabilities(&g, false, false).unwrap();
        assert_eq!((report.softmax.len(), report.sigmoid), (0, vec!["y".to_string()]));
        assert_eq!(count(&stripped, "Sigmoid"), 0);
    }

    #[test]
    fn a_sigmoid_for_each_pixel_stays_unless_logits_of_maps_are_wanted() {
        let (mut g, end) = network(Op::Unary(Unary::Sigmoid));
        let shape = Shape::batched(&[1, 2, 3]);
        let mask = g.add(Op::Reshape { shape }, &[end]).unwrap();
        g.set_outputs(vec![crate::Output { name: "mask".into(), node: mask }]);
        let (kept, report) = strip_probabilities(&g, false, false).unwrap();
        assert_eq!((report.sigmoid.len(), report.kept), (0, vec!["mask".to_string()]));
        assert_eq!(count(&kept, "Sigmoid"), 1);
        let (stripped, report) = strip_probabilities(&g, false, true).unwrap();
        assert_eq!((report.sigmoid, report.kept.len()), (vec!["mask".to_string()], 0));
        assert_eq!(count(&stripped, "Sigmoid"), 0);
    }

    #[test]
    fn probabilities_that_are_asked_for_stay() {
        for end in [Op::Softmax { axis: 1 }, Op::Unary(Unary::Sigmoid)] {
            let (g, _) = network(end);
            let (kept, report) = strip_probabilities(&g, true, true).unwrap();
            assert_eq!((kept.len(), report.kept), (g.len(), vec!["y".to_string()]));
        }
    }
}
