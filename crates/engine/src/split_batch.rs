//! Runs of a batch in chunks of samples, where the whole does not fit into memory and samples are independent.

use monosplit_graph::batch::{rows, stack};
use monosplit_graph::op::AlongAxis;
use monosplit_graph::{Dim, Graph, NodeId, Result, Tensor};

use crate::graph_info::GraphInfo;

/// Runs a batch in chunks of `chunk` samples, each by `run`, which is given the number of samples and the inputs.
pub(crate) fn run_in_chunks(
    info: &GraphInfo,
    (batch, chunk): (usize, usize),
    inputs: &[Tensor],
    mut run: impl FnMut(usize, &[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    let mut parts: Vec<Vec<Tensor>> = vec![Vec::new(); info.outputs.len()];
    let mut start = 0;
    while start < batch {
        let count = chunk.clamp(1, batch - start);
        let part = |(id, tensor): (&NodeId, &Tensor)| match info.values[id.index()].shape.dims().first() {
            Some(&Dim::Batch(k)) => rows(tensor, k * start..k * (start + count)),
            _ => Ok(tensor.clone()),
        };
        let some = info.inputs.iter().zip(inputs).map(part).collect::<Result<Vec<_>>>()?;
        for (parts, output) in parts.iter_mut().zip(run(count, &some)?) {
            parts.push(output);
        }
        start += count;
    }
    let joined = |(id, parts): (&NodeId, Vec<Tensor>)| {
        let value = &info.values[id.index()];
        match value.shape.is_batched() {
            true => stack(&parts, value.kind),
            false => parts.into_iter().next().ok_or_else(|| info.unavailable(*id)),
        }
    };
    info.outputs.iter().zip(parts).map(joined).collect()
}

/// Whether samples are independent: the first axis of every value that depends on the batch is the batch, and no node combines
/// or moves elements along it. Concatenated or gathered along it, the samples of a chunk would not be those of the whole batch.
pub fn is_splittable(graph: &Graph) -> bool {
    let mut depends = vec![false; graph.len()];
    for (id, node) in graph.nodes() {
        let first = matches!(node.shape.dims().first(), Some(Dim::Batch(_)));
        let elsewhere = node.shape.dims().iter().skip(1).any(|dim| matches!(dim, Dim::Batch(_)));
        depends[id.index()] =
            node.inputs.iter().any(|input| depends[input.index()]) || node.shape.is_batched();
        let kept_apart = |(index, operand): (usize, &NodeId)| {
            let rank = graph.node(*operand).shape.rank();
            !depends[operand.index()] || node.op.along_axis(index, rank, 0) == AlongAxis::Separate
        };
        let separate = node.inputs.iter().enumerate().all(kept_apart);
        if elsewhere || !separate || (depends[id.index()] && !first) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Reduction;
    use monosplit_graph::{Kind, Op, Shape};

    use super::*;

    #[test]
    fn a_batch_is_split_only_where_samples_are_independent() {
        let splittable = |write: fn(&mut Graph, NodeId) -> Result<NodeId>| {
            let mut graph = Graph::new();
            let x = graph.input("x", Shape::batched(&[3, 4]), Kind::Float);
            let y = write(&mut graph, x).unwrap();
            graph.output("y", y);
            is_splittable(&graph)
        };
        assert!(splittable(|g, x| g.reduced(Reduction::Mean, x, &[1], true)));
        assert!(splittable(|g, x| g.reshaped(x, Shape::batched(&[12]))));
        assert!(!splittable(|g, x| g.reduced(Reduction::Mean, x, &[0], false)));
        assert!(!splittable(|g, x| g.add(Op::Concat { axis: 0 }, &[x, x])));
        assert!(!splittable(|g, x| g.add(Op::Transpose { axes: vec![1, 0, 2] }, &[x])));
        for axis in 0..3 {
            let along = [
                |g: &mut Graph, x| g.add(Op::Softmax { axis: 0 }, &[x]),
                |g: &mut Graph, x| g.add(Op::Softmax { axis: 1 }, &[x]),
                |g: &mut Graph, x| g.add(Op::LogSoftmax { axis: 2 }, &[x]),
            ];
            assert_eq!(splittable(along[axis]), axis > 0, "softmax along axis {axis}");
        }
        assert!(!splittable(|g, x| {
            let scale = g.constant(Tensor::vector(vec![1f32; 4]));
            g.add(Op::LayerNorm { axis: 0, epsilon: 1e-5 }, &[x, scale])
        }));
        // A table is read at places that each sample has of its own.
        assert!(splittable(|g, x| {
            let index = g.add(Op::ArgMax { axis: 1, keep: false }, &[x])?;
            let table = g.constant(Tensor::new([3, 2], vec![1f32; 6])?);
            g.add(Op::Gather { axis: 0 }, &[table, index])
        }));
        assert!(!splittable(|g, x| {
            let index = g.add(Op::ArgMax { axis: 1, keep: false }, &[x])?;
            let index = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[index])?;
            g.add(Op::Gather { axis: 0 }, &[x, index])
        }));
    }
}
