//! A scene as pixels. Shapes and words are smoothed at their edges; the pixels of pictures are not touched.

use harfrust::font::glyph::outline::PathSink;
use monosplit_graph::{Error, Result, element_count};
use monosplit_image::{Filter, MAX_BYTES, MAX_SIDE, Picture};
use tiny_skia::{Color, FillRule, LineJoin, PathBuilder, Pixmap, Rect, Stroke, Transform};

use crate::scene::{Anchor, INK, Item, PAPER, Paint, Point, Polyline, Scene, Style};
use crate::shaping::{self, Run};
use crate::text::TextSize;

/// What lies further outside than this many pixels is moved there: arithmetic with 32 bits ends somewhere.
const FARTHEST: f64 = 1e5;

impl Scene {
    /// The figure as pixels.
    pub fn to_picture(&self) -> Result<Picture> {
        self.warn_of_missing_characters();
        let mut page = Page::new(self)?;
        let mut origins = vec![(0.0, 0.0)];
        for item in self.items() {
            let origin: Point = origins.last().copied().unwrap_or_default();
            match item {
                Item::Begin { origin: (x, y), .. } => origins.push((origin.0 + x, origin.1 + y)),
                Item::End => {
                    origins.pop();
                }
                _ => page.draw(item, origin)?,
            }
        }
        page.into_picture()
    }
}

/// The pixels so far.
struct Page {
    pixels: Pixmap,
    /// Pixels a unit takes.
    scale: f64,
}

impl Page {
    /// White paper.
    fn new(scene: &Scene) -> Result<Self> {
        let scale = scene.pixels_per_unit() as f64;
        let side = |units: f64| (units * scale).round() as usize;
        let (width, height) = (side(scene.width()), side(scene.height()));
        let within = width.max(height) <= MAX_SIDE
            && element_count(&[width, height, 3]).is_some_and(|bytes| bytes <= MAX_BYTES);
        let pixels = match (within, u32::try_from(width), u32::try_from(height)) {
            (true, Ok(width), Ok(height)) => Pixmap::new(width, height),
            _ => None,
        };
        let mut pixels = pixels.ok_or_else(|| {
            Error::argument(format!(
                "a figure of {width}×{height} pixels is empty or beyond the limits of {MAX_SIDE} pixels a side and \
                 {} MiB; draw fewer or smaller pictures",
                MAX_BYTES >> 20
            ))
        })?;
        let [red, green, blue] = PAPER;
        pixels.fill(Color::from_rgba8(red, green, blue, 255));
        Ok(Page { pixels, scale })
    }

    fn draw(&mut self, item: &Item, origin: Point) -> Result<()> {
        let scale = self.scale;
        let place = |(x, y): Point| ((origin.0 + x) * scale, (origin.1 + y) * scale);
        match item {
            Item::Rectangle { left, top, width, height, fill } => {
                let (left, top) = place((*left, *top));
                self.rectangle((left, top), (left + width * scale, top + height * scale), *fill);
            }
            Item::Path { lines, style } => self.path(lines, place, *style),
            Item::Text { place: at, words, size, anchor } => self.text(place(*at), words, *size, *anchor),
            Item::Image { left, top, width, height, picture } => {
                let side = |units: f64| (units * scale).round() as usize;
                self.picture(place((*left, *top)), (side(*width), side(*height)), picture)?;
            }
            Item::Begin { .. } | Item::End => {}
        }
        Ok(())
    }

    fn rectangle(&mut self, from: Point, to: Point, fill: Paint) {
        let [left, top, right, bottom] = [from.0, from.1, to.0, to.1].map(near);
        if let Some(area) = Rect::from_ltrb(left, top, right, bottom) {
            self.pixels.fill_rect(area, &paint(fill), Transform::identity(), None);
        }
    }

    fn path(&mut self, lines: &[Polyline], place: impl Fn(Point) -> Point, style: Style) {
        let mut path = PathBuilder::new();
        for line in lines {
            for (i, point) in line.points.iter().enumerate() {
                let (x, y) = place(*point);
                let step = if i == 0 { PathBuilder::move_to } else { PathBuilder::line_to };
                step(&mut path, near(x), near(y));
            }
            if line.closed {
                path.close();
            }
        }
        let Some(path) = path.finish() else { return };
        match style {
            Style::Fill(fill) => {
                self.pixels.fill_path(&path, &paint(fill), FillRule::Winding, Transform::identity(), None);
            }
            Style::Stroke(colour, width) => {
                let width = (width * self.scale) as f32;
                let stroke = Stroke { width, line_join: LineJoin::Round, ..Stroke::default() };
                self.pixels.stroke_path(&path, &paint(colour), &stroke, Transform::identity(), None);
            }
        }
    }

    fn text(&mut self, (x, y): Point, words: &str, size: TextSize, anchor: Anchor) {
        let runs = shaping::shape(words);
        let em = size.em() * self.scale;
        let width: f64 = runs.iter().flat_map(|run| &run.glyphs).map(|glyph| glyph.advance * em).sum();
        // Baselines lie on whole pixels, so that letters stand on a sharp edge.
        let outlines = outlines(&runs, (x - anchor.share() * width, y.round()), em);
        if let Some(path) = outlines.finish() {
            self.pixels.fill_path(&path, &paint(INK.into()), FillRule::Winding, Transform::identity(), None);
        }
    }

    /// Draws every pixel as a square where the size is a whole multiple.
    fn picture(
        &mut self,
        (left, top): Point,
        (width, height): (usize, usize),
        picture: &Picture,
    ) -> Result<()> {
        let (left, top) = (left.round().max(0.0) as usize, top.round().max(0.0) as usize);
        let factor = width / picture.width();
        if factor > 0 && (width, height) == (factor * picture.width(), factor * picture.height()) {
            self.copy(left, top, picture, factor);
        } else {
            let resized = picture.resize(width.max(1), height.max(1), Filter::Bilinear)?;
            self.copy(left, top, &resized, 1);
        }
        Ok(())
    }

    fn copy(&mut self, left: usize, top: usize, picture: &Picture, factor: usize) {
        let (page_width, page_height) = (self.pixels.width() as usize, self.pixels.height() as usize);
        let width = (picture.width() * factor).min(page_width.saturating_sub(left));
        let height =
            if width == 0 { 0 } else { (picture.height() * factor).min(page_height.saturating_sub(top)) };
        for y in 0..height {
            let source = &picture.rgb()[y / factor * picture.width() * 3..];
            let row = &mut self.pixels.data_mut()[((top + y) * page_width + left) * 4..][..width * 4];
            for (x, pixel) in row.chunks_exact_mut(4).enumerate() {
                pixel[..3].copy_from_slice(&source[x / factor * 3..][..3]);
            }
        }
    }

    fn into_picture(self) -> Result<Picture> {
        let (width, height) = (self.pixels.width() as usize, self.pixels.height() as usize);
        // The paper is opaque, and so is everything laid over it.
        let (pixels, _) = self.pixels.data().as_chunks::<4>();
        let mut rgb = vec![0; 3 * pixels.len()];
        for (colour, &[red, green, blue, _]) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(pixels) {
            *colour = [red, green, blue];
        }
        Picture::new(width, height, rgb)
    }
}

fn near(pixels: f64) -> f32 {
    pixels.clamp(-FARTHEST, FARTHEST) as f32
}

fn paint(Paint { colour: [red, green, blue], opacity }: Paint) -> tiny_skia::Paint<'static> {
    let mut paint = tiny_skia::Paint::default();
    paint.set_color_rgba8(red, green, blue, (opacity.clamp(0.0, 1.0) * 255.0).round() as u8);
    paint
}

/// The outlines of all glyphs, the first with its origin at `x` on the baseline `y`.
fn outlines(runs: &[Run], (x, y): Point, em: f64) -> PathBuilder {
    let mut outline = Outline { path: PathBuilder::new(), x, y, scale: 1.0 };
    let mut pen = x;
    for run in runs {
        outline.scale = run.face.unit() * em;
        for glyph in &run.glyphs {
            (outline.x, outline.y) = (pen + glyph.offset.0 * em, y - glyph.offset.1 * em);
            run.face.draw(glyph.id, &mut outline);
            pen += glyph.advance * em;
        }
    }
    outline.path
}

/// A path in pixels that outlines in font units are added to, with their origin at `x` and `y`.
struct Outline {
    path: PathBuilder,
    x: f64,
    y: f64,
    scale: f64,
}

impl Outline {
    fn place(&self, x: f32, y: f32) -> (f32, f32) {
        (near(self.x + f64::from(x) * self.scale), near(self.y - f64::from(y) * self.scale))
    }
}

impl PathSink for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, cx: f32, cy: f32, x: f32, y: f32) {
        let ((cx, cy), (x, y)) = (self.place(cx, cy), self.place(x, y));
        self.path.quad_to(cx, cy, x, y);
    }

    fn curve_to(&mut self, cx0: f32, cy0: f32, cx1: f32, cy1: f32, x: f32, y: f32) {
        let ((cx0, cy0), (cx1, cy1), (x, y)) = (self.place(cx0, cy0), self.place(cx1, cy1), self.place(x, y));
        self.path.cubic_to(cx0, cy0, cx1, cy1, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::sample;

    fn ink(scene: &Scene) -> f64 {
        let picture = scene.to_picture().unwrap();
        picture.rgb().chunks(3).map(|pixel| f64::from(255 - pixel[0]) / 255.0).sum()
    }

    fn paper() -> Scene {
        Scene::new(40.0, 40.0, "").unwrap()
    }

    #[test]
    fn as_much_is_painted_as_the_shapes_measure() {
        let black = [0, 0, 0];
        let mut scene = paper();
        scene.rectangle(3.25, 4.0, 10.5, 7.25, black);
        assert!((ink(&scene) / 4.0 - 10.5 * 7.25).abs() < 0.1, "{}", ink(&scene));
        let mut scene = paper();
        scene.polygon(vec![(5.0, 5.0), (30.0, 9.0), (12.0, 33.0)], black);
        let area = 0.5 * (25.0 * 28.0 - 7.0 * 4.0);
        assert!((ink(&scene) / 4.0 - area).abs() < 0.5, "{} {area}", ink(&scene) / 4.0);
        let mut scene = paper();
        scene.line((5.0, 5.0), (29.0, 12.0), black, 2.0);
        assert!((ink(&scene) / 4.0 - 2.0 * 25.0).abs() < 0.5, "{}", ink(&scene) / 4.0);
    }

    #[test]
    fn where_a_line_crosses_itself_it_is_painted_once() {
        let half = Paint { colour: [0, 0, 0], opacity: 0.5 };
        let mut scene = paper();
        let points = vec![(5.0, 5.0), (35.0, 35.0), (35.0, 5.0), (5.0, 35.0)];
        scene.path(vec![Polyline { points, closed: true }], Style::Stroke(half, 3.0));
        let darkest = scene.to_picture().unwrap().rgb().iter().copied().min().unwrap();
        assert!((127..=128).contains(&darkest), "{darkest}");
    }

    #[test]
    fn rectangles_on_whole_units_have_sharp_edges() {
        let mut scene = paper();
        scene.rectangle(2.0, 3.0, 4.0, 0.5, INK);
        let picture = scene.to_picture().unwrap();
        let inked = picture.rgb().chunks(3).filter(|pixel| *pixel == INK).count();
        let blank = picture.rgb().chunks(3).filter(|pixel| *pixel == [255; 3]).count();
        assert_eq!((inked, blank), (8, 80 * 80 - 8));
    }

    #[test]
    fn what_lies_outside_the_page_is_left_out() {
        let mut scene = paper();
        scene.rectangle(-1e9, -1e9, 1e9, 1e9, INK);
        scene.line((-1e12, 100.0), (1e12, 100.0), INK, 1.0);
        scene.text((1e9, -1e9), "words", TextSize::Small, Anchor::Start);
        scene.image(1e9, 0.0, 4.0, 4.0, Picture::new(1, 1, vec![0; 3]).unwrap());
        assert_eq!(ink(&scene), 0.0);
        assert!(sample().to_picture().is_ok());
    }

    /// Left, top, right and bottom of what is not paper, in pixels.
    fn extent(picture: &Picture) -> [usize; 4] {
        let mut extent = [usize::MAX, usize::MAX, 0, 0];
        for (i, _) in picture.rgb().chunks(3).enumerate().filter(|(_, pixel)| *pixel != PAPER) {
            let (x, y) = (i % picture.width(), i / picture.width());
            extent = [extent[0].min(x), extent[1].min(y), extent[2].max(x + 1), extent[3].max(y + 1)];
        }
        extent
    }

    #[test]
    fn words_lie_where_they_were_measured_to_lie() {
        for words in ["Hamburg", "WWW", "iiiii", "Egyptian Mau 87.3%"] {
            for (anchor, size) in [
                (Anchor::Start, TextSize::Small),
                (Anchor::Middle, TextSize::Large),
                (Anchor::End, TextSize::Small),
            ] {
                let mut scene = Scene::new(400.0, 40.0, "").unwrap();
                scene.text((200.0, 25.0), words, size, anchor);
                let [left, top, right, bottom] =
                    extent(&scene.to_picture().unwrap()).map(|pixels| pixels as f64 / 2.0);
                let width = crate::text::width(words, size);
                let start = 200.0 - anchor.share() * width;
                // Letters have a little air on both sides, a tenth of an em at most.
                let air = 0.1 * size.em() + 1.0;
                assert!(left >= start - 1.0 && left <= start + air, "{words}: {left} {start}");
                assert!(right <= start + width + 1.0 && right >= start + width - air, "{words}: {right}");
                assert!((top - (25.0 - size.ascent())).abs() < 1.5 && bottom <= 25.0 + size.descent() + 1.0);
            }
        }
    }

    #[test]
    fn letters_are_smooth_and_stand_on_a_sharp_line() {
        let mut scene = Scene::new(60.0, 30.0, "").unwrap();
        scene.text((10.0, 20.3), "HIH", TextSize::Large, Anchor::Start);
        let picture = scene.to_picture().unwrap();
        let row = |y: usize| &picture.rgb()[y * 120 * 3..(y + 1) * 120 * 3];
        let bottom = extent(&picture)[3];
        assert_eq!(bottom, 41, "the baseline, on a whole pixel");
        assert!(row(bottom - 1).chunks(3).any(|pixel| pixel == INK), "full ink in the lowest row");
        assert!(picture.rgb().iter().any(|v| (80..200).contains(v)), "soft edges to the sides");
    }

    #[test]
    fn pixels_of_pictures_are_drawn_as_squares_of_their_colour() {
        let picture = Picture::new(3, 2, (1..19).collect()).unwrap();
        let mut scene = paper();
        scene.image(5.0, 7.0, 6.0, 4.0, picture.clone());
        let drawn = scene.to_picture().unwrap();
        for y in 0..8 {
            for x in 0..12 {
                let at = ((14 + y) * 80 + 10 + x) * 3;
                let source = (y / 4 * 3 + x / 4) * 3;
                assert_eq!(drawn.rgb()[at..at + 3], picture.rgb()[source..source + 3]);
            }
        }
    }

    #[test]
    fn pages_beyond_reason_are_refused() {
        let scene = Scene::new(19_000.0, 19_000.0, "").unwrap().resolution(8);
        assert!(scene.to_picture().is_err());
        assert!(Scene::new(0.1, 0.1, "").unwrap().resolution(1).to_picture().is_err());
    }
}
