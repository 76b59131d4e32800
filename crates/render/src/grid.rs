//! Pictures in rows and columns: methods beside images, layers or values of α in a row, or any tiles at all.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::colour_bar::ColourBar;
use crate::contour::{self, Contour};
use crate::map::Map;
use crate::overlay::{Blend, OverlayOptions, Shown, blend};
use crate::scale::{Palette, Scale};
use crate::scene::{Anchor, Scene};
use crate::text::{self, TextSize};

const MARGIN: f64 = 4.0;
const SIZE: TextSize = TextSize::Small;
/// Lines that a label, a header or a title may take.
const LABEL_LINES: usize = 2;
/// Room for the words to the left of a row, and lines they may take.
const GUTTER: f64 = 84.0;
const GUTTER_LINES: usize = 6;

/// One picture of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Words above the picture, where the column does not say enough.
    pub label: String,
    /// The picture.
    pub picture: Picture,
    /// How values became colours in it, if it shows a map.
    pub scale: Option<Scale>,
    /// Lines over the picture.
    pub contours: Vec<Contour>,
}

impl Cell {
    /// A picture as it is.
    pub fn picture(picture: Picture) -> Self {
        Cell { label: String::new(), picture, scale: None, contours: Vec::new() }
    }

    /// A map laid over the picture it explains.
    pub fn overlay(picture: &Picture, map: &Map, options: &OverlayOptions) -> Result<Self> {
        let Blend { picture, scale, contours } = blend(picture, map, options)?;
        Ok(Cell { label: String::new(), picture, scale: Some(scale), contours })
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
pub struct Row {
    /// What the row shows: the name of a picture, for instance.
    pub label: String,
    /// What else is known about it: the class and its score, for instance.
    pub caption: String,
    /// The pictures from left to right; `None` leaves a place empty.
    pub cells: Vec<Option<Cell>>,
}

/// Pictures in rows and columns, all places of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Words above the whole page.
    pub title: String,
    /// Words above each column; none, or as many as there are columns.
    pub columns: Vec<String>,
    /// The rows from top to bottom.
    pub rows: Vec<Row>,
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
    pub fn strip(title: impl Into<String>, cells: impl IntoIterator<Item = (String, Cell)>) -> Self {
        let (columns, cells) = cells.into_iter().map(|(name, cell)| (name, Some(cell))).unzip();
        let rows = vec![Row { cells, ..Row::default() }];
        Grid { title: title.into(), columns, rows, ..Grid::default() }
    }

    /// Lays the pictures out.
    pub fn into_scene(self) -> Result<Scene> {
        let layout = Layout::new(&self)?;
        let mut scene = Scene::new(layout.width, layout.height, &self.title)?
            .described(&self.description())
            .resolution(layout.shown.pixels_per_unit);
        scene.paragraph(MARGIN, MARGIN, &layout.title, TextSize::Large);
        let header = layout.headers.iter().map(Vec::len).max().unwrap_or(0);
        for (column, lines) in layout.headers.iter().enumerate() {
            let centre = layout.left(column) + layout.shown.width / 2.0;
            for (i, words) in lines.iter().enumerate() {
                // Headers stand on their column, however many lines the others have.
                let below = (header - lines.len() + i) as f64 * SIZE.line();
                let baseline = layout.head + below + SIZE.ascent();
                scene.text((centre, baseline), words, SIZE, Anchor::Middle);
            }
        }
        let bars = if self.colour_bars { colour_bars(&self.rows) } else { Vec::new() };
        for (index, row) in self.rows.into_iter().enumerate() {
            layout.draw_row(&mut scene, index, row, &self.columns);
        }
        let mut left = layout.left(0);
        for bar in bars {
            bar.lying(&mut scene, left, layout.height - MARGIN - ColourBar::lying_height(), BAR)?;
            left += bar.lying_width(BAR) + 4.0 * MARGIN;
        }
        Ok(scene)
    }

    /// The grid in words, for those who cannot see it.
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

/// Length of a colour bar below the grid.
const BAR: f64 = 90.0;

/// One bar for each palette in use: with numbers where all its maps share one scale, without where each map
/// is scaled by its own largest magnitude.
fn colour_bars(rows: &[Row]) -> Vec<ColourBar> {
    let scales: Vec<&Scale> =
        rows.iter().flat_map(|row| &row.cells).flatten().filter_map(|cell| cell.scale.as_ref()).collect();
    [Palette::Signed, Palette::Positive, Palette::Negative]
        .into_iter()
        .filter_map(|palette| {
            let mut of_one: Vec<&&Scale> = scales.iter().filter(|scale| scale.palette() == palette).collect();
            let first = of_one.pop()?;
            match of_one.iter().all(|scale| scale.ends() == first.ends()) {
                true => ColourBar::new(first),
                false => ColourBar::labelled(palette, "− largest", "largest"),
            }
        })
        .collect()
}

/// Where everything goes, in units.
struct Layout {
    shown: Shown,
    title: Vec<String>,
    headers: Vec<Vec<String>>,
    /// Where the first column begins.
    gutter: f64,
    /// Where the column headers begin.
    head: f64,
    /// Where each row begins.
    rows: Vec<f64>,
    /// Room above each picture for its label, row by row.
    labels: Vec<f64>,
    width: f64,
    height: f64,
}

impl Layout {
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
        let shown = Shown::new(width, height, grid.least_side);
        let gutter = if grid.rows.iter().any(|row| !row.label.is_empty() || !row.caption.is_empty()) {
            GUTTER + 2.0 * MARGIN
        } else {
            MARGIN
        };
        let bars = if grid.colour_bars { colour_bars(&grid.rows) } else { Vec::new() };
        let legend: f64 = bars.iter().map(|bar| bar.lying_width(BAR) + 4.0 * MARGIN).sum();
        let page = (gutter + columns as f64 * (shown.width + MARGIN)).max(gutter + legend);
        let lines = |words: &str, size| text::lines(words, shown.width, size, LABEL_LINES);
        let title = text::lines(&grid.title, page - 2.0 * MARGIN, TextSize::Large, LABEL_LINES);
        let head = match title.len() {
            0 => MARGIN,
            count => 2.0 * MARGIN + count as f64 * TextSize::Large.line(),
        };
        let headers: Vec<Vec<String>> = grid.columns.iter().map(|words| lines(words, SIZE)).collect();
        let header = headers.iter().map(Vec::len).max().unwrap_or(0);
        let mut top = head + header as f64 * SIZE.line();
        let (mut rows, mut labels) = (Vec::new(), Vec::new());
        for row in &grid.rows {
            let label = row.cells.iter().flatten().map(|cell| lines(&cell.label, SIZE).len()).max();
            let label = label.unwrap_or(0) as f64 * SIZE.line();
            let words = gutter_lines(row).len() as f64 * SIZE.line();
            rows.push(top);
            labels.push(label);
            top += (label + shown.height).max(words) + MARGIN;
        }
        let legend = if bars.is_empty() { 0.0 } else { 2.0 * MARGIN + ColourBar::lying_height() };
        Ok(Layout { shown, title, headers, gutter, head, rows, labels, width: page, height: top + legend })
    }

    fn left(&self, column: usize) -> f64 {
        self.gutter + column as f64 * (self.shown.width + MARGIN)
    }

    fn draw_row(&self, scene: &mut Scene, index: usize, row: Row, columns: &[String]) {
        let (top, label) = (self.rows[index], self.labels[index]);
        let words = gutter_lines(&row);
        let room = label + self.shown.height - words.len() as f64 * SIZE.line();
        scene.paragraph(MARGIN, top + (room / 2.0).max(0.0), &words, SIZE);
        for (column, cell) in row.cells.into_iter().enumerate() {
            let Some(cell) = cell else { continue };
            let header = columns.get(column).map_or("", String::as_str);
            let parts = [row.label.as_str(), header, cell.label.as_str()];
            let name = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(", ");
            scene.group((self.left(column), top), &name, |scene| {
                draw_cell(scene, cell, label, self.shown);
            });
        }
    }
}

fn gutter_lines(row: &Row) -> Vec<String> {
    let mut lines = text::lines(&row.label, GUTTER, SIZE, GUTTER_LINES / 2);
    lines.extend(text::lines(&row.caption, GUTTER, SIZE, GUTTER_LINES / 2));
    lines
}

/// Draws a picture below its label, enlarged in whole steps as far as the place allows, in the middle of it.
pub(crate) fn draw_cell(scene: &mut Scene, cell: Cell, label: f64, shown: Shown) {
    let lines = text::lines(&cell.label, shown.width, SIZE, LABEL_LINES);
    // Labels stand on their picture, however many lines the others have.
    scene.paragraph(0.0, label - lines.len() as f64 * SIZE.line(), &lines, SIZE);
    let pixels = shown.pixels_per_unit as f64;
    let sides = (cell.picture.width() as f64 / pixels, cell.picture.height() as f64 / pixels);
    let factor = (shown.width / sides.0).min(shown.height / sides.1);
    // A place that holds a picture exactly may be measured a rounding error too small.
    let factor = (factor + 1e-9).floor().max(1.0);
    let (width, height) = (factor * sides.0, factor * sides.1);
    let aside = |room: f64| (room / 2.0 * pixels).floor().max(0.0) / pixels;
    let (left, top) = (aside(shown.width - width), label + aside(shown.height - height));
    scene.image(left, top, width, height, cell.picture);
    contour::draw(scene, &cell.contours, (left, top), (width, height));
}
