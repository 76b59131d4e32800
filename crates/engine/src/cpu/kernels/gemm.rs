//! Products of dense matrices on packed panels, see [`super::microkernel`]. Products are single-threaded; their callers decide what
//! runs in parallel. A sum runs over the depth in an order that depends on the sizes alone.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use super::gemm_rhs::{RhsPanels, pack_rhs};
use super::simd_level::SimdLevel;
use super::transpose::{MatrixView, transpose};
use crate::cpu::real::Real;
use crate::cpu::thread_pool::{parallel_for_chunks, with_scratch};
use crate::cpu::unwinding::filled;

/// The depth multiplied before the next panel, so that a left panel stays in the first cache.
pub(crate) const DEPTH: usize = 256;
/// Columns of a right operand packed at a time, so that they stay in the second cache.
pub(crate) const COLUMNS: usize = 256;

/// A matrix read through strides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a, R> {
    pub(crate) data: &'a [R],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

impl<'a, R> Matrix<'a, R> {
    /// A dense row-major matrix.
    pub(crate) fn dense(data: &'a [R], rows: usize, columns: usize) -> Self {
        Matrix { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// Checks that every element lies in the slice.
    pub(super) fn check(&self, name: &str) {
        let last = self.rows.saturating_sub(1) * self.row_stride
            + self.columns.saturating_sub(1) * self.column_stride;
        assert!(self.rows == 0 || self.columns == 0 || last < self.data.len(), "{name}");
    }

    pub(crate) fn transposed(self) -> Self {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Rows `first .. first + count`.
    pub(crate) fn rows(self, first: usize, count: usize) -> Self {
        let start = (first * self.row_stride).min(self.data.len());
        Matrix { data: &self.data[start..], rows: count, ..self }
    }

    /// Columns `first .. first + count`.
    pub(crate) fn columns(self, first: usize, count: usize) -> Self {
        self.transposed().rows(first, count).transposed()
    }
}

/// A rectangle of a borrowed slice that a task writes, row by row.
#[derive(Debug)]
pub(crate) struct Region<'a, R> {
    at: *mut R,
    stride: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    borrowed: PhantomData<&'a mut [R]>,
}

// SAFETY: a region is an exclusive borrow of its elements.
unsafe impl<R: Send> Send for Region<'_, R> {}
// SAFETY: a shared region gives access to nothing but its sizes, except through `part`, whose callers see to it that parts used
// by different threads are disjoint.
unsafe impl<R: Send> Sync for Region<'_, R> {}

impl<'a, R> Region<'a, R> {
    /// The first elements of `data`, in rows of `columns` that begin `stride` apart.
    pub(crate) fn new(data: &'a mut [R], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(rows == 0 || columns == 0 || (rows - 1) * stride + columns <= data.len(), "result matrix");
        assert!(rows <= 1 || stride >= columns, "rows of the result overlap");
        Region { at: data.as_mut_ptr(), stride, rows, columns, borrowed: PhantomData }
    }

    /// A rectangle of it, for a task that shares the region with others.
    ///
    /// # Safety
    /// Parts that exist at the same time are disjoint.
    pub(crate) unsafe fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Region<'_, R> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows of a part");
        assert!(columns.start <= columns.end && columns.end <= self.columns, "columns of a part");
        let at = match rows.is_empty() || columns.is_empty() {
            true => self.at,
            // SAFETY: the start of a part that is not empty lies within the region.
            false => unsafe { self.at.add(rows.start * self.stride + columns.start) },
        };
        Region { at, stride: self.stride, rows: rows.len(), columns: columns.len(), borrowed: PhantomData }
    }

    /// A rectangle of it, while nothing else uses the region.
    pub(crate) fn part_mut(&mut self, rows: Range<usize>, columns: Range<usize>) -> Region<'_, R> {
        // SAFETY: the region is borrowed exclusively for as long as the part lives.
        unsafe { self.part(rows, columns) }
    }

    /// A pointer to the first element of a rectangle, through which all of the rectangle may be accessed.
    pub(crate) fn pointer_to(&mut self, rows: Range<usize>, columns: Range<usize>) -> *mut R {
        assert!(rows.start < rows.end && rows.end <= self.rows, "rows of a rectangle");
        assert!(columns.start < columns.end && columns.end <= self.columns, "columns of a rectangle");
        // SAFETY: the element lies within the region.
        unsafe { self.at.add(rows.start * self.stride + columns.start) }
    }

    /// Distance between the beginnings of rows.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// A pointer to its first element, through which all of it may be accessed.
    pub(crate) fn start(&mut self) -> *mut R {
        self.at
    }

    /// Its rows as one slice, if nothing lies between them.
    pub(crate) fn contiguous(&mut self) -> Option<&mut [R]> {
        // SAFETY: rows that begin as far apart as they are long are all within the region, which is borrowed exclusively.
        let slice = || unsafe { std::slice::from_raw_parts_mut(self.at, self.rows * self.columns) };
        (self.rows > 0 && self.columns == self.stride).then(slice)
    }

    pub(crate) fn row(&mut self, row: usize) -> &mut [R] {
        assert!(row < self.rows, "row of a region");
        // SAFETY: the row lies within the region, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(row * self.stride), self.columns) }
    }
}

/// A left operand, packed.
#[derive(Debug)]
pub(crate) struct LhsPanels<R> {
    level: SimdLevel,
    pub(super) rows: usize,
    pub(super) depth: usize,
    data: Vec<R>,
}

impl<R: Real> LhsPanels<R> {
    pub(crate) fn pack(level: SimdLevel, matrix: Matrix<'_, R>) -> Self {
        matrix.check("left matrix");
        let (rows, depth, height) = (matrix.rows, matrix.columns, level.rows::<R>());
        let mut data = filled(R::ZERO, Self::length(level, rows, depth));
        let panels = (0..rows).step_by(height).zip(data.chunks_exact_mut((height * depth).max(1)));
        for (first, target) in panels {
            interleave(matrix.rows(first, height.min(rows - first)), height, target);
        }
        LhsPanels { level, rows, depth, data }
    }

    /// The same in scratch memory, the panels packed by several threads.
    pub(crate) fn pack_parallel(level: SimdLevel, matrix: Matrix<'_, R>) -> Self {
        matrix.check("left matrix");
        let (rows, depth, height) = (matrix.rows, matrix.columns, level.rows::<R>());
        let length = Self::length(level, rows, depth);
        let mut data =
            with_scratch(|free| free.map_or_else(|| filled(R::ZERO, length), |free| free.take(length)));
        let (panels, rest) = data.split_at_mut(rows.div_ceil(height) * height * depth);
        rest.fill(R::ZERO);
        parallel_for_chunks(panels, (height * depth).max(1), |panel, target| {
            let first = panel * height;
            let count = height.min(rows - first);
            if count < height {
                target.fill(R::ZERO);
            }
            interleave(matrix.rows(first, count), height, target);
        });
        LhsPanels { level, rows, depth, data }
    }

    /// Gives the memory back that [`LhsPanels::pack_parallel`] took.
    pub(crate) fn give_back(self) {
        with_scratch(|free| free.map(|free| free.give_back(self.data)));
    }

    /// Elements of the panels of a matrix. After the last panel there is a row of zeros, which may be read.
    pub(crate) fn length(level: SimdLevel, rows: usize, depth: usize) -> usize {
        let height = level.rows::<R>();
        rows.next_multiple_of(height) * depth + height * height
    }

    /// A left operand of which the panels are given.
    pub(crate) fn packed(level: SimdLevel, rows: usize, depth: usize, data: Vec<R>) -> Self {
        assert_eq!(data.len(), Self::length(level, rows, depth), "left panels");
        LhsPanels { level, rows, depth, data }
    }

    /// The same with the magnitudes of its elements.
    pub(crate) fn into_magnitudes(mut self) -> Self {
        self.data.iter_mut().for_each(|w| *w = w.abs());
        self
    }

    pub(super) fn level(&self) -> SimdLevel {
        self.level
    }

    /// The elements of a panel from a depth on, and those after them.
    pub(super) fn panel(&self, panel: usize, depth: usize) -> &[R] {
        let height = self.level.rows::<R>();
        &self.data[panel * height * self.depth + depth * height..]
    }

    /// Number of panels.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(self.level.rows::<R>())
    }

    /// The rows that a range of panels covers.
    pub(crate) fn rows_of(&self, panels: &Range<usize>) -> Range<usize> {
        let height = self.level.rows::<R>();
        (panels.start * height).min(self.rows)..(panels.end * height).min(self.rows)
    }

    /// `result ← start + left·right` for the rows of `panels`, the depth of `right` beginning at `first`.
    pub(crate) fn multiply(
        &self,
        panels: Range<usize>,
        first: usize,
        right: RhsPanels<'_, R>,
        start: InitialSums<'_, R>,
        result: &mut Region<'_, R>,
    ) {
        self.multiply_within(panels, first, right, start, None, result);
    }

    /// The same, with sums clamped to `limits` in the end.
    pub(crate) fn multiply_within(
        &self,
        panels: Range<usize>,
        first: usize,
        right: RhsPanels<'_, R>,
        start: InitialSums<'_, R>,
        limits: Option<[R; 2]>,
        result: &mut Region<'_, R>,
    ) {
        let (rows, height) = (self.rows_of(&panels), self.level.rows::<R>());
        assert!(first + right.depth <= self.depth, "depth of the product");
        right.check(rows.len(), start, result);
        let (right, narrow) = right.split_narrow(self.level);
        for depths in spans(right.depth, 1) {
            let start = if depths.start > 0 { InitialSums::Held } else { start };
            let limits = limits.filter(|_| depths.end == right.depth);
            if let Some(narrow) = narrow {
                let left = (self, panels.clone(), first);
                narrow.columns(left, depths.clone(), (start, limits), result);
            }
            for panel in panels.clone() {
                let at = panel * height * self.depth + (first + depths.start) * height;
                let left = &self.data[at..at + depths.len() * height];
                let local = self.rows_of(&(panel..panel + 1));
                let local = local.start - rows.start..local.end - rows.start;
                right.tiles(self.level, (left, None), depths.clone(), (start, limits), local, result);
            }
        }
    }

    /// `result ← leftᵀ·right`, all of it.
    pub(crate) fn multiply_across(&self, right: RhsPanels<'_, R>, result: &mut Region<'_, R>) {
        let height = self.level.rows::<R>();
        assert_eq!(right.depth, self.rows, "depth of the product");
        right.check(self.depth, InitialSums::Zero, result);
        for depths in spans(right.depth, height) {
            let start = if depths.start > 0 { InitialSums::Held } else { InitialSums::Zero };
            for row in (0..self.depth).step_by(height) {
                let local = row..(row + height).min(self.depth);
                let left = &self.data[depths.start * self.depth + row * height..];
                let across = Some(height * self.depth);
                right.tiles(self.level, (left, across), depths.clone(), (start, None), local, result);
            }
        }
    }
}

/// A depth cut into spans of about [`DEPTH`], at multiples of `unit`.
fn spans(depth: usize, unit: usize) -> impl Iterator<Item = Range<usize>> {
    let (count, units) = (depth.div_ceil(DEPTH).max(1), depth.div_ceil(unit));
    (0..count).map(move |span| {
        (span * units / count * unit).min(depth)..((span + 1) * units / count * unit).min(depth)
    })
}

/// The initial values of the sums of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InitialSums<'a, R> {
    /// Zero.
    Zero,
    /// The contents of the result.
    Held,
    /// One value per row.
    Rows(&'a [R]),
}

/// Columns interleaved at a time, so that what is written stays in the first cache.
const LINE_BLOCK: usize = 64;

/// Interleaves the rows of a matrix: element `k` of row `line_index` goes to `target[k·width + line_index]`.
pub(super) fn interleave<R: Real>(lines: Matrix<'_, R>, width: usize, target: &mut [R]) {
    if lines.row_stride == 1 {
        for (k, target) in target.chunks_exact_mut(width).enumerate().take(lines.columns) {
            let from = k * lines.column_stride;
            target[..lines.rows].copy_from_slice(&lines.data[from..from + lines.rows]);
        }
        return;
    }
    if lines.column_stride == 1 {
        let Matrix { data, rows, columns, row_stride: stride, .. } = lines;
        return transpose(MatrixView { data, rows, columns, stride }, target, width);
    }
    for first in (0..lines.columns).step_by(LINE_BLOCK) {
        let count = LINE_BLOCK.min(lines.columns - first);
        let target = &mut target[first * width..(first + count) * width];
        for line_index in 0..lines.rows {
            let line = &lines.data[line_index * lines.row_stride + first * lines.column_stride..];
            let slots = target[line_index..].iter_mut().step_by(width);
            slots.zip(line.iter().step_by(lines.column_stride)).for_each(|(slot, &v)| *slot = v);
        }
    }
}

/// `result ← left·right`, or `result ← result + left·right` if asked to accumulate.
pub(crate) fn multiply<R: Real>(
    left: Matrix<'_, R>,
    right: Matrix<'_, R>,
    result: &mut Region<'_, R>,
    accumulate: bool,
) {
    assert_eq!(
        (left.rows, left.columns, right.columns),
        (result.rows, right.rows, result.columns),
        "matrix sizes"
    );
    right.check("right matrix");
    let level = SimdLevel::current();
    let mut panels = Vec::new();
    let left = LhsPanels::pack(level, left);
    let beginning = if accumulate { InitialSums::Held } else { InitialSums::Zero };
    let spans = right.rows.div_ceil(DEPTH).max(1);
    for first in (0..right.columns).step_by(COLUMNS) {
        let columns = (right.columns - first).min(COLUMNS);
        let mut part = result.part_mut(0..left.rows, first..first + columns);
        for span in 0..spans {
            let depths = span * right.rows / spans..(span + 1) * right.rows / spans;
            let block = right.columns(first, columns).rows(depths.start, depths.len());
            pack_rhs(level, block, &mut panels);
            let packed = RhsPanels::packed(&panels, depths.len(), columns);
            let start = if span == 0 { beginning } else { InitialSums::Held };
            left.multiply(0..left.panels(), depths.start, packed, start, &mut part);
        }
    }
}

/// Sum of products of two slices of equal length, in a fixed order.
pub(crate) fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    const LANES: usize = 32;
    let mut sums = [R::ZERO; LANES];
    let (blocks_a, blocks_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let mut tail = R::ZERO;
    for (&x, &y) in blocks_a.remainder().iter().zip(blocks_b.remainder()) {
        tail += x * y;
    }
    for (x, y) in blocks_a.zip(blocks_b) {
        for line_index in 0..LANES {
            sums[line_index] += x[line_index] * y[line_index];
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for line_index in 0..width {
            sums[line_index] += sums[line_index + width];
        }
        width /= 2;
    }
    sums[0] + tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::Random;

    #[test]
    fn products_equal_direct_sums_for_every_layout() {
        let mut random = Random::new(1);
        let depth = if cfg!(miri) { 6 } else { 300 };
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (17, depth, 9), (8, 1, 33), (2, 0, 3)] {
            let (a, b) = (random.reals::<f64>(m * k), random.reals::<f64>(k * n));
            for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
                let left =
                    if trans_a { Matrix::dense(&a, k, m).transposed() } else { Matrix::dense(&a, m, k) };
                let right =
                    if trans_b { Matrix::dense(&b, n, k).transposed() } else { Matrix::dense(&b, k, n) };
                let mut c = vec![1.0; m * n];
                multiply(left, right, &mut Region::new(&mut c, m, n, n), true);
                for i in 0..m {
                    for j in 0..n {
                        let direct: f64 = (0..k)
                            .map(|l| {
                                let x = if trans_a { a[l * m + i] } else { a[i * k + l] };
                                x * if trans_b { b[j * k + l] } else { b[l * n + j] }
                            })
                            .sum();
                        assert!((c[i * n + j] - 1.0 - direct).abs() < 1e-12);
                    }
                }
            }
        }
    }

    #[test]
    fn every_level_multiplies_along_and_across() {
        let mut random = Random::new(17);
        let (rounds, largest) = if cfg!(miri) { (1, 7) } else { (60, 40) };
        for level in SimdLevel::all() {
            for _ in 0..rounds {
                let (rows, depth) = (random.within(1, largest), random.within(1, largest));
                let (columns, extra) = (random.within(1, 2 * largest), random.within(0, 3));
                let left = random.reals::<f64>(rows * depth);
                let packed = LhsPanels::pack(level, Matrix::dense(&left, rows, depth));
                let mut panels = Vec::new();
                let mut right = |depth: usize| {
                    let right = random.reals::<f64>(depth * columns);
                    pack_rhs(level, Matrix::dense(&right, depth, columns), &mut panels);
                    (right, panels.clone())
                };
                let mut found = vec![f64::NAN; rows.max(depth) * (columns + extra)];
                let (plain, data) = right(depth);
                let operand = RhsPanels::packed(&data, depth, columns);
                let mut result = Region::new(&mut found, rows, columns, columns + extra);
                packed.multiply(
                    0..packed.panels(),
                    0,
                    operand,
                    InitialSums::Rows(&vec![0.5; rows]),
                    &mut result,
                );
                for i in 0..rows {
                    for j in 0..columns {
                        let sum: f64 = (0..depth).map(|k| left[i * depth + k] * plain[k * columns + j]).sum();
                        assert!((result.row(i)[j] - 0.5 - sum).abs() < 1e-12, "{level:?}");
                    }
                }
                let (plain, data) = right(rows);
                let operand = RhsPanels::packed(&data, rows, columns);
                let mut result = Region::new(&mut found, depth, columns, columns + extra);
                packed.multiply_across(operand, &mut result);
                for i in 0..depth {
                    for j in 0..columns {
                        let sum: f64 = (0..rows).map(|k| left[k * depth + i] * plain[k * columns + j]).sum();
                        assert!((result.row(i)[j] - sum).abs() < 1e-12, "{level:?} across");
                    }
                }
            }
        }
    }

    #[test]
    fn a_dot_product_is_the_sum_of_products() {
        let mut random = Random::new(2);
        for length in [0, 1, 31, 32, 33, 1000] {
            let (a, b) = (random.reals::<f64>(length), random.reals::<f64>(length));
            let direct: f64 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert!((dot(&a, &b) - direct).abs() < 1e-12);
        }
    }
}
