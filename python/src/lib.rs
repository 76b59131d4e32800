//! The compiled part of the Python package: arrays become tensors, errors become exceptions, and everything else is a
//! call of the library. What a person sees in Python is written in Python, in `monosplit/`.

mod arrays;
mod errors;
mod evaluation;
mod explainer;
mod fingerprint;
mod inputs;
mod listing;
mod model;
mod pictures;
mod progress;
mod session;
mod sweep_store;
mod sweep_units;
mod sweep_worker;

use std::ffi::OsString;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The command line, as the program has it. Returns the exit status.
#[pyfunction]
fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| monosplit_cli::run(arguments).code())
}

/// The built-in network, an ONNX file.
#[pyfunction]
fn built_in_network(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, monosplit::assets::PETS_SMALL)
}

/// The built-in photograph, a PNG file.
#[pyfunction]
fn built_in_photograph(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, monosplit::assets::CHELSEA)
}

#[pymodule(gil_used = false)]
fn _monosplit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("has_cuda", cfg!(feature = "cuda"))?;
    module.add("UnsupportedOperator", module.py().get_type::<errors::UnsupportedOperator>())?;
    module.add_class::<model::Network>()?;
    module.add_class::<explainer::CompiledExplainer>()?;
    module.add_class::<inputs::CompiledInputs>()?;
    module.add_class::<explainer::Result>()?;
    module.add_class::<sweep_store::SweepStore>()?;
    module.add_class::<sweep_worker::SweepWorker>()?;
    module.add_function(wrap_pyfunction!(sweep_store::experiment_text, module)?)?;
    module.add_function(wrap_pyfunction!(fingerprint::fingerprint, module)?)?;
    module.add_function(wrap_pyfunction!(listing::methods, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::metric_catalogue, module)?)?;
    module.add_function(wrap_pyfunction!(evaluation::measure, module)?)?;
    module.add_function(wrap_pyfunction!(pictures::overlay, module)?)?;
    module.add_function(wrap_pyfunction!(pictures::encode_png, module)?)?;
    module.add_function(wrap_pyfunction!(pictures::decode_picture, module)?)?;
    module.add_function(wrap_pyfunction!(built_in_network, module)?)?;
    module.add_function(wrap_pyfunction!(built_in_photograph, module)?)?;
    module.add_function(wrap_pyfunction!(run_command, module)?)?;
    Ok(())
}
