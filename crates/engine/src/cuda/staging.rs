//! Staging buffers: page-locked host memory and device memory through which inputs are uploaded and outputs downloaded, on a
//! stream of their own. The transfers of one run overlap with the computation of another.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::PoisonError;

use cudarc::driver::{result as driver, sys};
use monosplit_graph::{Data, Error, Kind, Result, Tensor};

use super::Math;
use super::device::{Device, DriverResult};
use super::device_memory::DeviceMemory;
use super::event::Event;
use super::program::{CudaProgram, fault};
use super::transfer::{Plain, bool_bytes, bytes_of, values_from};
use crate::plan::BufferLocation;

/// Alignment in bytes of every tensor in a staging buffer.
const ALIGNMENT: usize = 256;
/// Capacities are multiples of this many bytes.
const GRANULARITY: usize = 1 << 20;
/// The number of unused staging buffers that are kept for later runs.
const MAX_IDLE: usize = 16;

/// The same number of bytes of page-locked host memory and of device memory.
struct StagingBuffer {
    host: NonNull<u8>,
    device: sys::CUdeviceptr,
    bytes: usize,
    memory: DeviceMemory,
}

impl StagingBuffer {
    fn empty(memory: DeviceMemory) -> Self {
        StagingBuffer { host: NonNull::dangling(), device: 0, bytes: 0, memory }
    }

    /// Ensures a capacity of `bytes`. Contents are lost if the buffer has to grow. The device is current, and no transfer of
    /// this buffer is under way.
    fn reserve(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        self.release();
        let bytes = bytes.next_multiple_of(GRANULARITY);
        let out_of_memory = |_| {
            Error::memory(format!(
                "there is no memory for {} MiB of inputs or outputs of the GPU; use a smaller batch",
                bytes >> 20
            ))
        };
        // SAFETY: a context is current. Both allocations are freed once, by `release`.
        let (host, device) = unsafe {
            let host = driver::malloc_host(bytes, 0).map_err(out_of_memory)?;
            match self.memory.allocate(bytes) {
                Ok(device) => (host, device),
                Err(error) => {
                    let _ = driver::free_host(host);
                    return Err(error);
                }
            }
        };
        let host = NonNull::new(host.cast()).ok_or_else(|| Error::memory("the driver returned no memory"))?;
        *self = StagingBuffer { host, device, bytes, memory: self.memory.clone() };
        Ok(())
    }

    fn release(&mut self) {
        if self.bytes > 0 {
            // SAFETY: allocated by `reserve`, freed once. No transfer is under way: buffers grow between runs, and are
            // dropped after their stream was synchronised.
            unsafe {
                let _ = driver::free_host(self.host.as_ptr().cast::<c_void>());
                self.memory.free(self.device, self.bytes);
            }
        }
        *self = StagingBuffer::empty(self.memory.clone());
    }

    /// The host memory.
    fn host(&mut self) -> &mut [u8] {
        // SAFETY: `reserve` got `bytes` bytes from the driver, which hands out memory with defined contents, or `bytes` is 0
        // and the pointer dangles, as that of an empty slice may. `self` owns them. No transfer writes them while the slice is
        // borrowed: downloads are synchronised before they are read.
        unsafe { std::slice::from_raw_parts_mut(self.host.as_ptr(), self.bytes) }
    }
}

/// The staging buffers of one run: one for its inputs, one for its outputs.
pub(super) struct StagingBuffers {
    stream: sys::CUstream,
    inputs: StagingBuffer,
    /// For every input its offset in `inputs`, unless it was not uploaded.
    offsets: Vec<Option<usize>>,
    outputs: StagingBuffer,
    /// Recorded behind the upload of the inputs.
    uploaded: Event,
    /// Recorded before and behind the computation.
    started: Event,
    finished: Event,
}

// SAFETY: the buffers are used by one thread at a time, the one that took them from the device. The driver calls they make
// are allowed from any thread.
unsafe impl Send for StagingBuffers {}

impl StagingBuffers {
    fn new(memory: &DeviceMemory) -> Result<Self> {
        let stream = driver::stream::create(driver::stream::StreamKind::NonBlocking);
        Ok(StagingBuffers {
            stream: stream.or_failed_to("create a stream")?,
            inputs: StagingBuffer::empty(memory.clone()),
            offsets: Vec::new(),
            outputs: StagingBuffer::empty(memory.clone()),
            uploaded: Event::new()?,
            started: Event::timing()?,
            finished: Event::timing()?,
        })
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { driver::stream::synchronize(self.stream) }.or_failed_to("finish a transfer")
    }

    /// Starts the upload of the inputs, except of those that are `resident` on the device already and those that no step
    /// reads.
    pub(super) fn upload(
        &mut self,
        program: &CudaProgram,
        inputs: &[Tensor],
        resident: &[bool],
    ) -> Result<()> {
        let (mut end, mut sent) = (0, Vec::new());
        self.offsets.clear();
        for (position, tensor) in inputs.iter().enumerate() {
            let unread =
                program.plan.locations[program.info.inputs[position].index()] == BufferLocation::NotStored;
            if unread || resident.get(position) == Some(&true) {
                self.offsets.push(None);
                continue;
            }
            let tensor = converted(tensor, program.math, tensor.shape())?;
            self.offsets.push(Some(end));
            let start = end;
            end = (start + tensor_bytes(&tensor).len()).next_multiple_of(ALIGNMENT);
            sent.push((start, tensor));
        }
        self.inputs.reserve(end)?;
        let host = self.inputs.host();
        for (start, tensor) in &sent {
            let bytes = tensor_bytes(tensor);
            host[*start..start + bytes.len()].copy_from_slice(bytes);
        }
        if end > 0 {
            let device = self.inputs.device;
            let host = &self.inputs.host()[..end];
            // SAFETY: both sides have at least `end` bytes. They are neither written nor freed before the stream was
            // synchronised.
            unsafe { driver::memcpy_htod_async(device, host, self.stream) }
                .or_failed_to("copy inputs to the device")?;
        }
        self.uploaded.record(self.stream)
    }

    /// The device address of an uploaded input, or `None` if it was not uploaded.
    pub(super) fn uploaded(&self, position: usize) -> Option<sys::CUdeviceptr> {
        self.offsets.get(position).copied().flatten().map(|offset| self.inputs.device + offset as u64)
    }

    /// Makes the device's main stream wait for the upload.
    pub(super) fn wait_for_upload(&self, device: &Device) -> Result<()> {
        self.uploaded.block(device.main_stream)
    }

    /// Device memory for `bytes` of outputs.
    pub(super) fn reserve_outputs(&mut self, bytes: usize) -> Result<sys::CUdeviceptr> {
        self.outputs.reserve(bytes)?;
        Ok(self.outputs.device)
    }

    /// Records the time before the computation that is enqueued next.
    pub(super) fn record_start(&self, device: &Device) -> Result<()> {
        self.started.record(device.main_stream)
    }

    /// Records the time after the computation that was enqueued last.
    pub(super) fn record_finish(&self, device: &Device) -> Result<()> {
        self.finished.record(device.main_stream)
    }

    /// Waits for the outputs and returns them. The device need not be locked.
    pub(super) fn download(&mut self, program: &CudaProgram, pending: PendingOutputs) -> Result<Vec<Tensor>> {
        pending.staged.block(self.stream)?;
        let device = self.outputs.device;
        let host = &mut self.outputs.host()[..pending.bytes];
        // SAFETY: both sides have at least `pending.bytes` bytes, and the stream is synchronised before anything else
        // touches them.
        unsafe { driver::memcpy_dtoh_async(host, device, self.stream) }
            .or_failed_to("copy outputs from the device")?;
        self.synchronize()?;
        program.device.add_compute_time(&self.started, &self.finished);
        let host = self.outputs.host();
        let mark = i32::from_ne_bytes([host[0], host[1], host[2], host[3]]);
        if mark != 0 {
            return Err(fault(&program.info, mark));
        }
        pending.values.into_iter().map(|value| value.tensor(host, program.math)).collect()
    }
}

/// The outputs of a run that was enqueued: first the fault mark, then the values.
pub(super) struct PendingOutputs {
    pub(super) bytes: usize,
    pub(super) values: Vec<OutputValue>,
    /// Recorded when all outputs lie in the staging buffer.
    pub(super) staged: Event,
}

/// An output of a run.
pub(super) enum OutputValue {
    /// It is an input, unchanged.
    Input(Tensor),
    /// It lies in the staging buffer, `offset` bytes from the start.
    Staged { offset: usize, shape: Vec<usize>, kind: Kind },
}

impl OutputValue {
    fn tensor(self, host: &[u8], math: Math) -> Result<Tensor> {
        match self {
            OutputValue::Input(tensor) => Ok(tensor),
            OutputValue::Staged { offset, shape, kind } => {
                let count = shape.iter().product();
                let from = &host[offset..];
                match (kind, math) {
                    (Kind::Int, _) => Tensor::new(shape, elements::<i64>(from, count)?),
                    (Kind::Bool, _) => {
                        Tensor::new(shape, from[..count].iter().map(|&v| v != 0).collect::<Vec<bool>>())
                    }
                    (Kind::Float, Math::F64) => Tensor::new(shape, elements::<f64>(from, count)?),
                    (Kind::Float, _) => Tensor::new(shape, elements::<f32>(from, count)?),
                }
            }
        }
    }
}

fn elements<T: Plain>(bytes: &[u8], count: usize) -> Result<Vec<T>> {
    values_from(bytes, count).ok_or_else(|| Error::argument("an output is larger than its staging buffer"))
}

/// A tensor with elements of the type that the device stores.
pub(super) fn converted(tensor: &Tensor, math: Math, shape: &[usize]) -> Result<Tensor> {
    let data = match (tensor.kind(), math) {
        (Kind::Float, Math::F64) => Data::F64(tensor.to_f64()),
        (Kind::Float, _) => Data::F32(tensor.to_f32()),
        _ => tensor.data().clone(),
    };
    Tensor::new(shape, data)
}

/// The bytes of a tensor's elements.
pub(super) fn tensor_bytes(tensor: &Tensor) -> &[u8] {
    match tensor.data() {
        Data::I64(values) => bytes_of(values),
        Data::Bool(values) => bool_bytes(values),
        Data::F64(values) => bytes_of(values),
        Data::F32(values) => bytes_of(values),
    }
}

impl Drop for StagingBuffers {
    fn drop(&mut self) {
        let _ = self.synchronize();
        self.inputs.release();
        self.outputs.release();
        // SAFETY: created by `new`, destroyed once.
        unsafe {
            let _ = driver::stream::destroy(self.stream);
        }
    }
}

impl Device {
    /// Frees the staging buffers that no run uses.
    pub(super) fn free_idle_staging(&self) {
        self.idle_staging.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Calls `use_staging` with staging buffers. The caller has not locked the device.
    pub(super) fn with_staging<T>(
        &self,
        use_staging: impl FnOnce(&mut StagingBuffers) -> Result<T>,
    ) -> Result<T> {
        self.make_current()?;
        let idle = || self.idle_staging.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut staging = taken.map_or_else(|| StagingBuffers::new(&self.memory), Ok)?;
        let result = use_staging(&mut staging);
        if result.is_err() {
            // Transfers may still be under way. The buffers are freed after the device has finished.
            let _ = self.lock().and_then(|_lock| self.synchronize());
            return result;
        }
        let mut idle = idle();
        if idle.len() < MAX_IDLE {
            idle.push(staging);
        }
        result
    }
}
