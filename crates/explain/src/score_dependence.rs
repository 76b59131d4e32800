//! Which part of each value the class scores depend on. A class token that is cut out of the tokens makes the others
//! irrelevant from there on; a mean over all positions makes none so. Ranges are upper bounds: where an op is not looked into,
//! its whole input counts.

use std::ops::Range;

use monosplit_graph::op::Padding;
use monosplit_graph::{Graph, Node, NodeId, Op};

/// A range of indices for every axis of a value.
type IndexRanges = Vec<Range<usize>>;

/// For every value, the smallest ranges known to hold all elements that the class scores depend on; none where they do not
/// depend on it. Lengths of axes that are not fixed count as one.
pub(crate) fn score_dependence(graph: &Graph, scores: NodeId) -> Vec<Option<IndexRanges>> {
    let mut needed: Vec<Option<IndexRanges>> = vec![None; graph.len()];
    needed[scores.index()] = Some(whole(graph, scores));
    for (id, node) in graph.nodes().rev() {
        let Some(out) = needed[id.index()].clone() else { continue };
        for (operand, &input) in node.inputs.iter().enumerate() {
            if graph.node(input).is_constant() {
                continue;
            }
            if let Some(read) = read(graph, node, operand, &out) {
                let known = &mut needed[input.index()];
                *known = Some(match known.take() {
                    Some(known) => hull(&known, &read),
                    None => read,
                });
            }
        }
    }
    needed
}

fn whole(graph: &Graph, id: NodeId) -> IndexRanges {
    graph.node(id).shape.dims().iter().map(|dim| 0..dim.fixed().unwrap_or(1)).collect()
}

fn hull(a: &IndexRanges, b: &IndexRanges) -> IndexRanges {
    a.iter().zip(b).map(|(a, b)| a.start.min(b.start)..a.end.max(b.end)).collect()
}

/// What a node reads of an operand to compute `out` of its value; none if nothing.
fn read(graph: &Graph, node: &Node, operand: usize, out: &IndexRanges) -> Option<IndexRanges> {
    let input = node.inputs[operand];
    let mut all = whole(graph, input);
    let same_rank = all.len() == out.len();
    match &node.op {
        Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast { .. } | Op::Identity | Op::Dropout { .. } => {
            for (from_end, range) in all.iter_mut().rev().enumerate() {
                let wanted = &out[out.len() - 1 - from_end];
                *range = if range.len() == 1 { range.clone() } else { wanted.clone() };
            }
        }
        Op::BatchNorm { .. } if operand == 0 => all = out.clone(),
        Op::LayerNorm { axis, .. } if operand == 0 => all[..*axis].clone_from_slice(&out[..*axis]),
        Op::Softmax { axis } | Op::LogSoftmax { axis } => {
            let along = all[*axis].clone();
            all = out.clone();
            all[*axis] = along;
        }
        Op::MatMul { trans_a, trans_b } if operand < 2 && same_rank && out.len() >= 2 => {
            let rank = out.len();
            for axis in 0..rank - 2 {
                all[axis] = if all[axis].len() == 1 { all[axis].clone() } else { out[axis].clone() };
            }
            // The axis of the operand that the product keeps, and which axis of the product that is.
            let (kept, axis) = match operand {
                0 => (if *trans_a { rank - 1 } else { rank - 2 }, rank - 2),
                _ => (if *trans_b { rank - 2 } else { rank - 1 }, rank - 1),
            };
            all[kept] = out[axis].clone();
        }
        Op::Transpose { axes } => {
            axes.iter().zip(out).for_each(|(&axis, range)| all[axis] = range.clone());
        }
        Op::Slice { axis, start, step, .. } => {
            let at = |index: usize| start.saturating_add_signed((index as isize).saturating_mul(*step));
            let ends = [at(out[*axis].start), at(out[*axis].end.saturating_sub(1))];
            all.clone_from(out);
            all[*axis] = ends[0].min(ends[1])..ends[0].max(ends[1]) + 1;
        }
        Op::Gather { axis } if operand == 0 => {
            let indices = graph.constant_value(node.inputs[1]).and_then(|tensor| tensor.to_i64());
            if let Some((indices, length)) = indices.zip(Some(all[*axis].len() as i64)) {
                let positions = indices.iter().map(|&i| if i < 0 { i + length } else { i });
                let (least, most) = (positions.clone().min()?, positions.max()?);
                all[*axis] = usize::try_from(least).ok()?..usize::try_from(most).ok()? + 1;
            }
        }
        Op::Concat { axis } if same_rank => {
            let before: usize = node.inputs[..operand].iter().map(|&id| whole(graph, id)[*axis].len()).sum();
            let part = part_of(&out[*axis], before, all[*axis].len())?;
            all.clone_from(out);
            all[*axis] = part;
        }
        Op::Pad { padding: Padding::Constant(_), pads } if same_rank => {
            for (axis, &(before, _)) in pads.iter().enumerate() {
                all[axis] = part_of(&out[axis], before, all[axis].len())?;
            }
        }
        Op::Reshape { .. } => kept_by_reshape(graph, input, node, out, &mut all),
        Op::Reduce { axes, keep: true, .. } => {
            let kept = (0..all.len()).filter(|axis| !axes.contains(axis));
            kept.for_each(|axis| all[axis] = out[axis].clone());
        }
        _ => {}
    }
    Some(all)
}

/// What a range of a longer axis holds of `length` elements that begin at `start` there; none if nothing.
fn part_of(range: &Range<usize>, start: usize, length: usize) -> Option<Range<usize>> {
    let (from, to) = (range.start.max(start), range.end.min(start + length));
    (from < to).then(|| from - start..to - start)
}

/// Axes before and behind those that a reshape changes keep their ranges.
fn kept_by_reshape(graph: &Graph, input: NodeId, node: &Node, out: &IndexRanges, all: &mut IndexRanges) {
    let (from, to) = (graph.node(input).shape.dims(), node.shape.dims());
    let front = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    all[..front].clone_from_slice(&out[..front]);
    let behind = from[front..].iter().rev().zip(to[front..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (own, other) = (from.len() - behind, to.len() - behind);
    all[own..].clone_from_slice(&out[other..]);
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Binary, Reduction};
    use monosplit_graph::{Kind, Shape, Tensor};

    use super::*;

    fn tokens() -> (Graph, NodeId) {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[5, 4]), Kind::Float);
        let w = g.constant(Tensor::new([4, 4], vec![1f32; 16]).unwrap());
        let y = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[x, w]).unwrap();
        let y = g.binary(Binary::Add, y, x).unwrap();
        (g, y)
    }

    #[test]
    fn a_class_token_makes_the_others_irrelevant() {
        let (mut g, y) = tokens();
        let token = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[y]).unwrap();
        let scores = g.reshaped(token, Shape::batched(&[4])).unwrap();
        assert_eq!(score_dependence(&g, scores)[0], Some(vec![0..1, 0..1, 0..4]));
    }

    #[test]
    fn attention_and_means_read_all_tokens() {
        let (mut g, y) = tokens();
        let product = g.add(Op::MatMul { trans_a: false, trans_b: true }, &[y, y]).unwrap();
        let token = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[product]).unwrap();
        let scores = g.reshaped(token, Shape::batched(&[5])).unwrap();
        assert_eq!(score_dependence(&g, scores)[0], Some(vec![0..1, 0..5, 0..4]));
        let (mut g, y) = tokens();
        let patches = g.add(Op::Slice { axis: 1, start: 1, step: 1, length: 4 }, &[y]).unwrap();
        let scores = g.reduced(Reduction::Mean, patches, &[1], false).unwrap();
        assert_eq!(score_dependence(&g, scores)[0], Some(vec![0..1, 1..5, 0..4]));
    }

    #[test]
    fn a_part_that_is_cut_off_again_is_not_read() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3, 4]), Kind::Float);
        let class = g.constant(Tensor::new([1, 1, 4], vec![1f32; 4]).unwrap());
        let class = g.add(Op::Expand { shape: Shape::batched(&[1, 4]) }, &[class]).unwrap();
        let both = g.add(Op::Concat { axis: 1 }, &[class, x]).unwrap();
        let scores = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[both]).unwrap();
        assert_eq!(score_dependence(&g, scores)[x.index()], None);
    }

    /// CoaT pads what a convolution says of the patches with a row for the class token, which alone is read.
    #[test]
    fn issue_27_padding_is_not_read_for_what_it_surrounds() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3, 4]), Kind::Float);
        let pad = Op::Pad { padding: Padding::Constant(0.0), pads: vec![(0, 0), (1, 0), (0, 0)] };
        let padded = g.add(pad, &[x]).unwrap();
        let read = |start: usize, length: usize| {
            let mut g = g.clone();
            let scores = g.add(Op::Slice { axis: 1, start, step: 1, length }, &[padded]).unwrap();
            score_dependence(&g, scores)[x.index()].clone()
        };
        assert_eq!(read(0, 1), None);
        assert_eq!(read(0, 3), Some(vec![0..1, 0..2, 0..4]));
    }
}
