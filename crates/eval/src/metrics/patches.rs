//! Square patches of an image, ordered by the sum of a map in each.

use std::collections::HashMap;

use super::feature_removal::Parts;
use super::order::{Ties, descending};
use crate::case_arrays::{CaseArrays, MeasureError, undefined};

/// Where patches lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiling {
    /// On a grid that covers the image, its overhang the same on both sides (one less before than after where that is
    /// odd): Quantus 0.6.
    Grid,
    /// Anywhere, chosen greedily from the most important on so that none overlaps one before; they may reach over the lower
    /// and the right border: Quantus 0.5.
    Greedy,
}

/// In which order patches are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The most important one first.
    MostFirst,
    /// The least important one first.
    LeastFirst,
}

/// A square by its upper left corner, which may lie outside the image, and the sum of the map in it.
#[derive(Clone, Copy)]
struct Patch {
    top: isize,
    left: isize,
    sum: f64,
}

/// The patches of an image in the order they are removed, at most `most` of them; undefined if none fits.
pub(crate) fn ordered(
    arrays: &CaseArrays<'_>,
    map: &[f64],
    size: usize,
    tiling: Tiling,
    order: Order,
    most: usize,
) -> Result<Parts, MeasureError> {
    if size > arrays.height.min(arrays.width) {
        let [height, width] = [arrays.height, arrays.width];
        return Err(undefined(format!("a patch of {size} pixels does not fit an image of {width}×{height}")));
    }
    let sums = Sums::of(map, arrays.height, arrays.width);
    let patches = match tiling {
        Tiling::Grid => grid(&sums, size),
        Tiling::Greedy => everywhere(&sums, size),
    };
    let keys: Vec<f64> = patches.iter().map(|patch| patch.sum).collect();
    let places = match (tiling, order) {
        (Tiling::Grid, Order::MostFirst) => descending(&keys, Ties::EarlierFirst),
        (Tiling::Greedy, Order::MostFirst) => descending(&keys, Ties::LaterFirst),
        (_, Order::LeastFirst) => {
            let mut places = descending(&keys, Ties::LaterFirst);
            places.reverse();
            places
        }
    };
    let chosen: Vec<Patch> = match tiling {
        Tiling::Grid => places.iter().take(most).map(|&place| patches[place]).collect(),
        Tiling::Greedy => apart(places.iter().map(|&place| patches[place]), size, most),
    };
    Ok(Parts::of_pixels(chosen.iter().map(|patch| sums.pixels(patch.top, patch.left, size))))
}

fn grid(sums: &Sums, size: usize) -> Vec<Patch> {
    let starts = |length: usize| {
        let count = length.div_ceil(size);
        let before = (count * size - length) / 2;
        (0..count).map(move |index| (index * size) as isize - before as isize)
    };
    starts(sums.height)
        .flat_map(|top| starts(sums.width).map(move |left| (top, left)))
        .map(|(top, left)| Patch { top, left, sum: sums.within(top, left, size) })
        .collect()
}

fn everywhere(sums: &Sums, size: usize) -> Vec<Patch> {
    let corners = (0..sums.height).flat_map(|top| (0..sums.width).map(move |left| (top, left)));
    corners
        .map(|(top, left)| (top as isize, left as isize))
        .map(|(top, left)| Patch { top, left, sum: sums.within(top, left, size) })
        .collect()
}

/// The patches that do not overlap an earlier one.
fn apart(patches: impl Iterator<Item = Patch>, size: usize, most: usize) -> Vec<Patch> {
    let cell = |patch: &Patch| (patch.top / size as isize, patch.left / size as isize);
    let mut by_cell: HashMap<(isize, isize), (isize, isize)> = HashMap::new();
    let mut chosen = Vec::new();
    for patch in patches {
        if chosen.len() >= most {
            break;
        }
        let (row, column) = cell(&patch);
        // Two patches in one cell overlap, so each cell holds one corner at most.
        if by_cell.contains_key(&(row, column)) {
            continue;
        }
        let near = (row - 1..=row + 1).flat_map(|r| (column - 1..=column + 1).map(move |c| (r, c)));
        let overlaps = |corner: &(isize, isize)| {
            (corner.0 - patch.top).unsigned_abs() < size && (corner.1 - patch.left).unsigned_abs() < size
        };
        if !near.filter_map(|place| by_cell.get(&place)).any(overlaps) {
            by_cell.insert((row, column), (patch.top, patch.left));
            chosen.push(patch);
        }
    }
    chosen
}

/// Sums of a map over rectangles, by a summed-area table.
struct Sums {
    height: usize,
    width: usize,
    table: Vec<f64>,
}

impl Sums {
    fn of(map: &[f64], height: usize, width: usize) -> Self {
        let mut table = vec![0.0; (height + 1) * (width + 1)];
        for y in 0..height {
            let mut row = 0.0;
            for x in 0..width {
                row += map[y * width + x];
                table[(y + 1) * (width + 1) + x + 1] = table[y * (width + 1) + x + 1] + row;
            }
        }
        Sums { height, width, table }
    }

    /// The part of a square inside the image: first and last row, first and last column.
    fn clipped(&self, top: isize, left: isize, size: usize) -> [usize; 4] {
        let clip = |start: isize, length: usize| {
            let end = start.saturating_add_unsigned(size).clamp(0, length as isize);
            [start.clamp(0, length as isize) as usize, end as usize]
        };
        let ([top, bottom], [left, right]) = (clip(top, self.height), clip(left, self.width));
        [top, bottom, left, right]
    }

    fn within(&self, top: isize, left: isize, size: usize) -> f64 {
        let [top, bottom, left, right] = self.clipped(top, left, size);
        let at = |y: usize, x: usize| self.table[y * (self.width + 1) + x];
        at(bottom, right) - at(top, right) - at(bottom, left) + at(top, left)
    }

    fn pixels(&self, top: isize, left: isize, size: usize) -> Vec<usize> {
        let [top, bottom, left, right] = self.clipped(top, left, size);
        (top..bottom).flat_map(|y| (left..right).map(move |x| y * self.width + x)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_covers_every_pixel_once() {
        for (height, width, size) in [(8, 8, 3), (7, 5, 4), (1, 1, 8), (6, 6, 2)] {
            let map: Vec<f64> = (0..height * width).map(|i| i as f64).collect();
            let sums = Sums::of(&map, height, width);
            let patches = grid(&sums, size);
            let mut pixels: Vec<usize> =
                patches.iter().flat_map(|patch| sums.pixels(patch.top, patch.left, size)).collect();
            pixels.sort_unstable();
            assert_eq!(pixels, (0..height * width).collect::<Vec<_>>());
            let total: f64 = patches.iter().map(|patch| patch.sum).sum();
            assert!((total - map.iter().sum::<f64>()).abs() < 1e-9);
        }
    }

    #[test]
    fn chosen_patches_do_not_overlap_and_leave_no_room_for_another() {
        let (height, width, size) = (23, 17, 4);
        let map: Vec<f64> = (0..height * width).map(|i| ((i * 7919) % 251) as f64).collect();
        let sums = Sums::of(&map, height, width);
        let all = everywhere(&sums, size);
        let chosen = apart(all.iter().copied(), size, usize::MAX);
        let overlap = |a: &Patch, b: &Patch| a.top.abs_diff(b.top) < size && a.left.abs_diff(b.left) < size;
        for (i, patch) in chosen.iter().enumerate() {
            assert!(chosen[..i].iter().all(|before| !overlap(before, patch)));
        }
        assert!(all.iter().all(|patch| chosen.iter().any(|taken| overlap(patch, taken))));
    }
}
