//! Sums, means, extremes and products over axes, and the index of the largest element. Real sums are taken
//! in double precision; a NaN is the largest and the smallest element of whatever contains it.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Error, Result};
use rayon::prelude::*;

use super::movement::permute;
use crate::cpu::real::{Element, Real};
use crate::cpu::value::{Slice, SliceMut, View, ViewMut};

/// A value seen as `outer × length × inner`, reduced along the middle.
#[derive(Clone, Copy, Debug)]
struct Middle {
    length: usize,
    inner: usize,
}

fn middle(shape: &[usize], first: usize, end: usize) -> Middle {
    Middle { length: shape[first..end].iter().product(), inner: shape[end..].iter().product() }
}

/// Reduces `x` over `axes` (ascending).
pub(crate) fn reduce<R: Real>(
    reduction: Reduction,
    axes: &[usize],
    x: &View<'_, R>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    match (x.data, &mut out.data) {
        (Slice::Real(x_data), SliceMut::Real(out)) => {
            gathered(x_data, x.shape, axes, |x, m| real(reduction, x, m, out));
            Ok(())
        }
        (Slice::Int(x_data), SliceMut::Int(out)) => {
            gathered(x_data, x.shape, axes, |x, m| int(reduction, x, m, out));
            Ok(())
        }
        _ => Err(Error::unsupported(format!("{} is not defined for truth values", reduction.name()))),
    }
}

/// Hands `reduce` the value with all reduced axes side by side, reordered only where they are not already.
fn gathered<T: Element>(x: &[T], shape: &[usize], axes: &[usize], reduce: impl FnOnce(&[T], Middle)) {
    let Some((&first, &last)) = axes.first().zip(axes.last()) else {
        return reduce(x, Middle { length: 1, inner: shape.iter().product() });
    };
    let between = (first..=last).filter(|axis| !axes.contains(axis) && shape[*axis] != 1);
    if between.count() == 0 {
        return reduce(x, middle(shape, first, last + 1));
    }
    let kept = (0..shape.len()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let mut side_by_side = vec![T::default(); x.len()];
    permute((x, shape), &order, &mut side_by_side);
    let length = axes.iter().map(|&axis| shape[axis]).product();
    reduce(&side_by_side, Middle { length, inner: 1 });
}

/// Calls `fold(start of the strip, stride, element)` for every element of the result.
fn strips<O: Element>(out: &mut [O], m: Middle, fold: impl Fn(usize, &mut O) + Sync) {
    let inner = m.inner.max(1);
    let per_task = ((1 << 14) / m.length.max(1)).max(1);
    out.par_chunks_mut(per_task).enumerate().for_each(|(task, part)| {
        for (i, o) in part.iter_mut().enumerate() {
            let index = task * per_task + i;
            fold(index / inner * m.length * inner + index % inner, o);
        }
    });
}

fn strip<T>(x: &[T], start: usize, m: Middle) -> impl Iterator<Item = &T> {
    x.get(start..).unwrap_or(&[]).iter().step_by(m.inner.max(1)).take(m.length)
}

/// Sum of a strip in double precision, with lanes where it is dense.
fn sum<R: Real>(x: &[R], start: usize, m: Middle) -> f64 {
    const LANES: usize = 8;
    if m.inner > 1 || m.length < LANES {
        return strip(x, start, m).map(|v| v.to_f64()).sum();
    }
    let mut lanes = [0.0; LANES];
    let blocks = x[start..start + m.length].chunks_exact(LANES);
    let tail: f64 = blocks.remainder().iter().map(|v| v.to_f64()).sum();
    for block in blocks {
        for (lane, v) in lanes.iter_mut().zip(block) {
            *lane += v.to_f64();
        }
    }
    lanes.iter().sum::<f64>() + tail
}

fn real<R: Real>(reduction: Reduction, x: &[R], m: Middle, out: &mut [R]) {
    match reduction {
        Reduction::Sum => strips(out, m, |start, o| *o = R::from_f64(sum(x, start, m))),
        Reduction::Mean => {
            strips(out, m, |start, o| *o = R::from_f64(sum(x, start, m) / m.length as f64));
        }
        Reduction::Max => strips(out, m, |start, o| {
            *o = strip(x, start, m).fold(R::NEG_INFINITY, |a, &b| if a > b || a.is_nan() { a } else { b });
        }),
        Reduction::Min => strips(out, m, |start, o| {
            *o = strip(x, start, m).fold(-R::NEG_INFINITY, |a, &b| if a < b || a.is_nan() { a } else { b });
        }),
        Reduction::Product => strips(out, m, |start, o| {
            *o = R::from_f64(strip(x, start, m).map(|v| v.to_f64()).product());
        }),
    }
}

fn int(reduction: Reduction, x: &[i64], m: Middle, out: &mut [i64]) {
    let total = |start| strip(x, start, m).fold(0i64, |a, &b| a.wrapping_add(b));
    match reduction {
        Reduction::Sum => strips(out, m, |start, o| *o = total(start)),
        Reduction::Mean => strips(out, m, |start, o| *o = total(start) / (m.length as i64).max(1)),
        Reduction::Max => strips(out, m, |start, o| *o = strip(x, start, m).fold(i64::MIN, |a, &b| a.max(b))),
        Reduction::Min => strips(out, m, |start, o| *o = strip(x, start, m).fold(i64::MAX, |a, &b| a.min(b))),
        Reduction::Product => {
            strips(out, m, |start, o| *o = strip(x, start, m).fold(1, |a: i64, &b| a.wrapping_mul(b)));
        }
    }
}

/// Index of the first largest element along `axis`; the first NaN counts as largest.
pub(crate) fn arg_max<R: Real>(axis: usize, x: &View<'_, R>, out: &mut ViewMut<'_, R>) -> Result<()> {
    let m = middle(x.shape, axis, axis + 1);
    if m.length == 0 {
        return Err(Error::shape(format!("there is no largest element along empty axis {axis}")));
    }
    let out = out.int()?;
    match x.data {
        Slice::Real(x) => {
            first(out, m, x, |candidate, best| candidate > best || (candidate.is_nan() && !best.is_nan()));
        }
        Slice::Int(x) => first(out, m, x, |candidate, best| candidate > best),
        Slice::Bool(x) => first(out, m, x, |candidate, best| candidate & !best),
    }
    Ok(())
}

fn first<T: Element>(out: &mut [i64], m: Middle, x: &[T], beats: impl Fn(T, T) -> bool + Sync) {
    strips(out, m, |start, o| {
        let mut best = (0, x[start]);
        for (i, &v) in strip(x, start, m).enumerate() {
            if beats(v, best.1) {
                best = (i, v);
            }
        }
        *o = best.0 as i64;
    });
}
