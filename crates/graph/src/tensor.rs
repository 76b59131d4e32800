//! Values: a dense row-major array with a shape. Weights, inputs and results all travel as [`Tensor`];
//! cloning one is cheap because the elements are shared.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::file::MappedSlice;

/// What kind of number a value holds. Real numbers are one kind: the engine chooses their precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Real numbers, stored as `f32` or `f64`.
    Float,
    /// Integers, stored as `i64`.
    Int,
    /// Truth values.
    Bool,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Float => "float",
            Kind::Int => "int",
            Kind::Bool => "bool",
        })
    }
}

/// Shared, immutable elements of a tensor.
#[derive(Clone)]
pub struct Buffer<T>(Elements<T>);

#[derive(Clone)]
enum Elements<T> {
    Own(Arc<Vec<T>>),
    Mapped(MappedSlice<T>),
}

impl<T: Clone> Buffer<T> {
    /// The elements as an owned vector, if they are not shared.
    pub fn try_into_vec(self) -> std::result::Result<Vec<T>, Self> {
        match self.0 {
            Elements::Own(elements) => {
                Arc::try_unwrap(elements).map_err(|shared| Buffer(Elements::Own(shared)))
            }
            in_file => Err(Buffer(in_file)),
        }
    }

    /// Whether these are the same elements in memory, not only equal ones.
    pub fn is(&self, other: &Self) -> bool {
        std::ptr::eq::<[T]>(&**self, &**other)
    }

    /// The elements as an owned vector, copied only if they are shared.
    pub fn into_vec(self) -> Vec<T> {
        self.try_into_vec().unwrap_or_else(|shared| shared.to_vec())
    }
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(elements: Vec<T>) -> Self {
        Buffer(Elements::Own(Arc::new(elements)))
    }
}

impl<T> From<MappedSlice<T>> for Buffer<T> {
    fn from(elements: MappedSlice<T>) -> Self {
        Buffer(Elements::Mapped(elements))
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.0 {
            Elements::Own(elements) => elements,
            Elements::Mapped(elements) => elements,
        }
    }
}

impl<T: PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let mut list = f.debug_list();
        list.entries(self.iter().take(SHOWN));
        if self.len() > SHOWN {
            list.entry(&format_args!("… {} more", self.len() - SHOWN));
        }
        list.finish()
    }
}

/// The elements of a tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Single precision.
    F32(Buffer<f32>),
    /// Double precision.
    F64(Buffer<f64>),
    /// Integers.
    I64(Buffer<i64>),
    /// Truth values.
    Bool(Buffer<bool>),
}

impl Data {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::F32(b) => b.len(),
            Data::F64(b) => b.len(),
            Data::I64(b) => b.len(),
            Data::Bool(b) => b.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What kind of number the elements are.
    pub fn kind(&self) -> Kind {
        match self {
            Data::F32(_) | Data::F64(_) => Kind::Float,
            Data::I64(_) => Kind::Int,
            Data::Bool(_) => Kind::Bool,
        }
    }
}

impl From<Vec<f32>> for Data {
    fn from(v: Vec<f32>) -> Self {
        Data::F32(v.into())
    }
}

impl From<Vec<f64>> for Data {
    fn from(v: Vec<f64>) -> Self {
        Data::F64(v.into())
    }
}

impl From<Vec<i64>> for Data {
    fn from(v: Vec<i64>) -> Self {
        Data::I64(v.into())
    }
}

impl From<Vec<bool>> for Data {
    fn from(v: Vec<bool>) -> Self {
        Data::Bool(v.into())
    }
}

/// A dense row-major array.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

impl Tensor {
    /// A tensor of `shape` over `data`; an error if the number of elements does not fit the shape.
    pub fn new(shape: impl Into<Vec<usize>>, data: impl Into<Data>) -> Result<Self> {
        let (shape, data) = (shape.into(), data.into());
        match element_count(&shape) {
            Some(expected) if expected == data.len() => Ok(Tensor { shape, data }),
            _ => {
                Err(Error::tensor(format!("a tensor of shape {shape:?} cannot hold {} elements", data.len())))
            }
        }
    }

    /// A tensor without axes, holding one number.
    pub fn scalar(value: impl Into<Scalar>) -> Self {
        let data = match value.into() {
            Scalar::F32(v) => vec![v].into(),
            Scalar::F64(v) => vec![v].into(),
            Scalar::I64(v) => vec![v].into(),
            Scalar::Bool(v) => vec![v].into(),
        };
        Tensor { shape: Vec::new(), data }
    }

    /// A one-dimensional tensor.
    pub fn vector(data: impl Into<Data>) -> Self {
        let data = data.into();
        Tensor { shape: vec![data.len()], data }
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The elements, giving up the tensor.
    pub fn into_data(self) -> Data {
        self.data
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// What kind of number the elements are.
    pub fn kind(&self) -> Kind {
        self.data.kind()
    }

    /// Whether this is the same tensor in memory, not only an equal one.
    pub fn is(&self, other: &Self) -> bool {
        let same = match (&self.data, &other.data) {
            (Data::F32(a), Data::F32(b)) => a.is(b),
            (Data::F64(a), Data::F64(b)) => a.is(b),
            (Data::I64(a), Data::I64(b)) => a.is(b),
            (Data::Bool(a), Data::Bool(b)) => a.is(b),
            _ => false,
        };
        same && self.shape == other.shape
    }

    /// The same elements under another shape of equal size.
    pub fn reshaped(self, shape: impl Into<Vec<usize>>) -> Result<Self> {
        Tensor::new(shape, self.data)
    }

    /// The elements as single precision, without copying if they are stored so.
    pub fn to_f32(&self) -> Buffer<f32> {
        match &self.data {
            Data::F32(b) => b.clone(),
            Data::F64(b) => b.iter().map(|&v| v as f32).collect::<Vec<_>>().into(),
            Data::I64(b) => b.iter().map(|&v| v as f32).collect::<Vec<_>>().into(),
            Data::Bool(b) => b.iter().map(|&v| v as u8 as f32).collect::<Vec<_>>().into(),
        }
    }

    /// The elements as double precision, without copying if they are stored so.
    pub fn to_f64(&self) -> Buffer<f64> {
        match &self.data {
            Data::F32(b) => b.iter().map(|&v| v as f64).collect::<Vec<_>>().into(),
            Data::F64(b) => b.clone(),
            Data::I64(b) => b.iter().map(|&v| v as f64).collect::<Vec<_>>().into(),
            Data::Bool(b) => b.iter().map(|&v| v as u8 as f64).collect::<Vec<_>>().into(),
        }
    }

    /// The elements as integers; `None` for real numbers.
    pub fn to_i64(&self) -> Option<Buffer<i64>> {
        match &self.data {
            Data::I64(b) => Some(b.clone()),
            Data::Bool(b) => Some(b.iter().map(|&v| v as i64).collect::<Vec<_>>().into()),
            Data::F32(_) | Data::F64(_) => None,
        }
    }
}

/// One number of any kind.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Scalar {
    F32(f32),
    F64(f64),
    I64(i64),
    Bool(bool),
}

impl From<f32> for Scalar {
    fn from(v: f32) -> Self {
        Scalar::F32(v)
    }
}

impl From<f64> for Scalar {
    fn from(v: f64) -> Self {
        Scalar::F64(v)
    }
}

impl From<i64> for Scalar {
    fn from(v: i64) -> Self {
        Scalar::I64(v)
    }
}

impl From<bool> for Scalar {
    fn from(v: bool) -> Self {
        Scalar::Bool(v)
    }
}

/// Product of the axis lengths, `None` if it overflows. An axis of length zero does not excuse the others, whose
/// products are taken elsewhere.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    let product = shape.iter().filter(|&&d| d != 0).try_fold(1usize, |n, &d| n.checked_mul(d))?;
    Some(if shape.contains(&0) { 0 } else { product })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_lengths_are_refused_wherever_a_zero_stands() {
        assert_eq!(element_count(&[3, 0, 1 << 40]), Some(0));
        for absurd in [[0, 1 << 40, 1 << 40], [1 << 40, 0, 1 << 40], [1 << 40, 1 << 40, 0]] {
            assert_eq!(element_count(&absurd), None);
        }
    }

    #[test]
    fn shape_and_element_count_must_agree() {
        assert!(Tensor::new([2, 3], vec![0f32; 6]).is_ok());
        assert!(Tensor::new([2, 3], vec![0f32; 5]).is_err());
        assert!(Tensor::new([usize::MAX, 2], Vec::<f32>::new()).is_err());
        assert!(Tensor::new([0, usize::MAX], Vec::<f32>::new()).is_ok());
    }

    #[test]
    fn conversions_keep_values() {
        let t = Tensor::vector(vec![1i64, -2]);
        assert_eq!(&*t.to_f32(), &[1.0, -2.0]);
        assert_eq!(&*t.to_f64(), &[1.0, -2.0]);
        assert_eq!(Tensor::vector(vec![1.5f32]).to_i64(), None);
    }
}
