//! Pictures: decoding, drawing maps over them, encoding.

use monosplit::Tensor;
use monosplit::image::{Picture, Pixels};
use monosplit::render::{Caption, OverlayOptions, OverlayPanels, ScalarField, overlay as draw};
use numpy::{PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrays;
use crate::errors::exception;

/// An array `[height, width, 3]` of bytes.
type Rgb<'py> = PyReadonlyArrayDyn<'py, u8>;

/// A picture from its pixels.
pub(crate) fn picture(rgb: &Rgb<'_>) -> PyResult<Picture> {
    let &[height, width, 3] = rgb.shape() else {
        return Err(PyValueError::new_err(format!(
            "expected the pixels of a picture, [height, width, 3], found {:?}",
            rgb.shape()
        )));
    };
    Picture::new(width, height, rgb.as_slice()?.to_vec()).map_err(exception)
}

/// The pixels of a picture, `[height, width, 3]`.
pub(crate) fn pixels<'py>(py: Python<'py>, picture: Picture) -> PyResult<Bound<'py, PyAny>> {
    let shape = [picture.height(), picture.width(), 3];
    Ok(numpy::PyArrayMethods::reshape(&numpy::PyArray1::from_vec(py, picture.into_rgb()), shape)?.into_any())
}

/// The pixels of a picture file.
#[pyfunction]
pub(crate) fn decode_picture<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let decoded = py.detach(|| Picture::decode(bytes));
    let decoded = decoded.map_err(|error| PyValueError::new_err(error.to_string()))?;
    pixels(py, decoded)
}

/// A PNG file with these pixels.
#[pyfunction]
pub(crate) fn encode_png<'py>(py: Python<'py>, rgb: Rgb<'py>) -> PyResult<Bound<'py, PyBytes>> {
    let picture = picture(&rgb)?;
    let encoded = py.detach(|| {
        monosplit::image::encode_png(picture.width(), picture.height(), Pixels::Rgb(picture.rgb()))
    });
    Ok(PyBytes::new(py, &encoded.map_err(exception)?))
}

/// A map drawn over a picture, with a caption and the key to its colours.
#[pyfunction]
#[pyo3(signature = (map, picture=None, *, method="", layer="", class_name="", target="", confidence=None, alpha=None, opacity=0.5, single=false))]
#[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub(crate) fn overlay<'py>(
    py: Python<'py>,
    map: &Bound<'py, PyAny>,
    picture: Option<Rgb<'py>>,
    method: &str,
    layer: &str,
    class_name: &str,
    target: &str,
    confidence: Option<f64>,
    alpha: Option<f64>,
    opacity: f64,
    single: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let tensor = arrays::tensor(map)?;
    let batch: Vec<usize> = [&[1], tensor.shape()].concat();
    let tensor: Tensor = tensor.reshaped(batch).map_err(exception)?;
    let under = picture.as_ref().map(self::picture).transpose()?;
    let caption = Caption {
        method: method.to_owned(),
        layer: layer.to_owned(),
        class: class_name.to_owned(),
        target: target.to_owned(),
        confidence,
        alpha,
    };
    let drawn = py.detach(|| {
        let field = ScalarField::from_tensor(&tensor, 0)?;
        let panels =
            if single || under.is_none() { OverlayPanels::Single } else { OverlayPanels::SideBySide };
        let opacity = if under.is_none() { 1.0 } else { opacity };
        let blank =
            || Picture::new(field.width(), field.height(), vec![0xff; field.width() * field.height() * 3]);
        let under = under.map_or_else(blank, Ok)?;
        draw(&under, &field, &caption, &OverlayOptions { panels, opacity, ..OverlayOptions::default() })
    });
    pixels(py, drawn.map_err(exception)?.picture)
}
