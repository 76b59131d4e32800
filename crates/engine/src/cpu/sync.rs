//! The atomics and the cell that the handover protocol is written with: those of the standard library, or those of `loom` where
//! the protocol is model-checked (`scripts/check_loom.sh`).

#[cfg(all(test, loom))]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicUsize},
};
pub(super) use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A cell with the interface of `loom::cell::UnsafeCell`, which reports conflicting accesses.
#[cfg(not(all(test, loom)))]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(all(test, loom)))]
impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer that `f` may read through while nobody writes.
    pub(super) fn with<U>(&self, f: impl FnOnce(*const T) -> U) -> U {
        f(self.0.get())
    }

    /// Calls `f` with a pointer that `f` may write through while nobody else reads or writes.
    pub(super) fn with_mut<U>(&self, f: impl FnOnce(*mut T) -> U) -> U {
        f(self.0.get())
    }
}

/// The number of polls before a waiting thread yields its core.
#[cfg(not(all(test, loom)))]
const POLLS_PER_YIELD: usize = 1 << 12;

/// Polls until `ready`.
pub(super) fn spin_until(ready: impl Fn() -> bool) {
    #[cfg(not(all(test, loom)))]
    {
        let mut polls = 0usize;
        while !ready() {
            polls += 1;
            if polls.is_multiple_of(POLLS_PER_YIELD) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
    #[cfg(all(test, loom))]
    while !ready() {
        loom::thread::yield_now();
    }
}
