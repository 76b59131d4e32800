//! Elementwise loops over rows, compiled for each SIMD level.
#![allow(unsafe_code)]

use super::simd_lanes::Lanes;
use super::simd_level::{SimdLevel, simd_dispatch};
use crate::cpu::real::Real;

/// Whether `candidate` replaces `best` as the maximum: it is larger, or the first NaN.
#[inline(always)]
pub(crate) fn beats<R: Real>(candidate: R, best: R) -> bool {
    candidate > best || (candidate.is_nan() && !best.is_nan())
}

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn larger<L: Lanes>(y: &mut [L::Scalar], x: &[L::Scalar])
where
    L::Scalar: Real,
{
    for (y, &x) in y.iter_mut().zip(x) {
        *y = if beats(x, *y) { x } else { *y };
    }
}

simd_dispatch!(larger_at<R: Real>(y: &mut [R], x: &[R]), larger);

/// `y ← max(y, x)`, NaN where either is.
pub(crate) fn max_into<R: Real>(y: &mut [R], x: &[R]) {
    // SAFETY: the level is one of this machine.
    unsafe { larger_at(SimdLevel::current(), y, x) }
}

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn winner<L: Lanes>(best: &mut [L::Scalar], names: &mut [L::Scalar], x: &[L::Scalar], name: L::Scalar)
where
    L::Scalar: Real,
{
    for ((best, named), &x) in best.iter_mut().zip(names).zip(x) {
        let wins = *named < L::Scalar::ZERO || beats(x, *best);
        *best = if wins { x } else { *best };
        *named = if wins { name } else { *named };
    }
}

simd_dispatch!(winner_at<R: Real>(best: &mut [R], names: &mut [R], x: &[R], name: R), winner);

/// `best ← max(best, x)`, and `names ← name` where `x` is the new maximum: where it is larger, the first NaN, or the first element
/// of all, in which case the name is still negative.
pub(crate) fn argmax_into<R: Real>(best: &mut [R], names: &mut [R], x: &[R], name: R) {
    // SAFETY: the level is one of this machine.
    unsafe { winner_at(SimdLevel::current(), best, names, x, name) }
}

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn rectified<L: Lanes>(y: &mut [L::Scalar])
where
    L::Scalar: Real,
{
    let zero = L::Scalar::ZERO;
    y.iter_mut().for_each(|y| *y = if *y < zero { zero } else { *y });
}

simd_dispatch!(rectified_at<R: Real>(y: &mut [R]), rectified);

/// `y ← max(y, 0)`, NaN where it is.
pub(crate) fn relu<R: Real>(y: &mut [R]) {
    // SAFETY: the level is one of this machine.
    unsafe { rectified_at(SimdLevel::current(), y) }
}

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn limited<L: Lanes>(y: &mut [L::Scalar], least: L::Scalar, most: L::Scalar)
where
    L::Scalar: Real,
{
    for y in y {
        let x = if *y < least { least } else { *y };
        *y = if x > most { most } else { x };
    }
}

simd_dispatch!(limited_at<R: Real>(y: &mut [R], least: R, most: R), limited);

/// `y ← min(max(y, least), most)`, NaN where it is.
pub(crate) fn clamp<R: Real>(y: &mut [R], least: R, most: R) {
    // SAFETY: the level is one of this machine.
    unsafe { limited_at(SimdLevel::current(), y, least, most) }
}

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn scattered<L: Lanes>(
    (a, b): (&[L::Scalar], &[L::Scalar]),
    y: &[L::Scalar],
    (s, t): (&mut [L::Scalar], &mut [L::Scalar]),
) where
    L::Scalar: Real,
{
    for ((((&a, &b), &y), s), t) in a.iter().zip(b).zip(y).zip(s).zip(t) {
        let (second, y) = (beats(b, a), L::Scalar::ZERO + y);
        *s = if second { L::Scalar::ZERO } else { y };
        *t = if second { y } else { L::Scalar::ZERO };
    }
}

simd_dispatch!(
    scattered_at<R: Real>(candidates: (&[R], &[R]), y: &[R], shares: (&mut [R], &mut [R])),
    scattered
);

/// Writes every `y` where the larger of two rows is, the first if they are equal, and zero where the other is.
pub(crate) fn scatter_to_larger<R: Real>(candidates: (&[R], &[R]), y: &[R], shares: (&mut [R], &mut [R])) {
    // SAFETY: the level is one of this machine.
    unsafe { scattered_at(SimdLevel::current(), candidates, y, shares) }
}

/// # Safety
/// The machine has the instructions of `L`; `even` and `odd` can take half the numbers of `row`.
#[inline(always)]
unsafe fn deinterleave_pairs<L: Lanes>(row: &[L::Scalar], even: *mut L::Scalar, odd: *mut L::Scalar) {
    let (pairs, mut at) = (row.len() / 2, 0);
    // SAFETY: `at` counts pairs, and a whole vector of them is left wherever one is read.
    unsafe {
        while at + L::WIDTH <= pairs {
            let [a, b] = L::deinterleave::<2>(row.as_ptr().add(2 * at));
            a.store(even.add(at));
            b.store(odd.add(at));
            at += L::WIDTH;
        }
        for pair in at..pairs {
            *even.add(pair) = row[2 * pair];
            *odd.add(pair) = row[2 * pair + 1];
        }
    }
}

simd_dispatch!(deinterleave_pairs_at<R: Real>(row: &[R], even: *mut R, odd: *mut R), deinterleave_pairs);

/// Deinterleaves a row: phase `p` has every `step`-th element from index `p` on, and begins at `p` `step`-ths of `phases`.
pub(crate) fn deinterleave<R: Real>(row: &[R], step: usize, phases: &mut [R]) {
    let pitch = phases.len() / step;
    match step {
        1 => phases[..row.len()].copy_from_slice(row),
        2 => {
            let (even, odd) = phases.split_at_mut(pitch);
            assert!(even.len() >= row.len().div_ceil(2) && odd.len() >= row.len() / 2, "room for phases");
            // SAFETY: the assertion makes room; the level is one of this machine.
            unsafe { deinterleave_pairs_at(SimdLevel::current(), row, even.as_mut_ptr(), odd.as_mut_ptr()) };
            if let [.., last] = row
                && row.len() % 2 == 1
            {
                even[row.len() / 2] = *last;
            }
        }
        _ => {
            for (phase, phases) in phases.chunks_mut(pitch.max(1)).enumerate().take(row.len().min(step)) {
                phases.iter_mut().zip(row[phase..].iter().step_by(step)).for_each(|(p, &x)| *p = x);
            }
        }
    }
}

/// Rows of a plane to be deinterleaved into even and odd elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPairs {
    /// Elements of a row.
    pub(crate) width: usize,
    /// The number of rows, and the distance between the starts of two.
    pub(crate) rows: usize,
    pub(crate) row_stride: usize,
    /// Distance between the starts of rows that are written.
    pub(crate) pitch: usize,
}

/// # Safety
/// The machine has the instructions of `L`; all rows lie within the slices.
#[inline(always)]
unsafe fn deinterleave_row_pairs<L: Lanes>(
    pairs: RowPairs,
    plane: &[L::Scalar],
    even: &mut [L::Scalar],
    odd: &mut [L::Scalar],
) {
    let RowPairs { width, rows, row_stride, pitch } = pairs;
    for row in 0..rows {
        let from = &plane[row * row_stride..row * row_stride + width];
        let (even, odd) =
            (&mut even[row * pitch..][..width.div_ceil(2)], &mut odd[row * pitch..][..width / 2]);
        // SAFETY: both have room for half the row.
        unsafe { deinterleave_pairs::<L>(from, even.as_mut_ptr(), odd.as_mut_ptr()) };
        if width % 2 == 1 {
            even[width / 2] = from[width - 1];
        }
    }
}

simd_dispatch!(
    deinterleave_row_pairs_at<R: Real>(pairs: RowPairs, plane: &[R], even: &mut [R], odd: &mut [R]),
    deinterleave_row_pairs
);

/// Deinterleaves rows.
pub(crate) fn deinterleave_rows<R: Real>(pairs: RowPairs, plane: &[R], even: &mut [R], odd: &mut [R]) {
    // SAFETY: the level is one of this machine; slices are cut with checks.
    unsafe { deinterleave_row_pairs_at(SimdLevel::current(), pairs, plane, even, odd) }
}

/// The sum of a row in double precision, in an order that depends on its length alone.
pub(crate) fn sum<R: Real>(row: &[R]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let blocks = row.chunks_exact(LANES);
    let rest: f64 = blocks.remainder().iter().map(|x| x.to_f64()).sum();
    for block in blocks {
        sums.iter_mut().zip(block).for_each(|(sum, x)| *sum += x.to_f64());
    }
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::Random;

    #[test]
    fn phases_are_every_so_many_elements() {
        let mut random = Random::new(15);
        for length in [1, 2, 5, 31, 32, 33, 64, 67, 200] {
            let row = random.reals::<f32>(length);
            for step in 1..=4 {
                let pitch = length.div_ceil(step) + random.within(0, 3);
                let mut phases = vec![f32::NAN; pitch * step];
                deinterleave(&row, step, &mut phases);
                for (at, x) in row.iter().enumerate() {
                    assert_eq!(phases[at % step * pitch + at / step], *x, "{length} {step} {at}");
                }
            }
        }
    }

    #[test]
    fn the_larger_is_kept_and_nan_wins() {
        let mut random = Random::new(16);
        for length in [1, 15, 16, 17, 100] {
            let (x, first) = (random.reals::<f32>(length), random.reals::<f32>(length));
            let mut y = first.clone();
            max_into(&mut y, &x);
            assert!((0..length).all(|i| y[i] == x[i].max(first[i])));
            y[length / 2] = f32::NAN;
            max_into(&mut y, &x);
            assert!(y[length / 2].is_nan());
            let mut y = x.clone();
            max_into(&mut y, &vec![f32::NAN; length]);
            assert!(y.iter().all(|v| v.is_nan()));
        }
    }
}
