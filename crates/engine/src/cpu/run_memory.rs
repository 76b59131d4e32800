//! What a run of a program takes of the memory budget, in how many chunks a batch fits, and the buffers that are kept for the next run.

use std::sync::{Mutex, MutexGuard, PoisonError};

use monosplit_graph::{NodeId, Result, element_count};

use super::program::CpuProgram;
use super::real::Real;
use super::value::Storage;
use crate::footprint::Footprint;
use crate::graph_info::element_bytes;
use crate::memory_ledger::{IdleMemory, Reservation};
use crate::samples_within;

/// What a run takes besides what is held between runs.
#[derive(Clone, Copy, Default)]
pub(super) struct RunMemory {
    batch: usize,
    /// Bytes of its buffers.
    buffers: usize,
    /// Bytes of the scratch memory of its kernels.
    scratch: usize,
}

impl RunMemory {
    fn bytes(self) -> usize {
        self.buffers.saturating_add(self.scratch)
    }
}

/// Buffers of finished runs.
pub(super) struct Arenas<R> {
    kept: Mutex<Vec<Vec<Storage<R>>>>,
}

impl<R> Default for Arenas<R> {
    fn default() -> Self {
        Arenas { kept: Mutex::default() }
    }
}

impl<R: Real> Arenas<R> {
    pub(super) fn pop(&self) -> Option<Vec<Storage<R>>> {
        self.kept().pop()
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Vec<Vec<Storage<R>>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Real> IdleMemory for Arenas<R> {
    fn bytes(&self) -> usize {
        self.kept().iter().flatten().map(Storage::bytes).sum()
    }

    fn release(&self) {
        self.kept().clear();
    }
}

impl<R: Real> CpuProgram<R> {
    /// Counts what it holds between runs; an error if that and a run of one sample would be more than is left of the budget.
    pub(super) fn check_budget(&mut self) -> Result<()> {
        let one = self.footprint(&self.info.shapes(&self.plan, 1)?);
        let left = self.ledger.left(self.budget);
        if one.bytes > left {
            return Err(one.refused(&self.info, self.budget, self.budget - left));
        }
        self.reserved = self.ledger.hold(self.held.bytes, self.budget);
        Ok(())
    }

    /// What a run of so many samples takes besides what is held between runs.
    fn run_memory_of(&self, batch: usize) -> Result<RunMemory> {
        let mut last = self.last_run.lock().unwrap_or_else(PoisonError::into_inner);
        if last.batch != batch {
            let shapes = self.info.shapes(&self.plan, batch)?;
            let real = size_of::<R>();
            let buffers = Footprint::buffers(&self.info, &self.plan, &shapes, real, &self.held).bytes;
            let scratch = self.footprint(&shapes).bytes.saturating_sub(buffers);
            *last = RunMemory { batch, buffers: buffers.saturating_sub(self.held.bytes), scratch };
        }
        Ok(*last)
    }

    pub(super) fn run_bytes(&self, batch: usize) -> Result<usize> {
        Ok(self.run_memory_of(batch)?.bytes())
    }

    /// Counts a run and `given` bytes of inputs. Buffers of an earlier run and the scratch memory of the threads are part of what
    /// the run takes: to give them up for it would have the system clear the same memory again for every run.
    pub(super) fn hold_run(&self, batch: usize, given: usize) -> Result<Reservation> {
        let run = self.run_memory_of(batch)?;
        let bytes = run.bytes().saturating_add(given);
        // An earlier batch may have been larger.
        let beyond = |arena: &Vec<Storage<R>>| {
            let kept = arena.iter().map(Storage::bytes).fold(0, usize::saturating_add);
            kept.saturating_sub(run.buffers)
        };
        let left = self.ledger.left(self.budget);
        let arena = self.arenas.pop().filter(|arena| bytes.saturating_add(beyond(arena)) <= left);
        let scratch = self.pool.scratch().bytes().min(run.scratch);
        let held = self.ledger.hold_reusing(bytes, scratch, self.budget);
        self.arenas.kept().extend(arena);
        Ok(held)
    }

    /// Bytes of these values at a batch size, where a real number has `real_bytes`.
    pub(super) fn bytes_of(&self, ids: &[NodeId], batch: usize, real_bytes: usize) -> usize {
        let bytes = |id: &NodeId| {
            let value = &self.info.values[id.index()];
            let count = value.shape.at(batch).and_then(|shape| element_count(&shape)).unwrap_or(usize::MAX);
            count.saturating_mul(element_bytes(value.kind, real_bytes))
        };
        ids.iter().map(bytes).fold(0, usize::saturating_add)
    }

    fn footprint(&self, shapes: &[Vec<usize>]) -> Footprint {
        let real = size_of::<R>();
        let buffers = Footprint::buffers(&self.info, &self.plan, shapes, real, &self.held);
        buffers.with_scratch(&self.info, &self.plan, shapes, real)
    }

    /// The number of samples that are run at once, less than `batch` if the whole would hold more than is left of the budget
    /// beside `given` bytes of inputs.
    pub(super) fn chunk(&self, batch: usize, given: usize) -> Result<usize> {
        let left = self.ledger.left(self.budget).saturating_sub(given);
        let whole = self.run_bytes(batch);
        if matches!(&whole, Ok(bytes) if *bytes <= left) {
            return Ok(batch);
        }
        // The outputs of all chunks are held, and once more while they are joined.
        let outputs = self.bytes_of(&self.info.outputs, batch, 2 * size_of::<R>());
        if self.splittable && batch > 1 && self.run_bytes(1)?.saturating_add(outputs) <= left {
            let bytes = |samples: usize| {
                let inputs = self.bytes_of(&self.info.inputs, samples, size_of::<R>());
                self.run_bytes(samples).unwrap_or(usize::MAX).saturating_add(inputs)
            };
            return Ok(samples_within(batch - 1, left - outputs, bytes));
        }
        whole?;
        let all = self.footprint(&self.info.shapes(&self.plan, batch)?);
        // Fewer bytes than the whole run are held by others; its own constants are part of both.
        let others = self.budget.saturating_sub(left).saturating_sub(self.held.bytes);
        Err(all.refused(&self.info, self.budget, others))
    }
}
