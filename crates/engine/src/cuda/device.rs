//! A card: the libraries that drive it, the memory on it and the code sent to it. All calls into the driver's libraries
//! start here or in the rooms beside it, and one thread at a time makes those that tell it to compute.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{result as driver, sys};
use cudarc::{cublaslt, cudnn, nvrtc};
use monosplit_graph::{Error, Result};
use rayon::prelude::*;

use super::cache::Cache;
use super::dock::Dock;

/// Bytes that products are computed in, on every lane.
pub(super) const PRODUCT_WORKSPACE: usize = 32 << 20;
/// What may run at the same time.
pub(super) const LANES: usize = 4;

/// What kernels are compiled with besides: sums and products round each by itself, so that bits do not depend on what runs
/// together.
pub(super) const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// What the driver's libraries answer, as an error that says what was being done.
pub(super) trait Checked<T> {
    fn or_say(self, what: &str) -> Result<T>;
}

impl<T, E: Debug> Checked<T> for std::result::Result<T, E> {
    fn or_say(self, what: &str) -> Result<T> {
        self.map_err(|error| match format!("{error:?}") {
            text if NO_MEMORY.iter().any(|name| text.contains(name)) => {
                Error::memory(format!("there is no memory to have the card {what}: {text}"))
            }
            text => Error::argument(format!("the card could not {what}: {text}")),
        })
    }
}

/// What the driver's libraries call a lack of memory.
const NO_MEMORY: [&str; 3] = ["OUT_OF_MEMORY", "ALLOC_FAILED", "ALLOCATION_FAILED"];

/// A card in use.
pub(super) struct Device {
    name: String,
    context: sys::CUcontext,
    /// The first lane: what everything starts from and ends with.
    pub(super) stream: sys::CUstream,
    lanes: [Lane; LANES],
    convolutions: cudnn::sys::cudnnHandle_t,
    products: cublaslt::sys::cublasLtHandle_t,
    architecture: String,
    pub(super) cache: Cache,
    modules: Mutex<HashMap<String, sys::CUmodule>>,
    /// What waits for the next run.
    pub(super) docks: Mutex<Vec<Dock>>,
    /// Nanoseconds it has computed.
    pub(super) busy: AtomicU64,
    said: AtomicBool,
    turn: Mutex<()>,
}

// SAFETY: the handles are used by one thread at a time, the one that holds `turn`; lanes of docks by whoever has the dock.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Orders that are followed one after the other, beside those of other lanes.
#[derive(Clone, Copy)]
struct Lane {
    stream: sys::CUstream,
    /// Where products are computed.
    workspace: sys::CUdeviceptr,
}

impl Lane {
    /// # Safety
    /// A context is current.
    unsafe fn open() -> Result<Self> {
        // SAFETY: the caller's.
        unsafe {
            Ok(Lane {
                stream: driver::stream::create(driver::stream::StreamKind::NonBlocking)
                    .or_say("take orders")?,
                workspace: driver::malloc_sync(PRODUCT_WORKSPACE).or_say("spare memory")?,
            })
        }
    }
}

/// The right to use a card.
pub(super) struct Turn<'a> {
    _guard: MutexGuard<'a, ()>,
}

fn missing(what: &str, next: &str) -> Error {
    Error::unsupported(format!("the engine 'cuda' needs {what}, which was not found; {next}"))
}

/// Says what is not there before anything asks for it: a library that is missing ends the program otherwise.
fn check_libraries() -> Result<()> {
    // SAFETY: loading a library runs its initialisers; these are the vendor's own.
    let (card, compiler, products, convolutions) = unsafe {
        (
            sys::is_culib_present(),
            nvrtc::sys::is_culib_present(),
            cublaslt::sys::is_culib_present(),
            cudnn::sys::is_culib_present(),
        )
    };
    let path = "put the folder that holds it on LD_LIBRARY_PATH";
    match (card, compiler, products, convolutions) {
        (false, ..) => Err(missing("NVIDIA's driver (libcuda)", "install it, or use --engine cpu")),
        (_, false, ..) => Err(missing("CUDA's run-time compiler (libnvrtc, CUDA 12 or later)", path)),
        (_, _, false, _) => Err(missing("cuBLASLt (libcublasLt, CUDA 12 or later)", path)),
        (.., false) => Err(missing("cuDNN 9 (libcudnn)", path)),
        _ => Ok(()),
    }
}

impl Device {
    /// Opens the card with this number, or takes the one that is open: it stays so until the program ends, since the
    /// libraries that use it cannot be told when it goes.
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>> {
        static OPEN: Mutex<Vec<(usize, Arc<Device>)>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, device)) = open.iter().find(|(number, _)| *number == ordinal) {
            return Ok(device.clone());
        }
        let device = Self::open_new(ordinal)?;
        open.push((ordinal, device.clone()));
        Ok(device)
    }

    fn open_new(ordinal: usize) -> Result<Arc<Self>> {
        check_libraries()?;
        // A library too old to have a function ends in a panic of the binding that looks for it.
        let opened = catch_unwind(AssertUnwindSafe(|| Self::open_present(ordinal)));
        opened.unwrap_or_else(|_| {
            Err(Error::unsupported(
                "NVIDIA's driver, CUDA or cuDNN is too old for the engine 'cuda'; it needs CUDA 12 and cuDNN 9",
            ))
        })
    }

    fn open_present(ordinal: usize) -> Result<Arc<Self>> {
        driver::init().or_say("be reached")?;
        let count = driver::device::get_count().or_say("be counted")?;
        let number = i32::try_from(ordinal).ok().filter(|&n| n < count).ok_or_else(|| {
            Error::argument(format!("there is no card {ordinal}; this machine has {count}, counted from 0"))
        })?;
        // SAFETY: the version is asked for without arguments.
        let version = unsafe { cudnn::sys::cudnnGetVersion() };
        if version < 90_000 {
            return Err(Error::unsupported(format!(
                "the engine 'cuda' needs cuDNN 9, found version {version}; install a newer one"
            )));
        }
        let device = driver::device::get(number).or_say("be opened")?;
        let name = driver::device::get_name(device).or_say("be named")?;
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: `device` was just found; the handles made here live as long as this value.
        unsafe {
            let major = driver::device::get_attribute(device, MAJOR).or_say("tell its generation")?;
            let minor = driver::device::get_attribute(device, MINOR).or_say("tell its generation")?;
            let context = driver::primary_ctx::retain(device).or_say("be opened")?;
            driver::ctx::set_current(context).or_say("be used")?;
            let lanes = [Lane::open()?, Lane::open()?, Lane::open()?, Lane::open()?];
            let convolutions = cudnn::result::create_handle().or_say("start cuDNN")?;
            let products = cublaslt::result::create_handle().or_say("start cuBLASLt")?;
            Ok(Arc::new(Device {
                cache: Cache::of(&format!("{name} sm_{major}{minor} cudnn {version}")),
                name,
                context,
                stream: lanes[0].stream,
                lanes,
                convolutions,
                products,
                architecture: format!("--gpu-architecture=sm_{major}{minor}"),
                modules: Mutex::default(),
                docks: Mutex::default(),
                busy: AtomicU64::new(0),
                said: AtomicBool::new(false),
                turn: Mutex::default(),
            }))
        }
    }

    /// Where orders of a lane go.
    pub(super) fn lane(&self, lane: usize) -> sys::CUstream {
        self.lanes[lane].stream
    }

    /// cuDNN, giving its orders to a lane.
    pub(super) fn convolutions(&self, lane: usize) -> Result<cudnn::sys::cudnnHandle_t> {
        // SAFETY: both live as long as `self`.
        unsafe { cudnn::result::set_stream(self.convolutions, self.lane(lane).cast()) }
            .or_say("use cuDNN")?;
        Ok(self.convolutions)
    }

    /// cuBLASLt, which is told the lane with every order.
    pub(super) fn products(&self) -> cublaslt::sys::cublasLtHandle_t {
        self.products
    }

    /// Where a lane's products are computed.
    pub(super) fn product_workspace(&self, lane: usize) -> sys::CUdeviceptr {
        self.lanes[lane].workspace
    }

    /// What the card is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until nobody else uses the card, and makes it the one this thread talks to.
    pub(super) fn turn(&self) -> Result<Turn<'_>> {
        let guard = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.enter()?;
        Ok(Turn { _guard: guard })
    }

    /// Makes the card the one this thread talks to.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained for as long as `self` lives.
        unsafe { driver::ctx::set_current(self.context) }.or_say("be used")
    }

    /// Tells the user something, once for this card.
    pub(super) fn say_once(&self, note: &str) {
        if !self.said.swap(true, Ordering::Relaxed) {
            eprintln!("{note}");
        }
    }

    /// Waits until everything asked for is done.
    pub(super) fn finish(&self) -> Result<()> {
        // SAFETY: the streams live as long as `self`.
        self.lanes.iter().try_for_each(|lane| {
            unsafe { driver::stream::synchronize(lane.stream) }.or_say("finish its work")
        })
    }

    /// Adds up how long computing took from one event to another, both of which were reached.
    pub(super) fn count_time(&self, begun: &Event, ended: &Event) {
        self.busy.fetch_add((begun.milliseconds_until(ended) * 1e6) as u64, Ordering::Relaxed);
    }

    /// Bytes of memory that are free.
    pub(super) fn free_memory(&self) -> Result<usize> {
        Ok(driver::mem_get_info().or_say("tell its memory")?.0)
    }

    /// The functions of each source. What nobody has compiled yet is compiled side by side, while others use the card; the
    /// caller does not have its turn.
    pub(super) fn modules(&self, sources: &[String]) -> Result<Vec<sys::CUmodule>> {
        let known = || self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let missing: Vec<&String> = {
            let known = known();
            sources.iter().filter(|source| !known.contains_key(*source)).collect()
        };
        let code = |source: &&String| {
            let code = self.cache.code(source).map_or_else(
                || {
                    let code = compile(source, &self.architecture)?;
                    self.cache.keep_code(source, &code);
                    Ok(code)
                },
                Ok,
            );
            Ok(((*source).clone(), code?))
        };
        let codes = missing.par_iter().map(code).collect::<Result<Vec<(String, Vec<u8>)>>>()?;
        let _turn = self.turn()?;
        let mut known = known();
        for (source, code) in codes {
            if let Entry::Vacant(vacant) = known.entry(source) {
                // SAFETY: the image is complete: it comes from the compiler, or from a file whose checksum fits.
                let module = unsafe { driver::module::load_data(code.as_ptr().cast()) };
                vacant.insert(module.or_say("load its code")?);
            }
        }
        let module = |source: &String| known.get(source).copied();
        let found: Option<Vec<sys::CUmodule>> = sources.iter().map(module).collect();
        found.ok_or_else(|| Error::argument("a kernel was compiled and is not there"))
    }

    /// A function of a module of this card.
    pub(super) fn function(&self, module: sys::CUmodule, name: &str) -> Result<sys::CUfunction> {
        let name = CString::new(name).map_err(|_| Error::argument("a kernel's name holds a zero"))?;
        // SAFETY: modules are never unloaded while the device lives.
        unsafe { driver::module::get_function(module, name) }.or_say("find its code")
    }
}

/// Machine code of a source.
fn compile(source: &str, architecture: &str) -> Result<Vec<u8>> {
    let text = CString::new(source).map_err(|_| Error::argument("a kernel's source holds a zero"))?;
    let program = nvrtc::result::create_program(&text, None).or_say("start its compiler")?;
    // SAFETY: the program was just made and is destroyed once, at the end.
    unsafe {
        let options = [architecture, OPTIONS[0], OPTIONS[1]];
        let compiled = nvrtc::result::compile_program(program, &options);
        let code = match compiled {
            Ok(()) => machine_code(program),
            Err(error) => {
                let log = nvrtc::result::get_program_log(program).unwrap_or_default();
                let log: String = log.iter().map(|&c| c as u8 as char).filter(|&c| c != '\0').collect();
                Err(Error::argument(format!("the card's compiler refused a kernel ({error:?}): {log}")))
            }
        };
        let _ = nvrtc::result::destroy_program(program);
        code
    }
}

/// # Safety
/// The program is compiled for a real architecture.
unsafe fn machine_code(program: nvrtc::sys::nvrtcProgram) -> Result<Vec<u8>> {
    let mut size = 0;
    // SAFETY: the caller's; the buffer has the size the compiler named.
    unsafe {
        nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size).result().or_say("measure its code")?;
        let mut code = vec![0u8; size];
        nvrtc::sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()).result().or_say("hand over its code")?;
        Ok(code)
    }
}

/// A mark in the orders of a lane, for others to wait for.
pub(super) struct Event(sys::CUevent);

impl Event {
    /// The card is this thread's.
    pub(super) fn new() -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        driver::event::create(flags).map(Event).or_say("mark its orders")
    }

    /// One that remembers when it was reached. The card is this thread's.
    pub(super) fn timing() -> Result<Self> {
        driver::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Event).or_say("keep time")
    }

    /// How long it was from here to another, both of which were reached.
    pub(super) fn milliseconds_until(&self, other: &Event) -> f64 {
        // SAFETY: both live.
        unsafe { driver::event::elapsed(self.0, other.0) }.map_or(0.0, |time| f64::from(time.max(0.0)))
    }

    /// Waits until it is reached.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: it lives.
        unsafe { driver::event::synchronize(self.0) }.or_say("keep time")
    }

    /// Is reached when everything that lane was told so far is done.
    pub(super) fn record(&self, lane: sys::CUstream) -> Result<()> {
        // SAFETY: both live.
        unsafe { driver::event::record(self.0, lane) }.or_say("mark its orders")
    }

    /// Holds what that lane is told from here on until the event is reached.
    pub(super) fn hold(&self, lane: sys::CUstream) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both live.
        unsafe { driver::stream::wait_event(lane, self.0, flags) }.or_say("wait for a mark")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe {
            let _ = driver::event::destroy(self.0);
        }
    }
}

/// Memory on a card, given back when dropped.
pub(super) struct Memory {
    device: Arc<Device>,
    pub(super) at: sys::CUdeviceptr,
    pub(super) bytes: usize,
}

impl Memory {
    /// At least one byte. The caller has the card's turn.
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(256);
        // SAFETY: the caller has made the card current.
        let at = unsafe { driver::malloc_sync(bytes) };
        let at = at.map_err(|_| {
            let free = device.free_memory().unwrap_or(0);
            Error::memory(format!(
                "the card has no memory for {} MiB more, {} MiB are free; end what else uses it, or compute on the \
                 processor (`--engine cpu`)",
                bytes >> 20,
                free >> 20
            ))
        })?;
        Ok(Memory { device: device.clone(), at, bytes })
    }

    /// Memory that holds these numbers.
    pub(super) fn holding<T: Copy>(device: &Arc<Device>, elements: &[T]) -> Result<Self> {
        let memory = Memory::new(device, size_of_val(elements))?;
        memory.write(0, elements)?;
        device.finish()?;
        Ok(memory)
    }

    /// Copies numbers to `offset` bytes from the start.
    pub(super) fn write<T: Copy>(&self, offset: usize, elements: &[T]) -> Result<()> {
        if offset + size_of_val(elements) > self.bytes {
            return Err(Error::argument("more was written to the card than fits"));
        }
        // SAFETY: the range was just checked; ordinary memory is read before the call returns.
        unsafe { driver::memcpy_htod_async(self.at + offset as u64, elements, self.device.stream) }
            .or_say("take numbers")
    }

    /// Waits until the card has done what it was told.
    pub(super) fn finish(&self) -> Result<()> {
        self.device.finish()
    }

    /// Copies numbers from `offset` bytes from the start.
    pub(super) fn read<T: Copy>(&self, offset: usize, elements: &mut [T]) -> Result<()> {
        if offset + size_of_val(elements) > self.bytes {
            return Err(Error::argument("more was read from the card than there is"));
        }
        // SAFETY: as above.
        unsafe { driver::memcpy_dtoh_async(elements, self.at + offset as u64, self.device.stream) }
            .or_say("hand over numbers")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `at` came from the allocator and is freed once; making the card current is harmless.
        unsafe {
            let _ = driver::ctx::set_current(self.device.context);
            let _ = driver::free_sync(self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::ErrorKind;

    use super::*;

    #[test]
    fn a_lack_of_memory_is_told_apart_by_every_name_it_has() {
        let kind = |answer: &str| Err::<(), _>(answer).or_say("try convolutions").unwrap_err().kind();
        let lacks = [
            "CudnnError(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)",
            "CudnnError(CUDNN_STATUS_ALLOC_FAILED)",
            "CublasError(CUBLAS_STATUS_ALLOC_FAILED)",
            "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")",
        ];
        assert!(lacks.iter().all(|answer| kind(answer) == ErrorKind::Memory));
        assert_ne!(kind("CudnnError(CUDNN_STATUS_BAD_PARAM)"), ErrorKind::Memory);
    }
}
