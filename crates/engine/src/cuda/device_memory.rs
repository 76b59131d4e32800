//! What the buffers of all programs take of a device's memory, within the memory budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::{result as driver, sys};
use monosplit_graph::{Error, Result};

use crate::memory_budget::check_card_memory;

/// The account of a device's memory, shared by its clones.
#[derive(Clone, Default)]
pub(super) struct DeviceMemory {
    held: Arc<AtomicUsize>,
}

impl DeviceMemory {
    /// Bytes that are allocated.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Allocates within the budget.
    ///
    /// # Safety
    /// The device is current.
    pub(super) unsafe fn allocate(&self, bytes: usize) -> Result<sys::CUdeviceptr> {
        check_card_memory(bytes, self.held())?;
        // SAFETY: the caller has made the device current.
        let at = unsafe { driver::malloc_sync(bytes) }.map_err(|_| {
            let free = driver::mem_get_info().map_or(0, |(free, _)| free);
            Error::memory(format!(
                "the GPU has no memory for {} MiB more, {} MiB are free; end other programs that use it, or use the \
                 engine 'cpu'",
                bytes >> 20,
                free >> 20
            ))
        })?;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(at)
    }

    /// Frees what [`allocate`](Self::allocate) returned for this number of bytes.
    ///
    /// # Safety
    /// The device is current, and nothing uses the memory any more.
    pub(super) unsafe fn free(&self, at: sys::CUdeviceptr, bytes: usize) {
        // SAFETY: as the caller promises.
        let _ = unsafe { driver::free_sync(at) };
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}
