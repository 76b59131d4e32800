//! Several labelled pictures on one page, in a grid whose number of columns follows from theirs.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::grid::{Grid, GridCell, GridRow};
use crate::scene::Scene;

/// A picture with a label above it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    /// What the picture shows.
    pub label: String,
    /// The picture.
    pub picture: Picture,
}

/// How tiles are laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureOptions {
    /// Number of columns; as nearly square as possible where not given.
    pub columns: Option<usize>,
    /// The title of the page.
    pub title: String,
    /// A tile smaller than this, or than the largest tile, is drawn with each pixel as a square while it fits.
    pub least_side: usize,
}

impl Default for FigureOptions {
    fn default() -> Self {
        FigureOptions { columns: None, title: String::new(), least_side: 224 }
    }
}

/// Lays `tiles` out in rows from left to right, all cells of one size, as pixels.
pub fn figure(tiles: &[Tile], options: &FigureOptions) -> Result<Picture> {
    tile_scene(tiles, options)?.to_picture()
}

/// The same as a figure that can also be written as SVG or PDF.
pub fn tile_scene(tiles: &[Tile], options: &FigureOptions) -> Result<Scene> {
    let columns = match options.columns {
        Some(0) => return Err(Error::argument("a figure needs at least one column")),
        Some(columns) => columns,
        None => tiles.len().saturating_sub(1).isqrt() + 1,
    };
    let cell = |tile: &Tile| Some(GridCell::picture(tile.picture.clone()).labelled(tile.label.clone()));
    let row = |tiles: &[Tile]| GridRow { cells: tiles.iter().map(cell).collect(), ..GridRow::default() };
    let rows = tiles.chunks(columns).map(row).collect();
    let (title, least_side) = (options.title.clone(), options.least_side);
    Grid { title, rows, least_side, ..Grid::default() }.into_scene()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No colour of ink and paper.
    fn colour(shade: u8) -> [u8; 3] {
        [shade, 200, 0]
    }

    fn tile(label: &str, width: usize, height: usize, shade: u8) -> Tile {
        Tile {
            label: label.into(),
            picture: Picture::new(width, height, colour(shade).repeat(width * height)).unwrap(),
        }
    }

    #[test]
    fn every_tile_is_wholly_on_the_page() {
        let tiles: Vec<Tile> = (0..7).map(|i| tile("g", 30 + usize::from(i), 40, 60 + i)).collect();
        for columns in [None, Some(1), Some(3), Some(100)] {
            let options = FigureOptions { columns, title: "seven".into(), least_side: 1 };
            let page = figure(&tiles, &options).unwrap();
            for (i, tile) in tiles.iter().enumerate() {
                let shade = 60 + i as u8;
                let drawn = page.rgb().chunks(3).filter(|pixel| *pixel == colour(shade)).count();
                assert_eq!(drawn, tile.picture.width() * tile.picture.height());
            }
        }
    }

    #[test]
    fn small_tiles_are_enlarged_to_the_size_of_the_others() {
        let page =
            figure(&[tile("", 28, 28, 50), tile("", 224, 224, 90)], &FigureOptions::default()).unwrap();
        let drawn = |shade: u8| page.rgb().chunks(3).filter(|pixel| *pixel == colour(shade)).count();
        assert_eq!((drawn(50), drawn(90)), (224 * 224, 224 * 224));
    }

    #[test]
    fn figures_that_cannot_be_drawn_are_refused() {
        assert!(figure(&[], &FigureOptions::default()).is_err());
        let none = FigureOptions { columns: Some(0), ..FigureOptions::default() };
        assert!(figure(&[tile("a", 1, 1, 0)], &none).is_err());
        let endless = FigureOptions { least_side: usize::MAX, ..FigureOptions::default() };
        assert!(figure(&[tile("a", 1, 1, 0)], &endless).is_err());
    }
}
