//! NumPy broadcasting, reduced to rows: axes that all operands walk alike are merged, so that the innermost
//! loop is long and every operand is either dense or constant along it.

use super::chunks::for_each_chunk;
use monosplit_graph::{Error, Result};

use crate::cpu::real::Element;

/// Elements one task handles.
pub(crate) const GRAIN: usize = 1 << 14;

/// How `N` operands are read while a result is written row by row.
#[derive(Clone, Debug)]
pub(crate) struct Broadcast<const N: usize> {
    /// Lengths of the outer axes of the result.
    outer: Vec<usize>,
    /// For every outer axis, the stride of every operand.
    strides: Vec<[usize; N]>,
    /// Elements of a row.
    pub(crate) row: usize,
    /// Whether an operand moves along the row; if not, it is constant.
    pub(crate) dense: [bool; N],
}

impl<const N: usize> Broadcast<N> {
    /// Broadcasts operands of the given shapes to `shape`.
    pub(crate) fn new(shape: &[usize], operands: [&[usize]; N]) -> Result<Self> {
        let mut strides = vec![[0; N]; shape.len()];
        for (operand, axes) in operands.iter().enumerate() {
            let offset = shape.len().checked_sub(axes.len()).ok_or_else(|| misfit(axes, shape))?;
            let mut pitch = 1;
            for (axis, &length) in axes.iter().enumerate().rev() {
                if length != 1 && length != shape[offset + axis] {
                    return Err(misfit(axes, shape));
                }
                strides[offset + axis][operand] = if length == 1 { 0 } else { pitch };
                pitch *= length;
            }
        }
        let mut merged: Vec<(usize, [usize; N])> = Vec::new();
        for (&length, &stride) in shape.iter().zip(&strides) {
            if length == 1 {
                continue;
            }
            match merged.last_mut() {
                Some((outer, of)) if (0..N).all(|i| of[i] == stride[i] * length) => {
                    *outer *= length;
                    *of = stride;
                }
                _ => merged.push((length, stride)),
            }
        }
        let (row, innermost) = merged.pop().unwrap_or((1, [1; N]));
        let (outer, strides) = merged.into_iter().unzip();
        Ok(Broadcast { outer, strides, row, dense: innermost.map(|s| s != 0) })
    }

    /// Calls `write(offset of every operand, row)` for every row of `result`, many rows to a task.
    pub(crate) fn rows<T: Element>(&self, result: &mut [T], write: impl Fn([usize; N], &mut [T]) + Sync) {
        if self.outer.is_empty() {
            let offset = |first: usize| self.dense.map(|dense| if dense { first } else { 0 });
            for_each_chunk(result, GRAIN, &|i, part| write(offset(i * GRAIN), part));
            return;
        }
        let rows_per_task = (GRAIN / self.row.max(1)).max(1);
        for_each_chunk(result, self.row * rows_per_task, &|task, part| {
            let mut at = self.digits(task * rows_per_task);
            for row in part.chunks_mut(self.row) {
                write(self.offsets(&at), row);
                for (digit, &length) in at.iter_mut().zip(&self.outer).rev() {
                    *digit += 1;
                    if *digit < length {
                        break;
                    }
                    *digit = 0;
                }
            }
        });
    }

    /// Where every operand is read for the result's element `index`.
    pub(crate) fn offsets_of(&self, index: usize) -> [usize; N] {
        let (mut row, within) = (index / self.row, index % self.row);
        let mut offsets = self.dense.map(|dense| if dense { within } else { 0 });
        for (&length, strides) in self.outer.iter().zip(&self.strides).rev() {
            let digit = row % length;
            row /= length;
            for (offset, stride) in offsets.iter_mut().zip(strides) {
                *offset += digit * stride;
            }
        }
        offsets
    }

    fn digits(&self, mut row: usize) -> Vec<usize> {
        let mut at = vec![0; self.outer.len()];
        for (digit, &length) in at.iter_mut().zip(&self.outer).rev() {
            *digit = row % length;
            row /= length;
        }
        at
    }

    fn offsets(&self, at: &[usize]) -> [usize; N] {
        let mut offsets = [0; N];
        for (digit, stride) in at.iter().zip(&self.strides) {
            for i in 0..N {
                offsets[i] += digit * stride[i];
            }
        }
        offsets
    }
}

fn misfit(operand: &[usize], shape: &[usize]) -> Error {
    Error::shape(format!("a value of shape {operand:?} cannot be broadcast to {shape:?}"))
}

/// `out ← f(a, b)`, both broadcast.
pub(crate) fn combine<A: Element, B: Element, O: Element>(
    (a, a_shape): (&[A], &[usize]),
    (b, b_shape): (&[B], &[usize]),
    (out, shape): (&mut [O], &[usize]),
    f: impl Fn(A, B) -> O + Sync,
) -> Result<()> {
    let broadcast = Broadcast::new(shape, [a_shape, b_shape])?;
    let [dense_a, dense_b] = broadcast.dense;
    broadcast.rows(out, |[at_a, at_b], out| {
        let length = out.len();
        match (dense_a, dense_b) {
            (true, true) => {
                let (a, b) = (&a[at_a..at_a + length], &b[at_b..at_b + length]);
                for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    *o = f(a, b);
                }
            }
            (true, false) => {
                let b = b[at_b];
                for (o, &a) in out.iter_mut().zip(&a[at_a..at_a + length]) {
                    *o = f(a, b);
                }
            }
            (false, true) => {
                let a = a[at_a];
                for (o, &b) in out.iter_mut().zip(&b[at_b..at_b + length]) {
                    *o = f(a, b);
                }
            }
            (false, false) => out.fill(f(a[at_a], b[at_b])),
        }
    });
    Ok(())
}

/// `out ← condition ? a : b`, all broadcast.
pub(crate) fn choose<T: Element>(
    (condition, condition_shape): (&[bool], &[usize]),
    (a, a_shape): (&[T], &[usize]),
    (b, b_shape): (&[T], &[usize]),
    (out, shape): (&mut [T], &[usize]),
) -> Result<()> {
    let broadcast = Broadcast::new(shape, [condition_shape, a_shape, b_shape])?;
    let steps = broadcast.dense.map(usize::from);
    broadcast.rows(out, |at, out| {
        for (i, o) in out.iter_mut().enumerate() {
            let index = |operand: usize| at[operand] + i * steps[operand];
            *o = if condition[index(0)] { a[index(1)] } else { b[index(2)] };
        }
    });
    Ok(())
}

/// `out ← x`, broadcast.
pub(crate) fn expand<T: Element>(
    (x, x_shape): (&[T], &[usize]),
    (out, shape): (&mut [T], &[usize]),
) -> Result<()> {
    let broadcast = Broadcast::new(shape, [x_shape])?;
    let [dense] = broadcast.dense;
    broadcast.rows(out, |[at], out| match dense {
        true => out.copy_from_slice(&x[at..at + out.len()]),
        false => out.fill(x[at]),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::Random;

    /// The element of an operand that NumPy reads for the flat index of the result.
    fn read(mut flat: usize, shape: &[usize], operand: &[usize]) -> usize {
        let (mut index, mut pitch) = (0, 1);
        for axis in (0..shape.len()).rev() {
            let digit = flat % shape[axis];
            flat /= shape[axis];
            if let Some(own) = (axis + operand.len()).checked_sub(shape.len()) {
                index += if operand[own] == 1 { 0 } else { digit * pitch };
                pitch *= operand[own];
            }
        }
        index
    }

    #[test]
    fn operands_are_read_where_numpy_reads_them() {
        let mut random = Random::new(10);
        for _ in 0..300 {
            let rank = random.within(0, 4);
            let shape: Vec<usize> = (0..rank).map(|_| random.within(1, 5)).collect();
            let mut operand = || {
                let skipped = random.within(0, rank);
                shape[skipped..]
                    .iter()
                    .map(|&n| if random.within(0, 2) == 0 { 1 } else { n })
                    .collect::<Vec<usize>>()
            };
            let (a_shape, b_shape) = (operand(), operand());
            let count = |s: &[usize]| s.iter().product::<usize>();
            let a: Vec<i64> = (0..count(&a_shape) as i64).collect();
            let b: Vec<i64> = (0..count(&b_shape) as i64).map(|v| v * 1000).collect();
            let mut out = vec![-1; count(&shape)];
            combine((&a, &a_shape), (&b, &b_shape), (&mut out, &shape), |a, b| a + b).unwrap();
            for (flat, &o) in out.iter().enumerate() {
                assert_eq!(o, a[read(flat, &shape, &a_shape)] + b[read(flat, &shape, &b_shape)]);
            }
            expand((&a, &a_shape), (&mut out, &shape)).unwrap();
            assert!(out.iter().enumerate().all(|(flat, &o)| o == a[read(flat, &shape, &a_shape)]));
            let condition: Vec<bool> = b.iter().map(|v| v / 1000 % 2 == 0).collect();
            choose((&condition, &b_shape), (&a, &a_shape), (&b, &b_shape), (&mut out, &shape)).unwrap();
            for (flat, &o) in out.iter().enumerate() {
                let at = read(flat, &shape, &b_shape);
                let expected = if condition[at] { a[read(flat, &shape, &a_shape)] } else { b[at] };
                assert_eq!(o, expected);
            }
        }
    }

    #[test]
    fn misfits_are_errors() {
        assert!(Broadcast::new(&[2, 3], [&[2]]).is_err());
        assert!(Broadcast::new(&[3], [&[1, 3]]).is_err());
    }
}
