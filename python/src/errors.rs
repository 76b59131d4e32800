//! Errors of the library as the exceptions of Python that stand for them.

use std::error::Error as _;
use std::io;

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
    let message = error.to_string();
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
