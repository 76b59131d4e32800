//! Bindings to the part of ONNX Runtime's C API that the engine uses. The shared library is loaded at run time and called
//! through its table of functions. All unsafe code of the engine is in this file.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use monosplit_graph::{Data, Error, Kind, Result, Tensor};

/// The version of the function table. Newer libraries have it, too: the table only grows.
const API_VERSION: u32 = 14;
/// The first version of the library with that table.
const OLDEST: &str = "1.14";
/// Only errors are logged, and those are returned as well.
const LOG_ERRORS: c_int = 3;
/// `OrtArenaAllocator`.
const ARENA: c_int = 1;
/// `OrtMemTypeDefault`: host memory.
const DEFAULT_MEMORY: c_int = 0;

/// An opaque pointer of the library: an environment, a session, a value or a status.
type Handle = *mut c_void;
type Text = *const c_char;

/// Element types, as ONNX numbers them.
mod element {
    pub(super) const FLOAT: i32 = 1;
    pub(super) const INT64: i32 = 7;
    pub(super) const BOOL: i32 = 9;
    pub(super) const DOUBLE: i32 = 11;
}

macro_rules! functions {
    ($($index:literal $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used, each with its index in the table.
        struct Functions { $($name: unsafe extern "system" fn($($argument),*) $(-> $result)?,)* }

        impl Functions {
            /// # Safety
            /// `table` is what the library returned for [`API_VERSION`].
            unsafe fn of(table: *const *const c_void) -> Self {
                // SAFETY: the table has a function of this type at this index. The library never changes the entries of a
                // version of its table.
                unsafe { Functions { $($name: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "system" fn($($argument),*) $(-> $result)?,
                >(*table.add($index)),)* } }
            }
        }
    };
}

functions! {
    2 message(Handle) -> Text;
    3 create_env(c_int, Text, *mut Handle) -> Handle;
    8 create_session(Handle, *const c_void, usize, Handle, *mut Handle) -> Handle;
    9 run(Handle, Handle, *const Text, *const Handle, usize, *const Text, usize, *mut Handle) -> Handle;
    10 create_options(*mut Handle) -> Handle;
    22 set_log_level(Handle, c_int) -> Handle;
    24 set_threads(Handle, c_int) -> Handle;
    30 input_count(Handle, *mut usize) -> Handle;
    31 output_count(Handle, *mut usize) -> Handle;
    36 input_name(Handle, usize, Handle, *mut *mut c_char) -> Handle;
    37 output_name(Handle, usize, Handle, *mut *mut c_char) -> Handle;
    49 create_tensor(Handle, *mut c_void, usize, *const i64, usize, i32, *mut Handle) -> Handle;
    51 tensor_data(Handle, *mut *mut c_void) -> Handle;
    60 element_type(Handle, *mut i32) -> Handle;
    61 axis_count(Handle, *mut usize) -> Handle;
    62 axes(Handle, *mut i64, usize) -> Handle;
    65 tensor_info(Handle, *mut Handle) -> Handle;
    69 create_memory_info(c_int, c_int, *mut Handle) -> Handle;
    76 free(Handle, *mut c_void) -> Handle;
    78 default_allocator(*mut Handle) -> Handle;
    93 release_status(Handle);
    94 release_memory_info(Handle);
    95 release_session(Handle);
    96 release_value(Handle);
    99 release_info(Handle);
    100 release_options(Handle);
    125 providers(*mut *mut *mut c_char, *mut c_int) -> Handle;
    126 release_providers(*mut *mut c_char, c_int) -> Handle;
    170 append_tensorrt(Handle, Handle) -> Handle;
    171 create_tensorrt_options(*mut Handle) -> Handle;
    174 release_tensorrt_options(Handle);
    204 append_cuda(Handle, Handle) -> Handle;
    205 create_cuda_options(*mut Handle) -> Handle;
    208 release_cuda_options(Handle);
    216 append_provider(Handle, Text, *const Text, *const Text, usize) -> Handle;
}

/// `OrtApiBase`, which the library's only symbol returns.
#[repr(C)]
struct Base {
    table: unsafe extern "system" fn(u32) -> *const *const c_void,
    version: unsafe extern "system" fn() -> Text,
}

/// The loaded library. It is never unloaded, because its threads may outlive its users.
pub(super) struct Library {
    functions: Functions,
    environment: Handle,
    version: String,
}

// SAFETY: the library's functions and its environment may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// A handle that is released when dropped.
struct Owned {
    handle: Handle,
    release: unsafe extern "system" fn(Handle),
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle came from the library, is of the kind that `release` takes, and is not used again.
        unsafe { (self.release)(self.handle) }
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
        let base = unsafe { library.get::<unsafe extern "system" fn() -> *const Base>(b"OrtGetApiBase\0") };
        let base =
            base.map_err(|_| failed("this is not ONNX Runtime: it has no 'OrtGetApiBase'".to_owned()))?;
        // SAFETY: the function returns a pointer to a constant of the library, or null.
        let base = unsafe { base().as_ref() };
        let base = base.ok_or_else(|| failed("the library has no API".to_owned()))?;
        // SAFETY: the version is a constant string of the library.
        let version = unsafe { text((base.version)()) };
        // SAFETY: any version may be requested; the result is null if the library does not have it.
        let table = unsafe { (base.table)(API_VERSION) };
        if table.is_null() {
            return Err(failed(format!("this is ONNX Runtime {version}; {OLDEST} or newer is needed")));
        }
        // SAFETY: it is the table of `API_VERSION`.
        let functions = unsafe { Functions::of(table) };
        let mut library = Library { functions, environment: null_mut(), version };
        let mut environment = null_mut();
        // SAFETY: the library copies the name.
        let status =
            unsafe { (library.functions.create_env)(LOG_ERRORS, c"monosplit".as_ptr(), &mut environment) };
        library.check(status)?;
        library.environment = environment;
        Ok(library)
    }

    /// The version of the library.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Turns a status into an error; null is success.
    fn check(&self, status: Handle) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        let status = Owned { handle: status, release: self.functions.release_status };
        // SAFETY: a status that is not null has a message, which lives as long as the status.
        let message = unsafe { text((self.functions.message)(status.handle)) };
        Err(Error::argument(format!("ONNX Runtime {}: {}", self.version, message.trim_end())))
    }

    /// The handle that `create` writes, released by `release`.
    fn created(
        &self,
        create: impl FnOnce(*mut Handle) -> Handle,
        release: unsafe extern "system" fn(Handle),
    ) -> Result<Owned> {
        let mut handle = null_mut();
        self.check(create(&mut handle))?;
        Ok(Owned { handle, release })
    }

    /// The execution providers of the library, without the suffix `ExecutionProvider`.
    pub(super) fn providers(&self) -> Result<Vec<String>> {
        let (mut names, mut count) = (null_mut(), 0);
        // SAFETY: a successful call has written both.
        self.check(unsafe { (self.functions.providers)(&mut names, &mut count) })?;
        // SAFETY: the library returned `count` strings, which are released below.
        let listed = (0..count.max(0) as usize).map(|i| unsafe { text(*names.add(i)) });
        let listed = listed.map(|name| name.trim_end_matches("ExecutionProvider").to_owned()).collect();
        // SAFETY: the list came from the library and is released once.
        self.check(unsafe { (self.functions.release_providers)(names, count) })?;
        Ok(listed)
    }

    fn options(&self, threads: usize, provider: Option<&str>) -> Result<Owned> {
        let f = &self.functions;
        // SAFETY: a new handle is written to `out`.
        let options = self.created(|out| unsafe { (f.create_options)(out) }, f.release_options)?;
        // SAFETY: the options live.
        self.check(unsafe { (f.set_log_level)(options.handle, LOG_ERRORS) })?;
        // SAFETY: as above; with 0 the library chooses the number.
        self.check(unsafe { (f.set_threads)(options.handle, threads.min(1024) as c_int) })?;
        if let Some(name) = provider {
            self.append(&options, name)?;
        }
        Ok(options)
    }

    /// Adds an execution provider. Two of them have functions of their own.
    fn append(&self, options: &Owned, provider: &str) -> Result<()> {
        let f = &self.functions;
        let special = match provider.to_ascii_lowercase().as_str() {
            "cpu" => return Ok(()),
            "cuda" => Some((f.create_cuda_options, f.release_cuda_options, f.append_cuda)),
            "tensorrt" => Some((f.create_tensorrt_options, f.release_tensorrt_options, f.append_tensorrt)),
            _ => None,
        };
        let status = match special {
            Some((create, release, append)) => {
                // SAFETY: a new handle is written to `out`.
                let settings = self.created(|out| unsafe { create(out) }, release)?;
                // SAFETY: both live; the library copies the settings.
                unsafe { append(options.handle, settings.handle) }
            }
            None => {
                let append = |name: &str| {
                    let name = CString::new(name)
                        .map_err(|_| Error::argument("the name of a provider contains a NUL"))?;
                    // SAFETY: the name outlives the call, and the number of settings is 0.
                    self.check(unsafe {
                        (f.append_provider)(options.handle, name.as_ptr(), null(), null(), 0)
                    })
                };
                // Some providers are accepted under the listed name, some in upper case.
                let listed = self.providers()?.into_iter().find(|name| name.eq_ignore_ascii_case(provider));
                return append(listed.as_deref().unwrap_or(provider))
                    .or_else(|why| append(&provider.to_ascii_uppercase()).map_err(|_| why));
            }
        };
        self.check(status)
    }

    /// Creates a session from the bytes of an ONNX model. With 0 `threads` the library chooses their number.
    pub(super) fn session(
        &'static self,
        model: &[u8],
        threads: usize,
        provider: Option<&str>,
    ) -> Result<Session> {
        let f = &self.functions;
        let options = self.options(threads, provider)?;
        let (data, length) = (model.as_ptr().cast::<c_void>(), model.len());
        // SAFETY: environment and options live, and the library copies the bytes before the call returns.
        let create = |out| unsafe { (f.create_session)(self.environment, data, length, options.handle, out) };
        let session = self.created(create, f.release_session)?;
        // SAFETY: a new handle is written to `out`.
        let describe = |out| unsafe { (f.create_memory_info)(ARENA, DEFAULT_MEMORY, out) };
        let memory = self.created(describe, f.release_memory_info)?;
        let inputs = self.names(&session, f.input_count, f.input_name)?;
        let outputs = self.names(&session, f.output_count, f.output_name)?;
        Ok(Session { library: self, session, memory, inputs, outputs })
    }

    fn names(
        &self,
        session: &Owned,
        count: unsafe extern "system" fn(Handle, *mut usize) -> Handle,
        name: unsafe extern "system" fn(Handle, usize, Handle, *mut *mut c_char) -> Handle,
    ) -> Result<Vec<CString>> {
        let (mut length, mut allocator) = (0, null_mut());
        // SAFETY: the session lives.
        self.check(unsafe { count(session.handle, &mut length) })?;
        // SAFETY: the allocator belongs to the library and is not released.
        self.check(unsafe { (self.functions.default_allocator)(&mut allocator) })?;
        let one = |index| {
            let mut found: *mut c_char = null_mut();
            // SAFETY: the index is below the count.
            self.check(unsafe { name(session.handle, index, allocator, &mut found) })?;
            // SAFETY: a successful call has returned a string. It is copied, then freed by the allocator it came from.
            let copy = unsafe { CStr::from_ptr(found) }.to_owned();
            // SAFETY: as above.
            self.check(unsafe { (self.functions.free)(allocator, found.cast()) })?;
            Ok(copy)
        };
        (0..length).map(one).collect()
    }
}

/// A session: a model that the library has loaded.
pub(super) struct Session {
    library: &'static Library,
    session: Owned,
    memory: Owned,
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
                "the graph has {} inputs, {} were given",
                self.inputs.len(),
                inputs.len()
            )));
        }
        let given = inputs.iter().map(|tensor| self.value(tensor)).collect::<Result<Vec<_>>>()?;
        let handles: Vec<Handle> = given.iter().map(|value| value.owned.handle).collect();
        let names = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<Text>>();
        let (input_names, output_names) = (names(&self.inputs), names(&self.outputs));
        let mut results = vec![null_mut(); self.outputs.len()];
        // SAFETY: all lists have the given lengths and outlive the call, and so do the elements that the values borrow. The
        // library does not write to inputs, and writes new handles to `results`.
        let status = unsafe {
            (self.library.functions.run)(
                self.session.handle,
                null_mut(),
                input_names.as_ptr(),
                handles.as_ptr(),
                handles.len(),
                output_names.as_ptr(),
                output_names.len(),
                results.as_mut_ptr(),
            )
        };
        let release = self.library.functions.release_value;
        let results: Vec<Owned> = results
            .into_iter()
            .filter(|handle: &Handle| !handle.is_null())
            .map(|handle| Owned { handle, release })
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
            Data::F32(elements) => {
                (elements.as_ptr().cast::<c_void>(), size_of_val(&**elements), element::FLOAT)
            }
            Data::F64(elements) => (elements.as_ptr().cast(), size_of_val(&**elements), element::DOUBLE),
            Data::I64(elements) => (elements.as_ptr().cast(), size_of_val(&**elements), element::INT64),
            Data::Bool(elements) => (elements.as_ptr().cast(), size_of_val(&**elements), element::BOOL),
        };
        let f = &self.library.functions;
        let (memory, axes) = (self.memory.handle, shape.len());
        let create = |out| {
            // SAFETY: the value borrows `bytes` bytes of `data`, which is stored with it. The library copies the shape and
            // checks that it needs no more than `bytes` bytes.
            unsafe {
                (f.create_tensor)(memory, pointer.cast_mut(), bytes, shape.as_ptr(), axes, element, out)
            }
        };
        let owned = self.library.created(create, f.release_value)?;
        Ok(Value { owned, _data: data })
    }

    /// Copies a value of the library to a tensor.
    fn tensor(&self, value: &Owned) -> Result<Tensor> {
        let f = &self.library.functions;
        // SAFETY: the value lives; a new handle is written to `out`.
        let describe = |out| unsafe { (f.tensor_info)(value.handle, out) };
        let info = self.library.created(describe, f.release_info)?;
        let (mut element, mut axes, mut data) = (0, 0, null_mut());
        // SAFETY: the description lives.
        self.library.check(unsafe { (f.element_type)(info.handle, &mut element) })?;
        // SAFETY: as above.
        self.library.check(unsafe { (f.axis_count)(info.handle, &mut axes) })?;
        let mut lengths = vec![0i64; axes];
        // SAFETY: `lengths` has room for `axes` lengths.
        self.library.check(unsafe { (f.axes)(info.handle, lengths.as_mut_ptr(), axes) })?;
        // SAFETY: the value lives. Results are in host memory.
        self.library.check(unsafe { (f.tensor_data)(value.handle, &mut data) })?;
        let shape: Vec<usize> = lengths.iter().map(|&length| length.max(0) as usize).collect();
        let count = shape.iter().product();
        let data: Data = match element {
            // SAFETY: the value holds `count` elements of this type, for each of the four.
            element::FLOAT => unsafe { copied::<f32>(data, count) }.into(),
            // SAFETY: as above.
            element::DOUBLE => unsafe { copied::<f64>(data, count) }.into(),
            // SAFETY: as above.
            element::INT64 => unsafe { copied::<i64>(data, count) }.into(),
            // SAFETY: as above; a byte that is not 0 means true.
            element::BOOL => {
                unsafe { copied::<u8>(data, count) }.iter().map(|&b| b != 0).collect::<Vec<_>>().into()
            }
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
    owned: Owned,
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
