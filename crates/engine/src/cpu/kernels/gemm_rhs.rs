//! The right operand (right-hand side) of a matrix product: packed into panels, or read in place.
#![allow(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

use super::gemm::{COLUMNS, DEPTH, InitialSums, LhsPanels, Matrix, Region, interleave};
use super::microkernel::{Depth, Start, Tile, run_tile};
use super::narrow_tile::NarrowColumns;
use super::scratch::{AlignedVec, CACHE_LINE};
use super::simd_lanes::{MAX_ROWS, WIDEST};
use super::simd_level::{SimdLevel, VECTORS};
use crate::cpu::real::Real;

/// Elements that a right operand with rows at arbitrary offsets must have after its last column.
pub(crate) const BEYOND: usize = VECTORS * WIDEST;
/// Elements of the largest tile of any level.
const LARGEST_TILE: usize = MAX_ROWS * VECTORS * WIDEST;

/// A right operand, packed or in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RhsPanels<'a, R> {
    data: &'a [R],
    pub(super) depth: usize,
    columns: usize,
    source: RhsElements<'a, R>,
    /// What is read next, to be prefetched during the product.
    ahead: &'a [R],
}

/// Where the elements of a right operand are.
#[derive(Clone, Copy, Debug)]
enum RhsElements<'a, R> {
    /// In its panels.
    Panels,
    /// In rows with this stride. Only the last panel is packed, if its columns do not fill it and are not narrow.
    Rows(&'a [R], usize),
    /// In rows that begin at these offsets, of which the largest is given. [`BEYOND`] elements can be read after them.
    Offsets(&'a [R], &'a [usize], usize),
}

impl<'a, R: Real> RhsPanels<'a, R> {
    /// An operand of which all panels are packed.
    pub(crate) fn packed(data: &'a [R], depth: usize, columns: usize) -> Self {
        RhsPanels { data, depth, columns, source: RhsElements::Panels, ahead: &[] }
    }

    /// An operand with rows `stride` apart, of which `last` is the last panel if its columns do not fill it.
    pub(crate) fn plain(rows: &'a [R], stride: usize, last: &'a [R], depth: usize, columns: usize) -> Self {
        RhsPanels { data: last, depth, columns, source: RhsElements::Rows(rows, stride), ahead: &[] }
    }

    /// An operand whose rows begin at these offsets of `data`, which has [`BEYOND`] elements after the last column.
    pub(crate) fn offsets(data: &'a [R], offsets: &'a [usize], columns: usize) -> Self {
        let furthest = offsets.iter().copied().max().unwrap_or(0);
        let source = RhsElements::Offsets(data, offsets, furthest);
        RhsPanels { data: &[], depth: offsets.len(), columns, source, ahead: &[] }
    }

    /// The same, to prefetch these elements during the next product with a left panel.
    pub(crate) fn prefetching(self, ahead: &'a [R]) -> Self {
        RhsPanels { ahead, ..self }
    }

    /// Some of its panels: the columns from the first of one to the first of another, or to the last.
    pub(crate) fn part(&self, columns: Range<usize>) -> Self {
        let (data, source) = match self.source {
            RhsElements::Panels => (&self.data[columns.start * self.depth..], RhsElements::Panels),
            RhsElements::Rows(rows, stride) => (self.data, RhsElements::Rows(&rows[columns.start..], stride)),
            RhsElements::Offsets(data, offsets, furthest) => {
                (self.data, RhsElements::Offsets(&data[columns.start..], offsets, furthest))
            }
        };
        RhsPanels { data, depth: self.depth, columns: columns.len(), source, ahead: &[] }
    }

    /// The columns that fill vectors, and the last few, which are computed one by one.
    pub(super) fn split_narrow(self, level: SimdLevel) -> (Self, Option<NarrowColumns<'a, R>>) {
        let columns = level.narrow_columns::<R>(self.columns);
        if columns == 0 || matches!(self.source, RhsElements::Offsets(..)) {
            return (self, None);
        }
        let first = self.columns - columns;
        (RhsPanels { columns: first, ..self }, Some(NarrowColumns { right: self, first, end: self.columns }))
    }

    /// The elements from the first of some narrow columns on, at these depths, and the distance from one depth to the next.
    pub(super) fn narrow(&self, level: SimdLevel, first: usize, depths: &Range<usize>) -> (&'a [R], usize) {
        match self.source {
            RhsElements::Rows(rows, stride) => (&rows[depths.start * stride + first..], stride),
            _ => {
                let width = level.half::<R>();
                (self.panel(first, width, depths, None).0, width)
            }
        }
    }

    /// What a tile reads of the panel of this width at column `first`, and how the depth is walked. `across` is the distance
    /// between left panels that are read across.
    fn panel(
        &self,
        first: usize,
        width: usize,
        depths: &Range<usize>,
        across: Option<usize>,
    ) -> (&'a [R], Depth<'a>) {
        let evenly = |right: usize| match across {
            None => Depth::Even { right },
            Some(panel) => Depth::Across { panel, right },
        };
        let at = match self.source {
            RhsElements::Rows(rows, stride) if first + width <= self.columns => {
                let length = depths.len().saturating_sub(1) * stride + width;
                return (&rows[depths.start * stride + first..][..length], evenly(stride));
            }
            RhsElements::Offsets(data, offsets, furthest) => {
                assert!(across.is_none(), "rows at any offsets are not multiplied across");
                return (&data[first..][..furthest + width], Depth::At(&offsets[depths.clone()]));
            }
            RhsElements::Rows(..) => 0,
            RhsElements::Panels => first * self.depth,
        };
        (&self.data[at + depths.start * width..][..depths.len() * width], evenly(width))
    }

    pub(super) fn check(&self, rows: usize, start: InitialSums<'_, R>, result: &Region<'_, R>) {
        assert_eq!((rows, self.columns), (result.rows, result.columns), "matrix sizes");
        if let InitialSums::Rows(values) = start {
            assert!(values.len() >= rows, "numbers to start from");
        }
    }

    /// Multiplies one left panel, at `depths`, by all right panels: computes the given rows of the result.
    pub(super) fn tiles(
        &self,
        level: SimdLevel,
        (left, across): (&[R], Option<usize>),
        depths: Range<usize>,
        (start, limits): (InitialSums<'_, R>, Option<[R; 2]>),
        rows: Range<usize>,
        result: &mut Region<'_, R>,
    ) {
        let height = level.rows::<R>();
        let even = rows.len().next_multiple_of(2);
        let length = match across {
            None => depths.len() * height,
            Some(panel) => {
                let last = depths.len().saturating_sub(1);
                last / height * panel + (even - 1) * height + last % height + 1
            }
        };
        assert!(even <= height && left.len() >= length, "left panel");
        let mut values = [R::ZERO; MAX_ROWS];
        if let InitialSums::Rows(all) = start {
            values[..rows.len()].copy_from_slice(&all[rows.clone()]);
        }
        let mut scratch = [R::ZERO; LARGEST_TILE];
        for (first, width) in level.rhs_panels::<R>(self.columns) {
            let columns = (self.columns - first).min(width);
            let share = |columns: usize| columns * self.ahead.len() / self.columns;
            prefetch(&self.ahead[share(first)..share(first + columns)]);
            let (right, steps) = self.panel(first, width, &depths, across);
            let whole = columns == width && even == rows.len();
            if !whole && matches!(start, InitialSums::Held) {
                for (row, scratch) in rows.clone().zip(scratch.chunks_mut(width)) {
                    scratch[..columns].copy_from_slice(&result.row(row)[first..first + columns]);
                }
            }
            let tile = Tile {
                rows: even,
                columns: width,
                depth: depths.len(),
                left: left.as_ptr(),
                right: right.as_ptr(),
                steps,
                result: match whole {
                    true => result.pointer_to(rows.clone(), first..first + columns),
                    false => scratch.as_mut_ptr(),
                },
                stride: if whole { result.stride() } else { width },
                start: match start {
                    InitialSums::Zero => Start::Zero,
                    InitialSums::Held => Start::Held,
                    InitialSums::Rows(_) => Start::Rows(values.as_ptr()),
                },
                limits,
            };
            // SAFETY: the assertion bounds what is read of `left`; `right` was sliced to hold a row for every depth. The tile is
            // a rectangle of the region, which is borrowed exclusively, or the scratch tile, which has room for the largest.
            // The level is one of this machine.
            unsafe { run_tile(level, &tile, R::ZERO) };
            if !whole {
                for (row, scratch) in rows.clone().zip(scratch.chunks(width)) {
                    result.row(row)[first..first + columns].copy_from_slice(&scratch[..columns]);
                }
            }
        }
    }
}

impl SimdLevel {
    /// The right panels of a matrix of `columns` columns: first column and width. The last is as narrow as vectors allow.
    pub(crate) fn rhs_panels<R: Real>(self, columns: usize) -> impl Iterator<Item = (usize, usize)> {
        let (width, half) = (self.width::<R>(), self.half::<R>());
        let mut at = 0;
        std::iter::from_fn(move || {
            let panel = match columns - at {
                0 => return None,
                rest if rest > width + half % width => VECTORS * width,
                rest if rest > half => width,
                _ => half,
            };
            let first = at;
            at = (at + panel).min(columns);
            Some((first, panel))
        })
    }

    /// The sum of the widths of the panels of `columns` columns.
    pub(crate) fn padded<R: Real>(self, columns: usize) -> usize {
        let whole = columns / (VECTORS * self.width::<R>()) * VECTORS * self.width::<R>();
        whole + self.rhs_panels::<R>(columns - whole).map(|(_, width)| width).sum::<usize>()
    }

    /// Writes one row of a right operand of `depth × row.len()` into its panels.
    pub(crate) fn pack_rhs_row<R: Real>(self, depth: usize, k: usize, row: &[R], panels: &mut [R]) {
        for (first, width) in self.rhs_panels::<R>(row.len()) {
            let piece = &row[first..row.len().min(first + width)];
            let target = &mut panels[first * depth + k * width..][..width];
            target[..piece.len()].copy_from_slice(piece);
            target[piece.len()..].fill(R::ZERO);
        }
    }
}

/// Prefetches elements into the second cache.
fn prefetch<R: Real>(elements: &[R]) {
    for line in elements.chunks(CACHE_LINE / size_of::<R>()) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            // SAFETY: every machine has the instruction, and it reads nothing the program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
        }
        let _ = line;
    }
}

/// Packs a right operand.
pub(super) fn pack_rhs<R: Real>(level: SimdLevel, matrix: Matrix<'_, R>, panels: &mut Vec<R>) {
    panels.resize(matrix.rows * level.padded::<R>(matrix.columns), R::ZERO);
    pack_rhs_into(level, matrix, panels);
}

/// Packs a right operand into memory of the right size.
fn pack_rhs_into<R: Real>(level: SimdLevel, matrix: Matrix<'_, R>, panels: &mut [R]) {
    let (depth, columns) = (matrix.rows, matrix.columns);
    if matrix.column_stride == 1 {
        for k in 0..depth {
            let row = &matrix.data[k * matrix.row_stride..][..columns];
            level.pack_rhs_row(depth, k, row, panels);
        }
        return;
    }
    let mut rest = panels;
    for (first, width) in level.rhs_panels::<R>(columns) {
        let panel;
        (panel, rest) = rest.split_at_mut(depth * width);
        let columns_left = width.min(columns - first);
        if columns_left < width {
            panel.fill(R::ZERO);
        }
        interleave(matrix.columns(first, columns_left).transposed(), width, panel);
    }
}

/// A right operand packed once, for many left ones.
#[derive(Debug)]
pub(crate) struct PackedRhs<R> {
    depth: usize,
    columns: usize,
    blocks: Vec<RhsBlock<R>>,
}

/// At most [`COLUMNS`] columns and [`DEPTH`] rows of a right operand.
#[derive(Debug)]
struct RhsBlock<R> {
    columns: Range<usize>,
    depths: Range<usize>,
    panels: AlignedVec<R>,
}

impl<R: Real> PackedRhs<R> {
    pub(crate) fn pack(matrix: Matrix<'_, R>) -> Self {
        matrix.check("right matrix");
        let spans = matrix.rows.div_ceil(DEPTH).max(1);
        let cut = |first: usize| (0..spans).map(move |span| (first, span));
        let blocks: Vec<(usize, usize)> = (0..matrix.columns).step_by(COLUMNS).flat_map(cut).collect();
        let pack = |(first, span): (usize, usize)| {
            let columns = first..(first + COLUMNS).min(matrix.columns);
            let depths = span * matrix.rows / spans..(span + 1) * matrix.rows / spans;
            let block = matrix.columns(first, columns.len()).rows(depths.start, depths.len());
            let level = SimdLevel::current();
            let mut panels = AlignedVec::new(depths.len() * level.padded::<R>(columns.len()));
            pack_rhs_into(level, block, &mut panels);
            RhsBlock { columns, depths, panels }
        };
        let blocks = blocks.into_par_iter().map(pack).collect();
        PackedRhs { depth: matrix.rows, columns: matrix.columns, blocks }
    }

    /// The rows of the operand: the depth of products with it.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Into how many blocks its columns are cut.
    pub(crate) fn column_blocks(&self) -> usize {
        self.columns.div_ceil(COLUMNS)
    }

    /// The columns of one of these blocks.
    pub(crate) fn columns_of(&self, block: usize) -> Range<usize> {
        block * COLUMNS..((block + 1) * COLUMNS).min(self.columns)
    }

    /// `result ← left·right` for some panels of the left operand and one block of columns, or `result ← result + left·right` if
    /// asked to accumulate. If the next block is used next, it is prefetched.
    pub(crate) fn multiply_block(
        &self,
        block: usize,
        (left, panels): (&LhsPanels<R>, Range<usize>),
        result: &mut Region<'_, R>,
        accumulate: bool,
        next_follows: bool,
    ) {
        let spans = self.blocks.len() / self.column_blocks().max(1);
        let rows = left.rows_of(&panels);
        for index in block * spans..(block + 1) * spans {
            let block = &self.blocks[index];
            let held = accumulate || block.depths.start > 0;
            let start = if held { InitialSums::Held } else { InitialSums::Zero };
            let right = RhsPanels::packed(&block.panels, block.depths.len(), block.columns.len());
            // The next block is on its way from memory while this one is used.
            let next: &[R] = match self.blocks.get(index + 1) {
                Some(next) if next_follows => &next.panels,
                _ => &[],
            };
            for (at, panel) in panels.clone().enumerate() {
                let ahead = at * next.len() / panels.len()..(at + 1) * next.len() / panels.len();
                let own = left.rows_of(&(panel..panel + 1));
                let own = own.start - rows.start..own.end - rows.start;
                let mut result = result.part_mut(own, 0..block.columns.len());
                let right = right.prefetching(&next[ahead]);
                left.multiply(panel..panel + 1, block.depths.start, right, start, &mut result);
            }
        }
    }

    /// `result ← left·right`, or `result ← result + left·right` if asked to accumulate; the same bits as
    /// [`multiply`](super::gemm::multiply).
    pub(crate) fn multiply(&self, left: Matrix<'_, R>, result: &mut Region<'_, R>, accumulate: bool) {
        self.multiply_packed(&LhsPanels::pack(SimdLevel::current(), left), result, accumulate);
    }

    /// The same for a left operand that is packed.
    pub(crate) fn multiply_packed(&self, left: &LhsPanels<R>, result: &mut Region<'_, R>, accumulate: bool) {
        assert_eq!(
            (left.rows, left.depth, self.columns),
            (result.rows, self.depth, result.columns),
            "matrix sizes"
        );
        for block in 0..self.column_blocks() {
            let mut part = result.part_mut(0..left.rows, self.columns_of(block));
            self.multiply_block(block, (left, 0..left.panels()), &mut part, accumulate, false);
        }
    }
}
