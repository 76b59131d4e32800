//! What a card is told to do, ready to be told again and again: every pointer and number is settled.

use std::ffi::c_void;

use cudarc::driver::{result as driver, sys};
use monosplit_graph::Result;

use super::convolution::Convolution;
use super::device::{Checked, Device};
use super::multiplication::Multiplication;

/// Threads of a block.
pub(super) const BLOCK: u32 = 256;
/// Blocks at most: more only wait for those before them.
const MOST_BLOCKS: u32 = 132 * 32;

/// The arguments of a kernel, one after the other.
#[derive(Clone, Default)]
pub(super) struct Arguments {
    words: Vec<u64>,
    starts: Vec<usize>,
}

impl Arguments {
    /// Appends a number, a pointer or a structure of `layout`.
    pub(super) fn with<T: Copy>(mut self, value: T) -> Self {
        let start = self.words.len();
        self.words.resize(start + size_of::<T>().div_ceil(8), 0);
        // SAFETY: the words just added are at least as large as `T` and aligned to 8, which is enough for all of them.
        unsafe { self.words.as_mut_ptr().add(start).cast::<T>().write_unaligned(value) };
        self.starts.push(start);
        self
    }

    /// These, then others.
    pub(super) fn and(mut self, others: Arguments) -> Self {
        let before = self.words.len();
        self.words.extend(others.words);
        self.starts.extend(others.starts.iter().map(|start| before + start));
        self
    }
}

/// A kernel with its arguments.
#[derive(Clone)]
pub(super) struct Launch {
    pub(super) function: sys::CUfunction,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) arguments: Arguments,
}

impl Launch {
    /// One thread for each of `count` elements, or fewer that take several.
    pub(super) fn each(function: sys::CUfunction, count: usize, arguments: Arguments) -> Self {
        let blocks = count.div_ceil(BLOCK as usize).clamp(1, MOST_BLOCKS as usize) as u32;
        Launch { function, blocks, threads: BLOCK, arguments }
    }

    /// One block for each of `count` elements, or fewer that take several.
    pub(super) fn block_each(function: sys::CUfunction, count: usize, arguments: Arguments) -> Self {
        Launch::of(function, count, BLOCK, arguments)
    }

    /// So many blocks of so many threads, or fewer blocks that take several turns.
    pub(super) fn of(function: sys::CUfunction, blocks: usize, threads: u32, arguments: Arguments) -> Self {
        Launch { function, blocks: blocks.clamp(1, 1 << 16) as u32, threads, arguments }
    }

    fn enqueue(&self, stream: sys::CUstream) -> Result<()> {
        let words = self.arguments.words.as_ptr();
        let starts = self.arguments.starts.iter();
        // SAFETY: every start lies within the words.
        let mut pointers: Vec<*mut c_void> =
            starts.map(|&start| unsafe { words.add(start) } as *mut c_void).collect();
        // SAFETY: the arguments are those of the function, and point to memory of the program that launches it.
        unsafe {
            driver::launch_kernel(
                self.function,
                (self.blocks, 1, 1),
                (self.threads, 1, 1),
                0,
                stream,
                &mut pointers,
            )
        }
        .or_say("run a kernel")
    }
}

/// One thing to do.
pub(super) enum Command {
    Launch(Launch),
    Convolution(Box<Convolution>),
    Product(Box<Multiplication>),
    /// Bytes set to zero.
    Clear {
        at: u64,
        bytes: usize,
    },
    /// Bytes copied.
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
}

// SAFETY: a command only names functions and memory of its device; whoever enqueues it has the device's turn.
unsafe impl Send for Command {}
// SAFETY: as above.
unsafe impl Sync for Command {}

impl Command {
    /// Tells the card; it does it after everything it was told before on this lane. The caller has the card's turn.
    pub(super) fn enqueue(&self, device: &Device, lane: usize) -> Result<()> {
        let stream = device.lane(lane);
        match self {
            Command::Launch(launch) => launch.enqueue(stream),
            Command::Convolution(convolution) => convolution.enqueue(device.convolutions(lane)?),
            Command::Product(product) => product.enqueue(device, lane),
            // SAFETY: the program that holds this command holds the memory.
            Command::Clear { at, bytes } => {
                unsafe { driver::memset_d8_async(*at, 0, *bytes, stream) }.or_say("clear memory")
            }
            // SAFETY: as above; the ranges do not overlap.
            Command::Copy { from, to, bytes } => {
                unsafe { driver::memcpy_dtod_async(*to, *from, *bytes, stream) }.or_say("copy memory")
            }
        }
    }

    /// What a profile calls it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Command::Launch(_) => "kernel",
            Command::Convolution(_) => "cuDNN",
            Command::Product(_) => "cuBLASLt",
            Command::Clear { .. } => "clear",
            Command::Copy { .. } => "copy",
        }
    }
}
