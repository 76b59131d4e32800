//! How far a change travels: which positions of a value are made from which of an earlier one, along height and width.

use std::ops::Range;

use monosplit_graph::op::Window;
use monosplit_graph::{Graph, Node, NodeId, Op};

/// Along one axis: position `o` of a value is made from positions `o·step − before` to `o·step + after` of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) step: i64,
    pub(crate) before: i64,
    pub(crate) after: i64,
}

impl Reach {
    const ITSELF: Reach = Reach { step: 1, before: 0, after: 0 };

    /// The reach of what a window that slides over the value leaves.
    fn through(self, window: &Window, axis: usize) -> Option<Reach> {
        let whole = |length: usize| i64::try_from(length).ok().filter(|&length| length < 1 << 20);
        let (pad, span) = (whole(window.pad[axis].0)?, whole(window.span(axis)?)?);
        Some(Reach {
            step: self
                .step
                .checked_mul(whole(window.stride[axis])?)
                .filter(|step| (1..1 << 20).contains(step))?,
            before: self.before.checked_add(pad.checked_mul(self.step)?)?,
            after: self.after.checked_add((span - 1 - pad).checked_mul(self.step)?)?,
        })
    }

    /// The reach of what is made from two values place by place.
    fn joined(self, other: Reach) -> Option<Reach> {
        let (before, after) = (self.before.max(other.before), self.after.max(other.after));
        (self.step == other.step).then_some(Reach { before, after, ..self })
    }

    /// The positions of the value, `length` long, that are made from changed ones.
    pub(crate) fn affected(self, changed: &Range<usize>, length: usize) -> Range<usize> {
        let first = -(self.after - changed.start as i64).div_euclid(self.step);
        let last = (changed.end as i64 - 1 + self.before).div_euclid(self.step);
        clipped(first, last, length)
    }

    /// The most positions that so many changed neighbours affect.
    pub(crate) fn most_affected(self, changed: usize) -> usize {
        ((changed as i64 - 1 + self.before + self.after).max(0) / self.step + 1) as usize
    }
}

fn clipped(first: i64, last: i64, length: usize) -> Range<usize> {
    let first = first.clamp(0, length as i64);
    first as usize..(last + 1).clamp(first, length as i64) as usize
}

/// Down and right.
pub(crate) type Reaches = [Reach; 2];

/// For every value, how it is made from the value `from`; none where it is not made from it, not place by place, or not
/// from it alone.
pub(crate) fn reaches(graph: &Graph, from: NodeId) -> Vec<Option<Reaches>> {
    let mut found: Vec<Option<Reaches>> = vec![None; graph.len()];
    found[from.index()] = Some([Reach::ITSELF; 2]);
    for (id, node) in graph.nodes().filter(|(id, _)| *id > from) {
        found[id.index()] = reach(graph, node, &found);
    }
    found
}

fn reach(graph: &Graph, node: &Node, known: &[Option<Reaches>]) -> Option<Reaches> {
    let of = |at: usize| node.inputs.get(at).and_then(|input| known[input.index()]);
    let rest_constant = || node.inputs.iter().skip(1).all(|&input| graph.node(input).is_constant());
    if node.shape.rank() != 4 {
        return None;
    }
    match &node.op {
        Op::Conv { window, .. } | Op::MaxPool(window) | Op::AveragePool { window, .. }
            if window.axes() == 2 =>
        {
            let [down, right] = of(0).filter(|_| rest_constant())?;
            Some([down.through(window, 0)?, right.through(window, 1)?])
        }
        Op::BatchNorm { .. }
        | Op::LocalResponseNorm { .. }
        | Op::Unary(_)
        | Op::Identity
        | Op::Cast { .. }
        | Op::Dropout { .. } => of(0).filter(|_| rest_constant()),
        Op::Binary(_) | Op::Concat { axis: 1 } => {
            let operands = node.inputs.iter().filter(|&&input| !is_same_everywhere(graph, input));
            let as_large = |id: NodeId| graph.node(id).shape.dims().get(2..) == node.shape.dims().get(2..);
            let each = operands.map(|&input| known[input.index()].filter(|_| as_large(input)));
            each.reduce(|a, b| {
                let ([down, right], [other_down, other_right]) = (a?, b?);
                Some([down.joined(other_down)?, right.joined(other_right)?])
            })?
        }
        _ => None,
    }
}

/// Whether a value is a constant without height and width.
fn is_same_everywhere(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.is_constant() && node.shape.dims().iter().rev().take(2).all(|dim| dim.fixed() == Some(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affected_positions_are_those_whose_windows_meet_the_change() {
        let window = Window { stride: vec![2], pad: vec![(1, 1)], ..Window::new([3]) };
        let reach = Reach::ITSELF.through(&window, 0).unwrap().through(&window, 0).unwrap();
        let (length, outputs) = (23, 6);
        for start in 0..length {
            for end in start + 1..=length {
                let meets = |o: i64| {
                    let read = o * reach.step - reach.before..=o * reach.step + reach.after;
                    (start..end).any(|i| read.contains(&(i as i64)))
                };
                let expected: Vec<usize> = (0..outputs).filter(|&o| meets(o as i64)).collect();
                let found = reach.affected(&(start..end), outputs);
                assert_eq!(found.clone().collect::<Vec<_>>(), expected, "{start} {end}");
                assert!(found.len() <= reach.most_affected(end - start));
            }
        }
    }
}
