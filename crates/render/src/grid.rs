//! Pictures in rows and columns: methods beside images, layers or values of α in a row, or any tiles at all.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::contour::{self, Contour};
use crate::key::Key;
use crate::overlay::{Blend, DisplaySize, OverlayOptions, blend, blend_scaled};
use crate::scalar_field::ScalarField;
use crate::scale::Scale;
use crate::scene::{Anchor, Scene};
use crate::text::{self, TextSize};

const MARGIN: f64 = 4.0;
const SIZE: TextSize = TextSize::Small;
/// Lines that a label or a title may take.
const LABEL_LINES: usize = 2;
/// Lines that a header may take: a method, what was set about it, and a layer.
const HEADER_LINES: usize = 5;
/// Room for the words to the left of a row, and lines they may take.
const GUTTER: f64 = 84.0;
const GUTTER_LINES: usize = 6;

/// One picture of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct GridCell {
    /// The label above the picture, in addition to the header of the column.
    pub label: String,
    /// The picture.
    pub picture: Picture,
    /// How values became colours in it, if it shows a map.
    pub scale: Option<Scale>,
    /// Lines over the picture.
    pub contours: Vec<Contour>,
}

impl GridCell {
    /// A picture as it is.
    pub fn picture(picture: Picture) -> Self {
        GridCell { label: String::new(), picture, scale: None, contours: Vec::new() }
    }

    /// A map laid over the picture it explains.
    pub fn overlay(picture: &Picture, map: &ScalarField, options: &OverlayOptions) -> Result<Self> {
        blend(picture, map, options).map(GridCell::of)
    }

    /// The same on a scale that several maps share.
    pub(crate) fn overlay_scaled(
        picture: &Picture,
        map: &ScalarField,
        scale: &Scale,
        options: &OverlayOptions,
    ) -> Result<Self> {
        blend_scaled(picture, map, scale.clone(), options).map(GridCell::of)
    }

    fn of(blend: Blend) -> Self {
        let Blend { picture, scale, contours } = blend;
        GridCell { label: String::new(), picture, scale: Some(scale), contours }
    }

    /// The same with words above it.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }
}

/// One row of a grid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GridRow {
    /// What the row shows: the name of a picture, for instance.
    pub label: String,
    /// Its caption: the class and its score, for instance.
    pub caption: String,
    /// The pictures from left to right; `None` is an empty cell.
    pub cells: Vec<Option<GridCell>>,
}

/// Pictures in rows and columns, all cells of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The title of the page.
    pub title: String,
    /// The header of each column; none, or as many as there are columns.
    pub columns: Vec<String>,
    /// The rows from top to bottom.
    pub rows: Vec<GridRow>,
    /// A picture smaller than this, or than the largest picture, is drawn with each pixel as a square while
    /// it fits.
    pub least_side: usize,
    /// Whether the keys to the colours are drawn below.
    pub colour_bars: bool,
}

impl Default for Grid {
    fn default() -> Self {
        Grid {
            title: String::new(),
            columns: Vec::new(),
            rows: Vec::new(),
            least_side: 224,
            colour_bars: true,
        }
    }
}

impl Grid {
    /// A grid of one row: the layers of a network or the values of α, each with its name above.
    pub fn strip(title: impl Into<String>, cells: impl IntoIterator<Item = (String, GridCell)>) -> Self {
        let (columns, cells) = cells.into_iter().map(|(name, cell)| (name, Some(cell))).unzip();
        let rows = vec![GridRow { cells, ..GridRow::default() }];
        Grid { title: title.into(), columns, rows, ..Grid::default() }
    }

    /// Lays the pictures out.
    pub fn into_scene(self) -> Result<Scene> {
        let metrics = GridMetrics::new(&self)?;
        let mut scene = Scene::new(metrics.width, metrics.height, &self.title)?
            .described(&self.description())
            .resolution(metrics.display.pixels_per_unit);
        scene.paragraph(MARGIN, MARGIN, &metrics.title, TextSize::Large);
        let header = metrics.headers.iter().map(Vec::len).max().unwrap_or(0);
        for (column, lines) in metrics.headers.iter().enumerate() {
            let centre = metrics.left(column) + metrics.display.width / 2.0;
            for (i, words) in lines.iter().enumerate() {
                // Headers are aligned at their lower edge, whatever their number of lines.
                let below = (header - lines.len() + i) as f64 * SIZE.line();
                let baseline = metrics.head + below + SIZE.ascent();
                scene.text((centre, baseline), words, SIZE, Anchor::Middle);
            }
        }
        let key = self.key();
        for (index, row) in self.rows.into_iter().enumerate() {
            metrics.draw_row(&mut scene, index, row, &self.columns);
        }
        key.draw(&mut scene, metrics.gutter, metrics.height - key.height())?;
        Ok(scene)
    }

    fn key(&self) -> Key {
        let shown = if self.colour_bars { &self.rows[..] } else { &[] };
        Key::new(shown.iter().flat_map(|row| &row.cells).flatten())
    }

    /// A description of the grid for screen readers.
    fn description(&self) -> String {
        let columns = self.rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
        let mut words = format!("Pictures in {} rows and {columns} columns", self.rows.len());
        let rows: Vec<String> = self
            .rows
            .iter()
            .map(|row| [row.label.as_str(), row.caption.as_str()].join(" ").trim().to_string())
            .filter(|row| !row.is_empty())
            .collect();
        if !self.columns.is_empty() {
            words += &format!("; columns: {}", self.columns.join(", "));
        }
        if !rows.is_empty() {
            words += &format!("; rows: {}", rows.join(", "));
        }
        words + "."
    }
}

/// The positions of all parts, in units.
struct GridMetrics {
    display: DisplaySize,
    title: Vec<String>,
    headers: Vec<Vec<String>>,
    /// The left edge of the first column.
    gutter: f64,
    /// The upper edge of the column headers.
    head: f64,
    /// The upper edge of each row.
    rows: Vec<f64>,
    /// Room above each picture for its label, row by row.
    labels: Vec<f64>,
    width: f64,
    height: f64,
}

impl GridMetrics {
    fn new(grid: &Grid) -> Result<Self> {
        let pictures = || grid.rows.iter().flat_map(|row| &row.cells).flatten().map(|cell| &cell.picture);
        let widest = pictures().map(Picture::width).max();
        let (Some(width), Some(height)) = (widest, pictures().map(Picture::height).max()) else {
            return Err(Error::argument("a figure needs at least one picture"));
        };
        let columns = grid.rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
        if !grid.columns.is_empty() && grid.columns.len() != columns {
            return Err(Error::argument(format!(
                "a figure of {columns} columns has {} column headers; give one for each or none",
                grid.columns.len()
            )));
        }
        let display = DisplaySize::new(width, height, grid.least_side);
        let gutter = if grid.rows.iter().any(|row| !row.label.is_empty() || !row.caption.is_empty()) {
            GUTTER + 2.0 * MARGIN
        } else {
            MARGIN
        };
        let key = grid.key();
        let page = gutter + (columns as f64 * (display.width + MARGIN)).max(key.width());
        let lines = |words: &str, most| text::lines(words, display.width, SIZE, most);
        let title = text::lines(&grid.title, page - 2.0 * MARGIN, TextSize::Large, LABEL_LINES);
        let head = match title.len() {
            0 => MARGIN,
            count => 2.0 * MARGIN + count as f64 * TextSize::Large.line(),
        };
        // Neighbouring headers that fill their columns would read as one.
        let header_lines = |words: &String| text::lines(words, display.width - MARGIN, SIZE, HEADER_LINES);
        let headers: Vec<Vec<String>> = grid.columns.iter().map(header_lines).collect();
        let header = headers.iter().map(Vec::len).max().unwrap_or(0);
        let mut top = head + header as f64 * SIZE.line();
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        for row in &grid.rows {
            let label = row.cells.iter().flatten().map(|cell| lines(&cell.label, LABEL_LINES).len()).max();
            let label = label.unwrap_or(0) as f64 * SIZE.line();
            let words = gutter_lines(row).len() as f64 * SIZE.line();
            rows.push(top);
            labels.push(label);
            top += (label + display.height).max(words) + MARGIN;
        }
        Ok(GridMetrics {
            display,
            title,
            headers,
            gutter,
            head,
            rows,
            labels,
            width: page,
            height: top + key.height(),
        })
    }

    fn left(&self, column: usize) -> f64 {
        self.gutter + column as f64 * (self.display.width + MARGIN)
    }

    fn draw_row(&self, scene: &mut Scene, index: usize, row: GridRow, columns: &[String]) {
        let (top, label) = (self.rows[index], self.labels[index]);
        let words = gutter_lines(&row);
        let room = label + self.display.height - words.len() as f64 * SIZE.line();
        scene.paragraph(MARGIN, top + (room / 2.0).max(0.0), &words, SIZE);
        for (column, cell) in row.cells.into_iter().enumerate() {
            let Some(cell) = cell else { continue };
            let header = columns.get(column).map_or("", String::as_str);
            let parts = [row.label.as_str(), header, cell.label.as_str()];
            let name = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(", ");
            scene.group((self.left(column), top), &name, |scene| {
                draw_cell(scene, cell, label, self.display);
            });
        }
    }
}

fn gutter_lines(row: &GridRow) -> Vec<String> {
    let mut lines = text::lines(&row.label, GUTTER, SIZE, GUTTER_LINES / 2);
    lines.extend(text::lines(&row.caption, GUTTER, SIZE, GUTTER_LINES / 2));
    lines
}

/// Draws a picture below its label, centred in its cell and enlarged by a whole number.
pub(crate) fn draw_cell(scene: &mut Scene, cell: GridCell, label: f64, display: DisplaySize) {
    let lines = text::lines(&cell.label, display.width, SIZE, LABEL_LINES);
    // Labels are aligned at their lower edge, whatever their number of lines.
    scene.paragraph(0.0, label - lines.len() as f64 * SIZE.line(), &lines, SIZE);
    let pixels = display.pixels_per_unit as f64;
    let sides = (cell.picture.width() as f64 / pixels, cell.picture.height() as f64 / pixels);
    let factor = (display.width / sides.0).min(display.height / sides.1);
    // A cell that fits a picture exactly may be too small by a rounding error.
    let factor = (factor + 1e-9).floor().max(1.0);
    let (width, height) = (factor * sides.0, factor * sides.1);
    let aside = |room: f64| (room / 2.0 * pixels).floor().max(0.0) / pixels;
    let (left, top) = (aside(display.width - width), label + aside(display.height - height));
    scene.image(left, top, width, height, cell.picture);
    contour::draw(scene, &cell.contours, (left, top), (width, height));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Item;
    use crate::xml::assert_well_formed;

    fn picture(width: usize, height: usize) -> Picture {
        Picture::new(width, height, vec![90; width * height * 3]).unwrap()
    }

    fn cell(values: [f32; 4]) -> GridCell {
        let map = ScalarField::new(2, 2, values.to_vec()).unwrap();
        let options = OverlayOptions { contours: 2, ..OverlayOptions::default() };
        GridCell::overlay(&picture(28, 20), &map, &options).unwrap()
    }

    fn grid(label: &str) -> Grid {
        let row = |values| GridRow {
            label: label.into(),
            caption: label.into(),
            cells: vec![Some(GridCell::picture(picture(28, 28)).labelled(label)), Some(cell(values)), None],
        };
        Grid {
            title: label.into(),
            columns: vec![label.into(); 3],
            rows: vec![row([-1.0, 0.0, 1.0, 2.0]), row([0.0, 1.0, 2.0, 3.0]), row([f32::NAN; 4])],
            ..Grid::default()
        }
    }

    /// Left, top, right and bottom of every picture and of every line of words.
    fn extents(scene: &Scene) -> (Vec<[f64; 4]>, Vec<[f64; 4]>) {
        let (mut pictures, mut words, mut origins) = (Vec::new(), Vec::new(), vec![(0.0, 0.0)]);
        for item in scene.items() {
            let (x, y) = *origins.last().unwrap();
            match item {
                Item::Begin { origin, .. } => origins.push((x + origin.0, y + origin.1)),
                Item::End => drop(origins.pop()),
                Item::Image { left, top, width, height, .. } => {
                    pictures.push([x + left, y + top, x + left + width, y + top + height]);
                }
                Item::Text { place, words: text, size, anchor } => {
                    let width = text::width(text, *size);
                    let left = x + place.0 - anchor.share() * width;
                    let baseline = y + place.1;
                    words.push([left, baseline - size.ascent(), left + width, baseline + size.descent()]);
                }
                _ => {}
            }
        }
        (pictures, words)
    }

    fn overlap(a: &[f64; 4], b: &[f64; 4]) -> bool {
        a[0] < b[2] - 1e-6 && b[0] < a[2] - 1e-6 && a[1] < b[3] - 1e-6 && b[1] < a[3] - 1e-6
    }

    #[test]
    fn words_and_pictures_keep_apart_and_on_the_page_whatever_the_labels() {
        let long = "Guided-Backpropagation ".repeat(500);
        for label in ["g", "Egyptian Mau 87.3%", &long, "漢字漢字漢字漢字漢字漢字漢字漢字", "W\u{a0}W", ""]
        {
            let scene = grid(label).into_scene().unwrap();
            let (pictures, words) = extents(&scene);
            for (i, word) in words.iter().enumerate() {
                assert!(pictures.iter().all(|picture| !overlap(word, picture)), "{label:.20} {word:?}");
                assert!(words[..i].iter().all(|other| !overlap(word, other)), "{label:.20} {word:?}");
            }
            for [left, top, right, bottom] in pictures.iter().chain(&words) {
                assert!(*left >= 0.0 && *top >= 0.0, "{label:.20}");
                assert!(*right <= scene.width() + 1e-6 && *bottom <= scene.height() + 1e-6, "{label:.20}");
            }
        }
    }

    #[test]
    fn a_header_of_a_method_its_options_and_a_layer_is_not_cut() {
        let columns = vec!["SplitGrad (α 0.4, wta) layer4.2.conv3, abs".to_owned()];
        let rows =
            vec![GridRow { cells: vec![Some(GridCell::picture(picture(128, 128)))], ..GridRow::default() }];
        let grid = Grid { columns, rows, least_side: 1, ..Grid::default() };
        let drawn = grid.into_scene().unwrap().to_svg().unwrap();
        assert!(!drawn.contains('…') && drawn.contains("abs"), "{drawn:.2000}");
    }

    #[test]
    fn a_grid_is_whole_in_every_format_and_the_same_each_time() {
        let hostile = "<b onload='x'>&\0\u{202e}\u{1b}]0;\u{7}";
        for label in ["g", hostile] {
            let scene = grid(label).into_scene().unwrap();
            assert_eq!(scene, grid(label).into_scene().unwrap());
            let tags = assert_well_formed(&scene.to_svg().unwrap());
            let pictures = tags.iter().filter(|tag| *tag == "image").count();
            assert_eq!(pictures, 6 + 2, "six cells and two colour bars");
            assert!(scene.to_picture().is_ok() && scene.to_pdf().is_ok());
        }
    }

    #[test]
    fn the_key_has_numbers_only_where_one_scale_is_shared() {
        let strip = |second: [f32; 4]| {
            let cells = [("a".to_string(), cell([0.0, 1.0, 2.0, 3.0])), ("b".to_string(), cell(second))];
            Grid::strip("", cells).into_scene().unwrap().to_svg().unwrap()
        };
        assert!(strip([3.0, 1.0, 0.0, 0.0]).contains(">3</text>"));
        let apart = strip([4.0, 1.0, 0.0, 0.0]);
        assert!(apart.contains(">max</text>") && apart.contains("largest magnitude"));
        assert!(!apart.contains(">3</text>"));
    }

    #[test]
    fn grids_that_cannot_be_drawn_are_refused() {
        assert!(Grid::default().into_scene().is_err());
        let empty =
            Grid { rows: vec![GridRow { cells: vec![None, None], ..GridRow::default() }], ..Grid::default() };
        assert!(empty.into_scene().is_err());
        assert!(Grid { columns: vec!["one".into()], ..grid("g") }.into_scene().is_err());
        assert!(Grid { least_side: usize::MAX, ..grid("g") }.into_scene().is_err());
        let rows = vec![grid("g").rows.swap_remove(0); 500];
        assert!(Grid { rows, ..grid("g") }.into_scene().is_err());
    }
}
