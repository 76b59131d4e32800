//! The microkernel of a matrix product: a tile of sums that stays in registers while the depth is summed.
//!
//! Operands are packed, except a right one that is read in place. The left one is cut into panels of
//! [`super::simd_level::SimdLevel::rows`] rows, the last filled up with zeros, each stored depth by depth; the right one into panels
//! of [`VECTORS`] vectors of columns, each stored depth by depth. The last right panel is as narrow as whole vectors, or half of one, allow.
#![allow(unsafe_code)]

use super::simd_lanes::{Lanes, MAX_ROWS};
use super::simd_level::{VECTORS, Vectors, simd_dispatch};

/// How many elements ahead the left operand is prefetched.
const AHEAD: usize = 256;

/// The initial values of the sums of a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<R> {
    /// Zero.
    Zero,
    /// The contents of the result.
    Held,
    /// One value per row.
    Rows(*const R),
}

/// How the depth of a product is walked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Depth<'a> {
    /// The left panel in order; rows of the right operand lie `right` apart.
    Even { right: usize },
    /// The left panel in order; the rows of the right operand begin at these distances from its start, one for every depth.
    At(&'a [usize]),
    /// The rows of left panels, which lie `panel` apart, are the depth; rows of the right operand lie `right` apart.
    Across { panel: usize, right: usize },
}

/// The arguments of the microkernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile<'a, R> {
    /// Even, and no more than a panel has.
    pub(crate) rows: usize,
    /// Up to [`VECTORS`] whole vectors, or half of one.
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    /// `depth` times the rows of a panel.
    pub(crate) left: *const R,
    /// A row of `columns` numbers for every depth.
    pub(crate) right: *const R,
    pub(crate) steps: Depth<'a>,
    /// `rows` times `columns` numbers, `stride` apart.
    pub(crate) result: *mut R,
    pub(crate) stride: usize,
    pub(crate) start: Start<R>,
    /// The limits that sums are clamped to in the end.
    pub(crate) limits: Option<[R; 2]>,
}

/// Adds one depth to the sums: `factor(row)` times the vectors at `right`.
///
/// # Safety
/// The machine has the instructions of `L`, and `WIDE` vectors can be read at `right`.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn add_depth<L: Lanes, const ROWS: usize, const WIDE: usize>(
    mut sums: [[L; WIDE]; ROWS],
    right: *const L::Scalar,
    factor: impl Fn(usize) -> L::Scalar,
) -> [[L; WIDE]; ROWS] {
    // SAFETY: vouched for by the caller.
    unsafe {
        let columns: [L; WIDE] = std::array::from_fn(|vector| L::load(right.add(vector * L::WIDTH)));
        for row in 0..ROWS {
            let factor = L::splat(factor(row));
            for vector in 0..WIDE {
                sums[row][vector] = factor.multiply_add(columns[vector], sums[row][vector]);
            }
        }
    }
    sums
}

/// Computes a tile of known size from left panels of `height` rows.
///
/// # Safety
/// The machine has the instructions of `L`, the pointers of `tile` reach as far as its fields say, and
/// `tile` has `ROWS` rows of `WIDE` vectors.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn sized<L: Lanes, const ROWS: usize, const WIDE: usize>(
    tile: &Tile<'_, L::Scalar>,
    height: usize,
    zero: L::Scalar,
) {
    let (mut left, mut right) = (tile.left, tile.right);
    // Plain indices, because a sum that an iterator borrows is kept in memory as well.
    // SAFETY: every access is within the extents that the caller vouches for.
    unsafe {
        let mut sums = [[L::splat(zero); WIDE]; ROWS];
        for row in 0..ROWS {
            let result = tile.result.add(row * tile.stride);
            match tile.start {
                Start::Held => {
                    sums[row] = std::array::from_fn(|vector| L::load(result.add(vector * L::WIDTH)))
                }
                Start::Rows(values) => sums[row] = [L::splat(*values.add(row)); WIDE],
                Start::Zero => {}
            }
            // The result is written at the end, and should be in cache by then.
            L::prefetch(result);
            L::prefetch(result.wrapping_add(WIDE * L::WIDTH - 1));
        }
        match tile.steps {
            Depth::Even { right: apart } => {
                for _ in 0..tile.depth {
                    // Packed weights are read from memory in order, ahead of the hardware prefetcher.
                    L::prefetch(left.wrapping_add(AHEAD));
                    sums = add_depth(sums, right, |row| *left.add(row));
                    left = left.add(height);
                    right = right.wrapping_add(apart);
                }
            }
            Depth::At(distances) => {
                for &distance in distances {
                    L::prefetch(left.wrapping_add(AHEAD));
                    sums = add_depth(sums, right.add(distance), |row| *left.add(row));
                    left = left.add(height);
                }
            }
            Depth::Across { panel, right: apart } => {
                let mut remaining = tile.depth;
                while remaining > 0 {
                    let count = remaining.min(height);
                    let next = left.wrapping_add(panel);
                    for k in 0..count {
                        L::prefetch(next.wrapping_add(k * height));
                        sums = add_depth(sums, right, |row| *left.add(row * height + k));
                        right = right.wrapping_add(apart);
                    }
                    left = next;
                    remaining -= count;
                }
            }
        }
        if let Some([least, most]) = tile.limits {
            let (least, most) = (L::splat(least), L::splat(most));
            for row in 0..ROWS {
                for vector in 0..WIDE {
                    sums[row][vector] = sums[row][vector].limited(least, most);
                }
            }
        }
        for row in 0..ROWS {
            for vector in 0..WIDE {
                sums[row][vector].store(tile.result.add(row * tile.stride + vector * L::WIDTH));
            }
        }
    }
}

/// The largest of some heights, which are checked to be 2, 4, 6 and so on.
const fn highest(heights: &[usize]) -> usize {
    let mut index = 0;
    while index < heights.len() {
        assert!(heights[index] == 2 * (index + 1), "heights are even and increase by two");
        index += 1;
    }
    2 * heights.len()
}

/// Computes a tile.
///
/// # Safety
/// The machine has the instructions of `L`, and the pointers of `tile` reach as far as its fields say.
#[inline(always)]
unsafe fn any<L: Lanes>(tile: &Tile<'_, L::Scalar>, zero: L::Scalar) {
    let (whole, wide, half) = (L::WIDTH, VECTORS * L::WIDTH, L::Half::WIDTH);
    macro_rules! of_height {
        ($($rows:literal)*) => {
            const _: () = assert!(highest(&[$($rows),*]) == MAX_ROWS, "a height of tiles has no branch");
            // SAFETY: the branches match the size.
            match tile.rows {
                $($rows if $rows <= L::ROWS => unsafe {
                    if tile.columns == wide {
                        sized::<L, $rows, VECTORS>(tile, L::ROWS, zero);
                    } else if tile.columns == whole {
                        sized::<L, $rows, 1>(tile, L::ROWS, zero);
                    } else if tile.columns == half {
                        sized::<L::Half, $rows, 1>(tile, L::ROWS, zero);
                    } else {
                        unreachable!("a tile of {} columns", tile.columns);
                    }
                },)*
                rows => unreachable!("a tile of {rows} rows"),
            }
        };
    }
    of_height!(2 4 6 8 10 12 14);
}

simd_dispatch!(run_tile<R: Vectors>(tile: &Tile<'_, R>, zero: R), any);
