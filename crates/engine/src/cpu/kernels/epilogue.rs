//! Epilogues: elementwise functions of a kernel's output that are applied while the output is in cache.

use super::row_loops;
use crate::cpu::real::Real;

/// What is done to the output of a kernel while it is in cache.
pub(crate) enum Epilogue<'a, R> {
    /// Clamps it between these two.
    Clamp([R; 2]),
    /// Calls this for a run of elements, which begins at the given index.
    Map(&'a (dyn Fn(usize, &mut [R]) + Sync)),
}

impl<R: Real> Epilogue<'_, R> {
    /// The limits it clamps to, if that is what it does. The microkernel applies these before it stores.
    pub(crate) fn clamp(&self) -> Option<[R; 2]> {
        match self {
            Epilogue::Clamp(limits) => Some(*limits),
            Epilogue::Map(_) => None,
        }
    }

    /// Applies it to a run of elements that begins at index `first`.
    pub(crate) fn apply(&self, first: usize, piece: &mut [R]) {
        match self {
            Epilogue::Clamp([least, most]) => row_loops::clamp(piece, *least, *most),
            Epilogue::Map(act) => act(first, piece),
        }
    }
}
