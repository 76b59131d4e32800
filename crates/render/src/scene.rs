//! A figure as shapes, words and pictures, independent of the file format.
//!
//! Every figure is described once, in units of a ninety-sixth of an inch from the upper left corner, and then
//! written as pixels (`raster.rs`), SVG (`svg.rs`) or PDF (`pdf.rs`). What is added is made harmless here:
//! places that are not finite are left out and words are cleaned, so that no format has to look again.

use std::collections::BTreeSet;
use std::path::Path;

use monosplit_graph::{Error, Result, write_atomically};
use monosplit_image::{Picture, encode_png};

use crate::colour::Rgb;
use crate::shaping;
use crate::text::{self, TextSize};

/// Longest side of a figure, in units: the longest page a PDF may have.
const LONGEST_SIDE: f64 = 19_200.0;

/// So many characters that cannot be drawn are named one by one.
const MOST_NAMED: usize = 8;

pub(crate) const PAPER: Rgb = [255, 255, 255];
pub(crate) const INK: Rgb = [34, 34, 34];

/// A point in a figure: units from its left and from its upper edge.
pub(crate) type Point = (f64, f64);

/// A figure, ready to be written as a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    width: f64,
    height: f64,
    title: String,
    description: String,
    pixels_per_unit: usize,
    items: Vec<Item>,
}

/// A file a figure can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Pixels.
    Png,
    /// A drawing that stands alone: pictures are inside.
    Svg,
    /// A document of one page.
    Pdf,
}

impl Format {
    /// The format that the name of a file asks for by its ending.
    pub fn of(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("png") => Ok(Format::Png),
            Some("svg") => Ok(Format::Svg),
            Some("pdf") => Ok(Format::Pdf),
            _ => Err(Error::argument(format!(
                "a figure is written as .png, .svg or .pdf, but the file is to be called '{}'",
                path.display()
            ))),
        }
    }
}

/// A colour and how much of what lies below it hides, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Paint {
    pub(crate) colour: Rgb,
    pub(crate) opacity: f64,
}

impl From<Rgb> for Paint {
    fn from(colour: Rgb) -> Self {
        Paint { colour, opacity: 1.0 }
    }
}

/// The part of a line of words that lies at its anchor point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    /// Share of the width that lies to the left of the place.
    pub(crate) fn share(self) -> f64 {
        match self {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5,
            Anchor::End => 1.0,
        }
    }
}

/// Points joined by straight lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Polyline {
    /// The points, each by its distance from the left and from the upper edge.
    pub points: Vec<(f64, f64)>,
    /// Whether the last point is joined to the first.
    pub closed: bool,
}

/// How polylines are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Style {
    /// The inside of closed lines.
    Fill(Paint),
    /// The lines themselves, this wide.
    Stroke(Paint, f64),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    Rectangle {
        left: f64,
        top: f64,
        width: f64,
        height: f64,
        fill: Paint,
    },
    Path {
        lines: Vec<Polyline>,
        style: Style,
    },
    Text {
        place: Point,
        words: String,
        size: TextSize,
        anchor: Anchor,
    },
    Image {
        left: f64,
        top: f64,
        width: f64,
        height: f64,
        picture: Picture,
    },
    /// What follows, up to the matching end, belongs together and has its origin here.
    Begin {
        origin: Point,
        label: String,
    },
    End,
}

impl Scene {
    /// White paper. The title is said by screen readers and shown by viewers; it is not drawn.
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Result<Self> {
        let within = |side: f64| side > 0.0 && side <= LONGEST_SIDE;
        if !within(width) || !within(height) {
            return Err(Error::argument(format!(
                "a figure of {width:.0}×{height:.0} units is empty or beyond the limit of {LONGEST_SIDE} a \
                 side; draw fewer or smaller pictures"
            )));
        }
        let title = text::clean(title);
        Ok(Scene { width, height, title, description: String::new(), pixels_per_unit: 2, items: Vec::new() })
    }

    /// Sets the description for screen readers.
    #[must_use]
    pub fn described(mut self, description: &str) -> Self {
        self.description = text::clean(description);
        self
    }

    /// Sets how many pixels a unit becomes in a PNG; 2 unless the pictures in it are large.
    #[must_use]
    pub(crate) fn resolution(mut self, pixels_per_unit: usize) -> Self {
        self.pixels_per_unit = pixels_per_unit.max(1);
        self
    }

    /// Width in units of a ninety-sixth of an inch.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// Height in units of a ninety-sixth of an inch.
    pub fn height(&self) -> f64 {
        self.height
    }

    /// What the figure is called.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What the figure shows, in words.
    pub fn description(&self) -> &str {
        &self.description
    }

    pub(crate) fn pixels_per_unit(&self) -> usize {
        self.pixels_per_unit
    }

    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// The characters in its words that no font of this machine has, each once and in the order of their numbers. They are
    /// drawn as empty boxes in pixels and in PDF.
    pub fn missing_characters(&self) -> Vec<char> {
        let words = self.items.iter().filter_map(|item| match item {
            Item::Text { words, .. } => Some(words),
            _ => None,
        });
        let missing: BTreeSet<char> = words.flat_map(|words| shaping::missing(words)).collect();
        missing.into_iter().collect()
    }

    /// Says in one line which characters cannot be drawn.
    pub(crate) fn warn_of_missing_characters(&self) {
        let missing = self.missing_characters();
        let named: Vec<String> =
            missing.iter().take(MOST_NAMED).map(|c| format!("'{c}' (U+{:04X})", *c as u32)).collect();
        let named = named.join(", ");
        match missing.len() {
            0 => {}
            1 => log::warn!(
                "no font on this machine has {named}: a box is drawn instead; install a font that has it, one of the \
                 Noto family for instance"
            ),
            all => {
                let more = all.saturating_sub(MOST_NAMED);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                log::warn!(
                    "no font on this machine has {named}{more}: boxes are drawn instead; install fonts that have \
                     them, those of the Noto family for instance"
                );
            }
        }
    }

    /// The bytes of a file of `format`.
    pub fn encode(&self, format: Format) -> Result<Vec<u8>> {
        match format {
            Format::Png => {
                let picture = self.to_picture()?;
                encode_png(picture.width(), picture.height(), (&picture).into())
            }
            Format::Svg => self.to_svg().map(String::into_bytes),
            Format::Pdf => self.to_pdf(),
        }
    }

    /// Writes the figure to `path`, whole or not at all, in the format its ending asks for.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let bytes = self.encode(Format::of(&path)?)?;
        write_atomically(path, &bytes)
    }

    pub(crate) fn rectangle(&mut self, left: f64, top: f64, width: f64, height: f64, fill: impl Into<Paint>) {
        if [left, top, width, height].iter().all(|v| v.is_finite()) && width > 0.0 && height > 0.0 {
            self.items.push(Item::Rectangle { left, top, width, height, fill: fill.into() });
        }
    }

    /// Draws `lines` as one shape: where they cross, nothing is painted twice.
    pub(crate) fn path(&mut self, mut lines: Vec<Polyline>, style: Style) {
        for line in &mut lines {
            line.points.retain(|(x, y)| x.is_finite() && y.is_finite());
        }
        lines.retain(|line| line.points.len() > 1);
        if !lines.is_empty() {
            self.items.push(Item::Path { lines, style });
        }
    }

    /// One straight line.
    pub(crate) fn line(&mut self, from: Point, to: Point, paint: impl Into<Paint>, width: f64) {
        let line = Polyline { points: vec![from, to], closed: false };
        self.path(vec![line], Style::Stroke(paint.into(), width));
    }

    /// A filled polygon.
    pub(crate) fn polygon(&mut self, points: Vec<Point>, fill: impl Into<Paint>) {
        self.path(vec![Polyline { points, closed: true }], Style::Fill(fill.into()));
    }

    /// One line of `words` on the baseline through `place`.
    pub(crate) fn text(&mut self, place: Point, words: &str, size: TextSize, anchor: Anchor) {
        let words = text::isolated(&text::clean(words));
        if place.0.is_finite() && place.1.is_finite() && !words.trim().is_empty() {
            self.items.push(Item::Text { place, words, size, anchor });
        }
    }

    /// Lines of words, the first with the top of its letters at `top`.
    pub(crate) fn paragraph(&mut self, left: f64, top: f64, lines: &[String], size: TextSize) {
        for (i, words) in lines.iter().enumerate() {
            let baseline = top + size.ascent() + i as f64 * size.line();
            self.text((left, baseline), words, size, Anchor::Start);
        }
    }

    pub(crate) fn image(&mut self, left: f64, top: f64, width: f64, height: f64, picture: Picture) {
        if [left, top, width, height].iter().all(|v| v.is_finite()) && width > 0.0 && height > 0.0 {
            self.items.push(Item::Image { left, top, width, height, picture });
        }
    }

    /// Another figure with its left upper corner at `origin`.
    pub(crate) fn place(&mut self, origin: Point, figure: Scene) {
        let Scene { title, items, .. } = figure;
        self.group(origin, &title, |scene| scene.items.extend(items));
    }

    /// Draws what `draw` adds around a new origin, named `label` for screen readers.
    pub(crate) fn group(&mut self, origin: Point, label: &str, draw: impl FnOnce(&mut Scene)) {
        if origin.0.is_finite() && origin.1.is_finite() {
            self.items.push(Item::Begin { origin, label: text::clean(label) });
            draw(self);
            self.items.push(Item::End);
        }
    }
}

/// Whether a picture shown `width` units wide is enlarged so much that its pixels shall be seen as squares.
pub(crate) fn pixels_are_shown(picture: &Picture, width: f64, pixels_per_unit: usize) -> bool {
    width * pixels_per_unit as f64 >= 1.99 * picture.width() as f64
}

/// A coordinate in as few characters as a drawing needs.
pub(crate) fn coordinate(value: f64) -> String {
    let written = format!("{value:.2}");
    let short = written.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".into() } else { short.into() }
}

/// A figure of every kind of item with hostile words and places, for the tests of the formats.
#[cfg(test)]
pub(crate) fn sample() -> Scene {
    let hostile = "</text><script>alert(\"1\")</script> & 'x' \\ ) ( \0\u{1b}\u{202e} α≥−→… é 漢字";
    let mut scene = Scene::new(120.0, 80.0, hostile).unwrap().described(hostile);
    scene.rectangle(10.0, 10.0, 30.0, 20.0, [200, 30, 30]);
    scene.rectangle(f64::NAN, 0.0, 1.0, 1.0, INK);
    let picture = Picture::new(2, 2, vec![0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110]).unwrap();
    scene.group((50.0, 10.0), hostile, |scene| {
        scene.image(0.0, 0.0, 20.0, 20.0, picture);
        scene.text((0.0, 40.0), hostile, TextSize::Small, Anchor::Middle);
    });
    let half = Paint { colour: [0, 0, 255], opacity: 0.5 };
    scene.line((0.0, 0.0), (120.0, 80.0), half, 2.0);
    scene.path(
        vec![Polyline { points: vec![(f64::INFINITY, 0.0), (1.0, 1.0)], closed: true }],
        Style::Fill(half),
    );
    scene.polygon(vec![(80.0, 50.0), (100.0, 50.0), (90.0, 70.0)], half);
    scene.text((60.0, 75.0), "Body", TextSize::Large, Anchor::End);
    scene
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_beyond_reason_are_refused() {
        for (width, height) in [(0.0, 1.0), (1.0, -1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (1e5, 1.0)] {
            assert!(Scene::new(width, height, "").is_err());
        }
    }

    #[test]
    fn the_format_is_told_from_the_ending() {
        assert_eq!(Format::of("a/b.PNG").unwrap(), Format::Png);
        assert_eq!(Format::of("b.svg").unwrap(), Format::Svg);
        assert_eq!(Format::of("b.x.pdf").unwrap(), Format::Pdf);
        assert!(Format::of("pdf").is_err() && Format::of("a.jpg").is_err());
    }

    #[test]
    fn every_format_is_the_same_each_time() {
        for format in [Format::Png, Format::Svg, Format::Pdf] {
            assert_eq!(sample().encode(format).unwrap(), sample().encode(format).unwrap());
        }
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([1.0, 0.5, -0.001, 12.345, -3.10].map(coordinate), ["1", "0.5", "0", "12.35", "-3.1"]);
    }
}
