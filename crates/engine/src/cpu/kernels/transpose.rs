//! Transposes matrices, in blocks of eight by eight where the machine has AVX2 and elements are of four bytes.
#![allow(unsafe_code)]

use super::simd_level::SimdLevel;

/// Rows and columns of a block.
const SIDE: usize = 8;
/// Columns handled before the next rows, so that what is written stays in the first cache.
const COLUMNS: usize = 64;

/// A matrix to be transposed: `rows` rows of `columns` neighbours, `stride` apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixView<'a, T> {
    pub(crate) data: &'a [T],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) stride: usize,
}

/// `to[c·pitch + r] ← from(r, c)`, where `pitch` is not less than the number of rows.
pub(crate) fn transpose<T: Copy>(from: MatrixView<'_, T>, to: &mut [T], pitch: usize) {
    let MatrixView { data, rows, columns, stride } = from;
    if rows == 0 || columns == 0 {
        return;
    }
    assert!((rows - 1) * stride + columns <= data.len(), "matrix to be transposed");
    assert!(rows <= pitch && (columns - 1) * pitch + rows <= to.len(), "transposed matrix");
    for first in (0..columns).step_by(COLUMNS) {
        let last = (first + COLUMNS).min(columns);
        if blocks(from, first..last, to, pitch) {
            continue;
        }
        for row in 0..rows {
            let line = &data[row * stride + first..row * stride + last];
            let slots = to[first * pitch + row..].iter_mut().step_by(pitch);
            slots.zip(line).for_each(|(slot, &v)| *slot = v);
        }
    }
}

/// Transposes some columns in blocks, if there are such and the matrix has as many rows. The last blocks overlap those before.
#[cfg(target_arch = "x86_64")]
fn blocks<T: Copy>(
    from: MatrixView<'_, T>,
    columns: std::ops::Range<usize>,
    to: &mut [T],
    pitch: usize,
) -> bool {
    let fits = size_of::<T>() == size_of::<f32>() && align_of::<T>() == align_of::<f32>();
    let large = from.rows >= SIDE && columns.len() >= SIDE;
    if !fits || !large || SimdLevel::current() == SimdLevel::Portable {
        return false;
    }
    let starts = |range: std::ops::Range<usize>| {
        let last = range.end - SIDE;
        range.step_by(SIDE).map(move |at| at.min(last))
    };
    for row in starts(0..from.rows) {
        for column in starts(columns.clone()) {
            // SAFETY: the caller has checked that both matrices lie within their slices, and a block is a part of each. Elements
            // have the size of a single-precision number and are moved as they are. The machine has AVX2.
            unsafe {
                let read = from.data.as_ptr().add(row * from.stride + column).cast::<f32>();
                let written = to.as_mut_ptr().add(column * pitch + row).cast::<f32>();
                transpose_block(read, from.stride, written, pitch);
            }
        }
    }
    true
}

#[cfg(not(target_arch = "x86_64"))]
fn blocks<T: Copy>(_: MatrixView<'_, T>, _: std::ops::Range<usize>, _: &mut [T], _: usize) -> bool {
    let _ = (SIDE, SimdLevel::current());
    false
}

/// Transposes a block of eight by eight.
///
/// # Safety
/// The machine has AVX2; eight rows of eight numbers can be read `stride` apart, and written `pitch` apart.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn transpose_block(from: *const f32, stride: usize, to: *mut f32, pitch: usize) {
    use std::arch::x86_64::*;
    // SAFETY: vouched for by the caller.
    unsafe {
        let row = |i: usize| _mm256_loadu_ps(from.add(i * stride));
        let pairs = |i: usize| {
            let (a, b) = (row(i), row(i + 1));
            (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b))
        };
        let quads = |i: usize| {
            let ((a, b), (c, d)) = (pairs(i), pairs(i + 2));
            [
                _mm256_shuffle_ps(a, c, 0x44),
                _mm256_shuffle_ps(a, c, 0xEE),
                _mm256_shuffle_ps(b, d, 0x44),
                _mm256_shuffle_ps(b, d, 0xEE),
            ]
        };
        let (upper, lower) = (quads(0), quads(4));
        for i in 0..4 {
            _mm256_storeu_ps(to.add(i * pitch), _mm256_permute2f128_ps(upper[i], lower[i], 0x20));
            _mm256_storeu_ps(to.add((i + 4) * pitch), _mm256_permute2f128_ps(upper[i], lower[i], 0x31));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::Random;

    #[test]
    fn every_element_goes_to_its_place_and_nothing_else_is_written() {
        let mut random = Random::new(41);
        let largest = if cfg!(miri) { 12 } else { 150 };
        for _ in 0..60 {
            let (rows, columns) = (random.within(1, largest), random.within(1, largest));
            let (stride, pitch) = (columns + random.within(0, 5), rows + random.within(0, 5));
            let data = random.reals::<f32>(rows * stride);
            let mut to = vec![f32::INFINITY; columns * pitch];
            transpose(MatrixView { data: &data, rows, columns, stride }, &mut to, pitch);
            for (at, &found) in to.iter().enumerate() {
                let (column, row) = (at / pitch, at % pitch);
                let expected = if row < rows { data[row * stride + column] } else { f32::INFINITY };
                assert_eq!(found, expected);
            }
        }
    }
}
