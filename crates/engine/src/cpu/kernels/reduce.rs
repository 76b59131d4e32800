//! Sums, means, extremes and products over axes, and the index of the largest element. Real sums are taken
//! in double precision; a NaN is the largest and the smallest element of whatever contains it.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Error, Result};
use rayon::prelude::*;

use super::chunks::for_each_chunk;
use super::movement::permute;
use crate::cpu::real::{Element, Real};
use crate::cpu::unwinding::filled;
use crate::cpu::value::{Slice, SliceMut, View, ViewMut};

/// A value seen as `outer × length × inner`, reduced along the middle.
#[derive(Clone, Copy, Debug)]
struct ReducedView {
    length: usize,
    inner: usize,
}

fn reduced_view(shape: &[usize], first: usize, end: usize) -> ReducedView {
    ReducedView { length: shape[first..end].iter().product(), inner: shape[end..].iter().product() }
}

/// Reduces `x` over `axes` (ascending).
pub(crate) fn reduce<R: Real>(
    reduction: Reduction,
    axes: &[usize],
    x: &View<'_, R>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    match (x.data, &mut out.data) {
        (Slice::Real(x_data), SliceMut::Real(out)) if is_per_channel(reduction, axes, x.shape) => {
            per_channel(reduction, x_data, x.shape, out);
            Ok(())
        }
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

/// Whether a sum runs over samples and positions, one channel at a time, as the statistics of a batch do.
fn is_per_channel(reduction: Reduction, axes: &[usize], shape: &[usize]) -> bool {
    let all_but_one = shape.len() > 2 && axes.len() == shape.len() - 1 && !axes.contains(&1);
    all_but_one && matches!(reduction, Reduction::Sum | Reduction::Mean) && !shape.contains(&0)
}

/// Sums every channel plane by plane, where it lies.
fn per_channel<R: Real>(reduction: Reduction, x: &[R], shape: &[usize], out: &mut [R]) {
    let (channels, plane) = (shape[1], shape[2..].iter().product::<usize>());
    let share = if reduction == Reduction::Mean { (shape[0] * plane) as f64 } else { 1.0 };
    for_each_chunk(out, 1, &|channel, o| {
        let planes = x.chunks_exact(plane).skip(channel).step_by(channels);
        o[0] = R::from_f64(planes.map(sum).sum::<f64>() / share);
    });
}

/// Calls `reduce` with the value, transposed where needed so that all reduced axes are neighbours.
fn gathered<T: Element>(x: &[T], shape: &[usize], axes: &[usize], reduce: impl FnOnce(&[T], ReducedView)) {
    let Some((&first, &last)) = axes.first().zip(axes.last()) else {
        return reduce(x, ReducedView { length: 1, inner: shape.iter().product() });
    };
    let between = (first..=last).filter(|axis| !axes.contains(axis) && shape[*axis] != 1);
    if between.count() == 0 {
        return reduce(x, reduced_view(shape, first, last + 1));
    }
    let kept = (0..shape.len()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let mut side_by_side = filled(T::default(), x.len());
    permute((x, shape), &order, &mut side_by_side);
    let length = axes.iter().map(|&axis| shape[axis]).product();
    reduce(&side_by_side, ReducedView { length, inner: 1 });
}

/// Calls `fold(start of the strip, stride, element)` for every element of the result.
fn strips<O: Element>(out: &mut [O], m: ReducedView, fold: impl Fn(usize, &mut O) + Sync) {
    let inner = m.inner.max(1);
    let per_task = ((1 << 14) / m.length.max(1)).max(1);
    for_each_chunk(out, per_task, &|task, part| {
        for (i, o) in part.iter_mut().enumerate() {
            let index = task * per_task + i;
            fold(index / inner * m.length * inner + index % inner, o);
        }
    });
}

fn strip<T>(x: &[T], start: usize, m: ReducedView) -> impl Iterator<Item = &T> {
    x.get(start..).unwrap_or(&[]).iter().step_by(m.inner.max(1)).take(m.length)
}

/// Sum of a dense strip in double precision, in lanes.
#[inline(always)]
pub(super) fn sum<R: Real>(x: &[R]) -> f64 {
    const LANES: usize = 8;
    if x.len() < LANES {
        return x.iter().map(|v| v.to_f64()).sum();
    }
    let mut lanes = [0.0; LANES];
    let blocks = x.chunks_exact(LANES);
    let tail: f64 = blocks.remainder().iter().map(|v| v.to_f64()).sum();
    for block in blocks {
        for (lane, v) in lanes.iter_mut().zip(block) {
            *lane += v.to_f64();
        }
    }
    lanes.iter().sum::<f64>() + tail
}

/// Folds a dense strip in lanes, by a function that is associative and commutative.
#[inline(always)]
pub(super) fn fold_lanes<R: Real>(x: &[R], start: R, f: impl Fn(R, R) -> R) -> R {
    const LANES: usize = 32;
    let mut lanes = [start; LANES];
    let blocks = x.chunks_exact(LANES);
    let tail = blocks.remainder().iter().fold(start, |a, &b| f(a, b));
    for block in blocks {
        for (lane, &v) in lanes.iter_mut().zip(block) {
            *lane = f(*lane, v);
        }
    }
    lanes.into_iter().fold(tail, f)
}

/// Folds every strip with `f`, which is associative and commutative; a long strip is distributed among threads.
fn extremes<R: Real>(x: &[R], m: ReducedView, out: &mut [R], start: R, f: impl Fn(R, R) -> R + Sync) {
    const PIECE: usize = 1 << 15;
    if m.inner > 1 {
        return columns(x, m, out, start, &f, |v| v);
    }
    let strip = |start: usize| &x[start..start + m.length];
    if m.length <= PIECE {
        return strips(out, m, |first, o| *o = fold_lanes(strip(first), start, &f));
    }
    for (index, o) in out.iter_mut().enumerate() {
        let pieces = strip(index * m.length).par_chunks(PIECE);
        let folded: Vec<R> = pieces.map(|piece| fold_lanes(piece, start, &f)).collect();
        *o = folded.into_iter().fold(start, &f);
    }
}

/// Folds strips that are not dense, many neighbours at a time: each strip from first to last.
fn columns<R: Real, A: Element>(
    x: &[R],
    m: ReducedView,
    out: &mut [R],
    start: A,
    f: impl Fn(A, R) -> A + Sync,
    finish: impl Fn(A) -> R + Sync,
) {
    const WIDTH: usize = 512;
    let size = m.length * m.inner;
    for_each_chunk(out, m.inner, &|outer, out| {
        let x = &x[outer * size..][..size];
        for_each_chunk(out, WIDTH, &|block, out| {
            let mut folded = [start; WIDTH];
            let folded = &mut folded[..out.len()];
            for row in x.chunks(m.inner) {
                for (a, &b) in folded.iter_mut().zip(&row[block * WIDTH..]) {
                    *a = f(*a, b);
                }
            }
            out.iter_mut().zip(folded).for_each(|(o, a)| *o = finish(*a));
        });
    });
}

fn real<R: Real>(reduction: Reduction, x: &[R], m: ReducedView, out: &mut [R]) {
    if x.is_empty() {
        let nothing = match reduction {
            Reduction::Sum => 0.0,
            Reduction::Mean => f64::NAN,
            Reduction::Max => f64::NEG_INFINITY,
            Reduction::Min => f64::INFINITY,
            Reduction::Product => 1.0,
        };
        return out.fill(R::from_f64(nothing));
    }
    let total = |share: f64, out: &mut [R]| {
        if m.inner > 1 {
            // Minus zero is what leaves every number as it is when it is added.
            columns(x, m, out, -0.0f64, |a, b| a + b.to_f64(), |sum| R::from_f64(sum / share));
        } else {
            strips(out, m, |start, o| *o = R::from_f64(sum(&x[start..start + m.length]) / share));
        }
    };
    match reduction {
        Reduction::Sum => total(1.0, out),
        Reduction::Mean => total(m.length as f64, out),
        Reduction::Max => {
            extremes(x, m, out, R::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b });
        }
        Reduction::Min => {
            extremes(x, m, out, -R::NEG_INFINITY, |a, b| if a < b || a.is_nan() { a } else { b });
        }
        Reduction::Product => strips(out, m, |start, o| {
            *o = R::from_f64(strip(x, start, m).map(|v| v.to_f64()).product());
        }),
    }
}

fn int(reduction: Reduction, x: &[i64], m: ReducedView, out: &mut [i64]) {
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
    let m = reduced_view(x.shape, axis, axis + 1);
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

fn first<T: Element>(out: &mut [i64], m: ReducedView, x: &[T], beats: impl Fn(T, T) -> bool + Sync) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::{Random, assert_close};

    const SHAPE: [usize; 4] = [3, 4, 2, 5];

    fn groups<T: Copy>(x: &[T], axes: &[usize]) -> Vec<Vec<T>> {
        let kept: Vec<usize> = (0..4).filter(|a| !axes.contains(a)).collect();
        let mut groups = vec![Vec::new(); kept.iter().map(|&a| SHAPE[a]).product()];
        for (flat, &v) in x.iter().enumerate() {
            let at = [flat / 40, flat / 10 % 4, flat / 5 % 2, flat % 5];
            groups[kept.iter().fold(0, |i, &a| i * SHAPE[a] + at[a])].push(v);
        }
        groups
    }

    fn run<R: Real>(reduction: Reduction, axes: &[usize], x: &[R], count: usize) -> Vec<R> {
        let mut out = vec![R::ZERO; count];
        let view = View { shape: &SHAPE, data: Slice::Real(x) };
        reduce(reduction, axes, &view, &mut ViewMut { shape: &[], data: SliceMut::Real(&mut out) }).unwrap();
        out
    }

    #[test]
    fn reductions_over_any_axes_equal_direct_ones() {
        let x = Random::new(15).reals::<f64>(120);
        let sets: [&[usize]; 8] = [&[], &[0], &[3], &[1, 2], &[0, 2], &[1, 3], &[0, 1, 3], &[0, 1, 2, 3]];
        for axes in sets {
            let groups = groups(&x, axes);
            let direct = |f: &dyn Fn(&[f64]) -> f64| groups.iter().map(|g| f(g)).collect::<Vec<_>>();
            let of = |reduction| run(reduction, axes, &x, groups.len());
            assert_close(&of(Reduction::Sum), &direct(&|g| g.iter().sum()), 1e-14);
            assert_close(&of(Reduction::Mean), &direct(&|g| g.iter().sum::<f64>() / g.len() as f64), 1e-14);
            assert_close(&of(Reduction::Product), &direct(&|g| g.iter().product()), 1e-14);
            let largest = |g: &[f64]| g.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(of(Reduction::Max), direct(&largest));
            assert_eq!(of(Reduction::Min), direct(&|g| g.iter().copied().fold(f64::INFINITY, f64::min)));
        }
    }

    #[test]
    fn long_single_precision_sums_keep_their_digits() {
        let x = vec![0.1f32; 1 << 20];
        let view = View { shape: &[1 << 20], data: Slice::Real(&x) };
        let mut out = [0f32];
        let mut target = ViewMut { shape: &[], data: SliceMut::Real(&mut out) };
        reduce(Reduction::Mean, &[0], &view, &mut target).unwrap();
        assert_eq!(out, [0.1]);
    }

    #[test]
    fn the_first_largest_is_found_along_any_axis() {
        let mut random = Random::new(16);
        let x: Vec<i64> = (0..120).map(|_| random.within(0, 3) as i64).collect();
        for axis in 0..4 {
            let expected: Vec<i64> = groups(&x, &[axis])
                .iter()
                .map(|g| g.iter().position(|v| v == g.iter().max().unwrap()).unwrap() as i64)
                .collect();
            let mut out = vec![0; expected.len()];
            let view = View::<f32> { shape: &SHAPE, data: Slice::Int(&x) };
            arg_max(axis, &view, &mut ViewMut { shape: &[], data: SliceMut::Int(&mut out) }).unwrap();
            assert_eq!(out, expected);
        }
        let mut out = [0];
        let view = View { shape: &[3], data: Slice::Real(&[1.0, f32::NAN, 2.0]) };
        arg_max(0, &view, &mut ViewMut { shape: &[], data: SliceMut::Int(&mut out) }).unwrap();
        assert_eq!(out, [1]);
    }

    #[test]
    fn nan_is_every_extreme() {
        let mut x = vec![1.0f64; 120];
        x[7] = f64::NAN;
        for reduction in [Reduction::Max, Reduction::Min] {
            assert!(run(reduction, &[0, 1, 2, 3], &x, 1)[0].is_nan());
        }
    }
}
