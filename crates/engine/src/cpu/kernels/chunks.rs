//! Slices worked on by several threads, in chunks of equal length.

use rayon::prelude::*;

use crate::cpu::real::Element;

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
