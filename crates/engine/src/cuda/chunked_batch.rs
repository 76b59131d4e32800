//! Runs a batch of any size: as a whole if it fits the GPU's memory, else in chunks of samples.

use std::sync::PoisonError;

use monosplit_graph::{Error, ErrorKind, Result, Tensor};

use super::instance::Instance;
use super::program::CudaProgram;
use crate::split_batch::run_in_chunks;

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

    fn run_in_chunks(&self, batch: usize, chunk: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        run_in_chunks(&self.info, (batch, chunk), inputs, |count, some| self.run_fitting(count, some))
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
