//! Runs a batch of any size: as a whole if it fits the GPU's memory, else in chunks of samples.

use std::sync::PoisonError;

use monosplit_graph::batch::{rows, stack};
use monosplit_graph::{Dim, Error, ErrorKind, Graph, NodeId, Op, Result, Tensor};

use super::instance::Instance;
use super::program::CudaProgram;

/// The number of batch sizes whose instances are kept.
const MAX_INSTANCES: usize = 3;

impl CudaProgram {
    /// Runs a batch as a whole.
    fn run_whole(&self, batch: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let instances = || self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.with_staging(|staging| {
            let resident =
                instances().iter().find(|(size, _)| *size == batch).map(|(_, one)| one.resident(inputs));
            staging.upload(self, inputs, &resident.unwrap_or_default())?;
            let lock = self.device.lock()?;
            let mut instances = instances();
            let launched = self.instance(&mut instances, batch)?.launch(self, inputs, usize::MAX, staging);
            if launched.is_err() {
                let _ = self.device.synchronize();
                // The instance may be in an undefined state; the next run makes another.
                instances.pop();
            }
            drop(instances);
            drop(lock);
            staging.download(self, launched?)
        })
    }

    /// The instance for a batch size, moved to the end of the list. The caller has locked the device.
    fn instance<'i>(
        &self,
        instances: &'i mut Vec<(usize, Instance)>,
        batch: usize,
    ) -> Result<&'i mut Instance> {
        let found = match instances.iter().position(|(size, _)| *size == batch) {
            Some(position) => instances.remove(position),
            None => {
                if instances.len() >= MAX_INSTANCES {
                    self.device.synchronize()?;
                    instances.remove(0);
                }
                let made = Instance::new(self, batch).or_else(|error| match instances.is_empty() {
                    true => Err(error),
                    false => {
                        self.device.synchronize()?;
                        self.device.free_idle_staging();
                        instances.clear();
                        Instance::new(self, batch)
                    }
                });
                (batch, made?)
            }
        };
        instances.push(found);
        let last = instances.last_mut().map(|(_, instance)| instance);
        last.ok_or_else(|| Error::argument("the instance of a batch size is missing"))
    }

    /// Runs a batch in chunks of `chunk` samples.
    fn run_in_chunks(&self, batch: usize, chunk: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut parts: Vec<Vec<Tensor>> = vec![Vec::new(); self.info.outputs.len()];
        let mut start = 0;
        while start < batch {
            let count = chunk.min(batch - start);
            let part =
                |(id, tensor): (&NodeId, &Tensor)| match self.info.values[id.index()].shape.dims().first() {
                    Some(&Dim::Batch(k)) => rows(tensor, k * start..k * (start + count)),
                    _ => Ok(tensor.clone()),
                };
            let some = self.info.inputs.iter().zip(inputs).map(part).collect::<Result<Vec<_>>>()?;
            for (parts, output) in parts.iter_mut().zip(self.run_fitting(count, &some)?) {
                parts.push(output);
            }
            start += count;
        }
        let joined = |(id, parts): (&NodeId, Vec<Tensor>)| {
            let value = &self.info.values[id.index()];
            match value.shape.is_batched() {
                true => stack(&parts, value.kind),
                false => parts.into_iter().next().ok_or_else(|| self.info.unavailable(*id)),
            }
        };
        self.info.outputs.iter().zip(parts).map(joined).collect()
    }

    /// Runs a batch, in chunks if it does not fit the GPU's memory.
    pub(super) fn run_fitting(&self, batch: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let fits = *self.fits.lock().unwrap_or_else(PoisonError::into_inner);
        if batch > fits && self.splittable {
            return self.run_in_chunks(batch, fits, inputs);
        }
        match self.run_whole(batch, inputs) {
            Err(error) if self.splittable && batch > 1 && error.kind() == ErrorKind::Memory => {
                let chunk = batch.div_ceil(2);
                self.device.warn_once("a batch does not fit the GPU's memory; it is computed in chunks");
                let mut fits = self.fits.lock().unwrap_or_else(PoisonError::into_inner);
                *fits = chunk.min(*fits);
                drop(fits);
                self.run_in_chunks(batch, chunk, inputs)
            }
            Err(error) if batch == 1 && error.kind() == ErrorKind::Memory => {
                Err(Error::memory(format!("not even one sample fits the GPU's memory: {error}")))
            }
            other => other,
        }
    }
}

/// Whether samples are independent, as far as shapes tell: the first axis of every value that depends on the batch is the
/// batch.
pub(super) fn is_splittable(graph: &Graph) -> bool {
    let mut depends = vec![false; graph.len()];
    for (id, node) in graph.nodes() {
        let first = matches!(node.shape.dims().first(), Some(Dim::Batch(_)));
        let elsewhere = node.shape.dims().iter().skip(1).any(|dim| matches!(dim, Dim::Batch(_)));
        depends[id.index()] =
            node.inputs.iter().any(|input| depends[input.index()]) || node.shape.is_batched();
        // Concatenated or gathered along the first axis, the samples of a chunk would not be those of the whole batch.
        let mixed = match node.op {
            Op::Concat { axis: 0 } => node.shape.is_batched(),
            Op::Gather { axis: 0 } => depends[node.inputs[0].index()],
            _ => false,
        };
        if elsewhere || mixed || (depends[id.index()] && !first) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Reduction;
    use monosplit_graph::{Kind, Shape};

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
        assert!(!splittable(|g, x| {
            let index = g.add(Op::ArgMax { axis: 1, keep: false }, &[x])?;
            let index = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[index])?;
            g.add(Op::Gather { axis: 0 }, &[x, index])
        }));
    }
}
