//! A CUDA device: its context, streams, library handles, loaded modules, events and memory. One thread at a time, the one
//! that holds the device's lock, enqueues work.

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
use super::staging::StagingBuffers;
use super::transfer::Plain;

/// Bytes of workspace for matrix products, for every stream.
pub(super) const GEMM_WORKSPACE: usize = 32 << 20;
/// The number of streams that compute.
pub(super) const STREAMS: usize = 4;

/// Compiler options of all kernels. Without `fmad` every sum and product rounds by itself, so that results do not depend on
/// which nodes are fused.
pub(super) const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// Turns the errors of the CUDA libraries into ours.
pub(super) trait DriverResult<T> {
    /// The error says that CUDA could not do `action`.
    fn or_failed_to(self, action: &str) -> Result<T>;
}

impl<T, E: Debug> DriverResult<T> for std::result::Result<T, E> {
    fn or_failed_to(self, action: &str) -> Result<T> {
        self.map_err(|error| match format!("{error:?}") {
            text if OUT_OF_MEMORY.iter().any(|name| text.contains(name)) => {
                Error::memory(format!("the GPU has no memory left to {action}: {text}"))
            }
            text => Error::argument(format!("CUDA could not {action}: {text}")),
        })
    }
}

/// Parts of the names of errors that mean that memory is exhausted.
const OUT_OF_MEMORY: [&str; 3] = ["OUT_OF_MEMORY", "ALLOC_FAILED", "ALLOCATION_FAILED"];

/// An open CUDA device.
pub(super) struct Device {
    name: String,
    context: sys::CUcontext,
    /// The first of `streams`. Every run begins and ends on it.
    pub(super) main_stream: sys::CUstream,
    streams: [Stream; STREAMS],
    cudnn: cudnn::sys::cudnnHandle_t,
    cublas_lt: cublaslt::sys::cublasLtHandle_t,
    architecture: String,
    pub(super) cache: Cache,
    modules: Mutex<HashMap<String, sys::CUmodule>>,
    /// Staging buffers that no run uses.
    pub(super) idle_staging: Mutex<Vec<StagingBuffers>>,
    /// Nanoseconds it has computed.
    pub(super) compute_time: AtomicU64,
    warned: AtomicBool,
    lock: Mutex<()>,
}

// SAFETY: the handles are used by one thread at a time, the one that holds `lock`. The streams of staging buffers are used
// by the thread that has taken the buffers.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// A stream and the workspace of its matrix products.
#[derive(Clone, Copy)]
struct Stream {
    handle: sys::CUstream,
    workspace: sys::CUdeviceptr,
}

impl Stream {
    /// # Safety
    /// A context is current.
    unsafe fn new() -> Result<Self> {
        // SAFETY: the caller has made a context current.
        unsafe {
            Ok(Stream {
                handle: driver::stream::create(driver::stream::StreamKind::NonBlocking)
                    .or_failed_to("create a stream")?,
                workspace: driver::malloc_sync(GEMM_WORKSPACE).or_failed_to("allocate a workspace")?,
            })
        }
    }
}

/// The exclusive right to enqueue work on a device.
pub(super) struct DeviceLock<'a> {
    _guard: MutexGuard<'a, ()>,
}

fn missing(what: &str, next: &str) -> Error {
    Error::unsupported(format!("the engine 'cuda' needs {what}, which was not found; {next}"))
}

/// Reports a missing library. The bindings panic when a function of a missing library is called.
fn check_libraries() -> Result<()> {
    // SAFETY: loading a library runs its initialisers; these are the vendor's own.
    let (driver, compiler, cublas_lt, cudnn) = unsafe {
        (
            sys::is_culib_present(),
            nvrtc::sys::is_culib_present(),
            cublaslt::sys::is_culib_present(),
            cudnn::sys::is_culib_present(),
        )
    };
    let path = "put the folder that holds it on LD_LIBRARY_PATH";
    match (driver, compiler, cublas_lt, cudnn) {
        (false, ..) => Err(missing("NVIDIA's driver (libcuda)", "install it, or use the engine 'cpu'")),
        (_, false, ..) => Err(missing("CUDA's run-time compiler (libnvrtc, CUDA 12 or later)", path)),
        (_, _, false, _) => Err(missing("cuBLASLt (libcublasLt, CUDA 12 or later)", path)),
        (.., false) => Err(missing("cuDNN 9 (libcudnn)", path)),
        _ => Ok(()),
    }
}

impl Device {
    /// Opens the device with this ordinal, or returns it if it is open. It stays open until the process ends, because the
    /// CUDA libraries may use it until then.
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
        // The bindings panic if a library is too old to have a function.
        let opened = catch_unwind(AssertUnwindSafe(|| Self::open_present(ordinal)));
        opened.unwrap_or_else(|_| {
            Err(Error::unsupported(
                "NVIDIA's driver, CUDA or cuDNN is too old for the engine 'cuda'; it needs CUDA 12 and cuDNN 9",
            ))
        })
    }

    fn open_present(ordinal: usize) -> Result<Arc<Self>> {
        driver::init().or_failed_to("initialise the driver")?;
        let count = driver::device::get_count().or_failed_to("count the devices")?;
        let number = i32::try_from(ordinal).ok().filter(|&n| n < count).ok_or_else(|| {
            Error::argument(format!(
                "there is no CUDA device {ordinal}; this machine has {count}, counted from 0"
            ))
        })?;
        // SAFETY: the version is asked for without arguments.
        let version = unsafe { cudnn::sys::cudnnGetVersion() };
        if version < 90_000 {
            return Err(Error::unsupported(format!(
                "the engine 'cuda' needs cuDNN 9, found version {version}; install a newer one"
            )));
        }
        let device = driver::device::get(number).or_failed_to("open the device")?;
        let name = driver::device::get_name(device).or_failed_to("name the device")?;
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: `device` was just found; the handles made here live as long as this value.
        unsafe {
            let major =
                driver::device::get_attribute(device, MAJOR).or_failed_to("read the compute capability")?;
            let minor =
                driver::device::get_attribute(device, MINOR).or_failed_to("read the compute capability")?;
            let context = driver::primary_ctx::retain(device).or_failed_to("open the device")?;
            driver::ctx::set_current(context).or_failed_to("make the device current")?;
            let streams = [Stream::new()?, Stream::new()?, Stream::new()?, Stream::new()?];
            let cudnn = cudnn::result::create_handle().or_failed_to("start cuDNN")?;
            let cublas_lt = cublaslt::result::create_handle().or_failed_to("start cuBLASLt")?;
            Ok(Arc::new(Device {
                cache: Cache::of(&format!("{name} sm_{major}{minor} cudnn {version}")),
                name,
                context,
                main_stream: streams[0].handle,
                streams,
                cudnn,
                cublas_lt,
                architecture: format!("--gpu-architecture=sm_{major}{minor}"),
                modules: Mutex::default(),
                idle_staging: Mutex::default(),
                compute_time: AtomicU64::new(0),
                warned: AtomicBool::new(false),
                lock: Mutex::default(),
            }))
        }
    }

    /// A stream by its number.
    pub(super) fn stream(&self, stream: usize) -> sys::CUstream {
        self.streams[stream].handle
    }

    /// The handle of cuDNN, set to enqueue on a stream.
    pub(super) fn cudnn(&self, stream: usize) -> Result<cudnn::sys::cudnnHandle_t> {
        // SAFETY: handle and stream live as long as `self`.
        unsafe { cudnn::result::set_stream(self.cudnn, self.stream(stream).cast()) }
            .or_failed_to("set the stream of cuDNN")?;
        Ok(self.cudnn)
    }

    /// The handle of cuBLASLt. Its calls take the stream as an argument.
    pub(super) fn cublas_lt(&self) -> cublaslt::sys::cublasLtHandle_t {
        self.cublas_lt
    }

    /// The workspace of a stream's matrix products.
    pub(super) fn gemm_workspace(&self, stream: usize) -> sys::CUdeviceptr {
        self.streams[stream].workspace
    }

    /// The device's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Locks the device for this thread and makes it current.
    pub(super) fn lock(&self) -> Result<DeviceLock<'_>> {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_current()?;
        Ok(DeviceLock { _guard: guard })
    }

    /// Makes the device's context current on this thread.
    pub(super) fn make_current(&self) -> Result<()> {
        // SAFETY: the context is retained for as long as `self` lives.
        unsafe { driver::ctx::set_current(self.context) }.or_failed_to("make the device current")
    }

    /// Logs a warning, once for this device.
    pub(super) fn warn_once(&self, warning: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!("{warning}");
        }
    }

    /// Waits until all enqueued work is done.
    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: the streams live as long as `self`.
        self.streams.iter().try_for_each(|stream| {
            unsafe { driver::stream::synchronize(stream.handle) }.or_failed_to("finish the computation")
        })
    }

    /// Adds the time between two events, both of which have happened, to the compute time.
    pub(super) fn add_compute_time(&self, started: &Event, finished: &Event) {
        self.compute_time.fetch_add((started.milliseconds_until(finished) * 1e6) as u64, Ordering::Relaxed);
    }

    /// Bytes of free device memory.
    pub(super) fn free_memory(&self) -> Result<usize> {
        Ok(driver::mem_get_info().or_failed_to("read the free memory")?.0)
    }

    /// The module of each source. Sources that are in no cache are compiled in parallel, while others may use the device.
    /// The caller has not locked the device.
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
        let _lock = self.lock()?;
        let mut known = known();
        for (source, code) in codes {
            if let Entry::Vacant(vacant) = known.entry(source) {
                // SAFETY: the image is complete: it comes from the compiler, or from a file with the right checksum.
                let module = unsafe { driver::module::load_data(code.as_ptr().cast()) };
                vacant.insert(module.or_failed_to("load a module")?);
            }
        }
        let module = |source: &String| known.get(source).copied();
        let found: Option<Vec<sys::CUmodule>> = sources.iter().map(module).collect();
        found.ok_or_else(|| Error::argument("a compiled kernel is missing"))
    }

    /// A kernel of a module.
    pub(super) fn function(&self, module: sys::CUmodule, name: &str) -> Result<sys::CUfunction> {
        let name = CString::new(name).map_err(|_| Error::argument("the name of a kernel contains a NUL"))?;
        // SAFETY: modules are never unloaded while the device lives.
        unsafe { driver::module::get_function(module, name) }.or_failed_to("find a kernel")
    }
}

/// Compiles a source to machine code.
fn compile(source: &str, architecture: &str) -> Result<Vec<u8>> {
    let text = CString::new(source).map_err(|_| Error::argument("the source of a kernel contains a NUL"))?;
    let program = nvrtc::result::create_program(&text, None).or_failed_to("start the compiler")?;
    // SAFETY: the program was created above and is destroyed once, at the end.
    unsafe {
        let options = [architecture, OPTIONS[0], OPTIONS[1]];
        let compiled = nvrtc::result::compile_program(program, &options);
        let code = match compiled {
            Ok(()) => machine_code(program),
            Err(error) => {
                let log = nvrtc::result::get_program_log(program).unwrap_or_default();
                let log: String = log.iter().map(|&c| c as u8 as char).filter(|&c| c != '\0').collect();
                Err(Error::argument(format!("the compiler of CUDA rejected a kernel ({error:?}): {log}")))
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
    // SAFETY: the caller has compiled the program. The buffer has the size that the compiler reported.
    unsafe {
        nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size)
            .result()
            .or_failed_to("read the size of the compiled code")?;
        let mut code = vec![0u8; size];
        nvrtc::sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast())
            .result()
            .or_failed_to("read the compiled code")?;
        Ok(code)
    }
}

/// A CUDA event: a point in a stream that other streams and the host can wait for.
pub(super) struct Event(sys::CUevent);

impl Event {
    /// An event without a time. The device is current.
    pub(super) fn new() -> Result<Self> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        driver::event::create(flags).map(Event).or_failed_to("create an event")
    }

    /// An event with a time. The device is current.
    pub(super) fn timing() -> Result<Self> {
        driver::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Event).or_failed_to("create an event")
    }

    /// The time from this event to another; both have happened.
    pub(super) fn milliseconds_until(&self, other: &Event) -> f64 {
        // SAFETY: both events live.
        unsafe { driver::event::elapsed(self.0, other.0) }.map_or(0.0, |time| f64::from(time.max(0.0)))
    }

    /// Blocks this thread until the event has happened.
    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: the event lives.
        unsafe { driver::event::synchronize(self.0) }.or_failed_to("wait for an event")
    }

    /// Happens when all work enqueued on the stream so far is done.
    pub(super) fn record(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: event and stream live.
        unsafe { driver::event::record(self.0, stream) }.or_failed_to("record an event")
    }

    /// Blocks work enqueued on the stream from now on until the event has happened.
    pub(super) fn block(&self, stream: sys::CUstream) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: event and stream live.
        unsafe { driver::stream::wait_event(stream, self.0, flags) }.or_failed_to("wait for an event")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new` or `timing`, destroyed once.
        unsafe {
            let _ = driver::event::destroy(self.0);
        }
    }
}

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
        // SAFETY: the caller has made the device current.
        let at = unsafe { driver::malloc_sync(bytes) };
        let at = at.map_err(|_| {
            let free = device.free_memory().unwrap_or(0);
            Error::memory(format!(
                "the GPU has no memory for {} MiB more, {} MiB are free; end other programs that use it, or use the \
                 engine 'cpu'",
                bytes >> 20,
                free >> 20
            ))
        })?;
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
        // SAFETY: `at` came from the allocator and is freed once. The context lives as long as the device.
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
    fn every_out_of_memory_error_is_recognised() {
        let kind = |answer: &str| Err::<(), _>(answer).or_failed_to("try convolutions").unwrap_err().kind();
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
