//! A loop whose state never leaves the card.

use monosplit_graph::{Error, Result, Tensor};

use super::instance::Instance;
use super::program::CudaProgram;
use crate::Loop;

/// A program and the one instance it runs in.
pub(super) struct Resident {
    // Dropped before the program, whose memory its commands name.
    instance: Instance,
    program: CudaProgram,
    /// How many inputs and outputs are the state.
    count: usize,
}

impl Resident {
    pub(super) fn new(program: CudaProgram, state: Vec<Tensor>) -> Result<Self> {
        let values = &program.outline.values;
        if program.outline.inputs.iter().any(|id| values[id.index()].shape.is_batched()) {
            return Err(Error::unsupported("a loop on a card needs a batch of fixed size"));
        }
        let turn = program.device.turn()?;
        let mut instance = Instance::new(&program, 1)?;
        instance.feed_back(&program, state.len())?;
        drop(turn);
        let mut resident = Resident { instance, program, count: state.len() };
        resident.set_state(state)?;
        Ok(resident)
    }

    /// Whether these are what `count` inputs from the `first` on can be given.
    fn check(&self, first: usize, count: usize, tensors: &[Tensor]) -> Result<()> {
        if tensors.len() != count {
            return Err(Error::argument(format!("expected {count} values, found {}", tensors.len())));
        }
        let outline = &self.program.outline;
        let mut pairs = outline.inputs.iter().skip(first).zip(tensors);
        pairs.try_for_each(|(&id, tensor)| outline.check(id, tensor, &mut None))
    }

    /// Inputs that are not state.
    fn given(&self) -> usize {
        self.program.outline.inputs.len().saturating_sub(self.count)
    }
}

impl Loop for Resident {
    fn step(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.check(0, self.given(), inputs)?;
        let Resident { instance, program, count } = self;
        let wanted = program.outline.outputs.len().saturating_sub(*count);
        program.device.with_dock(|dock| {
            dock.load(program, inputs, &[])?;
            let turn = program.device.turn()?;
            let leaving = instance.launch(program, inputs, wanted, dock)?;
            drop(turn);
            dock.unload(program, leaving)
        })
    }

    fn state(&mut self) -> Result<Vec<Tensor>> {
        let _turn = self.program.device.turn()?;
        self.instance.inputs_from(&self.program, self.given())
    }

    fn set_state(&mut self, state: Vec<Tensor>) -> Result<()> {
        let first = self.given();
        self.check(first, self.count, &state)?;
        let _turn = self.program.device.turn()?;
        self.instance.write(&self.program, first, &state)
    }
}
