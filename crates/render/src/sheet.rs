//! Finished figures side by side on one page: plots, bars and strips of slices, which have sizes of their own.

use monosplit_graph::{Error, Result};

use crate::scene::Scene;
use crate::text::{self, TextSize};

const MARGIN: f64 = 8.0;
/// Figures of a row that go beyond this width go on below.
const WIDEST: f64 = 1480.0;
/// Lines that a title or a label may take.
const LINES: usize = 2;

/// The figures of one row, below its label.
#[derive(Clone, Debug, PartialEq)]
pub struct SheetRow {
    /// What the row shows: the name of a sample, for instance.
    pub label: String,
    /// The figures from left to right.
    pub figures: Vec<Scene>,
}

/// Rows of figures under a title.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// The title of the page.
    pub title: String,
    /// The rows from top to bottom.
    pub rows: Vec<SheetRow>,
}

/// Where the figures of a row lie, from the row's left upper corner.
struct RowPlaces {
    places: Vec<(f64, f64)>,
    width: f64,
    height: f64,
}

impl RowPlaces {
    fn of(figures: &[Scene]) -> Self {
        let (mut places, mut width) = (Vec::with_capacity(figures.len()), 0f64);
        let (mut left, mut top, mut tallest) = (0f64, 0f64, 0f64);
        for figure in figures {
            if left > 0.0 && left + figure.width() > WIDEST {
                (left, top, tallest) = (0.0, top + tallest + MARGIN, 0.0);
            }
            places.push((left, top));
            width = width.max(left + figure.width());
            left += figure.width() + MARGIN;
            tallest = tallest.max(figure.height());
        }
        RowPlaces { places, width, height: top + tallest }
    }
}

impl Sheet {
    /// Lays the figures out.
    pub fn into_scene(self) -> Result<Scene> {
        if self.rows.iter().all(|row| row.figures.is_empty()) {
            return Err(Error::argument("a page of figures needs at least one"));
        }
        let rows: Vec<RowPlaces> = self.rows.iter().map(|row| RowPlaces::of(&row.figures)).collect();
        let widest = rows.iter().map(|row| row.width).fold(0.0, f64::max);
        let (width, line) = (widest + 2.0 * MARGIN, TextSize::Large.line());
        let lines = |words: &str| text::lines(words, widest, TextSize::Large, LINES);
        let title = lines(&self.title);
        let labels: Vec<Vec<String>> = self.rows.iter().map(|row| lines(&row.label)).collect();
        let head = |count: usize| if count == 0 { 0.0 } else { count as f64 * line + MARGIN };
        let mut tops = Vec::with_capacity(rows.len());
        let mut top = MARGIN + head(title.len());
        for (row, label) in rows.iter().zip(&labels) {
            tops.push(top);
            top += head(label.len()) + row.height + 2.0 * MARGIN;
        }
        let said = self.rows.iter().map(|row| {
            let each: Vec<&str> = row.figures.iter().map(Scene::description).collect();
            format!("{}: {}", row.label, each.join(" "))
        });
        let said = said.collect::<Vec<_>>().join(" ");
        let pixels = self.rows.iter().flat_map(|row| &row.figures).map(Scene::pixels_per_unit).max();
        let mut scene = Scene::new(width, top, &self.title)?.described(&said).resolution(pixels.unwrap_or(1));
        scene.paragraph(MARGIN, MARGIN, &title, TextSize::Large);
        for (index, row) in self.rows.into_iter().enumerate() {
            scene.paragraph(MARGIN, tops[index], &labels[index], TextSize::Large);
            let below = tops[index] + head(labels[index].len());
            for (figure, &(left, top)) in row.figures.into_iter().zip(&rows[index].places) {
                scene.place((MARGIN + left, below + top), figure);
            }
        }
        Ok(scene)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::{Bar, Bars};
    use crate::xml::assert_well_formed;

    fn bars(title: &str) -> Scene {
        let bar = |i: usize| Bar { label: format!("feature {i}"), value: i as f64 - 1.0, interval: None };
        let bars = (0..3).map(bar).collect();
        Bars { title: title.into(), bars, ..Bars::default() }.into_scene().unwrap()
    }

    fn sheet(figures: usize) -> Sheet {
        let figures = |row: usize| (0..figures).map(|i| bars(&format!("method {row} {i}"))).collect();
        let row = |row: usize| SheetRow { label: format!("sample {row}"), figures: figures(row) };
        Sheet { title: "compared".into(), rows: (0..2).map(row).collect() }
    }

    #[test]
    fn every_figure_lies_on_the_page_and_none_on_another() {
        let one = bars("a");
        for count in [1, 2, 3, 4, 7] {
            let row = RowPlaces::of(&vec![one.clone(); count]);
            for (i, &(x, y)) in row.places.iter().enumerate() {
                assert!(x + one.width() <= row.width && y + one.height() <= row.height);
                let apart = |&(left, top): &(f64, f64)| {
                    (left - x).abs() >= one.width() || (top - y).abs() >= one.height()
                };
                assert!(row.places[..i].iter().all(apart), "{count}: {:?}", row.places);
            }
            let scene = sheet(count).into_scene().unwrap();
            assert!(row.width <= WIDEST && row.width < scene.width() && 2.0 * row.height < scene.height());
        }
    }

    #[test]
    fn a_page_holds_the_words_of_its_figures() {
        let scene = sheet(4).into_scene().unwrap();
        let svg = scene.to_svg().unwrap();
        assert_well_formed(&svg);
        for words in ["compared", "sample 1", "method 1 3", "feature 2"] {
            assert!(svg.contains(words), "{words}");
        }
        let texts = |svg: &str| svg.matches("</text>").count();
        // The title, two labels and eight figures.
        assert_eq!(texts(&svg), 3 + 8 * texts(&bars("a").to_svg().unwrap()));
        assert!(scene.to_picture().is_ok());
        assert!(Sheet { title: String::new(), rows: Vec::new() }.into_scene().is_err());
    }
}
