//! Nodes that do nothing to the numbers leave the graph; their names stay as aliases of the value they passed on.

use std::collections::HashMap;

use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Op, Window};
use crate::shape::Shape;

use super::rewrite::{Rewrite, Step};

/// Drops what does nothing (identity, dropout at evaluation, casts to the same kind, reshapes, transposes, pads, slices,
/// expansions, resizes and pools that change nothing, joins of one value), merges reshapes of reshapes and transposes
/// of transposes.
pub fn drop_identities(graph: &Graph) -> Result<Graph> {
    let uses = graph.use_counts();
    let mut readers = Readers::default();
    Rewrite::run(graph, |rewrite, id, node| {
        let inputs = rewrite.inputs(node);
        let Some(&x) = inputs.first() else { return Ok(Step::Keep) };
        let reading = readers.of(x, uses[node.inputs[0].index()]);
        if does_nothing(&node.op, inputs.len(), rewrite.target.node(x)) {
            readers.0.insert(x, (reading + uses[id.index()]).saturating_sub(1));
            return Ok(Step::Replace(x));
        }
        let merged = match &node.op {
            Op::Reshape { shape } => merge_reshapes(rewrite, shape, x)?,
            Op::Transpose { axes } => merge_transposes(rewrite, axes, x)?,
            _ => None,
        };
        let Some(value) = merged else { return Ok(Step::Keep) };
        if rewrite.target.node(value).label.is_empty() {
            rewrite.target.label_mut(value).clone_from(&node.label);
        } else {
            readers.0.insert(value, MANY);
        }
        if reading == 1 {
            // Nobody reads it any more: its names move on instead of being copied at every step of a long chain.
            let passed = std::mem::take(rewrite.target.label_mut(x));
            rewrite.target.label_mut(value).absorb(passed);
        }
        Ok(Step::Replace(value))
    })
}

/// How often the values other nodes were dropped into are read.
#[derive(Default)]
struct Readers(HashMap<NodeId, usize>);

/// Stands for a number of readers that is not known.
const MANY: usize = usize::MAX / 2;

impl Readers {
    fn of(&self, value: NodeId, unless_dropped_into: usize) -> usize {
        self.0.get(&value).copied().unwrap_or(unless_dropped_into)
    }
}

fn does_nothing(op: &Op, inputs: usize, x: &Node) -> bool {
    let whole = |axis: usize, length: usize| x.shape.fixed_at(axis) == Some(length);
    match op {
        Op::Identity | Op::Dropout { .. } => true,
        Op::Cast { to } => x.kind == *to,
        Op::Reshape { shape } | Op::Expand { shape } => x.shape == *shape,
        Op::Transpose { axes } => axes.iter().enumerate().all(|(i, &axis)| i == axis),
        Op::Pad { pads, .. } => pads.iter().all(|&pad| pad == (0, 0)),
        Op::Slice { axis, start, step, length } => *start == 0 && *step == 1 && whole(*axis, *length),
        Op::Concat { .. } => inputs == 1,
        Op::Resize { axes, .. } => axes.iter().all(|a| whole(a.axis, a.length) && a.scale == 1.0),
        Op::MaxPool(window) | Op::AveragePool { window, .. } => sees_one_element(window),
        Op::Reduce { axes, .. } => axes.is_empty(),
        _ => false,
    }
}

fn sees_one_element(window: &Window) -> bool {
    let ones = |lengths: &[usize]| lengths.iter().all(|&n| n == 1);
    ones(&window.kernel) && ones(&window.stride) && window.pad.iter().all(|&pad| pad == (0, 0))
}

fn merge_reshapes(rewrite: &mut Rewrite, shape: &Shape, x: NodeId) -> Result<Option<NodeId>> {
    let before = rewrite.target.node(x);
    if !matches!(before.op, Op::Reshape { .. }) {
        return Ok(None);
    }
    let origin = before.inputs[0];
    if rewrite.target.node(origin).shape == *shape {
        return Ok(Some(origin));
    }
    let op = Op::Reshape { shape: shape.clone() };
    rewrite.target.add(op, &[origin]).map(Some)
}

fn merge_transposes(rewrite: &mut Rewrite, axes: &[usize], x: NodeId) -> Result<Option<NodeId>> {
    let before = rewrite.target.node(x);
    let Op::Transpose { axes: first } = &before.op else { return Ok(None) };
    let origin = before.inputs[0];
    let both: Vec<usize> = axes.iter().map(|&axis| first[axis]).collect();
    if both.iter().enumerate().all(|(i, &axis)| i == axis) {
        return Ok(Some(origin));
    }
    rewrite.target.add(Op::Transpose { axes: both }, &[origin]).map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::reference::{agree, count};
    use super::*;
    use crate::graph::Label;
    use crate::op::{Padding, Unary};
    use crate::tensor::Kind;

    fn chain(ops: Vec<Op>) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[2, 3, 4]), Kind::Float);
        let mut y = g.add_named(Label::named("relu"), Op::Unary(Unary::Relu), &[x]).unwrap();
        for (i, op) in ops.into_iter().enumerate() {
            y = g.add_named(Label::named(format!("node{i}")), op, &[y]).unwrap();
        }
        g.output("y", y);
        g
    }

    #[test]
    fn what_does_nothing_goes_and_leaves_its_name() {
        let same = Shape::batched(&[2, 3, 4]);
        let g = chain(vec![
            Op::Identity,
            Op::Dropout { ratio: 0.5 },
            Op::Cast { to: Kind::Float },
            Op::Reshape { shape: same.clone() },
            Op::Expand { shape: same },
            Op::Transpose { axes: vec![0, 1, 2, 3] },
            Op::Pad { padding: Padding::Edge, pads: vec![(0, 0); 4] },
            Op::Slice { axis: 2, start: 0, step: 1, length: 3 },
            Op::Concat { axis: 1 },
            Op::MaxPool(Window::new([1, 1])),
        ]);
        let dropped = drop_identities(&g).unwrap();
        assert_eq!(dropped.len(), 2);
        let last = dropped.node(dropped.outputs()[0].node);
        assert_eq!(last.label.node, "relu");
        assert_eq!(last.label.aliases.len(), 10);
        assert_eq!(dropped.outputs()[0].name, "y");
    }

    #[test]
    fn reshapes_and_transposes_are_merged() {
        let g = chain(vec![
            Op::Reshape { shape: Shape::batched(&[24]) },
            Op::Reshape { shape: Shape::batched(&[6, 4]) },
            Op::Transpose { axes: vec![2, 1, 0] },
            Op::Dropout { ratio: 0.1 },
            Op::Transpose { axes: vec![1, 2, 0] },
        ]);
        let dropped = drop_identities(&g).unwrap();
        assert_eq!((count(&dropped, "Reshape"), count(&dropped, "Transpose")), (1, 1));
        agree(&g, &dropped, 0.0);
        let names = dropped.nodes().flat_map(|(_, n)| n.label.aliases.clone()).collect::<Vec<_>>();
        assert!(names.contains(&"node0".to_string()) && names.contains(&"node3".to_string()), "{names:?}");
    }

    #[test]
    fn there_and_back_again_is_nothing() {
        let g = chain(vec![
            Op::Transpose { axes: vec![0, 2, 3, 1] },
            Op::Transpose { axes: vec![0, 3, 1, 2] },
            Op::Reshape { shape: Shape::batched(&[24]) },
            Op::Reshape { shape: Shape::batched(&[2, 3, 4]) },
        ]);
        assert_eq!(drop_identities(&g).unwrap().len(), 2);
    }

    #[test]
    fn a_value_read_twice_keeps_its_names() {
        let mut g = chain(vec![Op::Reshape { shape: Shape::batched(&[24]) }]);
        let flat = g.outputs()[0].node;
        for name in ["left", "right"] {
            let same = g.add(Op::Identity, &[flat]).unwrap();
            let shape = Shape::batched(&[6, 4]);
            let y = g.add_named(Label::named(name), Op::Reshape { shape }, &[same]).unwrap();
            g.output(name, y);
        }
        g.set_outputs(g.outputs()[1..].to_vec());
        let flat_is_output = {
            let mut g = g.clone();
            g.output("flat", flat);
            drop_identities(&g).unwrap()
        };
        assert_eq!(count(&flat_is_output, "Reshape"), 3);
        assert!(flat_is_output.nodes().any(|(_, n)| n.label.node == "node0"));
        agree(&g, &drop_identities(&g).unwrap(), 0.0);
    }

    #[test]
    fn a_long_chain_is_no_burden() {
        let there_and_back = |i: usize| match i % 2 {
            0 => Op::Reshape { shape: Shape::batched(&[24]) },
            _ => Op::Reshape { shape: Shape::batched(&[6, 4]) },
        };
        let g = chain((0..20_000).map(there_and_back).collect());
        let dropped = drop_identities(&g).unwrap();
        assert_eq!(dropped.len(), 3);
        assert!(dropped.node(dropped.outputs()[0].node).label.aliases.contains(&"node5".to_string()));
    }

    #[test]
    fn what_does_something_stays() {
        let g = chain(vec![
            Op::Slice { axis: 2, start: 2, step: -1, length: 3 },
            Op::Transpose { axes: vec![0, 2, 1, 3] },
        ]);
        assert_eq!(drop_identities(&g).unwrap().len(), g.len());
    }
}
