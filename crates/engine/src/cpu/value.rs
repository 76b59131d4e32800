//! What kernels read and write: borrowed elements of one of the three kinds with a concrete shape, and the
//! owned or shared storage behind them.

use monosplit_graph::{Buffer, Error, Kind, Result, Tensor};

use super::real::Real;
use crate::memory_budget::MEMORY;

/// Owned elements of one kind.
#[derive(Debug)]
pub(crate) enum Storage<R> {
    Real(Vec<R>),
    Int(Vec<i64>),
    Bool(Vec<bool>),
}

/// Shared elements of one kind: inputs, weights, results.
#[derive(Clone, Debug)]
pub(crate) enum Shared<R> {
    Real(Buffer<R>),
    Int(Buffer<i64>),
    Bool(Buffer<bool>),
}

/// Borrowed elements of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slice<'a, R> {
    Real(&'a [R]),
    Int(&'a [i64]),
    Bool(&'a [bool]),
}

/// Elements of one kind, borrowed to be overwritten.
#[derive(Debug)]
pub(crate) enum SliceMut<'a, R> {
    Real(&'a mut [R]),
    Int(&'a mut [i64]),
    Bool(&'a mut [bool]),
}

/// A value a kernel reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a, R> {
    pub(crate) shape: &'a [usize],
    pub(crate) data: Slice<'a, R>,
}

/// A value a kernel writes; what it held before is arbitrary.
#[derive(Debug)]
pub(crate) struct ViewMut<'a, R> {
    pub(crate) shape: &'a [usize],
    pub(crate) data: SliceMut<'a, R>,
}

fn grow<T: Copy + Default>(elements: &mut Vec<T>, length: usize) -> Result<()> {
    if elements.len() < length {
        let missing = length - elements.len();
        elements.try_reserve_exact(missing).map_err(|_| {
            Error::memory(format!("there is no memory for {length} elements more")).hint(MEMORY)
        })?;
        if elements.is_empty() {
            // Of zeros, pages that the system has cleared: none is touched before it is written.
            *elements = Vec::new();
            *elements = vec![T::default(); length];
        } else {
            elements.resize(length, T::default());
        }
    }
    Ok(())
}

impl<R: Real> Storage<R> {
    pub(crate) fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Float => Storage::Real(Vec::new()),
            Kind::Int => Storage::Int(Vec::new()),
            Kind::Bool => Storage::Bool(Vec::new()),
        }
    }

    /// The memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Storage::Real(v) => v.capacity() * size_of::<R>(),
            Storage::Int(v) => v.capacity() * size_of::<i64>(),
            Storage::Bool(v) => v.capacity(),
        }
    }

    /// Makes room for at least `length` elements.
    pub(crate) fn grow(&mut self, length: usize) -> Result<()> {
        match self {
            Storage::Real(v) => grow(v, length),
            Storage::Int(v) => grow(v, length),
            Storage::Bool(v) => grow(v, length),
        }
    }

    pub(crate) fn slice(&self, length: usize) -> Slice<'_, R> {
        match self {
            Storage::Real(v) => Slice::Real(&v[..length]),
            Storage::Int(v) => Slice::Int(&v[..length]),
            Storage::Bool(v) => Slice::Bool(&v[..length]),
        }
    }

    pub(crate) fn slice_mut(&mut self, length: usize) -> SliceMut<'_, R> {
        match self {
            Storage::Real(v) => SliceMut::Real(&mut v[..length]),
            Storage::Int(v) => SliceMut::Int(&mut v[..length]),
            Storage::Bool(v) => SliceMut::Bool(&mut v[..length]),
        }
    }

    /// The elements of one of several values of `length` elements that lie side by side.
    pub(crate) fn part(&self, part: usize, length: usize) -> Option<Slice<'_, R>> {
        let (start, end) = (part * length, (part + 1) * length);
        match self {
            Storage::Real(v) => v.get(start..end).map(Slice::Real),
            Storage::Int(v) => v.get(start..end).map(Slice::Int),
            Storage::Bool(v) => v.get(start..end).map(Slice::Bool),
        }
    }

    /// The first `parts` values of `length` elements that lie side by side.
    pub(crate) fn parts_mut(&mut self, parts: usize, length: usize) -> Vec<SliceMut<'_, R>> {
        match self {
            Storage::Real(v) => v.chunks_exact_mut(length).take(parts).map(SliceMut::Real).collect(),
            Storage::Int(v) => v.chunks_exact_mut(length).take(parts).map(SliceMut::Int).collect(),
            Storage::Bool(v) => v.chunks_exact_mut(length).take(parts).map(SliceMut::Bool).collect(),
        }
    }

    /// Its first elements, of which it may hold more from a run before.
    pub(crate) fn share(self, length: usize) -> Shared<R> {
        fn cut<T>(mut elements: Vec<T>, length: usize) -> Vec<T> {
            elements.truncate(length);
            elements
        }
        match self {
            Storage::Real(v) => Shared::Real(cut(v, length).into()),
            Storage::Int(v) => Shared::Int(cut(v, length).into()),
            Storage::Bool(v) => Shared::Bool(cut(v, length).into()),
        }
    }
}

impl<R: Real> Shared<R> {
    /// The elements of `tensor`, in precision `R` if they are real.
    pub(crate) fn of(tensor: &Tensor) -> Self {
        match tensor.data() {
            monosplit_graph::Data::I64(b) => Shared::Int(b.clone()),
            monosplit_graph::Data::Bool(b) => Shared::Bool(b.clone()),
            _ => Shared::Real(R::of(tensor)),
        }
    }

    /// Whether [`Shared::of`] copies nothing.
    pub(crate) fn is_given_by(tensor: &Tensor) -> bool {
        match tensor.data() {
            monosplit_graph::Data::F32(_) => size_of::<R>() == size_of::<f32>(),
            monosplit_graph::Data::F64(_) => size_of::<R>() == size_of::<f64>(),
            monosplit_graph::Data::I64(_) | monosplit_graph::Data::Bool(_) => true,
        }
    }

    pub(crate) fn slice(&self) -> Slice<'_, R> {
        match self {
            Shared::Real(b) => Slice::Real(b),
            Shared::Int(b) => Slice::Int(b),
            Shared::Bool(b) => Slice::Bool(b),
        }
    }

    pub(crate) fn tensor(&self, shape: Vec<usize>) -> Result<Tensor> {
        match self {
            Shared::Real(b) => Tensor::new(shape, R::into_data(b.clone())),
            Shared::Int(b) => Tensor::new(shape, monosplit_graph::Data::I64(b.clone())),
            Shared::Bool(b) => Tensor::new(shape, monosplit_graph::Data::Bool(b.clone())),
        }
    }
}

impl<'a, R> SliceMut<'a, R> {
    /// The same elements, to be read only.
    pub(crate) fn shared(self) -> Slice<'a, R> {
        match self {
            SliceMut::Real(v) => Slice::Real(v),
            SliceMut::Int(v) => Slice::Int(v),
            SliceMut::Bool(v) => Slice::Bool(v),
        }
    }
}

fn misfit(expected: Kind) -> Error {
    Error::shape(format!("expected a value of kind {expected}"))
}

impl<'a, R> View<'a, R> {
    pub(crate) fn real(&self) -> Result<&'a [R]> {
        match self.data {
            Slice::Real(v) => Ok(v),
            _ => Err(misfit(Kind::Float)),
        }
    }

    pub(crate) fn int(&self) -> Result<&'a [i64]> {
        match self.data {
            Slice::Int(v) => Ok(v),
            _ => Err(misfit(Kind::Int)),
        }
    }

    pub(crate) fn bool(&self) -> Result<&'a [bool]> {
        match self.data {
            Slice::Bool(v) => Ok(v),
            _ => Err(misfit(Kind::Bool)),
        }
    }
}

impl<R> ViewMut<'_, R> {
    pub(crate) fn real(&mut self) -> Result<&mut [R]> {
        match &mut self.data {
            SliceMut::Real(v) => Ok(v),
            _ => Err(misfit(Kind::Float)),
        }
    }

    pub(crate) fn int(&mut self) -> Result<&mut [i64]> {
        match &mut self.data {
            SliceMut::Int(v) => Ok(v),
            _ => Err(misfit(Kind::Int)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match &self.data {
            SliceMut::Real(v) => v.is_empty(),
            SliceMut::Int(v) => v.is_empty(),
            SliceMut::Bool(v) => v.is_empty(),
        }
    }
}
