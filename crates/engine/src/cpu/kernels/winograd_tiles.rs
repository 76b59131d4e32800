//! The tiles of Winograd's convolutions in planes: loading a vector of them for the transform, and storing the outputs.
#![allow(unsafe_code)]

use super::simd_lanes::{Lanes, WIDEST};
use super::winograd_transform::TileSize;
use crate::cpu::real::Real;

/// Elements of a row of a strip: those of the tiles of a vector, and those that a vector may access after them.
pub(super) const STRIP: usize = 6 * WIDEST;
/// Elements of a strip, which has as many rows as an input tile.
pub(super) const ROWS: usize = 6 * STRIP;

/// Scratch for a vector of tiles: tile `t` begins at column `t·step` of a strip. Columns that tiles read beyond their own are the
/// next ones if the tiles are neighbours, and are in a second strip otherwise.
pub(crate) struct Strips<R>(pub(super) [R; 2 * ROWS]);

impl<R: Real> Strips<R> {
    pub(crate) fn new() -> Self {
        Strips([R::ZERO; 2 * ROWS])
    }
}

/// Neighbouring tiles of one row of tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileRun {
    /// Its first tile, counted from the first of the vector.
    pub(crate) lane: usize,
    pub(crate) image: usize,
    /// Row and column of its first output element.
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) tiles: usize,
}

/// A vector of tiles, and the planes they are read from or written to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileVector<'a> {
    pub(crate) size: TileSize,
    pub(crate) segments: &'a [TileRun],
    /// Elements from the plane of an image to that of the next.
    pub(crate) image: usize,
    pub(crate) plane: [usize; 2],
    /// Padding above and to the left.
    pub(crate) pad: [usize; 2],
}

impl TileVector<'_> {
    /// Whether all are neighbours.
    pub(super) fn is_row(&self) -> bool {
        self.segments.len() == 1
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.segments.last().map_or(0, |last| last.lane + last.tiles)
    }

    /// How many elements from the first plane on are read or written at most.
    pub(crate) fn extent(&self) -> usize {
        let last = self.segments.iter().map(|segment| segment.image).max();
        last.map_or(0, |image| image * self.image + self.plane[0] * self.plane[1])
    }

    /// Loads the columns of tiles from `skipped` on, and `more` than their own, of this many rows into a strip, with zeros for
    /// padding and after the tiles.
    ///
    /// # Safety
    /// The machine has the instructions of `L`; [`TileVector::extent`] numbers can be read at `planes`; `strip` is one.
    #[inline(always)]
    pub(super) unsafe fn load_tiles<L: Lanes>(
        &self,
        planes: *const L::Scalar,
        [rows, skipped, more]: [usize; 3],
        strip: *mut L::Scalar,
    ) where
        L::Scalar: Real,
    {
        let (step, [height, width]) = (self.size.step(), self.plane);
        // SAFETY: a strip has room for the tiles of a vector and what the last store writes beyond; only rows and columns
        // that lie in the plane are read.
        unsafe {
            let zero = L::splat(L::Scalar::ZERO);
            for segment in self.segments {
                // The rows that lie in the plane, and the first column counted from the padding on.
                let first_row = self.pad[0].saturating_sub(segment.row).min(rows);
                let end_row = (height + self.pad[0]).saturating_sub(segment.row).clamp(first_row, rows);
                let column = segment.column + skipped;
                let plane = planes.add(segment.image * self.image);
                for at in (0..segment.tiles * step + more).step_by(L::WIDTH) {
                    let first = self.pad[1].saturating_sub(column + at).min(L::WIDTH);
                    let end = (width + self.pad[1]).saturating_sub(column + at).clamp(first, L::WIDTH);
                    let from = plane.wrapping_add(column + at).wrapping_sub(self.pad[1]);
                    let to = strip.add(segment.lane * step + at);
                    for row in 0..rows {
                        let line = if (first_row..end_row).contains(&row) {
                            let from = from.wrapping_add((segment.row + row - self.pad[0]) * width);
                            match end - first == L::WIDTH {
                                true => L::load(from),
                                false => L::load_within(from, first, end, zero),
                            }
                        } else {
                            zero
                        };
                        line.store(to.add(row * STRIP));
                    }
                }
            }
            for at in (self.count() * step + more..L::WIDTH * step + more).step_by(L::WIDTH) {
                (0..rows).for_each(|row| zero.store(strip.add(row * STRIP + at)));
            }
        }
    }

    /// Stores the rows of a strip of outputs, as far as they lie in the planes.
    ///
    /// # Safety
    /// The machine has the instructions of `L`; [`TileVector::extent`] numbers can be written at `planes`; `strip` is one.
    #[inline(always)]
    pub(super) unsafe fn store_tiles<L: Lanes>(&self, strip: *const L::Scalar, planes: *mut L::Scalar) {
        let (step, [height, width]) = (self.size.step(), self.plane);
        // SAFETY: only rows and columns that lie in the plane are written; a strip has room for a vector after the tiles.
        unsafe {
            for segment in self.segments {
                let (rows, length) =
                    (step.min(height - segment.row), (segment.tiles * step).min(width - segment.column));
                let plane = planes.add(segment.image * self.image + segment.row * width + segment.column);
                for at in (0..length).step_by(L::WIDTH) {
                    let count = (length - at).min(L::WIDTH);
                    for row in 0..rows {
                        let line = L::load(strip.add(row * STRIP + segment.lane * step + at));
                        let to = plane.add(row * width + at);
                        if count == L::WIDTH { line.store(to) } else { line.store_first(to, count) }
                    }
                }
            }
        }
    }
}
