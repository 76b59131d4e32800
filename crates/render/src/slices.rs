//! A map with three axes as a strip of slices: volumes from front to back, videos frame by frame.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::grid::{Grid, GridCell, GridRow};
use crate::overlay::OverlayOptions;
use crate::scalar_field::ScalarField;
use crate::scale::Scale;

/// The largest number of slices that are shown; of more, as many are chosen at equal steps.
const MOST: usize = 12;
/// The number of slices in a row.
const ROW: usize = 6;

/// The slices of a map over those of what it explains, all on one scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Slices {
    /// The title of the page.
    pub title: String,
    /// The slices of what is explained.
    pub pictures: Vec<Picture>,
    /// The slices of the map, perhaps fewer.
    pub maps: Vec<ScalarField>,
}

impl Slices {
    /// Lays the slices out.
    pub fn into_grid(self, options: &OverlayOptions) -> Result<Grid> {
        let (Some(first), depth) = (self.maps.first(), self.pictures.len()) else {
            return Err(Error::argument("a strip of slices needs at least one slice"));
        };
        let (width, height) = (first.width(), first.height());
        if depth == 0 || self.maps.iter().any(|map| (map.width(), map.height()) != (width, height)) {
            return Err(Error::argument("the slices of a map have one size, and each a picture under it"));
        }
        let all = self.maps.iter().flat_map(|map| map.values()).copied().collect();
        let scale =
            Scale::new(&ScalarField::new(width, height * self.maps.len(), all)?, options.heatmap.clip)?;
        let mut cells = Vec::new();
        for slice in chosen(depth) {
            // Each slice lies in the middle of its part of the map's axis.
            let of_map = (2 * slice + 1) * self.maps.len() / (2 * depth);
            let cell = GridCell::overlay_scaled(&self.pictures[slice], &self.maps[of_map], &scale, options)?;
            cells.push(Some(cell.labelled(format!("slice {slice}"))));
        }
        let wide = cells.len().min(ROW);
        let rows = cells.chunks(ROW).map(|cells| {
            let mut cells = cells.to_vec();
            cells.resize(wide, None);
            GridRow { cells, ..GridRow::default() }
        });
        // As many slices as fit are looked at together: small ones need not fill the page.
        Ok(Grid { title: self.title, rows: rows.collect(), least_side: 96, ..Grid::default() })
    }
}

/// The slices that are shown, first and last among them.
fn chosen(depth: usize) -> Vec<usize> {
    match depth {
        0..=MOST => (0..depth).collect(),
        _ => (0..MOST).map(|i| (i * (depth - 1) + (MOST - 1) / 2) / (MOST - 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(depth: usize, of_map: usize) -> Slices {
        let pictures = vec![Picture::new(4, 4, vec![128; 48]).unwrap(); depth];
        let map = |i: usize| ScalarField::new(2, 2, vec![i as f32, -1.0, 0.0, 0.5]).unwrap();
        Slices { title: "map".into(), pictures, maps: (0..of_map).map(map).collect() }
    }

    #[test]
    fn slices_share_one_scale_and_lie_over_their_part_of_the_map() {
        let grid = slices(8, 4).into_grid(&OverlayOptions::default()).unwrap();
        assert_eq!(grid.rows.iter().map(|row| row.cells.len()).collect::<Vec<_>>(), [6, 6]);
        let cells: Vec<&GridCell> = grid.rows.iter().flat_map(|row| row.cells.iter().flatten()).collect();
        assert_eq!(cells.len(), 8);
        let scale = cells[0].scale.as_ref().unwrap();
        assert_eq!(scale.ends(), (-3.0, 3.0));
        assert!(cells.iter().all(|cell| cell.scale.as_ref() == Some(scale)));
        // Two slices for each of the map, the last with the largest number.
        assert!(cells.chunks(2).all(|pair| pair[0].picture == pair[1].picture));
        assert_ne!(cells[0].picture, cells[7].picture);
        assert!(grid.into_scene().unwrap().to_picture().is_ok());
    }

    #[test]
    fn of_many_slices_the_first_and_last_are_among_those_shown() {
        assert_eq!(chosen(5), [0, 1, 2, 3, 4]);
        let many = chosen(400);
        assert_eq!((many.len(), many[0], many[MOST - 1]), (MOST, 0, 399));
        assert!(many.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(chosen(13).windows(2).all(|pair| pair[0] < pair[1]));
        assert!(slices(0, 1).into_grid(&OverlayOptions::default()).is_err());
        assert!(slices(1, 0).into_grid(&OverlayOptions::default()).is_err());
    }
}
