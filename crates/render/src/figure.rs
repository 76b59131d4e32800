//! Several labelled pictures on one page.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::canvas::Canvas;
use crate::font;

/// One picture and the words above it.
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
    /// Words above the whole page.
    pub title: String,
    /// A tile smaller than this, or than the largest tile, is drawn with each pixel as a square while it fits.
    pub least_side: usize,
}

impl Default for FigureOptions {
    fn default() -> Self {
        FigureOptions { columns: None, title: String::new(), least_side: 224 }
    }
}

/// Lays `tiles` out in rows from left to right, all cells of one size.
pub fn figure(tiles: &[Tile], options: &FigureOptions) -> Result<Picture> {
    const LABEL_LINES: usize = 2;
    let longest = |side: fn(&Picture) -> usize| tiles.iter().map(|tile| side(&tile.picture)).max();
    let (Some(width), Some(height)) = (longest(Picture::width), longest(Picture::height)) else {
        return Err(Error::argument("a figure needs at least one tile"));
    };
    let columns = columns(tiles.len(), options)?;
    let least = options.least_side.div_ceil(width.max(height)).max(1);
    let (width, height) = (width.saturating_mul(least), height.saturating_mul(least));
    let size = (width.max(height) / 350).clamp(2, 8);
    let (margin, line) = (4 * size, (font::ROWS + 2) * size);
    let labels: Vec<Vec<String>> =
        tiles.iter().map(|tile| font::lines(&tile.label, width, size, LABEL_LINES)).collect();
    let label = labels.iter().map(Vec::len).max().unwrap_or(0) * line;
    let (cell_width, cell_height) = (width.saturating_add(margin), height.saturating_add(margin + label));
    let page_width = columns.saturating_mul(cell_width).saturating_add(margin);
    let title = font::lines(&options.title, page_width.saturating_sub(2 * margin), size + 1, LABEL_LINES);
    let title_line = (font::ROWS + 2) * (size + 1);
    let head = if title.is_empty() { margin } else { 2 * margin + title.len() * title_line };
    let rows = tiles.len().div_ceil(columns);
    let mut canvas = Canvas::new(page_width, rows.saturating_mul(cell_height).saturating_add(head))?;
    for (i, text) in title.iter().enumerate() {
        canvas.write(margin, margin + i * title_line, text, size + 1);
    }
    for (i, (tile, lines)) in tiles.iter().zip(&labels).enumerate() {
        let left = margin + i % columns * cell_width;
        let top = head + i / columns * cell_height;
        for (k, text) in lines.iter().enumerate() {
            // Labels stand on their picture, however many lines the others have.
            canvas.write(left, top + label - (lines.len() - k) * line, text, size);
        }
        let picture = &tile.picture;
        let factor = (width / picture.width()).min(height / picture.height()).max(1);
        let aside = (width - factor * picture.width()) / 2;
        canvas.draw(left + aside, top + label, picture, factor);
    }
    canvas.into_picture()
}

fn columns(tiles: usize, options: &FigureOptions) -> Result<usize> {
    match options.columns {
        Some(0) => Err(Error::argument("a figure needs at least one column")),
        Some(columns) => Ok(columns.min(tiles)),
        None => Ok(tiles.saturating_sub(1).isqrt() + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile(label: &str, width: usize, height: usize, shade: u8) -> Tile {
        Tile {
            label: label.into(),
            picture: Picture::new(width, height, vec![shade; width * height * 3]).unwrap(),
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
                let drawn = page.rgb().chunks(3).filter(|pixel| *pixel == [shade; 3]).count();
                assert_eq!(drawn, tile.picture.width() * tile.picture.height());
            }
        }
    }

    #[test]
    fn small_tiles_are_enlarged_to_the_size_of_the_others() {
        let page =
            figure(&[tile("", 28, 28, 50), tile("", 224, 224, 90)], &FigureOptions::default()).unwrap();
        let drawn = |shade: u8| page.rgb().chunks(3).filter(|pixel| *pixel == [shade; 3]).count();
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
