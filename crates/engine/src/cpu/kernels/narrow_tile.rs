//! The microkernel for the few columns that fill no vector: rows are the lanes. It multiplies several left panels by one column. Each
//! sum runs over the depth in the order of [`super::microkernel`], so that the bits of a column do not depend on which of the two
//! computes it.
#![allow(unsafe_code)]

use std::ops::Range;

use super::gemm::{InitialSums, LhsPanels, Region};
use super::gemm_rhs::RhsPanels;
use super::simd_lanes::{Lanes, WIDEST};
use super::simd_level::{SimdLevel, VECTORS, simd_dispatch};
use crate::cpu::real::Real;

/// Left panels multiplied at a time, so that the additions of one need not wait for each other.
pub(crate) const PANELS: usize = 4;
/// The most columns that are computed one by one.
pub(crate) const COLUMNS: usize = 4;

/// The arguments of the microkernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NarrowTile<R> {
    pub(crate) depth: usize,
    /// Panels of as many rows as the level has. A whole vector can be read at each depth.
    pub(crate) left: [*const R; PANELS],
    /// The column: a number for every depth, `stride` apart.
    pub(crate) right: *const R,
    pub(crate) stride: usize,
    /// The limits that sums are clamped to in the end.
    pub(crate) limits: Option<[R; 2]>,
}

impl SimdLevel {
    /// How many of the last of so many columns are computed one by one: few that would fill the narrowest vector only in part, if
    /// the rows of a panel fill most of a vector, and no more.
    pub(crate) fn narrow_columns<R: Real>(self, columns: usize) -> usize {
        let (rows, width) = (self.rows::<R>(), self.width::<R>());
        let rest = columns % (VECTORS * width);
        match self.rhs_panels::<R>(rest).last() {
            Some((first, last)) if last == self.half::<R>() && rows <= width && 2 * rows > width => {
                Some(rest - first).filter(|&columns| columns <= COLUMNS).unwrap_or(0)
            }
            _ => 0,
        }
    }
}

/// The last columns of a right operand, too few to fill a vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct NarrowColumns<'a, R> {
    pub(super) right: RhsPanels<'a, R>,
    pub(super) first: usize,
    pub(super) end: usize,
}

impl<R: Real> NarrowColumns<'_, R> {
    /// Computes these columns of the result, for the rows of some left panels, from the left operand's depth `first` on.
    pub(super) fn columns(
        &self,
        (left, panels, first): (&LhsPanels<R>, Range<usize>, usize),
        depths: Range<usize>,
        (start, limits): (InitialSums<'_, R>, Option<[R; 2]>),
        result: &mut Region<'_, R>,
    ) {
        let level = left.level();
        let height = level.rows::<R>();
        let before = left.rows_of(&panels).start;
        let (right, stride) = self.right.narrow(level, self.first, &depths);
        for group in panels.clone().step_by(PANELS) {
            let rows = left.rows_of(&(group..(group + PANELS).min(panels.end)));
            let rows = rows.start - before..rows.end - before;
            // Panels that are missing are computed again and thrown away.
            let read = |at: usize| left.panel((group + at).min(panels.end - 1), first + depths.start);
            let left: [&[R]; PANELS] = std::array::from_fn(read);
            let needed = depths.len() * height + level.width::<R>() - height;
            assert!(left.iter().all(|panel| panel.len() >= needed), "left panels");
            let last =
                depths.len().checked_sub(1).map_or(0, |deepest| deepest * stride + self.end - self.first);
            assert!(right.len() >= last, "right panel");
            for column in self.first..self.end {
                let mut sums = [[R::ZERO; WIDEST]; PANELS];
                for (local, row) in rows.clone().enumerate() {
                    sums[local / height][local % height] = match start {
                        InitialSums::Zero => R::ZERO,
                        InitialSums::Held => result.row(row)[column],
                        InitialSums::Rows(values) => values[row],
                    };
                }
                let tile = NarrowTile {
                    depth: depths.len(),
                    left: left.map(<[R]>::as_ptr),
                    // Without depth there are no columns, and nothing is read.
                    right: right.get(column - self.first..).unwrap_or_default().as_ptr(),
                    stride,
                    limits,
                };
                // SAFETY: the assertions bound what is read of both operands: a vector of every left panel, a number of the
                // right one, for every depth. The level is one of this machine.
                unsafe { run_narrow_tile(level, &tile, &mut sums) };
                for (local, row) in rows.clone().enumerate() {
                    result.row(row)[column] = sums[local / height][local % height];
                }
            }
        }
    }
}

/// # Safety
/// The machine has the instructions of `L`, and the pointers of `tile` reach as far as its fields say.
#[inline(always)]
unsafe fn any<L: Lanes>(tile: &NarrowTile<L::Scalar>, sums: &mut [[L::Scalar; WIDEST]; PANELS]) {
    let (mut left, mut right) = (tile.left, tile.right);
    // SAFETY: every access is within the extents that the caller vouches for; a row of sums holds any vector.
    unsafe {
        let mut lanes: [L; PANELS] = std::array::from_fn(|panel| L::load(sums[panel].as_ptr()));
        for _ in 0..tile.depth {
            let x = L::splat(*right);
            for panel in 0..PANELS {
                lanes[panel] = L::load(left[panel]).multiply_add(x, lanes[panel]);
                left[panel] = left[panel].wrapping_add(L::ROWS);
            }
            right = right.wrapping_add(tile.stride);
        }
        for panel in 0..PANELS {
            if let Some([least, most]) = tile.limits {
                lanes[panel] = lanes[panel].limited(L::splat(least), L::splat(most));
            }
            lanes[panel].store(sums[panel].as_mut_ptr());
        }
    }
}

simd_dispatch!(run_narrow_tile<R: Real>(tile: &NarrowTile<R>, sums: &mut [[R; WIDEST]; PANELS]), any);
