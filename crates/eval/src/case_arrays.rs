//! The arrays of a case, checked once for all metrics.

use monosplit_graph::{Buffer, Error, Result, Tensor};

use crate::metric::{Case, Undefined};

/// Why a metric has no value: a failure, or an undefined value.
#[derive(Debug)]
pub(crate) enum MeasureError {
    Failed(Error),
    Undefined(Undefined),
}

impl From<Error> for MeasureError {
    fn from(error: Error) -> Self {
        MeasureError::Failed(error)
    }
}

/// An undefined value as an error, for use with `?`.
pub(crate) fn undefined(why: impl Into<String>) -> MeasureError {
    MeasureError::Undefined(Undefined(why.into()))
}

/// The result of a metric. A value that is not finite counts as undefined.
pub(crate) fn measured(found: Result<f64, MeasureError>) -> Result<std::result::Result<f64, Undefined>> {
    match found {
        Ok(value) if value.is_finite() => Ok(Ok(value)),
        Ok(value) => Ok(Err(Undefined(format!("the value is {value}, which is not a finite number")))),
        Err(MeasureError::Undefined(undefined)) => Ok(Err(undefined)),
        Err(MeasureError::Failed(error)) => Err(error),
    }
}

/// The arrays of a case.
pub(crate) struct CaseArrays<'a> {
    pub(crate) case: &'a Case<'a>,
    /// `C·H·W` values.
    pub(crate) image: Buffer<f32>,
    /// `H·W` values, none of them infinite or NaN.
    pub(crate) map: Vec<f64>,
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

impl<'a> CaseArrays<'a> {
    /// Checks the shapes and values of a case.
    pub(crate) fn of(case: &'a Case<'a>) -> Result<Self, MeasureError> {
        let &[1, channels, height, width] = case.image.shape() else {
            return Err(Error::shape(format!(
                "a metric takes one preprocessed image [1, channels, height, width], found {:?}",
                case.image.shape()
            ))
            .into());
        };
        if case.image.is_empty() {
            return Err(Error::shape("a metric takes an image with at least one pixel, found none").into());
        }
        let image = case.image.to_f32();
        if !image.iter().all(|value| value.is_finite()) {
            return Err(undefined("the image holds numbers that are not finite"));
        }
        let map = plane(case.map, height, width)?;
        Ok(CaseArrays { case, image, map, channels, height, width })
    }

    /// Pixels of the image.
    pub(crate) fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// The object mask: one truth value for each pixel, at least one of them true.
    pub(crate) fn mask(&self) -> Result<&'a [bool], MeasureError> {
        let mask = self.case.mask.ok_or_else(|| undefined("it is not known where the object is"))?;
        if mask.len() != self.pixels() {
            let (height, width, found) = (self.height, self.width, mask.len());
            return Err(Error::shape(format!(
                "a mask has one place for each pixel, {height}×{width}; this one has {found}"
            ))
            .into());
        }
        if !mask.contains(&true) {
            return Err(undefined("the mask is empty"));
        }
        Ok(mask)
    }

    /// The map repeated for every channel of the image.
    pub(crate) fn spread(&self, map: &[f64]) -> Vec<f64> {
        map.repeat(self.channels)
    }
}

/// The values of a map `[H, W]` or `[1, H, W]`; undefined if one is not finite.
pub(crate) fn plane(map: &Tensor, height: usize, width: usize) -> Result<Vec<f64>, MeasureError> {
    let shape = map.shape();
    if shape != [height, width] && shape != [1, height, width] {
        return Err(Error::shape(format!(
            "the map is as large as the image, [{height}, {width}]; this one is {shape:?}"
        ))
        .into());
    }
    let values = map.to_f64().into_vec();
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(values),
        false => Err(undefined("the map holds numbers that are not finite")),
    }
}

/// Whether all values are the same.
pub(crate) fn is_constant(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}
