//! A CUDA device: its context, streams, library handles and loaded modules. One thread at a time, the one that holds the
//! device's lock, enqueues work.

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

use super::cache::Cache;
use super::compiler::{compile, in_parallel};
use super::device_memory::DeviceMemory;
use super::event::Event;
use super::staging::StagingBuffers;

/// Bytes of workspace for matrix products, for every stream.
pub(super) const GEMM_WORKSPACE: usize = 32 << 20;
/// The number of streams that compute.
pub(super) const STREAMS: usize = 4;

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
    /// What the buffers in its memory take.
    pub(super) memory: DeviceMemory,
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
                memory: DeviceMemory::default(),
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
        let codes = in_parallel(&missing, code).into_iter().collect::<Result<Vec<(String, Vec<u8>)>>>()?;
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
