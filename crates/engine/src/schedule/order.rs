//! The order in which units of nodes run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use monosplit_graph::{Dim, Kind, NodeId};

use super::Scheduler;

/// The computed nodes divided into units that run as one.
pub(super) struct Units {
    /// For every node, its unit.
    pub(super) unit: Vec<usize>,
    pub(super) members: Vec<Vec<NodeId>>,
}

impl Units {
    pub(super) fn of(count: usize, members: Vec<Vec<NodeId>>) -> Self {
        let mut unit = vec![usize::MAX; count];
        for (position, members) in members.iter().enumerate() {
            members.iter().for_each(|id| unit[id.index()] = position);
        }
        Units { unit, members }
    }
}

impl Scheduler<'_> {
    /// The bytes of a value of one sample in single precision.
    fn bytes(&self, id: NodeId) -> usize {
        let node = self.graph.node(id);
        let count = match node.shape.count() {
            Some(Dim::Fixed(n) | Dim::Batch(n)) => n,
            None => usize::MAX,
        };
        count.saturating_mul(if node.kind == Kind::Bool { 1 } else { 4 })
    }

    /// An order in which every unit comes after those it reads, and otherwise by the position of its first node. If
    /// `eager`, units that free at least as much memory as they take run first. `None` if units wait for each other.
    pub(super) fn order(&self, units: &Units, eager: bool) -> Option<Vec<usize>> {
        let count = units.members.len();
        // The values each unit reads, and for each value the units that read it.
        let mut reads: Vec<Vec<NodeId>> = vec![Vec::new(); count];
        let mut readers: HashMap<NodeId, Vec<usize>> = HashMap::new();
        for (unit, members) in units.members.iter().enumerate() {
            let inputs = members.iter().flat_map(|&id| self.inputs(self.graph.node(id)));
            let mut inputs: Vec<NodeId> = inputs.filter(|input| units.unit[input.index()] != unit).collect();
            inputs.sort();
            inputs.dedup();
            inputs.iter().for_each(|&input| readers.entry(input).or_default().push(unit));
            reads[unit] = inputs;
        }
        let mut kept = vec![false; self.graph.len()];
        for output in self.graph.outputs() {
            kept[self.representative[output.node.index()].index()] = true;
        }
        let mut unread: HashMap<NodeId, usize> = readers.iter().map(|(&id, r)| (id, r.len())).collect();
        let mut waiting: Vec<usize> = reads.iter().map(Vec::len).collect();
        let frees = |unit: usize, unread: &HashMap<NodeId, usize>| {
            let dying = reads[unit].iter().filter(|id| unread.get(id) == Some(&1) && !kept[id.index()]);
            let taken = units.members[unit].iter().filter(|id| readers.contains_key(id) || kept[id.index()]);
            let sum = |n: usize, id: &NodeId| n.saturating_add(self.bytes(*id));
            taken.fold(0usize, sum) <= dying.fold(0usize, sum)
        };
        let first = |unit: usize| units.members[unit].iter().min().map_or(0, |id| id.index());
        let key = |unit: usize, unread: &HashMap<NodeId, usize>| {
            Reverse((!(eager && frees(unit, unread)), first(unit), unit))
        };
        let mut ready: BinaryHeap<Reverse<(bool, usize, usize)>> = BinaryHeap::new();
        (0..count).filter(|&unit| waiting[unit] == 0).for_each(|unit| ready.push(key(unit, &unread)));
        let mut done = vec![false; count];
        let mut order = Vec::with_capacity(count);
        while let Some(Reverse((_, _, unit))) = ready.pop() {
            if std::mem::replace(&mut done[unit], true) {
                continue;
            }
            order.push(unit);
            for id in &units.members[unit] {
                for &reader in readers.get(id).into_iter().flatten() {
                    waiting[reader] -= 1;
                    if waiting[reader] == 0 {
                        ready.push(key(reader, &unread));
                    }
                }
            }
            for id in &reads[unit] {
                let left = unread.entry(*id).and_modify(|n| *n -= 1).or_insert(0);
                if eager && *left == 1 {
                    let last = readers[id].iter().copied().find(|&reader| !done[reader]);
                    last.into_iter().filter(|&r| waiting[r] == 0).for_each(|r| ready.push(key(r, &unread)));
                }
            }
        }
        (order.len() == count).then_some(order)
    }
}
