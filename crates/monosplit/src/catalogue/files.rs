//! Arrays in files that options of methods name: baselines, masks, feature groups.

use std::path::Path;

use monosplit_graph::{Error, Result, Tensor, array_file};
use monosplit_image::Picture;

use crate::model;

/// The largest array that is read.
const MAX_ARRAY: u64 = 1 << 30;

/// The array in a `.npy` or `.npz` file.
pub(super) fn array(path: &str) -> Result<Tensor> {
    let tensor = array_file::read(&model::read_file(Path::new(path), MAX_ARRAY)?, &[])?;
    if tensor.to_f64().iter().any(|v| !v.is_finite()) {
        return Err(Error::argument(format!("{path}: some numbers are not finite")));
    }
    Ok(tensor)
}

/// A mask: an array as it is, or a picture, black as 0 and white as 1.
pub(super) fn mask(path: &str) -> Result<Tensor> {
    if array_file::is_array_name(path) {
        return array(path);
    }
    let grey = Picture::open(path)?.to_grey();
    let values: Vec<f32> = grey.rgb().chunks_exact(3).map(|pixel| f32::from(pixel[0]) / 255.0).collect();
    Tensor::new([grey.height(), grey.width()], values)
}
