//! Batches: tensors whose first axis runs over samples.

use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::AlongAxis;
use crate::shape::Dim;
use crate::tensor::{Data, Kind, Tensor, element_count};

/// Whether the first output of a sample depends on the other samples of its batch, as it does if the network computes a
/// mean, or a softmax, over the batch: a value computed from the input has no batch axis any more, or a node combines the
/// elements along the axis that runs over samples. For an input of fixed batch size, that is taken to be the first.
pub fn samples_interact(graph: &Graph) -> bool {
    let (Some(&input), Some(output)) = (graph.inputs().first(), graph.outputs().first()) else {
        return false;
    };
    let Some(&samples) = graph.node(input).shape.dims().first() else { return false };
    if samples == Dim::Fixed(1) {
        return false;
    }
    let (read, made) = (graph.ancestors([output.node]), graph.descendants([input]));
    let combines = |node: &Node| {
        node.inputs.iter().enumerate().filter(|(_, operand)| made[operand.index()]).any(
            |(index, &operand)| {
                let dims = graph.node(operand).shape.dims();
                let axis = match samples {
                    Dim::Batch(_) => sample_axis(dims, samples).map(|(axis, _)| axis),
                    Dim::Fixed(_) => (dims.first() == Some(&samples)).then_some(0),
                };
                axis.is_some_and(|axis| node.op.along_axis(index, dims.len(), axis) == AlongAxis::Combined)
            },
        )
    };
    graph.nodes().any(|(id, node)| {
        let joined = matches!(samples, Dim::Batch(_)) && !node.shape.is_batched();
        read[id.index()] && made[id.index()] && (joined || combines(node))
    })
}

/// Whether it matters at which place of the batch a sample stands, in a network that was written down for batches of one size:
/// a known value, such as the first state of a recurrent layer, differs from sample to sample. A known value that merely has
/// the batch's length along another axis may be taken for one.
pub fn places_differ(graph: &Graph) -> bool {
    let Some(&input) = graph.inputs().first() else { return false };
    let samples = match graph.node(input).shape.dims().first() {
        Some(&Dim::Fixed(samples)) if samples > 1 => samples,
        _ => return false,
    };
    let made = graph.descendants(graph.inputs().iter().copied());
    let differs = |node: &Node| {
        node.inputs.iter().enumerate().filter(|(_, operand)| !made[operand.index()]).any(
            |(index, &operand)| {
                let dims = graph.node(operand).shape.dims();
                let known = graph.constant_value(operand);
                dims.iter().enumerate().any(|(axis, &dim)| {
                    dim == Dim::Fixed(samples)
                        && node.op.along_axis(index, dims.len(), axis) == AlongAxis::Separate
                        && known.is_none_or(|value| varies_along(value, axis))
                })
            },
        )
    };
    graph.nodes().any(|(id, node)| made[id.index()] && differs(node))
}

/// Whether the elements of a tensor at one place of an axis are others than those at its first.
fn varies_along(tensor: &Tensor, axis: usize) -> bool {
    let (length, inner) = (tensor.shape()[axis], tensor.shape()[axis + 1..].iter().product::<usize>());
    let block = length * inner;
    let values = tensor.to_f64();
    block > 0 && values.chunks(block).any(|block| block.chunks(inner).any(|place| place != &block[..inner]))
}

/// An error if so many samples do not fill batches of `size`, for a network in which [`samples_interact`]: repeating one to
/// fill up would change what it says of the others.
pub fn check_whole_batches(samples: usize, size: usize) -> Result<()> {
    if samples.checked_rem(size) == Some(0) {
        return Ok(());
    }
    Err(Error::argument(format!(
        "the network was written down for batches of {size}, and in it the samples of a batch depend on each other; \
         {samples} cannot be asked about, give a multiple of {size}"
    )))
}

/// The largest batch that is filled up with copies of a sample. A network written down for more, of which most would be copies,
/// costs as much as the file likes.
pub const MAX_FILLED_BATCH: usize = 1024;

/// The rows of the batch of `size` that begins with sample `start`, filled up with the last of the `samples`. An error if a
/// large batch would have to be.
pub fn filled_rows(samples: usize, start: usize, size: usize) -> Result<Vec<usize>> {
    let left = samples.saturating_sub(start);
    if left == 0 || (left < size && size > MAX_FILLED_BATCH) {
        return Err(Error::argument(format!(
            "the network was written down for batches of {size} and reads no other number of samples, found {left}; \
             export it with a batch axis of open length, or give {size}"
        )));
    }
    let mut rows = room_for(size)?;
    rows.extend((0..size).map(|row| start + row.min(left - 1)));
    Ok(rows)
}

/// A batch of `size` copies of a sample, which is a batch of one.
pub fn repeated(sample: &Tensor, size: usize) -> Result<Tensor> {
    rows(sample, filled_rows(1, 0, size)?.into_iter())
}

/// An empty vector with room for so many elements, if there is memory for them.
fn room_for<T>(count: usize) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    let refused = |_| Error::memory(format!("there is no memory for a batch of {count} elements"));
    elements.try_reserve_exact(count).map_err(refused)?;
    Ok(elements)
}

/// Some rows of a tensor, in the order given; the tensor itself, shared, if that is all of them.
pub fn rows(tensor: &Tensor, wanted: impl Iterator<Item = usize>) -> Result<Tensor> {
    fn pick<T: Copy>(from: &[T], row: usize, wanted: &[usize]) -> Result<Vec<T>> {
        let mut picked = room_for(wanted.len().saturating_mul(row))?;
        for i in wanted {
            let found = from.get(i * row..(i + 1) * row);
            picked
                .extend_from_slice(found.ok_or_else(|| Error::argument(format!("there is no sample {i}")))?);
        }
        Ok(picked)
    }
    let mut all = room_for(wanted.size_hint().0)?;
    all.extend(wanted);
    let wanted: Vec<usize> = all;
    if tensor.shape().first() == Some(&wanted.len()) && wanted.iter().enumerate().all(|(at, &row)| at == row)
    {
        return Ok(tensor.clone());
    }
    let rest = tensor.shape().get(1..).unwrap_or_default();
    let row = element_count(rest).unwrap_or(0);
    let shape: Vec<usize> = std::iter::once(wanted.len()).chain(rest.iter().copied()).collect();
    match tensor.data() {
        Data::F32(from) => Tensor::new(shape, pick(from, row, &wanted)?),
        Data::F64(from) => Tensor::new(shape, pick(from, row, &wanted)?),
        Data::I64(from) => Tensor::new(shape, pick(from, row, &wanted)?),
        Data::Bool(from) => Tensor::new(shape, pick(from, row, &wanted)?),
    }
}

/// The first axis of a value that runs over samples, and how many of its elements belong to one sample. `samples` is the
/// length of the sample axis of the graph's first input.
pub fn sample_axis(dims: &[Dim], samples: Dim) -> Option<(usize, usize)> {
    dims.iter().enumerate().find_map(|(axis, &dim)| match (dim.over(samples), samples) {
        (Some(Dim::Fixed(per_sample)), Dim::Batch(_)) => Some((axis, per_sample)),
        (Some(Dim::Fixed(per_sample)), Dim::Fixed(_)) if axis == 0 => Some((axis, per_sample)),
        _ => None,
    })
}

/// A batch made of some of the samples of a value, whose sample axis is what [`sample_axis`] says; the value itself if it has
/// none.
pub fn select_samples(value: &Tensor, axis: Option<(usize, usize)>, samples: &[usize]) -> Result<Tensor> {
    let Some((axis, per_sample)) = axis else { return Ok(value.clone()) };
    let shape = value.shape().to_vec();
    let (before, after) = (&shape[..axis], &shape[axis + 1..]);
    let (outer, all) = (before.iter().product::<usize>(), shape[axis] / per_sample.max(1));
    let flat = value.clone().reshaped([&[outer * all, per_sample], after].concat())?;
    let wanted: Vec<usize> =
        (0..outer).flat_map(|block| samples.iter().map(move |sample| block * all + sample)).collect();
    let length = samples.len() * per_sample;
    rows(&flat, wanted.into_iter())?.reshaped([before, &[length], after].concat())
}

/// Batches one after another, as numbers of `kind`; real numbers in double precision if some are.
pub fn stack(batches: &[Tensor], kind: Kind) -> Result<Tensor> {
    let Some(first) = batches.first() else {
        return Err(Error::argument("a batch needs at least one sample"));
    };
    let rest = first.shape().get(1..).unwrap_or_default();
    if let Some(odd) = batches.iter().find(|b| b.shape().is_empty() || b.shape()[1..] != *rest) {
        return Err(Error::shape(format!(
            "samples of shape {rest:?} and {:?} cannot share a batch",
            odd.shape().get(1..).unwrap_or_default()
        )));
    }
    if batches.len() == 1 && first.kind() == kind {
        return Ok(first.clone());
    }
    let count = batches.iter().map(|b| b.shape()[0]).sum();
    let shape: Vec<usize> = std::iter::once(count).chain(rest.iter().copied()).collect();
    let double = batches.iter().any(|b| matches!(b.data(), Data::F64(_)));
    match kind {
        Kind::Float if double => Tensor::new(shape, joined(batches, |b| Some(b.to_f64().into_vec()))?),
        Kind::Float => Tensor::new(shape, joined(batches, |b| Some(b.to_f32().into_vec()))?),
        Kind::Int => Tensor::new(shape, joined(batches, |b| b.to_i64().map(|v| v.into_vec()))?),
        Kind::Bool => Tensor::new(
            shape,
            joined(batches, |b| match b.data() {
                Data::Bool(v) => Some(v.to_vec()),
                _ => None,
            })?,
        ),
    }
}

fn joined<T>(batches: &[Tensor], elements: impl Fn(&Tensor) -> Option<Vec<T>>) -> Result<Vec<T>> {
    let mut all = room_for(batches.iter().map(Tensor::len).fold(0, usize::saturating_add))?;
    for batch in batches {
        let part = elements(batch).ok_or_else(|| {
            Error::argument(format!("the network reads whole numbers, found {} ones", batch.kind()))
        })?;
        all.extend(part);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::NodeId;
    use crate::op::{Op, Reduction};
    use crate::shape::Shape;

    #[test]
    fn only_small_batches_are_filled_with_copies() {
        assert_eq!(filled_rows(5, 3, 4).unwrap(), [3, 4, 4, 4]);
        assert_eq!(filled_rows(4000, 1000, 2000).unwrap().len(), 2000);
        for (samples, size) in [(1, MAX_FILLED_BATCH + 1), (1, 1 << 40), (0, 1)] {
            assert!(filled_rows(samples, 0, size).unwrap_err().to_string().contains("batches of"));
        }
        let sample = Tensor::new([1, 2], vec![1f32, 2.0]).unwrap();
        assert_eq!(&*repeated(&sample, 3).unwrap().to_f32(), &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    }

    #[test]
    fn places_differ_where_a_known_value_differs_between_them() {
        let differ = |samples: Dim, shape: &[usize], values: &[f32]| {
            let mut graph = Graph::new();
            let x = graph.input("x", Shape::new(vec![samples, Dim::Fixed(3)]), Kind::Float);
            // Two rows of weights are not two samples.
            let weights = graph.constant(Tensor::new([2, 3], vec![0.5f32, 1.0, 2.0, 0.5, 1.5, 2.0]).unwrap());
            let y = graph.add(Op::MatMul { trans_a: false, trans_b: true }, &[x, weights]).unwrap();
            let shift = graph.constant(Tensor::new(shape.to_vec(), values.to_vec()).unwrap());
            let y = graph.plus(y, shift).unwrap();
            graph.output("y", y);
            places_differ(&graph)
        };
        assert!(differ(Dim::Fixed(2), &[2, 1], &[0.5, 1.0]));
        assert!(!differ(Dim::Fixed(2), &[2, 1], &[0.5, 0.5]), "two rows that are the same");
        assert!(!differ(Dim::Fixed(4), &[1, 2], &[0.5, 1.0]), "one row for all");
        assert!(!differ(Dim::Batch(1), &[1, 2], &[0.5, 1.0]), "an open batch");
    }

    #[test]
    fn samples_interact_only_through_what_is_combined_over_them() {
        let interact = |samples: Dim, write: fn(&mut Graph, NodeId) -> Result<NodeId>| {
            let mut graph = Graph::new();
            let shape = Shape::new(vec![samples, Dim::Fixed(3), Dim::Fixed(4)]);
            let x = graph.input("x", shape, Kind::Float);
            let y = write(&mut graph, x).unwrap();
            graph.output("y", y);
            samples_interact(&graph)
        };
        fn centred(g: &mut Graph, x: NodeId, axes: &[usize]) -> Result<NodeId> {
            let mean = g.reduced(Reduction::Mean, x, axes, true)?;
            g.minus(x, mean)
        }
        for samples in [Dim::Batch(1), Dim::Fixed(5)] {
            assert!(interact(samples, |g, x| centred(g, x, &[0, 2])));
            assert!(!interact(samples, |g, x| centred(g, x, &[1, 2])));
            // Tokens before samples, as some attention layers have them.
            assert!(!interact(samples, |g, x| {
                let turned = g.add(Op::Transpose { axes: vec![1, 0, 2] }, &[x])?;
                centred(g, turned, &[0])
            }));
            for (axis, joined) in [(0, true), (1, false), (2, false)] {
                let write = [
                    |g: &mut Graph, x| g.add(Op::Softmax { axis: 0 }, &[x]),
                    |g: &mut Graph, x| g.add(Op::Softmax { axis: 1 }, &[x]),
                    |g: &mut Graph, x| g.add(Op::LogSoftmax { axis: 2 }, &[x]),
                ];
                assert_eq!(interact(samples, write[axis]), joined, "along axis {axis} of {samples:?}");
            }
            // A softmax over the axis that the samples were moved to.
            assert!(
                samples == Dim::Fixed(5)
                    || interact(samples, |g, x| {
                        let turned = g.add(Op::Transpose { axes: vec![1, 0, 2] }, &[x])?;
                        let shares = g.add(Op::Softmax { axis: 1 }, &[turned])?;
                        g.add(Op::Transpose { axes: vec![1, 0, 2] }, &[shares])
                    })
            );
        }
        assert!(!interact(Dim::Fixed(1), |g, x| centred(g, x, &[0, 2])));
        assert!(!interact(Dim::Batch(1), |g, x| {
            let loss = g.reduced(Reduction::Mean, x, &[0, 1, 2], false)?;
            g.output("y", x);
            Ok(loss)
        }));
    }
}
