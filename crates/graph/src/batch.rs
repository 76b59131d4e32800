//! Batches: tensors whose first axis runs over samples.

use crate::error::{Error, Result};
use crate::tensor::{Data, Kind, Tensor, element_count};

/// Some rows of a tensor, in the order given.
pub fn rows(tensor: &Tensor, wanted: impl ExactSizeIterator<Item = usize>) -> Result<Tensor> {
    fn pick<T: Copy>(from: &[T], row: usize, wanted: impl Iterator<Item = usize>) -> Vec<T> {
        wanted.flat_map(|i| from[i * row..(i + 1) * row].iter().copied()).collect()
    }
    let rest = tensor.shape().get(1..).unwrap_or_default();
    let row = element_count(rest).unwrap_or(0);
    let shape: Vec<usize> = std::iter::once(wanted.len()).chain(rest.iter().copied()).collect();
    match tensor.data() {
        Data::F32(from) => Tensor::new(shape, pick(from, row, wanted)),
        Data::F64(from) => Tensor::new(shape, pick(from, row, wanted)),
        Data::I64(from) => Tensor::new(shape, pick(from, row, wanted)),
        Data::Bool(from) => Tensor::new(shape, pick(from, row, wanted)),
    }
}

/// Batches one after another, as numbers of `kind`; real numbers in double precision if some are.
pub fn stack(batches: &[Tensor], kind: Kind) -> Result<Tensor> {
    let Some(first) = batches.first() else {
        return Err(Error::argument("a batch needs at least one sample"));
    };
    let rest = first.shape().get(1..).unwrap_or_default();
    if let Some(odd) = batches.iter().find(|b| b.shape().is_empty() || b.shape()[1..] != *rest) {
        return Err(Error::shape(format!(
            "samples of shape {rest:?} and {:?} cannot share a batch",
            odd.shape().get(1..).unwrap_or_default()
        )));
    }
    let count = batches.iter().map(|b| b.shape()[0]).sum();
    let shape: Vec<usize> = std::iter::once(count).chain(rest.iter().copied()).collect();
    let double = batches.iter().any(|b| matches!(b.data(), Data::F64(_)));
    match kind {
        Kind::Float if double => Tensor::new(shape, joined(batches, |b| Some(b.to_f64().into_vec()))?),
        Kind::Float => Tensor::new(shape, joined(batches, |b| Some(b.to_f32().into_vec()))?),
        Kind::Int => Tensor::new(shape, joined(batches, |b| b.to_i64().map(|v| v.into_vec()))?),
        Kind::Bool => Tensor::new(
            shape,
            joined(batches, |b| match b.data() {
                Data::Bool(v) => Some(v.to_vec()),
                _ => None,
            })?,
        ),
    }
}

fn joined<T>(batches: &[Tensor], elements: impl Fn(&Tensor) -> Option<Vec<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for batch in batches {
        let part = elements(batch).ok_or_else(|| {
            Error::argument(format!("the network reads whole numbers, found {} ones", batch.kind()))
        })?;
        all.extend(part);
    }
    Ok(all)
}
