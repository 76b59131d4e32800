//! Arrays of numpy and tensors of the library. Results are handed over without a copy.

use monosplit::Tensor;
use monosplit::graph::Data;
use numpy::{IxDyn, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::errors::exception;

/// An array of real or whole numbers or truth values. The Python side has made it contiguous and of one of these types.
pub(crate) fn tensor(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    if let Ok(array) = array.extract::<PyReadonlyArrayDyn<'_, f32>>() {
        return made(array.shape(), array.as_slice()?.to_vec());
    }
    if let Ok(array) = array.extract::<PyReadonlyArrayDyn<'_, f64>>() {
        return made(array.shape(), array.as_slice()?.to_vec());
    }
    if let Ok(array) = array.extract::<PyReadonlyArrayDyn<'_, i64>>() {
        return made(array.shape(), array.as_slice()?.to_vec());
    }
    if let Ok(array) = array.extract::<PyReadonlyArrayDyn<'_, bool>>() {
        return made(array.shape(), array.as_slice()?.to_vec());
    }
    Err(PyTypeError::new_err("expected an array of float32, float64, int64 or bool"))
}

fn made(shape: &[usize], data: impl Into<Data>) -> PyResult<Tensor> {
    Tensor::new(shape.to_vec(), data).map_err(exception)
}

/// A tensor as an array that owns its elements.
pub(crate) fn array<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let shape = IxDyn(tensor.shape());
    Ok(match tensor.into_data() {
        Data::F32(values) => shaped(py, values.into_vec(), shape)?.into_any(),
        Data::F64(values) => shaped(py, values.into_vec(), shape)?.into_any(),
        Data::I64(values) => shaped(py, values.into_vec(), shape)?.into_any(),
        Data::Bool(values) => shaped(py, values.into_vec(), shape)?.into_any(),
    })
}

fn shaped<'py, T: numpy::Element>(
    py: Python<'py>,
    values: Vec<T>,
    shape: IxDyn,
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    numpy::PyArray1::from_vec(py, values).reshape(shape)
}
