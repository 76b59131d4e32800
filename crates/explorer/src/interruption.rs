//! Whether anybody still waits for an answer.

use monosplit::explain::Progress;
use monosplit::{Error, ErrorKind, Result};

/// Tells a computation that nobody waits for its result any more. It is asked between steps.
#[derive(Clone, Copy)]
pub struct Interruption<'a>(&'a (dyn Fn() -> bool + Sync));

impl Interruption<'static> {
    /// Never interrupts.
    pub const NEVER: Interruption<'static> = Interruption(&|| false);
}

impl<'a> Interruption<'a> {
    /// Interrupts as soon as `is_interrupted` holds.
    pub fn new(is_interrupted: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Interruption(is_interrupted)
    }

    /// An error if nobody waits any more.
    pub(crate) fn check(&self) -> Result<()> {
        match (self.0)() {
            true => Err(Error::new(ErrorKind::Cancelled, "the computation was cancelled")),
            false => Ok(()),
        }
    }
}

impl Progress for Interruption<'_> {
    fn advance(&self, _done: usize, _total: usize) -> Result<()> {
        self.check()
    }
}
