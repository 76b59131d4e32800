//! The part of ONNX Runtime's C API that the engine uses, as `ort-sys` declares it. The shared library is loaded at run time and
//! called through its table of functions. All unsafe code of the engine is in this file.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use monosplit_graph::{Data, Error, Kind, Result, Tensor};
use ort_sys::ONNXTensorElementDataType as Element;
use ort_sys::{
    OrtAllocator, OrtAllocatorType, OrtApi, OrtApiBase, OrtEnv, OrtLoggingLevel, OrtMemType, OrtMemoryInfo,
    OrtSession, OrtSessionOptions, OrtStatusPtr, OrtTensorTypeAndShapeInfo, OrtValue,
};

/// The version of the function table. Newer libraries have it, too: the table only grows.
const API_VERSION: u32 = 14;
/// The first version of the library with that table.
const OLDEST: &str = "1.14";
/// Only errors are logged, and those are returned as well.
const LOGGED: OrtLoggingLevel = OrtLoggingLevel::ORT_LOGGING_LEVEL_ERROR;

/// Element types, as the library numbers them.
const FLOAT: i32 = Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT as i32;
const DOUBLE: i32 = Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE as i32;
const INT64: i32 = Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 as i32;
const BOOL: i32 = Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL as i32;

type Text = *const c_char;

/// A function of the library's table. No reference to the table is made: that of an old library is shorter than the structure.
/// Only functions of [`API_VERSION`] may be named.
macro_rules! function {
    ($library:expr, $name:ident) => {
        (*$library.api).$name
    };
}

/// The loaded library. It is never unloaded, because its threads may outlive its users.
pub(super) struct Library {
    api: *const OrtApi,
    environment: *mut OrtEnv,
    version: String,
}

// SAFETY: the library's functions and its environment may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Something of the library that is released when dropped.
struct Owned<T> {
    pointer: *mut T,
    release: unsafe extern "system" fn(*mut T),
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from the library, is of the kind that `release` takes, and is not used again.
        unsafe { (self.release)(self.pointer) }
    }
}

impl Library {
    /// Loads the library from a file, or by a name that the system's loader resolves.
    pub(super) fn load(file: &Path) -> Result<Self> {
        let failed = |what: String| Error::argument(format!("{}: {what}", file.display()));
        // SAFETY: loading runs the initialisers of the library, which the user chose.
        let library = unsafe { libloading::Library::new(file) }.map_err(|cause| failed(cause.to_string()))?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: the symbol has this type in every version of ONNX Runtime.
        let base =
            unsafe { library.get::<unsafe extern "system" fn() -> *const OrtApiBase>(b"OrtGetApiBase\0") };
        let base =
            base.map_err(|_| failed("this is not ONNX Runtime: it has no 'OrtGetApiBase'".to_owned()))?;
        // SAFETY: the function returns a pointer to a constant of the library, or null.
        let base = unsafe { base().as_ref() };
        let base = base.ok_or_else(|| failed("the library has no API".to_owned()))?;
        // SAFETY: the version is a constant string of the library.
        let version = unsafe { text((base.GetVersionString)()) };
        // SAFETY: any version may be requested; the result is null if the library does not have it.
        let api = unsafe { (base.GetApi)(API_VERSION) };
        if api.is_null() {
            return Err(failed(format!("this is ONNX Runtime {version}; {OLDEST} or newer is needed")));
        }
        let mut library = Library { api, environment: null_mut(), version };
        let mut environment = null_mut();
        // SAFETY: the library copies the name.
        let status =
            unsafe { function!(library, CreateEnv)(LOGGED, c"monosplit".as_ptr(), &mut environment) };
        library.check(status)?;
        library.environment = environment;
        Ok(library)
    }

    /// The version of the library.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Turns a status into an error; null is success.
    fn check(&self, OrtStatusPtr(status): OrtStatusPtr) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: the table has the function.
        let release = unsafe { function!(self, ReleaseStatus) };
        let status = Owned { pointer: status, release };
        // SAFETY: a status that is not null has a message, which lives as long as the status.
        let message = unsafe { text(function!(self, GetErrorMessage)(status.pointer)) };
        Err(Error::argument(format!("ONNX Runtime {}: {}", self.version, message.trim_end())))
    }

    /// What `create` writes, released by `release`.
    fn created<T>(
        &self,
        create: impl FnOnce(*mut *mut T) -> OrtStatusPtr,
        release: unsafe extern "system" fn(*mut T),
    ) -> Result<Owned<T>> {
        let mut pointer = null_mut();
        self.check(create(&mut pointer))?;
        Ok(Owned { pointer, release })
    }

    /// The execution providers of the library, without the suffix `ExecutionProvider`.
    pub(super) fn providers(&self) -> Result<Vec<String>> {
        let (mut names, mut count) = (null_mut(), 0);
        // SAFETY: a successful call has written both.
        self.check(unsafe { function!(self, GetAvailableProviders)(&mut names, &mut count) })?;
        // SAFETY: the library returned `count` strings, which are released below.
        let listed = (0..count.max(0) as usize).map(|i| unsafe { text(*names.add(i)) });
        let listed = listed.map(|name| name.trim_end_matches("ExecutionProvider").to_owned()).collect();
        // SAFETY: the list came from the library and is released once.
        self.check(unsafe { function!(self, ReleaseAvailableProviders)(names, count) })?;
        Ok(listed)
    }

    fn options(&self, threads: usize, provider: Option<&str>) -> Result<Owned<OrtSessionOptions>> {
        // SAFETY: the table has the functions; new options are written to `out`.
        let (create, release) =
            unsafe { (function!(self, CreateSessionOptions), function!(self, ReleaseSessionOptions)) };
        // SAFETY: as above.
        let options = self.created(|out| unsafe { create(out) }, release)?;
        // SAFETY: the options live.
        self.check(unsafe { function!(self, SetSessionLogSeverityLevel)(options.pointer, LOGGED as c_int) })?;
        // SAFETY: as above; with 0 the library chooses the number.
        self.check(unsafe {
            function!(self, SetIntraOpNumThreads)(options.pointer, threads.min(1024) as c_int)
        })?;
        if let Some(name) = provider {
            self.append(&options, name)?;
        }
        Ok(options)
    }

    /// Adds an execution provider. Two of them have functions of their own.
    fn append(&self, options: &Owned<OrtSessionOptions>, provider: &str) -> Result<()> {
        // SAFETY: the table has all these functions.
        let (cuda, tensorrt) = unsafe {
            (
                (
                    function!(self, CreateCUDAProviderOptions),
                    function!(self, ReleaseCUDAProviderOptions),
                    function!(self, SessionOptionsAppendExecutionProvider_CUDA_V2),
                ),
                (
                    function!(self, CreateTensorRTProviderOptions),
                    function!(self, ReleaseTensorRTProviderOptions),
                    function!(self, SessionOptionsAppendExecutionProvider_TensorRT_V2),
                ),
            )
        };
        match provider.to_ascii_lowercase().as_str() {
            "cpu" => Ok(()),
            "cuda" => self.append_with(options, cuda),
            "tensorrt" => self.append_with(options, tensorrt),
            _ => self.append_named(options, provider),
        }
    }

    /// Adds a provider by functions of its own: those that create and release its settings, and the one that adds it.
    fn append_with<T>(
        &self,
        options: &Owned<OrtSessionOptions>,
        (create, release, append): (
            unsafe extern "system" fn(*mut *mut T) -> OrtStatusPtr,
            unsafe extern "system" fn(*mut T),
            unsafe extern "system" fn(*mut OrtSessionOptions, *const T) -> OrtStatusPtr,
        ),
    ) -> Result<()> {
        // SAFETY: new settings are written to `out`.
        let settings = self.created(|out| unsafe { create(out) }, release)?;
        // SAFETY: both live; the library copies the settings.
        self.check(unsafe { append(options.pointer, settings.pointer) })
    }

    fn append_named(&self, options: &Owned<OrtSessionOptions>, provider: &str) -> Result<()> {
        let append = |name: &str| {
            let name =
                CString::new(name).map_err(|_| Error::argument("the name of a provider contains a NUL"))?;
            // SAFETY: the name outlives the call, and the number of settings is 0.
            self.check(unsafe {
                function!(self, SessionOptionsAppendExecutionProvider)(
                    options.pointer,
                    name.as_ptr(),
                    null(),
                    null(),
                    0,
                )
            })
        };
        // Some providers are accepted under the listed name, some in upper case.
        let listed = self.providers()?.into_iter().find(|name| name.eq_ignore_ascii_case(provider));
        append(listed.as_deref().unwrap_or(provider))
            .or_else(|why| append(&provider.to_ascii_uppercase()).map_err(|_| why))
    }

    /// Creates a session from the bytes of an ONNX model. With 0 `threads` the library chooses their number.
    pub(super) fn session(
        &'static self,
        model: &[u8],
        threads: usize,
        provider: Option<&str>,
    ) -> Result<Session> {
        let options = self.options(threads, provider)?;
        let (data, length) = (model.as_ptr().cast::<c_void>(), model.len());
        // SAFETY: the table has all these functions.
        let (create, release, describe, forget) = unsafe {
            (
                function!(self, CreateSessionFromArray),
                function!(self, ReleaseSession),
                function!(self, CreateCpuMemoryInfo),
                function!(self, ReleaseMemoryInfo),
            )
        };
        // SAFETY: environment and options live, and the library copies the bytes before the call returns.
        let create = |out| unsafe { create(self.environment, data, length, options.pointer, out) };
        let session = self.created(create, release)?;
        // SAFETY: a new description is written to `out`.
        let describe = |out| unsafe {
            describe(OrtAllocatorType::OrtArenaAllocator, OrtMemType::OrtMemTypeDefault, out)
        };
        let memory = self.created(describe, forget)?;
        // SAFETY: the table has all these functions.
        let (inputs, outputs) = unsafe {
            (
                (function!(self, SessionGetInputCount), function!(self, SessionGetInputName)),
                (function!(self, SessionGetOutputCount), function!(self, SessionGetOutputName)),
            )
        };
        let (inputs, outputs) = (self.names(&session, inputs)?, self.names(&session, outputs)?);
        Ok(Session { library: self, session, memory, inputs, outputs })
    }

    /// The names that two functions count and return.
    fn names(
        &self,
        session: &Owned<OrtSession>,
        (count, name): (CountValues, NameValue),
    ) -> Result<Vec<CString>> {
        let (mut length, mut allocator) = (0, null_mut());
        // SAFETY: the session lives.
        self.check(unsafe { count(session.pointer, &mut length) })?;
        // SAFETY: the allocator belongs to the library and is not released.
        self.check(unsafe { function!(self, GetAllocatorWithDefaultOptions)(&mut allocator) })?;
        let one = |index| {
            let mut found: *mut c_char = null_mut();
            // SAFETY: the index is below the count.
            self.check(unsafe { name(session.pointer, index, allocator, &mut found) })?;
            // SAFETY: a successful call has returned a string. It is copied, then freed by the allocator it came from.
            let copy = unsafe { CStr::from_ptr(found) }.to_owned();
            // SAFETY: as above.
            self.check(unsafe { function!(self, AllocatorFree)(allocator, found.cast()) })?;
            Ok(copy)
        };
        (0..length).map(one).collect()
    }
}

type CountValues = unsafe extern "system" fn(*const OrtSession, *mut usize) -> OrtStatusPtr;
type NameValue =
    unsafe extern "system" fn(*const OrtSession, usize, *mut OrtAllocator, *mut *mut c_char) -> OrtStatusPtr;

/// A session: a model that the library has loaded.
pub(super) struct Session {
    library: &'static Library,
    session: Owned<OrtSession>,
    memory: Owned<OrtMemoryInfo>,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
}

// SAFETY: the library allows several threads to run a session at once. Nothing else of it changes.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    /// Runs on one tensor per input and returns one per output.
    pub(super) fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        if inputs.len() != self.inputs.len() {
            return Err(Error::argument(format!(
                "the graph has {} input{}, {} given",
                self.inputs.len(),
                if self.inputs.len() == 1 { "" } else { "s" },
                inputs.len()
            )));
        }
        let given = inputs.iter().map(|tensor| self.value(tensor)).collect::<Result<Vec<_>>>()?;
        let values: Vec<*const OrtValue> =
            given.iter().map(|value| value.owned.pointer.cast_const()).collect();
        let names = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<Text>>();
        let (input_names, output_names) = (names(&self.inputs), names(&self.outputs));
        let mut results = vec![null_mut(); self.outputs.len()];
        // SAFETY: all lists have the given lengths and outlive the call, and so do the elements that the values borrow. The
        // library does not write to inputs, and writes new values to `results`.
        let status = unsafe {
            function!(self.library, Run)(
                self.session.pointer,
                null(),
                input_names.as_ptr(),
                values.as_ptr(),
                values.len(),
                output_names.as_ptr(),
                output_names.len(),
                results.as_mut_ptr(),
            )
        };
        // SAFETY: the table has the function.
        let release = unsafe { function!(self.library, ReleaseValue) };
        let results: Vec<Owned<OrtValue>> = results
            .into_iter()
            .filter(|value: &*mut OrtValue| !value.is_null())
            .map(|pointer| Owned { pointer, release })
            .collect();
        self.library.check(status)?;
        results.iter().map(|value| self.tensor(value)).collect()
    }

    /// A tensor as a value of the library. Elements are not copied if they have the right type.
    fn value(&self, tensor: &Tensor) -> Result<Value> {
        let shape: Vec<i64> = tensor.shape().iter().map(|&length| length as i64).collect();
        let data = match tensor.kind() {
            Kind::Float => Data::F32(tensor.to_f32()),
            _ => tensor.data().clone(),
        };
        let (pointer, bytes, element) = match &data {
            Data::F32(elements) => (
                elements.as_ptr().cast::<c_void>(),
                size_of_val(&**elements),
                Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
            ),
            Data::F64(elements) => (
                elements.as_ptr().cast(),
                size_of_val(&**elements),
                Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
            ),
            Data::I64(elements) => (
                elements.as_ptr().cast(),
                size_of_val(&**elements),
                Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
            ),
            Data::Bool(elements) => (
                elements.as_ptr().cast(),
                size_of_val(&**elements),
                Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
            ),
        };
        let (memory, axes) = (self.memory.pointer, shape.len());
        // SAFETY: the table has the functions.
        let (create, release) = unsafe {
            (function!(self.library, CreateTensorWithDataAsOrtValue), function!(self.library, ReleaseValue))
        };
        let create = |out| {
            // SAFETY: the value borrows `bytes` bytes of `data`, which is stored with it. The library copies the shape and
            // checks that it needs no more than `bytes` bytes.
            unsafe { create(memory, pointer.cast_mut(), bytes, shape.as_ptr(), axes, element, out) }
        };
        let owned = self.library.created(create, release)?;
        Ok(Value { owned, _data: data })
    }

    /// The element type and the shape of a value.
    fn info(&self, value: &Owned<OrtValue>) -> Result<Owned<OrtTensorTypeAndShapeInfo>> {
        // SAFETY: the table has the functions.
        let (describe, release) = unsafe {
            (
                function!(self.library, GetTensorTypeAndShape),
                function!(self.library, ReleaseTensorTypeAndShapeInfo),
            )
        };
        // SAFETY: the value lives; a new description is written to `out`.
        self.library.created(|out| unsafe { describe(value.pointer, out) }, release)
    }

    /// Copies a value of the library to a tensor.
    fn tensor(&self, value: &Owned<OrtValue>) -> Result<Tensor> {
        let library = self.library;
        let info = self.info(value)?;
        let (mut element, mut axes, mut data) = (0i32, 0, null_mut());
        // SAFETY: the description lives. The number of the type is written to a number: newer libraries have types that the
        // enumeration does not.
        self.library.check(unsafe {
            function!(library, GetTensorElementType)(info.pointer, (&raw mut element).cast())
        })?;
        // SAFETY: as above.
        self.library.check(unsafe { function!(library, GetDimensionsCount)(info.pointer, &mut axes) })?;
        let mut lengths = vec![0i64; axes];
        // SAFETY: `lengths` has room for `axes` lengths.
        self.library
            .check(unsafe { function!(library, GetDimensions)(info.pointer, lengths.as_mut_ptr(), axes) })?;
        // SAFETY: the value lives. Results are in host memory.
        self.library.check(unsafe { function!(library, GetTensorMutableData)(value.pointer, &mut data) })?;
        let shape: Vec<usize> = lengths.iter().map(|&length| length.max(0) as usize).collect();
        let count = shape.iter().product();
        let data: Data = match element {
            // SAFETY: the value holds `count` elements of this type, for each of the four.
            FLOAT => unsafe { copied::<f32>(data, count) }.into(),
            // SAFETY: as above.
            DOUBLE => unsafe { copied::<f64>(data, count) }.into(),
            // SAFETY: as above.
            INT64 => unsafe { copied::<i64>(data, count) }.into(),
            // SAFETY: as above; a byte that is not 0 means true.
            BOOL => unsafe { copied::<u8>(data, count) }.iter().map(|&b| b != 0).collect::<Vec<_>>().into(),
            other => {
                return Err(Error::unsupported(format!(
                    "ONNX Runtime returned a value of element type {other}, which graphs do not have"
                )));
            }
        };
        Tensor::new(shape, data)
    }
}

/// A value with the elements it borrows.
struct Value {
    owned: Owned<OrtValue>,
    _data: Data,
}

/// # Safety
/// `data` points at `count` elements unless that is 0.
unsafe fn copied<T: Copy>(data: *const c_void, count: usize) -> Vec<T> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller guarantees `count` elements. The library aligns its memory for every element type.
    unsafe { std::slice::from_raw_parts(data.cast::<T>(), count) }.to_vec()
}

/// # Safety
/// `pointer` is null or a NUL-terminated string that outlives the call.
unsafe fn text(pointer: Text) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees a string.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
