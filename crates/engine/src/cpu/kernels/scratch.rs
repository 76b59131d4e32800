//! Memory for what a kernel lays out and throws away, kept for the next one: fresh memory would cost a page
//! fault for every page of every run.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use crate::cpu::real::Real;

/// Bytes of a cache line, at which every loan begins.
const LINE: usize = 64;
/// Buffers kept while nobody uses them.
const KEPT: usize = 16;

/// Buffers nobody uses.
pub(crate) type Pool<R> = Mutex<Vec<Vec<R>>>;

/// A buffer, given back when dropped. What it holds at first is arbitrary.
pub(crate) struct Scratch<R: Real> {
    buffer: Vec<R>,
    offset: usize,
    length: usize,
}

impl<R: Real> Scratch<R> {
    /// A buffer of `length` elements.
    pub(crate) fn new(length: usize) -> Self {
        let slack = LINE / size_of::<R>();
        let wanted = length + slack;
        let mut buffer = {
            let mut pool = R::scratch().lock().unwrap_or_else(PoisonError::into_inner);
            // The smallest that is large enough; else the largest is grown.
            let fit = |buffer: &Vec<R>| (buffer.len() < wanted, buffer.len().abs_diff(wanted));
            let best = (0..pool.len()).min_by_key(|&index| fit(&pool[index]));
            best.map(|index| pool.swap_remove(index)).unwrap_or_default()
        };
        if buffer.len() < wanted {
            buffer = vec![R::ZERO; wanted];
        }
        let offset = buffer.as_ptr().align_offset(LINE).min(slack);
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
        let mut pool = R::scratch().lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < KEPT {
            pool.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loans_are_aligned_and_as_long_as_asked_for() {
        for length in [0, 1, 1000, 3, 100_000] {
            let first = Scratch::<f32>::new(length);
            let second = Scratch::<f32>::new(2 * length);
            assert_eq!((first.len(), second.len()), (length, 2 * length));
            assert_eq!(first.as_ptr().align_offset(LINE), 0);
            assert_eq!(second.as_ptr().align_offset(LINE), 0);
        }
    }
}
