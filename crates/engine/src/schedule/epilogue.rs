//! What runs within another kernel: epilogues of convolutions, depthwise convolutions behind 1×1 ones, reductions of
//! elementwise results.

use std::collections::HashMap;

use monosplit_graph::op::{Role, Window};
use monosplit_graph::{Dim, Kind, NodeId, Op};

use super::{Partition, Scheduler};

/// The longest row of the value between two convolutions that run as one, and the most padding before the rows that the
/// second reads.
const MAX_ROW: usize = 1 << 14;
const MAX_PAD: usize = 256;
/// The most reductions that run as one.
const MAX_REDUCED: usize = 4;

impl Scheduler<'_> {
    /// Makes elementwise nodes the epilogue of the convolution or matrix product that they alone read, if everything else they read is
    /// computed before it and one of them is read by others.
    pub(super) fn fuse_epilogues(&self, mut partitions: Vec<Partition>) -> Vec<Partition> {
        let (position, readers) = self.producers_and_readers(&partitions);
        let mut taken = vec![false; partitions.len()];
        for at in 0..partitions.len() {
            let Partition::Single(id) = partitions[at] else { continue };
            let Some(&[reader, ref more @ ..]) = readers.get(&id).map(Vec::as_slice) else { continue };
            let alone = more.iter().all(|&other| other == reader) && !self.is_output(id) && !taken[reader];
            if !alone || !matches!(self.graph.node(id).op.role(), Role::Convolution | Role::MatrixProduct) {
                continue;
            }
            let Partition::Elementwise(then) = &partitions[reader] else { continue };
            let is_read = |then: &&NodeId| {
                let mut others = readers.get(then).into_iter().flatten();
                others.any(|&r| r != reader) || self.is_output(**then)
            };
            let mut inputs = then.iter().flat_map(|&then| self.inputs(self.graph.node(then)));
            let ready =
                inputs.all(|input| input == id || then.contains(&input) || position[input.index()] < at);
            let of_its_shape = self.graph.node(then[0]).shape == self.graph.node(id).shape;
            let outputs: Vec<&NodeId> = then.iter().filter(is_read).collect();
            let real = matches!(outputs[..], [&output] if self.graph.node(output).kind == Kind::Float);
            if ready && of_its_shape && real {
                let nodes = std::iter::once(id).chain(then.iter().copied()).collect();
                taken[reader] = true;
                partitions[at] = Partition::Epilogue(nodes);
            }
        }
        remaining(partitions, &taken)
    }

    /// Joins elementwise nodes with the reductions that alone read them.
    pub(super) fn fuse_reductions(&self, mut partitions: Vec<Partition>) -> Vec<Partition> {
        let (_, readers) = self.producers_and_readers(&partitions);
        let mut taken = vec![false; partitions.len()];
        for at in 0..partitions.len() {
            let Partition::Elementwise(nodes) = &partitions[at] else { continue };
            let outside = nodes.iter().flat_map(|id| readers.get(id).into_iter().flatten());
            let mut steps: Vec<usize> = outside.copied().filter(|&reader| reader != at).collect();
            steps.sort_unstable();
            steps.dedup();
            let axis = steps.first().and_then(|&first| self.reduced_axis(&partitions[first]));
            let alike = steps.iter().all(|&step| self.reduced_axis(&partitions[step]) == axis);
            let real = nodes.iter().all(|&id| !self.is_output(id) && self.graph.node(id).kind != Kind::Int);
            if axis.is_none() || !alike || !real || steps.len() > MAX_REDUCED {
                continue;
            }
            let together = nodes.iter().chain(steps.iter().flat_map(|&step| partitions[step].nodes()));
            partitions[at] = Partition::Reduction(together.copied().collect());
            steps.iter().for_each(|&step| taken[step] = true);
        }
        remaining(partitions, &taken)
    }

    /// The axis that a partition reduces real numbers over, if it does nothing else and the axis is not the last.
    fn reduced_axis(&self, partition: &Partition) -> Option<usize> {
        let Partition::Single(id) = partition else { return None };
        let node = self.graph.node(*id);
        let read = self.graph.node(node.inputs.first().copied()?);
        match &node.op {
            Op::Reduce { axes, .. } if node.kind == Kind::Float && read.kind == Kind::Float => {
                let dims = read.shape.dims();
                let &[axis] = axes.as_slice() else { return None };
                let some = matches!(dims.get(axis), Some(Dim::Fixed(1..)));
                (some && axis + 1 < dims.len()).then_some(axis)
            }
            _ => None,
        }
    }

    /// Joins depthwise convolutions with the 1×1 convolutions that they alone read.
    pub(super) fn fuse_depthwise(&self, mut partitions: Vec<Partition>, known: &[bool]) -> Vec<Partition> {
        let (_, readers) = self.producers_and_readers(&partitions);
        let mut taken = vec![false; partitions.len()];
        for at in 0..partitions.len() {
            let Some((window, 1)) = self.convolution(&partitions[at], known) else { continue };
            let Some(&last) = partitions[at].nodes().last() else { continue };
            let Some(&[reader]) = readers.get(&last).map(Vec::as_slice) else { continue };
            let then = self.graph.node(partitions[reader].nodes()[0]);
            let deep = self.convolution(&partitions[reader], known).is_some_and(|(window, groups)| {
                let shape = |id: NodeId, axis: usize| self.graph.node(id).shape.fixed_at(axis);
                let each = shape(last, 1) == Some(groups) && shape(then.inputs[1], 1) == Some(1);
                let sizes = matches!((shape(last, 2), shape(last, 3)), (Some(1..), Some(1..=MAX_ROW)));
                let near = window.pad.iter().all(|pad| pad.0 <= MAX_PAD);
                let some = groups > 1 && then.shape.fixed_at(1) == Some(groups);
                window.is_three_by_three() && near && each && some && sizes
            });
            let first = self.graph.node(partitions[at].nodes()[0]);
            let inputs = self.graph.node(first.inputs[1]).shape.fixed_at(1);
            let read = deep && inputs > Some(0) && self.representative[then.inputs[0].index()] == last;
            if window.is_pointwise() && read && !self.is_output(last) {
                let nodes = [partitions[at].nodes(), partitions[reader].nodes()].concat();
                partitions[reader] = Partition::PointwiseDepthwise(nodes, partitions[at].nodes().len());
                taken[at] = true;
            }
        }
        remaining(partitions, &taken)
    }

    /// The window and the groups of a convolution with known weights over two axes, if the partition is one, with or
    /// without an epilogue.
    fn convolution(&self, partition: &Partition, known: &[bool]) -> Option<(&Window, usize)> {
        let (Partition::Single(_) | Partition::Epilogue(_)) = partition else { return None };
        let node = self.graph.node(partition.nodes()[0]);
        match &node.op {
            Op::Conv { window, groups } if known[node.inputs[1].index()] && window.axes() == 2 => {
                Some((window, *groups))
            }
            _ => None,
        }
    }

    /// The partition that computes each node, and the partitions that read it.
    fn producers_and_readers(&self, partitions: &[Partition]) -> (Vec<usize>, HashMap<NodeId, Vec<usize>>) {
        let mut position = vec![usize::MAX; self.graph.len()];
        let mut readers: HashMap<NodeId, Vec<usize>> = HashMap::new();
        for (at, step) in partitions.iter().enumerate() {
            for &id in step.nodes() {
                position[id.index()] = at;
                for input in self.inputs(self.graph.node(id)) {
                    readers.entry(input).or_default().push(at);
                }
            }
        }
        (position, readers)
    }
}

/// The partitions that did not become part of another.
fn remaining(partitions: Vec<Partition>, taken: &[bool]) -> Vec<Partition> {
    partitions.into_iter().zip(taken).filter(|(_, taken)| !**taken).map(|(partition, _)| partition).collect()
}
