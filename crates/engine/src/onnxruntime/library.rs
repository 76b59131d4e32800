//! ONNX Runtime's shared library, as little of it as is needed: found and loaded at run time, and called through the
//! table of functions that its C interface is. All that is unsafe about it stays in this file.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use monosplit_graph::{Data, Error, Kind, Result, Tensor};

/// The version of the table that is asked for. Newer libraries still have it: the table only grows.
const API_VERSION: u32 = 14;
/// The library that first had that table.
const OLDEST: &str = "1.14";
/// Only errors are logged, and those are returned as well.
const LOG_ERRORS: c_int = 3;
/// The allocator that keeps what it was given.
const ARENA: c_int = 1;
/// Memory the processor reads.
const DEFAULT_MEMORY: c_int = 0;

/// Whatever the library hands out: environments, sessions, values, failures.
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
    ($($place:literal $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used, each with its place in the library's table.
        struct Functions { $($name: unsafe extern "system" fn($($argument),*) $(-> $result)?,)* }

        impl Functions {
            /// # Safety
            /// `table` is what the library returned for [`API_VERSION`].
            unsafe fn of(table: *const *const c_void) -> Self {
                // SAFETY: the table has a function of this type at this place, by the library's promise of never
                // changing what a version of its interface holds.
                unsafe { Functions { $($name: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "system" fn($($argument),*) $(-> $result)?,
                >(*table.add($place)),)* } }
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

/// What the library's only symbol returns.
#[repr(C)]
struct Base {
    table: unsafe extern "system" fn(u32) -> *const *const c_void,
    version: unsafe extern "system" fn() -> Text,
}

/// The library, loaded and ready. It is never unloaded: its threads may outlive whoever used it.
pub(super) struct Library {
    functions: Functions,
    environment: Handle,
    version: String,
}

// SAFETY: the library's functions may be called from any thread, and its environment is shared by design.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Something of the library's that is given back when nobody holds it any more.
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
    /// Loads the library from a file, or whichever the system finds under its name.
    pub(super) fn load(file: &Path) -> Result<Self> {
        let failed = |what: String| Error::argument(format!("{}: {what}", file.display()));
        // SAFETY: loading runs the initialisers of a library that the user named, as naming a program to run does.
        let library = unsafe { libloading::Library::new(file) }.map_err(|cause| failed(cause.to_string()))?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: this is the type of the symbol in every version of ONNX Runtime.
        let base = unsafe { library.get::<unsafe extern "system" fn() -> *const Base>(b"OrtGetApiBase\0") };
        let base =
            base.map_err(|_| failed("this is not ONNX Runtime: it has no 'OrtGetApiBase'".to_owned()))?;
        // SAFETY: the function takes nothing and returns a pointer to a constant of the library, or null.
        let base = unsafe { base().as_ref() };
        let base = base.ok_or_else(|| failed("the library has no interface".to_owned()))?;
        // SAFETY: the version is a constant text of the library.
        let version = unsafe { text((base.version)()) };
        // SAFETY: any number may be asked for; null says that it is not known.
        let table = unsafe { (base.table)(API_VERSION) };
        if table.is_null() {
            return Err(failed(format!("this is ONNX Runtime {version}; {OLDEST} or newer is needed")));
        }
        // SAFETY: it is the table of that version.
        let functions = unsafe { Functions::of(table) };
        let mut library = Library { functions, environment: null_mut(), version };
        let mut environment = null_mut();
        // SAFETY: the name outlives the call, which copies it.
        let status =
            unsafe { (library.functions.create_env)(LOG_ERRORS, c"monosplit".as_ptr(), &mut environment) };
        library.check(status)?;
        library.environment = environment;
        Ok(library)
    }

    /// The version the library says it is.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// An error if a call failed.
    fn check(&self, status: Handle) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        let status = Owned { handle: status, release: self.functions.release_status };
        // SAFETY: a failure that is not null has a message, which lives as long as it does.
        let message = unsafe { text((self.functions.message)(status.handle)) };
        Err(Error::argument(format!("ONNX Runtime {}: {}", self.version, message.trim_end())))
    }

    /// What a function creates, to be given back with `release`.
    fn created(
        &self,
        create: impl FnOnce(*mut Handle) -> Handle,
        release: unsafe extern "system" fn(Handle),
    ) -> Result<Owned> {
        let mut handle = null_mut();
        self.check(create(&mut handle))?;
        Ok(Owned { handle, release })
    }

    /// The execution providers the library was built with, without the ending of their names.
    pub(super) fn providers(&self) -> Result<Vec<String>> {
        let (mut names, mut count) = (null_mut(), 0);
        // SAFETY: both are written before success is reported.
        self.check(unsafe { (self.functions.providers)(&mut names, &mut count) })?;
        // SAFETY: the library returned that many texts, given back below.
        let listed = (0..count.max(0) as usize).map(|i| unsafe { text(*names.add(i)) });
        let listed = listed.map(|name| name.trim_end_matches("ExecutionProvider").to_owned()).collect();
        // SAFETY: exactly what was returned is given back, once.
        self.check(unsafe { (self.functions.release_providers)(names, count) })?;
        Ok(listed)
    }

    fn options(&self, threads: usize, provider: Option<&str>) -> Result<Owned> {
        let f = &self.functions;
        // SAFETY: a new handle is written to the place given.
        let options = self.created(|out| unsafe { (f.create_options)(out) }, f.release_options)?;
        // SAFETY: the options are alive.
        self.check(unsafe { (f.set_log_level)(options.handle, LOG_ERRORS) })?;
        // SAFETY: as above; 0 leaves the number to the library.
        self.check(unsafe { (f.set_threads)(options.handle, threads.min(1024) as c_int) })?;
        if let Some(name) = provider {
            self.append(&options, name)?;
        }
        Ok(options)
    }

    /// Makes a provider the first choice. Two of them have functions of their own.
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
                // SAFETY: a new handle is written to the place given.
                let settings = self.created(|out| unsafe { create(out) }, release)?;
                // SAFETY: both are alive; the settings are copied.
                unsafe { append(options.handle, settings.handle) }
            }
            None => {
                let append = |name: &str| {
                    let name =
                        CString::new(name).map_err(|_| Error::argument("a provider's name is text"))?;
                    // SAFETY: the name outlives the call, and no settings follow.
                    self.check(unsafe {
                        (f.append_provider)(options.handle, name.as_ptr(), null(), null(), 0)
                    })
                };
                // Some are understood as they are listed, some in capitals.
                let listed = self.providers()?.into_iter().find(|name| name.eq_ignore_ascii_case(provider));
                return append(listed.as_deref().unwrap_or(provider))
                    .or_else(|why| append(&provider.to_ascii_uppercase()).map_err(|_| why));
            }
        };
        self.check(status)
    }

    /// Reads a model; `threads` 0 leaves their number to the library.
    pub(super) fn session(
        &'static self,
        model: &[u8],
        threads: usize,
        provider: Option<&str>,
    ) -> Result<Session> {
        let f = &self.functions;
        let options = self.options(threads, provider)?;
        let (data, length) = (model.as_ptr().cast::<c_void>(), model.len());
        // SAFETY: environment and options are alive, and the bytes are copied before the call returns.
        let create = |out| unsafe { (f.create_session)(self.environment, data, length, options.handle, out) };
        let session = self.created(create, f.release_session)?;
        // SAFETY: a constant of the processor's memory is described; a new handle is written.
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
        // SAFETY: the session is alive.
        self.check(unsafe { count(session.handle, &mut length) })?;
        // SAFETY: the allocator belongs to the library and is not given back.
        self.check(unsafe { (self.functions.default_allocator)(&mut allocator) })?;
        let one = |index| {
            let mut found: *mut c_char = null_mut();
            // SAFETY: the index is below the count.
            self.check(unsafe { name(session.handle, index, allocator, &mut found) })?;
            // SAFETY: success means a text, which is copied and given back to the allocator it came from.
            let copy = unsafe { CStr::from_ptr(found) }.to_owned();
            // SAFETY: as above.
            self.check(unsafe { (self.functions.free)(allocator, found.cast()) })?;
            Ok(copy)
        };
        (0..length).map(one).collect()
    }
}

/// A model the library has read.
pub(super) struct Session {
    library: &'static Library,
    session: Owned,
    memory: Owned,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
}

// SAFETY: a session may be run from several threads at once, and nothing else of it changes.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    /// Runs on one tensor per input, in their order, and returns one per output.
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
        // SAFETY: all lists are of the lengths given and, like what the values look at, outlive the call; the library
        // does not write to inputs, and to results it writes new values.
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

    /// A tensor as the library sees it, without copying what is stored as it reads it.
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
            // SAFETY: the value looks at `bytes` bytes that `data` keeps alive beside it; the shape is copied, and the
            // library checks that it needs no more than those.
            unsafe {
                (f.create_tensor)(memory, pointer.cast_mut(), bytes, shape.as_ptr(), axes, element, out)
            }
        };
        let owned = self.library.created(create, f.release_value)?;
        Ok(Value { owned, _data: data })
    }

    /// A copy of a value the library computed.
    fn tensor(&self, value: &Owned) -> Result<Tensor> {
        let f = &self.library.functions;
        // SAFETY: the value is alive; a new handle is written.
        let describe = |out| unsafe { (f.tensor_info)(value.handle, out) };
        let info = self.library.created(describe, f.release_info)?;
        let (mut element, mut axes, mut data) = (0, 0, null_mut());
        // SAFETY: the description is alive.
        self.library.check(unsafe { (f.element_type)(info.handle, &mut element) })?;
        // SAFETY: as above.
        self.library.check(unsafe { (f.axis_count)(info.handle, &mut axes) })?;
        let mut lengths = vec![0i64; axes];
        // SAFETY: there is room for that many lengths.
        self.library.check(unsafe { (f.axes)(info.handle, lengths.as_mut_ptr(), axes) })?;
        // SAFETY: the value is alive and lies in the processor's memory, where results are put.
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
                    "ONNX Runtime returned a value of element type {other}, which no graph has"
                )));
            }
        };
        Tensor::new(shape, data)
    }
}

/// A value that looks at elements which it keeps alive.
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
    // SAFETY: the caller's promise; the library aligns what it allocates for any element.
    unsafe { std::slice::from_raw_parts(data.cast::<T>(), count) }.to_vec()
}

/// # Safety
/// `pointer` is null or a text that ends in a zero and lives through the call.
unsafe fn text(pointer: Text) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
