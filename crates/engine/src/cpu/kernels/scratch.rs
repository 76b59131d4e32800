//! Scratch memory of kernels and of incremental runs. A thread pool keeps the buffers for the next kernel, because fresh memory
//! would cost a page fault for every page in every run. A thread that belongs to no pool allocates.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use crate::cpu::real::Real;
use crate::cpu::thread_pool::with_scratch;
use crate::cpu::unwinding::filled;
use crate::memory_ledger::IdleMemory;

/// Bytes of a cache line, at which every buffer begins.
pub(crate) const CACHE_LINE: usize = 64;
/// The number of free buffers that are kept.
const MAX_FREE: usize = 16;

/// Buffers that no kernel uses.
pub(crate) type FreeBuffers<R> = Mutex<Vec<Vec<R>>>;

/// The free buffers of a thread pool or of a program.
#[derive(Debug, Default)]
pub(crate) struct ScratchBuffers {
    pub(crate) f32: FreeBuffers<f32>,
    pub(crate) f64: FreeBuffers<f64>,
}

impl ScratchBuffers {
    /// A vector of this length with arbitrary elements.
    pub(crate) fn take<R: Real>(&self, length: usize) -> Vec<R> {
        if length == 0 {
            return Vec::new();
        }
        let found = self.best_fit(length).filter(|memory| memory.capacity() >= length);
        match found {
            Some(mut memory) => {
                memory.resize(length, R::ZERO);
                memory
            }
            None => filled(R::ZERO, length),
        }
    }

    /// Keeps a vector for the next [`ScratchBuffers::take`].
    pub(crate) fn give_back<R: Real>(&self, memory: Vec<R>) {
        if memory.capacity() > 0 {
            R::scratch(self).lock().unwrap_or_else(PoisonError::into_inner).push(memory);
        }
    }

    /// Takes the smallest free buffer that can hold so many elements; else the largest, which the caller replaces by a larger
    /// one.
    fn best_fit<R: Real>(&self, length: usize) -> Option<Vec<R>> {
        let mut free = R::scratch(self).lock().unwrap_or_else(PoisonError::into_inner);
        let fit = |buffer: &Vec<R>| (buffer.capacity() < length, buffer.capacity().abs_diff(length));
        let best = (0..free.len()).min_by_key(|&index| fit(&free[index]));
        best.map(|index| free.swap_remove(index))
    }
}

impl IdleMemory for ScratchBuffers {
    fn bytes(&self) -> usize {
        fn kept<R>(free: &FreeBuffers<R>) -> usize {
            let free = free.lock().unwrap_or_else(PoisonError::into_inner);
            free.iter().map(|memory| memory.capacity() * size_of::<R>()).sum()
        }
        kept(&self.f32) + kept(&self.f64)
    }

    fn release(&self) {
        self.f32.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.f64.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Memory of its own that begins at a cache line.
#[derive(Debug)]
pub(crate) struct AlignedVec<R> {
    memory: Vec<R>,
    offset: usize,
    length: usize,
}

impl<R: Real> AlignedVec<R> {
    /// So many zeros.
    pub(crate) fn new(length: usize) -> Self {
        let slack = CACHE_LINE / size_of::<R>();
        let memory = vec![R::ZERO; length + slack];
        let offset = memory.as_ptr().align_offset(CACHE_LINE).min(slack);
        AlignedVec { memory, offset, length }
    }
}

impl<R> Deref for AlignedVec<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        &self.memory[self.offset..self.offset + self.length]
    }
}

impl<R> DerefMut for AlignedVec<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        &mut self.memory[self.offset..self.offset + self.length]
    }
}

/// A buffer that is given back when dropped. Its first contents are arbitrary.
pub(crate) struct Scratch<R: Real> {
    buffer: Vec<R>,
    offset: usize,
    length: usize,
}

impl<R: Real> Scratch<R> {
    /// A buffer of `length` elements.
    pub(crate) fn new(length: usize) -> Self {
        let slack = CACHE_LINE / size_of::<R>();
        let wanted = length.saturating_add(slack);
        let mut buffer: Vec<R> = with_scratch(|buffers| buffers?.best_fit(wanted)).unwrap_or_default();
        if buffer.len() < wanted {
            drop(buffer);
            buffer = filled(R::ZERO, wanted);
        }
        let offset = buffer.as_ptr().align_offset(CACHE_LINE).min(slack);
        Scratch { buffer, offset, length }
    }
}

impl<R: Real> Deref for Scratch<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        &self.buffer[self.offset..self.offset + self.length]
    }
}

impl<R: Real> DerefMut for Scratch<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        &mut self.buffer[self.offset..self.offset + self.length]
    }
}

impl<R: Real> Drop for Scratch<R> {
    fn drop(&mut self) {
        with_scratch(|buffers| {
            let Some(buffers) = buffers else { return };
            let mut free = R::scratch(buffers).lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() < MAX_FREE {
                free.push(std::mem::take(&mut self.buffer));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::thread_pool::ThreadPool;

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked_for() {
        let check = || {
            for length in [0, 1, 1000, 3, 100_000, 1000] {
                let first = Scratch::<f32>::new(length);
                let second = Scratch::<f32>::new(2 * length);
                assert_eq!((first.len(), second.len()), (length, 2 * length));
                assert_eq!(first.as_ptr().align_offset(CACHE_LINE), 0);
                assert_eq!(second.as_ptr().align_offset(CACHE_LINE), 0);
            }
        };
        check();
        ThreadPool::start(1, false).unwrap().install(check);
    }

    #[test]
    fn a_pool_keeps_buffers_for_the_next_kernel() {
        let address = || Scratch::<f64>::new(5000).as_ptr() as usize;
        let (first, second) = ThreadPool::start(1, false).unwrap().install(|| (address(), address()));
        assert_eq!(first, second);
    }
}
