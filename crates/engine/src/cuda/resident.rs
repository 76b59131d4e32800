//! A stateful program whose state stays in device memory.

use monosplit_graph::{Error, Result, Tensor};

use super::instance::Instance;
use super::program::CudaProgram;
use crate::StatefulProgram;

/// A program with one instance whose last outputs become its last inputs.
pub(super) struct ResidentLoop {
    // Dropped before the program, whose memory its commands use.
    instance: Instance,
    program: CudaProgram,
    /// The number of inputs and outputs that are the state.
    count: usize,
}

impl ResidentLoop {
    pub(super) fn new(program: CudaProgram, state: Vec<Tensor>) -> Result<Self> {
        let values = &program.info.values;
        if program.info.inputs.iter().any(|id| values[id.index()].shape.is_batched()) {
            return Err(Error::unsupported("a loop on a GPU needs a batch of fixed size"));
        }
        let lock = program.device.lock()?;
        let mut instance = Instance::new(&program, 1)?;
        instance.feed_back(&program, state.len())?;
        drop(lock);
        let mut resident = ResidentLoop { instance, program, count: state.len() };
        resident.set_state(state)?;
        Ok(resident)
    }

    /// Checks that `tensors` fit the `count` inputs from `first` on.
    fn check(&self, first: usize, count: usize, tensors: &[Tensor]) -> Result<()> {
        if tensors.len() != count {
            return Err(Error::argument(format!("expected {count} values, found {}", tensors.len())));
        }
        let info = &self.program.info;
        let mut pairs = info.inputs.iter().skip(first).zip(tensors);
        pairs.try_for_each(|(&id, tensor)| info.check(id, tensor, &mut None))
    }

    /// The number of inputs that are not state.
    fn free_inputs(&self) -> usize {
        self.program.info.inputs.len().saturating_sub(self.count)
    }
}

impl StatefulProgram for ResidentLoop {
    fn step(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.check(0, self.free_inputs(), inputs)?;
        let ResidentLoop { instance, program, count } = self;
        let wanted = program.info.outputs.len().saturating_sub(*count);
        program.device.with_staging(|staging| {
            staging.upload(program, inputs, &[])?;
            let lock = program.device.lock()?;
            let pending = instance.launch(program, inputs, wanted, staging)?;
            drop(lock);
            staging.download(program, pending)
        })
    }

    fn state(&mut self) -> Result<Vec<Tensor>> {
        let _lock = self.program.device.lock()?;
        self.instance.inputs_from(&self.program, self.free_inputs())
    }

    fn set_state(&mut self, state: Vec<Tensor>) -> Result<()> {
        let first = self.free_inputs();
        self.check(first, self.count, &state)?;
        let _lock = self.program.device.lock()?;
        self.instance.write(&self.program, first, &state)
    }
}
