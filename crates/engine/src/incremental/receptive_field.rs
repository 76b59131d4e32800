//! Receptive fields: which positions of the input a position of an activation depends on, along height and width.

use std::ops::Range;

use monosplit_graph::op::{Movement, ReceptiveField, Role, Window};
use monosplit_graph::{Graph, Node, NodeId};

/// The receptive field along one axis: position `o` of an activation depends on the positions `o·stride − before` to
/// `o·stride + after` of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldExtent {
    /// How far the fields of neighbouring positions lie apart.
    pub stride: i64,
    /// How many positions of the input lie before `o·stride`.
    pub before: i64,
    /// How many lie behind it.
    pub after: i64,
}

impl FieldExtent {
    const IDENTITY: FieldExtent = FieldExtent { stride: 1, before: 0, after: 0 };

    /// The receptive field of a sliding window's result, given that of what the window reads; `None` if it is too large.
    fn through(self, window: &Window, axis: usize) -> Option<FieldExtent> {
        let whole = |length: usize| i64::try_from(length).ok().filter(|&length| length < 1 << 20);
        let (pad, span) = (whole(window.pad[axis].0)?, whole(window.span(axis)?)?);
        Some(FieldExtent {
            stride: self
                .stride
                .checked_mul(whole(window.stride[axis])?)
                .filter(|stride| (1..1 << 20).contains(stride))?,
            before: self.before.checked_add(pad.checked_mul(self.stride)?)?,
            after: self.after.checked_add((span - 1 - pad).checked_mul(self.stride)?)?,
        })
    }

    /// The receptive field of an elementwise function of two activations; `None` if their strides differ.
    fn union(self, other: FieldExtent) -> Option<FieldExtent> {
        let (before, after) = (self.before.max(other.before), self.after.max(other.after));
        (self.stride == other.stride).then_some(FieldExtent { before, after, ..self })
    }

    /// The positions of an activation of this length that depend on the changed positions.
    pub(super) fn affected(self, changed: &Range<usize>, length: usize) -> Range<usize> {
        let first = -(self.after - changed.start as i64).div_euclid(self.stride);
        let last = (changed.end as i64 - 1 + self.before).div_euclid(self.stride);
        clipped(first, last, length)
    }

    /// The largest number of positions that depend on `changed` adjacent ones.
    pub(super) fn most_affected(self, changed: usize) -> usize {
        ((changed as i64 - 1 + self.before + self.after).max(0) / self.stride + 1) as usize
    }
}

fn clipped(first: i64, last: i64, length: usize) -> Range<usize> {
    let first = first.clamp(0, length as i64);
    first as usize..(last + 1).clamp(first, length as i64) as usize
}

/// The receptive fields of the positions of `value` in the input `from`, along height and width; `None` if it depends on more
/// than a window of it, or on other inputs.
pub fn receptive_field(graph: &Graph, from: NodeId, value: NodeId) -> Option<[FieldExtent; 2]> {
    receptive_fields(graph, from).get(value.index()).copied().flatten()
}

/// For every node its receptive fields in the node `from`, along height and width. `None` where the node does not depend on
/// it, depends on other inputs as well, or is not computed position by position.
pub(super) fn receptive_fields(graph: &Graph, from: NodeId) -> Vec<Option<[FieldExtent; 2]>> {
    let mut found = vec![None; graph.len()];
    found[from.index()] = Some([FieldExtent::IDENTITY; 2]);
    for (id, node) in graph.nodes().filter(|(id, _)| *id > from) {
        found[id.index()] = fields_of(graph, node, &found);
    }
    found
}

fn fields_of(graph: &Graph, node: &Node, known: &[Option<[FieldExtent; 2]>]) -> Option<[FieldExtent; 2]> {
    let of = |at: usize| node.inputs.get(at).and_then(|input| known[input.index()]);
    let rest_constant = || node.inputs.iter().skip(1).all(|&input| graph.node(input).is_constant());
    if node.shape.rank() != 4 {
        return None;
    }
    let properties = node.op.properties();
    match (properties.receptive_field, properties.role) {
        (ReceptiveField::Window(window), _) if window.axes() == 2 => {
            let [height, width] = of(0).filter(|_| rest_constant())?;
            Some([height.through(window, 0)?, width.through(window, 1)?])
        }
        (ReceptiveField::Pointwise, Role::Normalisation | Role::Movement(Movement::Identity)) => {
            of(0).filter(|_| rest_constant())
        }
        (ReceptiveField::Pointwise, Role::Elementwise | Role::Movement(Movement::Concatenation)) => {
            let operands = node.inputs.iter().filter(|&&input| !is_channelwise_constant(graph, input));
            let same_size = |id: NodeId| graph.node(id).shape.dims().get(2..) == node.shape.dims().get(2..);
            let each = operands.map(|&input| known[input.index()].filter(|_| same_size(input)));
            each.reduce(|a, b| {
                let ([height, width], [other_height, other_width]) = (a?, b?);
                Some([height.union(other_height)?, width.union(other_width)?])
            })?
        }
        // What is not computed tile by tile is computed as a whole.
        (
            ReceptiveField::Nothing
            | ReceptiveField::Pointwise
            | ReceptiveField::Window(_)
            | ReceptiveField::TransposedWindow(_)
            | ReceptiveField::Everything,
            _,
        ) => None,
    }
}

/// Whether a value is a constant without height and width: a number for all, or one per channel.
fn is_channelwise_constant(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.is_constant() && node.shape.dims().iter().rev().take(2).all(|dim| dim.fixed() == Some(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affected_positions_are_those_whose_windows_meet_the_change() {
        let window = Window { stride: vec![2], pad: vec![(1, 1)], ..Window::new([3]) };
        let field = FieldExtent::IDENTITY.through(&window, 0).unwrap().through(&window, 0).unwrap();
        let (length, outputs) = (23, 6);
        for start in 0..length {
            for end in start + 1..=length {
                let meets = |o: i64| {
                    let read = o * field.stride - field.before..=o * field.stride + field.after;
                    (start..end).any(|i| read.contains(&(i as i64)))
                };
                let expected: Vec<usize> = (0..outputs).filter(|&o| meets(o as i64)).collect();
                let found = field.affected(&(start..end), outputs);
                assert_eq!(found.clone().collect::<Vec<_>>(), expected, "{start} {end}");
                assert!(found.len() <= field.most_affected(end - start));
            }
        }
    }
}
