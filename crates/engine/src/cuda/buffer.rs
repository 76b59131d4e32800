//! Buffers in device memory.

use std::sync::Arc;

use cudarc::driver::{result as driver, sys};
use monosplit_graph::{Error, Result};

use super::device::{Device, DriverResult};
use super::transfer::Plain;

/// Device memory, freed when dropped.
pub(super) struct DeviceBuffer {
    device: Arc<Device>,
    pub(super) at: sys::CUdeviceptr,
    pub(super) bytes: usize,
}

impl DeviceBuffer {
    /// Allocates memory. The caller has locked the device.
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(256);
        // SAFETY: it is freed when the buffer is dropped.
        let at = unsafe { device.memory.allocate(bytes) }?;
        Ok(DeviceBuffer { device: device.clone(), at, bytes })
    }

    /// Device memory with a copy of `elements`.
    pub(super) fn from_slice<T: Plain>(device: &Arc<Device>, elements: &[T]) -> Result<Self> {
        let memory = DeviceBuffer::new(device, size_of_val(elements))?;
        memory.write(0, elements)?;
        device.synchronize()?;
        Ok(memory)
    }

    /// Copies `elements` to the device, to `offset` bytes from the start.
    pub(super) fn write<T: Plain>(&self, offset: usize, elements: &[T]) -> Result<()> {
        if offset + size_of_val(elements) > self.bytes {
            return Err(Error::argument("a copy to the device is larger than the buffer"));
        }
        // SAFETY: the range was checked above. The driver has read pageable host memory before the call returns.
        unsafe { driver::memcpy_htod_async(self.at + offset as u64, elements, self.device.main_stream) }
            .or_failed_to("copy to the device")
    }

    /// Waits until all enqueued work is done.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.device.synchronize()
    }

    /// Copies from the device, from `offset` bytes from the start.
    pub(super) fn read<T: Plain>(&self, offset: usize, elements: &mut [T]) -> Result<()> {
        if offset + size_of_val(elements) > self.bytes {
            return Err(Error::argument("a copy from the device is larger than the buffer"));
        }
        // SAFETY: the range was checked above, and every bit pattern is a `T`. The driver returns only when a copy to pageable
        // host memory is complete.
        unsafe { driver::memcpy_dtoh_async(elements, self.at + offset as u64, self.device.main_stream) }
            .or_failed_to("copy from the device")
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let _ = self.device.make_current();
        // SAFETY: `at` came from the allocator and is freed once.
        unsafe { self.device.memory.free(self.at, self.bytes) };
    }
}
