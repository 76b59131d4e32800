//! A batch of any size: as a whole if it fits the card's memory, in pieces if it does not.

use std::sync::PoisonError;

use monosplit_graph::batch::{rows, stack};
use monosplit_graph::{Dim, Error, ErrorKind, NodeId, Result, Tensor};

use super::instance::Instance;
use super::program::CudaProgram;

/// Batch sizes whose memory and commands are kept.
const KEPT: usize = 3;

impl CudaProgram {
    /// Runs a batch that fits.
    fn run_whole(&self, batch: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let instances = || self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.with_dock(|dock| {
            let held = instances().iter().find(|(size, _)| *size == batch).map(|(_, one)| one.held(inputs));
            dock.load(self, inputs, &held.unwrap_or_default())?;
            let turn = self.device.turn()?;
            let mut instances = instances();
            let launched = self.instance(&mut instances, batch)?.launch(self, inputs, usize::MAX, dock);
            if launched.is_err() {
                let _ = self.device.finish();
                // What failed may fail again in the same way.
                instances.pop();
            }
            drop(instances);
            drop(turn);
            dock.unload(self, launched?)
        })
    }

    /// The instance for a batch size, which becomes the last. The caller has the card's turn.
    fn instance<'i>(
        &self,
        instances: &'i mut Vec<(usize, Instance)>,
        batch: usize,
    ) -> Result<&'i mut Instance> {
        let found = match instances.iter().position(|(size, _)| *size == batch) {
            Some(position) => instances.remove(position),
            None => {
                if instances.len() >= KEPT {
                    self.device.finish()?;
                    instances.remove(0);
                }
                let made = Instance::new(self, batch).or_else(|error| match instances.is_empty() {
                    true => Err(error),
                    false => {
                        self.device.finish()?;
                        self.device.clear_docks();
                        instances.clear();
                        Instance::new(self, batch)
                    }
                });
                (batch, made?)
            }
        };
        instances.push(found);
        let last = instances.last_mut().map(|(_, instance)| instance);
        last.ok_or_else(|| Error::argument("an instance was made and is not there"))
    }

    /// Runs a batch in pieces of `piece` samples.
    fn run_in_pieces(&self, batch: usize, piece: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut parts: Vec<Vec<Tensor>> = vec![Vec::new(); self.outline.outputs.len()];
        let mut start = 0;
        while start < batch {
            let count = piece.min(batch - start);
            let cut =
                |(id, tensor): (&NodeId, &Tensor)| match self.outline.values[id.index()].shape.dims().first()
                {
                    Some(&Dim::Batch(k)) => rows(tensor, k * start..k * (start + count)),
                    _ => Ok(tensor.clone()),
                };
            let some = self.outline.inputs.iter().zip(inputs).map(cut).collect::<Result<Vec<_>>>()?;
            for (parts, output) in parts.iter_mut().zip(self.run_fitting(count, &some)?) {
                parts.push(output);
            }
            start += count;
        }
        let joined = |(id, parts): (&NodeId, Vec<Tensor>)| {
            let value = &self.outline.values[id.index()];
            match value.shape.is_batched() {
                true => stack(&parts, value.kind),
                false => parts.into_iter().next().ok_or_else(|| self.outline.lost(*id)),
            }
        };
        self.outline.outputs.iter().zip(parts).map(joined).collect()
    }

    /// Runs a batch, in pieces if it does not fit the card's memory.
    pub(super) fn run_fitting(&self, batch: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let fits = *self.fits.lock().unwrap_or_else(PoisonError::into_inner);
        if batch > fits && self.divisible {
            return self.run_in_pieces(batch, fits, inputs);
        }
        match self.run_whole(batch, inputs) {
            Err(error) if self.divisible && batch > 1 && error.kind() == ErrorKind::Memory => {
                let piece = batch.div_ceil(2);
                self.device
                    .say_once("monosplit: a batch does not fit the card's memory; it is computed in pieces");
                let mut fits = self.fits.lock().unwrap_or_else(PoisonError::into_inner);
                *fits = piece.min(*fits);
                drop(fits);
                self.run_in_pieces(batch, piece, inputs)
            }
            Err(error) if batch == 1 && error.kind() == ErrorKind::Memory => {
                Err(Error::memory(format!("not even one sample fits the card's memory: {error}")))
            }
            other => other,
        }
    }
}
