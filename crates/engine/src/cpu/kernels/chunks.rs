//! Slices worked on by several threads, in chunks of equal length.

use rayon::prelude::*;

use crate::cpu::real::{Element, Real};
use crate::cpu::thread_pool::{TASKS, parallel_for_chunks};

/// Calls `work(index of the chunk, chunk)` for every chunk of `length` elements; the last may be shorter. Of nothing there is
/// no chunk, whatever its length.
///
/// `work` is a trait object, so that rayon's code is compiled once per element type instead of once per kernel. The call
/// through it costs nanoseconds per chunk.
pub(crate) fn for_each_chunk<T: Element>(
    out: &mut [T],
    length: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    out.par_chunks_mut(length.max(1)).enumerate().for_each(|(index, chunk)| work(index, chunk));
}

/// Calls `work` for every index below `count`; a trait object for the same reason.
pub(crate) fn for_each_index(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(work);
}

/// Calls `work` for every plane of `y` with its index and the scratch memory of its task.
pub(crate) fn for_each_plane<R: Real, S>(
    y: &mut [R],
    length: usize,
    scratch: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize, &mut [R]) + Sync,
) {
    let length = length.max(1);
    let planes = (y.len() / length).div_ceil(TASKS).max(1);
    parallel_for_chunks(y, planes * length, |task, y| {
        let mut scratch = scratch();
        for (local, y) in y.chunks_mut(length).enumerate() {
            work(&mut scratch, task * planes + local, y);
        }
    });
}
