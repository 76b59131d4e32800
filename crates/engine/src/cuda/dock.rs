//! Where numbers come and go: memory that the card reads and writes by itself, and a lane of its own, so that the numbers of
//! one run travel while the card computes for another.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::PoisonError;

use cudarc::driver::{result as driver, sys};
use monosplit_graph::{Data, Error, Kind, Result, Tensor};

use super::Math;
use super::device::{Checked, Device, Event};
use super::program::{CudaProgram, fault};
use crate::plan::Place;

/// Where numbers begin.
const ALIGNMENT: usize = 256;
/// Sides grow by so much at least.
const LEAST: usize = 1 << 20;
/// Docks that are kept for the next run.
const KEPT: usize = 16;

/// As many bytes on the machine as on the card.
struct Side {
    machine: NonNull<u8>,
    card: sys::CUdeviceptr,
    bytes: usize,
}

impl Side {
    fn empty() -> Self {
        Side { machine: NonNull::dangling(), card: 0, bytes: 0 }
    }

    /// Makes room for so many bytes; what was there is lost if it has to grow. The card is this thread's.
    fn reserve(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        self.release();
        let bytes = bytes.next_multiple_of(LEAST);
        let short = |_| {
            Error::memory(format!(
                "there is no memory for {} MiB that go to the card or come from it; use a smaller batch",
                bytes >> 20
            ))
        };
        // SAFETY: both are freed once, by `release`.
        let (machine, card) = unsafe {
            let machine = driver::malloc_host(bytes, 0).map_err(short)?;
            match driver::malloc_sync(bytes) {
                Ok(card) => (machine, card),
                Err(error) => {
                    let _ = driver::free_host(machine);
                    return Err(short(error));
                }
            }
        };
        let machine =
            NonNull::new(machine.cast()).ok_or_else(|| Error::memory("the driver gave no memory"))?;
        *self = Side { machine, card, bytes };
        Ok(())
    }

    fn release(&mut self) {
        if self.bytes > 0 {
            // SAFETY: taken by `reserve`; nothing travels any more: a dock grows between runs, and is dropped after them.
            unsafe {
                let _ = driver::free_host(self.machine.as_ptr().cast::<c_void>());
                let _ = driver::free_sync(self.card);
            }
        }
        *self = Side::empty();
    }

    /// The bytes on the machine.
    fn on_machine(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes were reserved, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.machine.as_ptr(), self.bytes) }
    }
}

/// Memory on both sides for what one run is given and what it gives.
pub(super) struct Dock {
    lane: sys::CUstream,
    coming: Side,
    /// For every input where it lies, unless it stays behind.
    loaded: Vec<Option<usize>>,
    going: Side,
    /// What was loaded has arrived on the card.
    arrived: Event,
    /// Computing has begun, and has ended.
    begun: Event,
    computed: Event,
}

// SAFETY: a dock is used by whoever has taken it; the driver's calls it makes may be made by any thread.
unsafe impl Send for Dock {}

impl Dock {
    fn open() -> Result<Self> {
        Ok(Dock {
            lane: driver::stream::create(driver::stream::StreamKind::NonBlocking).or_say("take orders")?,
            coming: Side::empty(),
            loaded: Vec::new(),
            going: Side::empty(),
            arrived: Event::new()?,
            begun: Event::timing()?,
            computed: Event::timing()?,
        })
    }

    fn wait(&self) -> Result<()> {
        // SAFETY: the lane lives as long as `self`.
        unsafe { driver::stream::synchronize(self.lane) }.or_say("finish its work")
    }

    /// Sends inputs on their way, but for those that are `held` already or that nobody reads.
    pub(super) fn load(&mut self, program: &CudaProgram, inputs: &[Tensor], held: &[bool]) -> Result<()> {
        let (mut end, mut sent) = (0, Vec::new());
        self.loaded.clear();
        for (position, tensor) in inputs.iter().enumerate() {
            let unread = program.plan.places[program.outline.inputs[position].index()] == Place::Nowhere;
            if unread || held.get(position) == Some(&true) {
                self.loaded.push(None);
                continue;
            }
            let tensor = converted(tensor, program.math, tensor.shape())?;
            self.loaded.push(Some(end));
            let start = end;
            end = (start + bytes_of(&tensor).len()).next_multiple_of(ALIGNMENT);
            sent.push((start, tensor));
        }
        self.coming.reserve(end)?;
        let machine = self.coming.on_machine();
        for (start, tensor) in &sent {
            let bytes = bytes_of(tensor);
            machine[*start..start + bytes.len()].copy_from_slice(bytes);
        }
        if end > 0 {
            let card = self.coming.card;
            let machine = &self.coming.on_machine()[..end];
            // SAFETY: both sides have at least so many bytes, and stay until the lane was waited for.
            unsafe { driver::memcpy_htod_async(card, machine, self.lane) }.or_say("take numbers")?;
        }
        self.arrived.record(self.lane)
    }

    /// Where an input lies on the card once it has arrived, unless it stayed behind.
    pub(super) fn loaded(&self, position: usize) -> Option<sys::CUdeviceptr> {
        self.loaded.get(position).copied().flatten().map(|offset| self.coming.card + offset as u64)
    }

    /// Holds what the card is told from here on until everything has arrived.
    pub(super) fn await_arrival(&self, device: &Device) -> Result<()> {
        self.arrived.hold(device.stream)
    }

    /// Room on the card for what leaves, so many bytes.
    pub(super) fn room(&mut self, bytes: usize) -> Result<sys::CUdeviceptr> {
        self.going.reserve(bytes)?;
        Ok(self.going.card)
    }

    /// Computing begins with what the card is told next.
    pub(super) fn start_clock(&self, device: &Device) -> Result<()> {
        self.begun.record(device.stream)
    }

    /// Computing has ended with what the card was told last.
    pub(super) fn stop_clock(&self, device: &Device) -> Result<()> {
        self.computed.record(device.stream)
    }

    /// Waits for what leaves, and hands it over. Nobody has to have the card's turn.
    pub(super) fn unload(&mut self, program: &CudaProgram, leaving: Leaving) -> Result<Vec<Tensor>> {
        leaving.left.hold(self.lane)?;
        let card = self.going.card;
        let machine = &mut self.going.on_machine()[..leaving.bytes];
        // SAFETY: both sides have at least so many bytes, and the lane is waited for at once.
        unsafe { driver::memcpy_dtoh_async(machine, card, self.lane) }.or_say("hand over numbers")?;
        self.wait()?;
        program.device.count_time(&self.begun, &self.computed);
        let machine = self.going.on_machine();
        let mark = i32::from_ne_bytes([machine[0], machine[1], machine[2], machine[3]]);
        if mark != 0 {
            return Err(fault(&program.outline, mark));
        }
        leaving.values.into_iter().map(|value| value.tensor(machine, program.math)).collect()
    }
}

/// What leaves the card after a run: first the mark of a fault, then values.
pub(super) struct Leaving {
    pub(super) bytes: usize,
    pub(super) values: Vec<Value>,
    /// All of it lies in the dock.
    pub(super) left: Event,
}

/// A value that leaves.
pub(super) enum Value {
    /// It is one that came.
    Given(Tensor),
    /// It lies so many bytes from the start.
    At { offset: usize, shape: Vec<usize>, kind: Kind },
}

impl Value {
    fn tensor(self, machine: &[u8], math: Math) -> Result<Tensor> {
        match self {
            Value::Given(tensor) => Ok(tensor),
            Value::At { offset, shape, kind } => {
                let count = shape.iter().product();
                let from = &machine[offset..];
                match (kind, math) {
                    (Kind::Int, _) => Tensor::new(shape, numbers::<i64>(from, count)?),
                    (Kind::Bool, _) => {
                        Tensor::new(shape, from[..count].iter().map(|&v| v != 0).collect::<Vec<bool>>())
                    }
                    (Kind::Float, Math::F64) => Tensor::new(shape, numbers::<f64>(from, count)?),
                    (Kind::Float, _) => Tensor::new(shape, numbers::<f32>(from, count)?),
                }
            }
        }
    }
}

/// So many numbers at the start of bytes.
fn numbers<T: Copy>(bytes: &[u8], count: usize) -> Result<Vec<T>> {
    if count * size_of::<T>() > bytes.len() {
        return Err(Error::argument("less came from the card than was asked for"));
    }
    let mut numbers: Vec<T> = Vec::with_capacity(count);
    // SAFETY: there are so many bytes, the vector has room for as many numbers, and every pattern of bits is one.
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            numbers.as_mut_ptr().cast::<u8>(),
            count * size_of::<T>(),
        );
        numbers.set_len(count);
    }
    Ok(numbers)
}

/// A tensor as the card keeps its numbers.
pub(super) fn converted(tensor: &Tensor, math: Math, shape: &[usize]) -> Result<Tensor> {
    let data = match (tensor.kind(), math) {
        (Kind::Float, Math::F64) => Data::F64(tensor.to_f64()),
        (Kind::Float, _) => Data::F32(tensor.to_f32()),
        _ => tensor.data().clone(),
    };
    Tensor::new(shape, data)
}

/// The bytes of a tensor's numbers.
pub(super) fn bytes_of(tensor: &Tensor) -> &[u8] {
    fn bytes<T: Copy>(numbers: &[T]) -> &[u8] {
        // SAFETY: numbers and truth values have no bytes between them.
        unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
    }
    match tensor.data() {
        Data::I64(values) => bytes(values),
        Data::Bool(values) => bytes(values),
        Data::F64(values) => bytes(values),
        Data::F32(values) => bytes(values),
    }
}

impl Drop for Dock {
    fn drop(&mut self) {
        let _ = self.wait();
        self.coming.release();
        self.going.release();
        // SAFETY: made by `open`, destroyed once.
        unsafe {
            let _ = driver::stream::destroy(self.lane);
        }
    }
}

impl Device {
    /// Gives back the memory of docks that nobody uses.
    pub(super) fn clear_docks(&self) {
        self.docks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Lends a dock to `use_it`. The caller does not have the card's turn.
    pub(super) fn with_dock<T>(&self, use_it: impl FnOnce(&mut Dock) -> Result<T>) -> Result<T> {
        self.enter()?;
        let kept = || self.docks.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = kept().pop();
        let mut dock = taken.map_or_else(Dock::open, Ok)?;
        let result = use_it(&mut dock);
        if result.is_err() {
            // Numbers may still be on their way; the dock, and the memory it has, are given back.
            let _ = self.turn().and_then(|_turn| self.finish());
            return result;
        }
        let mut kept = kept();
        if kept.len() < KEPT {
            kept.push(dock);
        }
        result
    }
}
