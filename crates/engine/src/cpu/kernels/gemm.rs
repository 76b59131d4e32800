//! Products of dense matrices on packed panels, see [`super::tile`]. Single-threaded on purpose: who calls it
//! decides what runs in parallel. A sum runs over the depth in an order that depends on the sizes alone.
#![allow(unsafe_code)]

use std::ops::Range;

use super::level::{Level, VECTORS};
use super::tile::{Start, Tile, row_panels, run_tile};
use crate::cpu::real::Real;

/// Depth walked before a panel is changed, so that a left panel stays in the first cache.
pub(crate) const DEPTH: usize = 256;
/// Columns of a right operand packed at a time, so that they stay in the second cache.
pub(crate) const COLUMNS: usize = 256;
/// Numbers in the largest tile of any level.
const LARGEST_TILE: usize = 14 * VECTORS * 16;

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
    fn check(&self, name: &str) {
        let last = self.rows.saturating_sub(1) * self.row_stride
            + self.columns.saturating_sub(1) * self.column_stride;
        assert!(self.rows == 0 || self.columns == 0 || last < self.data.len(), "{name}");
    }

    #[inline]
    fn at(&self, row: usize, column: usize) -> R
    where
        R: Copy,
    {
        self.data[row * self.row_stride + column * self.column_stride]
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

/// A rectangle of memory that a task writes, row by row.
#[derive(Debug)]
pub(crate) struct Region<R> {
    at: *mut R,
    stride: usize,
    rows: usize,
    columns: usize,
}

// SAFETY: a region is an exclusive borrow in disguise: whoever makes one promises that its elements are touched
// through no other.
unsafe impl<R: Send> Send for Region<R> {}
// SAFETY: sharing a region gives access to nothing but its sizes, except through `part`, which is unsafe.
unsafe impl<R: Sync> Sync for Region<R> {}

impl<R> Region<R> {
    /// All of `data`, in rows of `columns` that begin `stride` apart.
    pub(crate) fn new(data: &mut [R], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(rows == 0 || columns == 0 || (rows - 1) * stride + columns <= data.len(), "result matrix");
        assert!(rows <= 1 || stride >= columns, "rows of the result overlap");
        Region { at: data.as_mut_ptr(), stride, rows, columns }
    }

    /// A rectangle of it.
    ///
    /// # Safety
    /// As long as the part lives, nothing else touches its elements: parts in use at a time are disjoint, and
    /// the slice behind the region stays borrowed.
    pub(crate) unsafe fn part(&self, rows: Range<usize>, columns: Range<usize>) -> Region<R> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows of a part");
        assert!(columns.start <= columns.end && columns.end <= self.columns, "columns of a part");
        // SAFETY: the start of a part that is not empty lies within the region.
        let at = match rows.is_empty() || columns.is_empty() {
            true => self.at,
            false => unsafe { self.at.add(rows.start * self.stride + columns.start) },
        };
        Region { at, stride: self.stride, rows: rows.len(), columns: columns.len() }
    }

    /// Distance between the beginnings of rows.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn row(&mut self, row: usize) -> &mut [R] {
        assert!(row < self.rows, "row of a region");
        // SAFETY: the row lies within the region, which is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(row * self.stride), self.columns) }
    }
}

/// A left operand, packed.
#[derive(Debug)]
pub(crate) struct LeftPanels<R> {
    level: Level,
    rows: usize,
    depth: usize,
    data: Vec<R>,
}

impl<R: Real> LeftPanels<R> {
    pub(crate) fn pack(level: Level, matrix: Matrix<'_, R>) -> Self {
        matrix.check("left matrix");
        let (rows, depth) = (matrix.rows, matrix.columns);
        let mut data = Vec::with_capacity(rows * depth);
        for panel in row_panels(rows, level.rows::<R>()) {
            for k in 0..depth {
                data.extend(panel.clone().map(|row| matrix.at(row, k)));
            }
        }
        LeftPanels { level, rows, depth, data }
    }

    /// A left operand of which the panels are given, as [`row_panels`] cuts them.
    pub(crate) fn packed(level: Level, rows: usize, depth: usize, data: Vec<R>) -> Self {
        assert_eq!(data.len(), rows * depth, "left panels");
        LeftPanels { level, rows, depth, data }
    }

    /// Number of panels.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(self.level.rows::<R>())
    }

    /// The rows that a range of panels covers.
    pub(crate) fn rows_of(&self, panels: &Range<usize>) -> Range<usize> {
        let count = self.panels().max(1);
        panels.start * self.rows / count..panels.end * self.rows / count
    }

    /// `result ← start + left·right` for the rows of `panels`, the depth of `right` beginning at `first`.
    pub(crate) fn multiply(
        &self,
        panels: Range<usize>,
        first: usize,
        right: RightPanels<'_, R>,
        start: Beginning<'_, R>,
        result: &mut Region<R>,
    ) {
        let rows = self.rows_of(&panels);
        assert_eq!((rows.len(), right.columns), (result.rows, result.columns), "matrix sizes");
        assert!(first + right.depth <= self.depth, "depth of the product");
        assert!(right.data.len() >= right.depth * self.level.padded::<R>(right.columns), "right panels");
        if let Beginning::Rows(values) = start {
            assert!(values.len() >= rows.len(), "numbers to start from");
        }
        let spans = right.depth.div_ceil(DEPTH).max(1);
        for span in 0..spans {
            let depths = span * right.depth / spans..(span + 1) * right.depth / spans;
            for panel in panels.clone() {
                let panel = self.rows_of(&(panel..panel + 1));
                let at = panel.start * self.depth + (first + depths.start) * panel.len();
                let local = panel.start - rows.start..panel.end - rows.start;
                let start = match start {
                    _ if span > 0 => Start::Held,
                    Beginning::Zero => Start::Zero,
                    Beginning::Held => Start::Held,
                    Beginning::Rows(values) => Start::Rows(values[local.start..].as_ptr()),
                };
                let left = &self.data[at..at + depths.len() * panel.len()];
                // SAFETY: the rows of a panel are part of `result`, which this function has to itself.
                let mut result = unsafe { result.part(local, 0..right.columns) };
                right.tiles(self.level, left, depths.clone(), start, &mut result);
            }
        }
    }
}

/// What the sums of a product begin with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beginning<'a, R> {
    /// Zero.
    Zero,
    /// What the result holds.
    Held,
    /// One number per row.
    Rows(&'a [R]),
}

/// A right operand, packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RightPanels<'a, R> {
    pub(crate) data: &'a [R],
    pub(crate) depth: usize,
    pub(crate) columns: usize,
}

impl<R: Real> RightPanels<'_, R> {
    /// One left panel, the part of it at `depths`, times all right panels.
    fn tiles(&self, level: Level, left: &[R], depths: Range<usize>, start: Start<R>, result: &mut Region<R>) {
        let width = level.width::<R>();
        for first in (0..self.columns).step_by(VECTORS * width) {
            let columns = (self.columns - first).min(VECTORS * width);
            let vectors = columns.div_ceil(width);
            let mut scratch = [R::ZERO; LARGEST_TILE];
            let whole = columns == vectors * width;
            let right = &self.data[first * self.depth + depths.start * vectors * width..];
            assert!(right.len() >= depths.len() * vectors * width, "right panel");
            let mut tile = Tile {
                rows: result.rows,
                vectors,
                depth: depths.len(),
                left: left.as_ptr(),
                right: right.as_ptr(),
                // SAFETY: `first` is a column of the result.
                result: unsafe { result.at.add(first) },
                stride: result.stride,
                start,
            };
            if !whole {
                if matches!(start, Start::Held) {
                    for row in 0..result.rows {
                        let held = &result.row(row)[first..];
                        scratch[row * vectors * width..][..columns].copy_from_slice(&held[..columns]);
                    }
                }
                tile.result = scratch.as_mut_ptr();
                tile.stride = vectors * width;
            }
            // SAFETY: `left` holds `depth` times `rows` numbers and `right` as many vectors, by slicing and by
            // the assertion; the tile of the result lies in the region, or in the scratch tile, which holds
            // the largest there is. The level is one of this machine.
            unsafe { run_tile(level, &tile, R::ZERO) };
            if !whole {
                for row in 0..result.rows {
                    let computed = &scratch[row * vectors * width..][..columns];
                    result.row(row)[first..first + columns].copy_from_slice(computed);
                }
            }
        }
    }
}

impl Level {
    /// `columns`, filled up to whole vectors.
    pub(crate) fn padded<R: Real>(self, columns: usize) -> usize {
        columns.next_multiple_of(self.width::<R>())
    }

    /// The place of row `k` of the right panel that begins at column `first`: offset and length.
    pub(crate) fn right_row<R: Real>(
        self,
        (depth, columns): (usize, usize),
        k: usize,
        first: usize,
    ) -> (usize, usize) {
        let width = (self.padded::<R>(columns) - first).min(VECTORS * self.width::<R>());
        (first * depth + k * width, width)
    }

    /// Writes one row of a right operand of `depth × row.len()` into its panels.
    pub(crate) fn pack_right_row<R: Real>(self, depth: usize, k: usize, row: &[R], panels: &mut [R]) {
        for (index, piece) in row.chunks(VECTORS * self.width::<R>()).enumerate() {
            let first = index * VECTORS * self.width::<R>();
            let (at, width) = self.right_row::<R>((depth, row.len()), k, first);
            let target = &mut panels[at..at + width];
            target[..piece.len()].copy_from_slice(piece);
            target[piece.len()..].fill(R::ZERO);
        }
    }
}

/// Packs a right operand.
fn pack_right<R: Real>(level: Level, matrix: Matrix<'_, R>, panels: &mut Vec<R>, row: &mut Vec<R>) {
    let (depth, columns) = (matrix.rows, matrix.columns);
    panels.resize(depth * level.padded::<R>(columns), R::ZERO);
    for k in 0..depth {
        if matrix.column_stride == 1 {
            let row = &matrix.data[k * matrix.row_stride..][..columns];
            level.pack_right_row(depth, k, row, panels);
        } else {
            row.clear();
            row.extend((0..columns).map(|column| matrix.at(k, column)));
            level.pack_right_row(depth, k, row, panels);
        }
    }
}

/// `result ← left·right`, or `result ← result + left·right` if asked to accumulate.
pub(crate) fn multiply<R: Real>(
    left: Matrix<'_, R>,
    right: Matrix<'_, R>,
    result: &mut Region<R>,
    accumulate: bool,
) {
    assert_eq!(
        (left.rows, left.columns, right.columns),
        (result.rows, right.rows, result.columns),
        "matrix sizes"
    );
    right.check("right matrix");
    let level = Level::best();
    let (mut panels, mut row) = (Vec::new(), Vec::new());
    let left = LeftPanels::pack(level, left);
    let beginning = if accumulate { Beginning::Held } else { Beginning::Zero };
    let spans = right.rows.div_ceil(DEPTH).max(1);
    for first in (0..right.columns).step_by(COLUMNS) {
        let columns = (right.columns - first).min(COLUMNS);
        // SAFETY: the result is borrowed exclusively, and one part of it is used at a time.
        let mut part = unsafe { result.part(0..result.rows, first..first + columns) };
        for span in 0..spans {
            let depths = span * right.rows / spans..(span + 1) * right.rows / spans;
            let block = right.columns(first, columns).rows(depths.start, depths.len());
            pack_right(level, block, &mut panels, &mut row);
            let packed = RightPanels { data: &panels, depth: depths.len(), columns };
            let start = if span == 0 { beginning } else { Beginning::Held };
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
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
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
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (17, 300, 9), (8, 1, 33), (2, 0, 3)] {
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
    fn a_dot_product_is_the_sum_of_products() {
        let mut random = Random::new(2);
        for length in [0, 1, 31, 32, 33, 1000] {
            let (a, b) = (random.reals::<f64>(length), random.reals::<f64>(length));
            let direct: f64 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert!((dot(&a, &b) - direct).abs() < 1e-12);
        }
    }
}
