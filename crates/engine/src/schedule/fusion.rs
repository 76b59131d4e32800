//! Elementwise nodes that share one pass over memory.

use std::collections::HashMap;

use monosplit_graph::op::Role;
use monosplit_graph::{Graph, Kind, Node, NodeId, Op};

use super::Scheduler;
use super::order::Units;

/// The most elementwise nodes that run as one.
const MAX_FUSED: usize = 48;

/// Whether a node computes each element from the elements at the same position, and these are real numbers or truth
/// values. A cast that changes nothing is not among them.
pub(super) fn is_elementwise(graph: &Graph, node: &Node) -> bool {
    let plain = |kind: Kind| kind != Kind::Int;
    let changes = match node.op {
        Op::Cast { .. } => graph.node(node.inputs[0]).kind != node.kind,
        _ => true,
    };
    node.op.role() == Role::Elementwise
        && changes
        && plain(node.kind)
        && node.inputs.iter().all(|&input| plain(graph.node(input).kind))
}

impl Scheduler<'_> {
    /// For every node, the most nodes on a path to it that are not elementwise.
    fn levels(&self, units: &Units, order: &[usize]) -> Vec<usize> {
        let mut levels = vec![0; self.graph.len()];
        for &unit in order {
            let members = &units.members[unit];
            let inputs = members.iter().flat_map(|&id| self.inputs(self.graph.node(id)));
            let deepest = inputs.map(|input| levels[input.index()]).max().unwrap_or(0);
            let alone = !is_elementwise(self.graph, self.graph.node(members[0]));
            members.iter().for_each(|id| levels[id.index()] = deepest + usize::from(alone));
        }
        levels
    }

    /// Joins the elementwise nodes of one level and one shape that read each other or a common value. Between
    /// two of one level lies nothing that is not elementwise, and broadcasting never leads back to a smaller
    /// shape, so no unit can come to wait for itself.
    pub(super) fn fuse_elementwise(&self, units: &Units, order: &[usize]) -> Units {
        let levels = self.levels(units, order);
        let mut group: Vec<usize> = (0..self.graph.len()).collect();
        let mut reader: HashMap<(NodeId, usize), NodeId> = HashMap::new();
        for (id, node) in self.computed().filter(|(_, node)| is_elementwise(self.graph, node)) {
            let level = levels[id.index()];
            for input in node.inputs.iter().map(|input| self.representative[input.index()]) {
                let read = self.graph.node(input);
                if read.shape != node.shape || read.is_constant() {
                    continue;
                }
                let produced = self.computed[input.index()]
                    && levels[input.index()] == level
                    && is_elementwise(self.graph, read);
                if produced {
                    join(&mut group, input.index(), id.index());
                }
                let other = *reader.entry((input, level)).or_insert(id);
                join(&mut group, other.index(), id.index());
            }
        }
        let mut members: Vec<Vec<NodeId>> = Vec::new();
        let mut open: HashMap<usize, usize> = HashMap::new();
        for &unit in order {
            let nodes = &units.members[unit];
            if nodes.len() > 1 || !is_elementwise(self.graph, self.graph.node(nodes[0])) {
                members.push(nodes.clone());
                continue;
            }
            let root = find(&mut group, nodes[0].index());
            match open.get(&root) {
                Some(&unit) if members[unit].len() < MAX_FUSED => members[unit].push(nodes[0]),
                _ => {
                    open.insert(root, members.len());
                    members.push(vec![nodes[0]]);
                }
            }
        }
        Units::of(self.graph.len(), members)
    }
}

/// The representative of a disjoint set, as union-find has it.
fn find(group: &mut [usize], mut at: usize) -> usize {
    while group[at] != at {
        group[at] = group[group[at]];
        at = group[at];
    }
    at
}

/// Unites two disjoint sets.
fn join(group: &mut [usize], a: usize, b: usize) {
    let (a, b) = (find(group, a), find(group, b));
    group[a.max(b)] = a.min(b);
}
