//! Depthwise sums over padded planes, several rows of outputs at a time: taps that lie below each other read the same rows, each of
//! which is loaded once. Every sum runs over the taps column by column of the window.
#![allow(unsafe_code)]

use super::padded_planes::Sums;
use super::simd_lanes::Lanes;
use super::simd_level::{SimdLevel, simd_dispatch};
use crate::cpu::real::Real;

/// Rows of outputs summed at a time.
const ROWS: usize = 7;

/// Taps that lie below each other in a padded plane.
#[derive(Clone, Debug)]
pub(crate) struct TapColumn {
    /// The offset that the first reads at.
    distance: usize,
    /// Their indices in the kernel, from the top.
    taps: Vec<usize>,
}

impl TapColumn {
    /// The columns of the taps of a sum over planes of this pitch.
    pub(crate) fn all(sums: &Sums, pitch: usize) -> Vec<Self> {
        let mut columns: Vec<TapColumn> = Vec::new();
        for &(tap, distance) in &sums.taps {
            let above = |column: &&mut TapColumn| column.distance + column.taps.len() * pitch == distance;
            match columns.iter_mut().find(above) {
                Some(column) => column.taps.push(tap),
                None => columns.push(TapColumn { distance, taps: vec![tap] }),
            }
        }
        columns
    }

    /// The weights of these columns, one column after the other.
    pub(crate) fn weights<R: Real>(columns: &[TapColumn], kernel: &[R], weights: &mut Vec<R>) {
        weights.clear();
        weights.extend(columns.iter().flat_map(|column| &column.taps).map(|&tap| kernel[tap]));
    }
}

/// The operands of the sums of a plane.
#[derive(Clone, Copy)]
pub(crate) struct PlaneSums<'a, R> {
    columns: &'a [TapColumn],
    weights: &'a [R],
    pitch: usize,
    from: *const R,
    start: R,
    to: *mut R,
    /// Rows and columns of the outputs.
    size: [usize; 2],
}

/// `y ← start + Σ weight·padded[distance + …]` over the taps, for a plane of `rows × columns` outputs.
pub(crate) fn sum_plane<R: Real>(
    level: SimdLevel,
    (columns, weights): (&[TapColumn], &[R]),
    (padded, pitch): (&[R], usize),
    start: R,
    (y, size): (&mut [R], [usize; 2]),
) {
    let [rows, width] = size;
    let furthest = columns.iter().map(|column| column.distance + (column.taps.len() - 1) * pitch).max();
    let read = furthest.unwrap_or(0) + (rows - 1) * pitch + width.next_multiple_of(level.width::<R>());
    assert!(read <= padded.len() && rows * width <= y.len() && rows * width > 0, "planes of a depthwise sum");
    assert_eq!(columns.iter().map(|column| column.taps.len()).sum::<usize>(), weights.len(), "taps");
    let plane = PlaneSums { columns, weights, pitch, from: padded.as_ptr(), start, to: y.as_mut_ptr(), size };
    // SAFETY: the assertions bound what is read at every tap, whole vectors, and what is written. The level is one of this machine.
    unsafe { sum_plane_at(level, plane) };
}

/// # Safety
/// The machine has the instructions of `L`; whole vectors can be read at every tap of every output, and the outputs written.
#[inline(always)]
unsafe fn whole_plane<L: Lanes>(plane: PlaneSums<'_, L::Scalar>) {
    let [rows, width] = plane.size;
    let mut row = 0;
    while row < rows {
        let count = if rows - row >= ROWS { ROWS } else { 1 };
        let mut at = 0;
        while at < width {
            // The last vector of a row overlaps the one before it, if there is one.
            let first = if width >= L::WIDTH { at.min(width - L::WIDTH) } else { at };
            // SAFETY: vouched for by the caller.
            unsafe {
                match count {
                    ROWS => seven_rows::<L>(&plane, row, first),
                    _ => one_row::<L>(&plane, row, first),
                }
            }
            at += L::WIDTH;
        }
        row += count;
    }
}

/// Sums a vector of outputs in each of seven rows.
///
/// # Safety
/// As for the whole plane.
#[inline(always)]
unsafe fn seven_rows<L: Lanes>(plane: &PlaneSums<'_, L::Scalar>, row: usize, first: usize) {
    // SAFETY: vouched for by the caller.
    unsafe {
        let [mut s, mut t, mut u, mut v, mut w, mut x, mut y] = [L::splat(plane.start); ROWS];
        let mut weight = plane.weights.as_ptr();
        for column in plane.columns {
            let mut from = plane.from.add(column.distance + row * plane.pitch + first);
            let [mut a, mut b, mut c, mut d, mut e, mut f]: [L; ROWS - 1] =
                std::array::from_fn(|row| L::load(from.add(row * plane.pitch)));
            from = from.wrapping_add((ROWS - 1) * plane.pitch);
            for _ in &column.taps {
                let (g, factor) = (L::load(from), L::splat(*weight));
                s = factor.multiply_add(a, s);
                t = factor.multiply_add(b, t);
                u = factor.multiply_add(c, u);
                v = factor.multiply_add(d, v);
                w = factor.multiply_add(e, w);
                x = factor.multiply_add(f, x);
                y = factor.multiply_add(g, y);
                // The rows of the next tap are those of this one, but for the first and one more. In an array they would be
                // moved in memory.
                (a, b, c, d, e, f) = (b, c, d, e, f, g);
                from = from.wrapping_add(plane.pitch);
                weight = weight.wrapping_add(1);
            }
        }
        for (local, sum) in [s, t, u, v, w, x, y].into_iter().enumerate() {
            plane.write(row + local, first, sum);
        }
    }
}

/// Sums a vector of outputs in one row.
///
/// # Safety
/// As for the whole plane.
#[inline(always)]
unsafe fn one_row<L: Lanes>(plane: &PlaneSums<'_, L::Scalar>, row: usize, first: usize) {
    // SAFETY: vouched for by the caller.
    unsafe {
        let mut sum = L::splat(plane.start);
        let mut weight = plane.weights.as_ptr();
        for column in plane.columns {
            let mut from = plane.from.add(column.distance + row * plane.pitch + first);
            for _ in &column.taps {
                sum = L::splat(*weight).multiply_add(L::load(from), sum);
                from = from.wrapping_add(plane.pitch);
                weight = weight.wrapping_add(1);
            }
        }
        plane.write(row, first, sum);
    }
}

impl<R: Copy> PlaneSums<'_, R> {
    /// Writes a vector of outputs, or as many as are left in the row.
    ///
    /// # Safety
    /// The machine has the instructions of `L`; the row is one of the outputs.
    #[inline(always)]
    unsafe fn write<L: Lanes<Scalar = R>>(&self, row: usize, first: usize, sum: L) {
        let rest = self.size[1] - first;
        // SAFETY: vouched for by the caller.
        unsafe {
            let to = self.to.add(row * self.size[1] + first);
            if rest >= L::WIDTH { sum.store(to) } else { sum.store_first(to, rest) }
        }
    }
}

simd_dispatch!(sum_plane_at<R: Real>(plane: PlaneSums<'_, R>), whole_plane);
