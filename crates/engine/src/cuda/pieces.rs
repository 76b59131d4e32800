//! A batch of any size: as a whole if it fits the card's memory, in pieces if it does not.

use std::sync::PoisonError;

use monosplit_graph::batch::{rows, stack};
use monosplit_graph::{Dim, ErrorKind, NodeId, Result, Tensor};

use super::instance::Instance;
use super::program::CudaProgram;

/// Batch sizes whose memory and commands are kept.
const KEPT: usize = 3;

impl CudaProgram {
    /// Runs a batch that fits.
    fn run_whole(&self, batch: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let _turn = self.device.turn()?;
        let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        let position = match instances.iter().position(|(size, _)| *size == batch) {
            Some(position) => position,
            None => {
                if instances.len() >= KEPT {
                    instances.remove(0);
                }
                let made = Instance::new(self, batch).or_else(|error| match instances.is_empty() {
                    true => Err(error),
                    false => {
                        instances.clear();
                        Instance::new(self, batch)
                    }
                });
                instances.push((batch, made?));
                instances.len() - 1
            }
        };
        // The last is the one used last.
        let used = instances.remove(position);
        instances.push(used);
        let last = instances.len() - 1;
        let run = instances[last].1.run(self, inputs);
        if run.is_err() {
            instances.remove(last);
        }
        run
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
                *self.fits.lock().unwrap_or_else(PoisonError::into_inner) = piece;
                self.run_in_pieces(batch, piece, inputs)
            }
            other => other,
        }
    }
}
