//! The micro-kernel of a matrix product: a tile of sums that stays in registers while the depth is walked.
//!
//! Operands come packed. The left one is cut into panels of at most [`super::level::Level::rows`] rows, evenly high, each
//! stored depth by depth; the right one into panels of [`VECTORS`] vectors of columns, the last one of as many
//! as it needs, filled up with zeros, each stored depth by depth.
#![allow(unsafe_code)]

use std::ops::Range;

use super::lanes::Lanes;
use super::level::{VECTORS, Vectors, compiled};

/// The rows of every left panel of a matrix of `rows` rows.
pub(crate) fn row_panels(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let count = rows.div_ceil(most);
    (0..count).map(move |panel| panel * rows / count..(panel + 1) * rows / count)
}

/// How far ahead the left operand is fetched.
const AHEAD: usize = 256;

/// Where the sums of a tile begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<R> {
    /// At zero.
    Zero,
    /// At what the result holds.
    Held,
    /// At one number per row.
    Rows(*const R),
}

/// A tile of a matrix product, as a micro-kernel sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile<R> {
    pub(crate) rows: usize,
    /// Vectors side by side, at most [`VECTORS`].
    pub(crate) vectors: usize,
    pub(crate) depth: usize,
    /// `depth` times `rows` numbers.
    pub(crate) left: *const R,
    /// `depth` times `vectors` vectors.
    pub(crate) right: *const R,
    /// `rows` times `vectors` vectors, `stride` numbers apart.
    pub(crate) result: *mut R,
    pub(crate) stride: usize,
    pub(crate) start: Start<R>,
}

/// Computes a tile of known size.
///
/// # Safety
/// The machine has the instructions of `L`, the pointers of `tile` reach as far as its fields say, and
/// `tile` has `ROWS` rows of `WIDE` vectors.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn sized<L: Lanes, const ROWS: usize, const WIDE: usize>(tile: &Tile<L::Scalar>, zero: L::Scalar) {
    let (mut left, mut right) = (tile.left, tile.right);
    // Plain indices: a sum that is borrowed, as by an iterator, is kept in memory as well.
    // SAFETY: every access is within the extents that the caller vouches for.
    unsafe {
        let mut sums = [[L::splat(zero); WIDE]; ROWS];
        match tile.start {
            Start::Zero => {}
            Start::Held => {
                for row in 0..ROWS {
                    for vector in 0..WIDE {
                        sums[row][vector] = L::load(tile.result.add(row * tile.stride + vector * L::WIDTH));
                    }
                }
            }
            Start::Rows(values) => {
                for row in 0..ROWS {
                    sums[row] = [L::splat(*values.add(row)); WIDE];
                }
            }
        }
        for _ in 0..tile.depth {
            // Kernels come from memory, in order, and nobody else asks for them ahead.
            L::prefetch(left.wrapping_add(AHEAD));
            let mut columns = [L::splat(zero); WIDE];
            for vector in 0..WIDE {
                columns[vector] = L::load(right.add(vector * L::WIDTH));
            }
            for row in 0..ROWS {
                let factor = L::splat(*left.add(row));
                for vector in 0..WIDE {
                    sums[row][vector] = factor.multiply_add(columns[vector], sums[row][vector]);
                }
            }
            left = left.add(ROWS);
            right = right.add(WIDE * L::WIDTH);
        }
        for row in 0..ROWS {
            for vector in 0..WIDE {
                sums[row][vector].store(tile.result.add(row * tile.stride + vector * L::WIDTH));
            }
        }
    }
}

/// Computes a tile.
///
/// # Safety
/// The machine has the instructions of `L`, and the pointers of `tile` reach as far as its fields say.
#[inline(always)]
unsafe fn any<L: Lanes>(tile: &Tile<L::Scalar>, zero: L::Scalar) {
    macro_rules! of_height {
        ($($rows:literal)*) => {
            match (tile.rows, tile.vectors) {
                // SAFETY: the arms match the size.
                $(
                    ($rows, 1) if $rows <= L::ROWS => unsafe { sized::<L, $rows, 1>(tile, zero) },
                    ($rows, VECTORS) if $rows <= L::ROWS => unsafe { sized::<L, $rows, VECTORS>(tile, zero) },
                )*
                _ => {}
            }
        };
    }
    of_height!(1 2 3 4 5 6 7 8 9 10 11 12 13 14);
}

compiled!(run_tile<R: Vectors>(tile: &Tile<R>, zero: R), any);
