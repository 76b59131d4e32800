//! Memory of incremental runs.

use std::sync::{Mutex, PoisonError};

use monosplit_graph::{Data, Tensor};

use crate::cpu::real::Real;

/// Memory that is used again from tile to tile and from run to run.
pub(super) struct TileBuffers<'a, R: Real> {
    owner: &'a Mutex<Vec<Data>>,
    free: Vec<Vec<R>>,
}

impl<R: Real> Drop for TileBuffers<'_, R> {
    fn drop(&mut self) {
        let free = self.free.drain(..).map(|memory| R::into_data(memory.into()));
        self.owner.lock().unwrap_or_else(PoisonError::into_inner).extend(free);
    }
}

impl<'a, R: Real> TileBuffers<'a, R> {
    /// Takes what `owner` holds, and hands it back when it is dropped.
    pub(super) fn new(owner: &'a Mutex<Vec<Data>>) -> Self {
        let known = std::mem::take(&mut *owner.lock().unwrap_or_else(PoisonError::into_inner));
        TileBuffers { owner, free: known.into_iter().filter_map(R::from_data).collect() }
    }

    /// A vector of this length with unspecified elements: the smallest that is large enough, or else the largest, which is
    /// replaced.
    pub(super) fn take(&mut self, length: usize) -> Vec<R> {
        if length == 0 {
            return Vec::new();
        }
        let size = |(_, memory): &(usize, &Vec<R>)| memory.capacity();
        let all = || self.free.iter().enumerate();
        let best =
            all().filter(|memory| size(memory) >= length).min_by_key(size).or_else(|| all().max_by_key(size));
        let best = best.map(|(at, _)| at);
        let mut memory = best.map_or_else(Vec::new, |at| self.free.swap_remove(at));
        if memory.capacity() < length {
            memory = Vec::with_capacity(length);
        }
        memory.resize(length, R::ZERO);
        memory
    }

    /// Takes the memory of a tensor that nobody else reads.
    pub(super) fn give_back(&mut self, tensor: Tensor) {
        self.free.extend(R::from_data(tensor.into_data()).filter(|memory| memory.capacity() > 0));
    }
}
