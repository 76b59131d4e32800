//! Errors of the library as the exceptions of Python that stand for them.

use std::error::Error as _;
use std::io;

use monosplit::graph::Hint;
use monosplit::{Error, ErrorKind};
use pyo3::exceptions::{
    PyFileNotFoundError, PyKeyboardInterrupt, PyMemoryError, PyOSError, PyPermissionError, PyValueError,
};
use pyo3::{PyErr, create_exception};

create_exception!(
    monosplit,
    UnsupportedOperator,
    PyValueError,
    "The network uses something that monosplit does not read; the message names the node."
);

/// The exception that stands for an error, with its one line as the message.
pub(crate) fn exception(error: Error) -> PyErr {
    let message = error.text(hint_in_python);
    match error.kind() {
        ErrorKind::Io => match io_kind(&error) {
            Some(io::ErrorKind::NotFound) => PyFileNotFoundError::new_err(message),
            Some(io::ErrorKind::PermissionDenied) => PyPermissionError::new_err(message),
            _ => PyOSError::new_err(message),
        },
        ErrorKind::Unsupported => UnsupportedOperator::new_err(message),
        ErrorKind::Memory => PyMemoryError::new_err(message),
        ErrorKind::Cancelled => PyKeyboardInterrupt::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    error.source()?.downcast_ref::<io::Error>().map(io::Error::kind)
}

/// A hint in terms of the package; none where the library's own words are as good.
fn hint_in_python(hint: &Hint) -> Option<String> {
    let value = hint.value.as_deref();
    let words = match hint.code {
        "class-output" => {
            let name = value.unwrap_or("NAME");
            return Some(format!("open it with output='{name}', which holds one for each, or give a target"));
        }
        "classes" => "give a name of model.class_names, or a number",
        "fixed-batch" => "open it with input_shape=(1, 3, 224, 224)",
        "input-shape" => {
            let shape = value.unwrap_or("3,224,224").replace(',', ", ");
            return Some(format!("open it with input_shape=({shape})"));
        }
        "given-inputs" => "give the others by name: model.explain(x, inputs={'NAME': array})",
        "labels" => "give a number",
        "layer-apart" => {
            let layer = value.unwrap_or("NAME");
            return Some(format!("a layer is named apart: layer='{layer}'"));
        }
        "layers" => "model.layers lists all",
        "import report" => "`python -m monosplit inspect` lists all",
        "mask-file" => "give it as file='mask.png'",
        "memory" => "give fewer samples at once (batch=…) or smaller ones",
        "methods" => "monosplit.methods() lists them",
        "not-piecewise" => "explain the network in its own form",
        "operators" => "`python -m monosplit ops` lists what is supported",
        "model" => "or give model='network.onnx'",
        "model-instead" => "another may be given with model=",
        "outputs" | "output" => "model.outputs lists them",
        "piecewise" => "`python -m monosplit verify --piecewise` replaces such functions first",
        "precision" => "try dtype=\"float64\", or another method or layer",
        "target" => {
            let target = value.unwrap_or("sum:OUTPUT");
            return Some(format!(
                "give target='{target}' for example; model.suggested_targets lists what suits it"
            ));
        }
        _ => return None,
    };
    Some(words.to_owned())
}
