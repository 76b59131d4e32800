//! Commands: kernel launches, library calls, copies and fills with all arguments fixed, so that they can be enqueued many
//! times.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use cudarc::driver::{result as driver, sys};
use monosplit_graph::Result;

use super::convolution::Convolution;
use super::device::{Device, DriverResult};
use super::multiplication::Multiplication;
use super::transfer::KernelArgument;

/// Threads of a block, by default.
pub(super) const BLOCK: u32 = 256;
/// The maximal number of blocks of an elementwise launch. More blocks than fit the device only queue.
const MOST_BLOCKS: u32 = 132 * 32;

/// The arguments of a kernel, in order, each at a multiple of 8 bytes.
#[derive(Clone, Default)]
pub(super) struct Arguments {
    /// Structs may have padding, which stays uninitialised.
    words: Vec<MaybeUninit<u64>>,
    starts: Vec<usize>,
}

impl Arguments {
    /// Appends an argument.
    pub(super) fn with<T: KernelArgument>(mut self, value: T) -> Self {
        let start = self.words.len();
        self.words.resize(start + size_of::<T>().div_ceil(8), MaybeUninit::uninit());
        // SAFETY: the words added above are at least as large as `T`.
        unsafe { self.words.as_mut_ptr().add(start).cast::<T>().write_unaligned(value) };
        self.starts.push(start);
        self
    }

    /// Appends other arguments.
    pub(super) fn and(mut self, others: Arguments) -> Self {
        let before = self.words.len();
        self.words.extend(others.words);
        self.starts.extend(others.starts.iter().map(|start| before + start));
        self
    }
}

/// A kernel launch: the kernel, its grid and its arguments.
#[derive(Clone)]
pub(super) struct Launch {
    pub(super) function: sys::CUfunction,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) arguments: Arguments,
}

impl Launch {
    /// One thread for each of `count` elements, up to a maximal number of threads, which then loop.
    pub(super) fn each(function: sys::CUfunction, count: usize, arguments: Arguments) -> Self {
        let blocks = count.div_ceil(BLOCK as usize).clamp(1, MOST_BLOCKS as usize) as u32;
        Launch { function, blocks, threads: BLOCK, arguments }
    }

    /// One block for each of `count` elements, up to a maximal number of blocks, which then loop.
    pub(super) fn block_each(function: sys::CUfunction, count: usize, arguments: Arguments) -> Self {
        Launch::of(function, count, BLOCK, arguments)
    }

    /// `blocks` blocks of `threads` threads, up to a maximal number of blocks, which then loop.
    pub(super) fn of(function: sys::CUfunction, blocks: usize, threads: u32, arguments: Arguments) -> Self {
        Launch { function, blocks: blocks.clamp(1, 1 << 16) as u32, threads, arguments }
    }

    fn enqueue(&self, stream: sys::CUstream) -> Result<()> {
        let words = self.arguments.words.as_ptr();
        let starts = self.arguments.starts.iter();
        // SAFETY: every start is an index into the words.
        let mut pointers: Vec<*mut c_void> =
            starts.map(|&start| unsafe { words.add(start) } as *mut c_void).collect();
        // SAFETY: the translator has built the arguments for this kernel's parameters. The addresses among them are memory of
        // the program that owns the launch.
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
        .or_failed_to("run a kernel")
    }
}

/// A command for a stream.
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

// SAFETY: a command holds handles and addresses of its device, and is only enqueued by a thread that has locked the device.
unsafe impl Send for Command {}
// SAFETY: as above.
unsafe impl Sync for Command {}

impl Command {
    /// Enqueues the command on a stream. The caller has locked the device.
    pub(super) fn enqueue(&self, device: &Device, stream: usize) -> Result<()> {
        let handle = device.stream(stream);
        match self {
            Command::Launch(launch) => launch.enqueue(handle),
            Command::Convolution(convolution) => convolution.enqueue(device.cudnn(stream)?),
            Command::Product(product) => product.enqueue(device, stream),
            // SAFETY: the program that owns this command owns the memory.
            Command::Clear { at, bytes } => {
                unsafe { driver::memset_d8_async(*at, 0, *bytes, handle) }.or_failed_to("clear memory")
            }
            // SAFETY: as above; the ranges do not overlap.
            Command::Copy { from, to, bytes } => {
                unsafe { driver::memcpy_dtod_async(*to, *from, *bytes, handle) }.or_failed_to("copy memory")
            }
        }
    }

    /// Its name in a profile.
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
