//! A scene as pixels, words in the bitmap font. Shapes are smoothed at their edges by the share of each pixel
//! they cover.

use monosplit_graph::Result;
use monosplit_image::{Filter, Picture};

use crate::canvas::Canvas;
use crate::font;
use crate::scene::{Anchor, Item, Paint, Point, Polyline, Scene, Style};
use crate::text::TextSize;

/// Lines a row of pixels is cut into to find how much of each pixel is covered.
const CUTS: usize = 4;

impl Scene {
    /// The figure as pixels.
    pub fn to_picture(&self) -> Result<Picture> {
        let scale = self.pixels_per_unit() as f64;
        let side = |units: f64| (units * scale).round() as usize;
        let mut canvas = Canvas::new(side(self.width()), side(self.height()))?;
        let mut origins = vec![(0.0, 0.0)];
        for item in self.items() {
            let (x, y): Point = origins.last().copied().unwrap_or_default();
            let place = |(left, top): Point| ((x + left) * scale, (y + top) * scale);
            match item {
                Item::Begin { origin, .. } => origins.push((x + origin.0, y + origin.1)),
                Item::End => {
                    origins.pop();
                }
                Item::Rectangle { left, top, width, height, fill } => {
                    let (right, bottom) = (left + width, top + height);
                    let corners = [(*left, *top), (right, *top), (right, bottom), (*left, bottom)];
                    let mut edges = Vec::new();
                    add_polygon(&mut edges, &corners.map(place));
                    self::fill(&mut canvas, edges, *fill);
                }
                Item::Path { lines, style } => {
                    let placed = |line: &Polyline| Polyline {
                        points: line.points.iter().copied().map(place).collect(),
                        closed: line.closed,
                    };
                    let lines: Vec<Polyline> = lines.iter().map(placed).collect();
                    draw_path(&mut canvas, &lines, *style, scale);
                }
                Item::Text { place: at, words, size, anchor } => {
                    write(&mut canvas, place(*at), words, *size, *anchor, scale);
                }
                Item::Image { left, top, width, height, picture } => {
                    let (size, place) = ((side(*width), side(*height)), place((*left, *top)));
                    draw_picture(&mut canvas, place, size, picture)?;
                }
            }
        }
        canvas.into_picture()
    }
}

fn write(canvas: &mut Canvas, (x, y): Point, words: &str, size: TextSize, anchor: Anchor, scale: f64) {
    // Dots are whole pixels, rounded down: words never take more room than was measured.
    let dot = ((size.dot() * scale).floor() as usize).max(1);
    let left = x - anchor.share() * font::width(words, dot) as f64;
    let top = y - (font::ASCENT * dot) as f64;
    canvas.write(left.round().max(0.0) as usize, top.round().max(0.0) as usize, words, dot);
}

fn draw_picture(
    canvas: &mut Canvas,
    (left, top): Point,
    (width, height): (usize, usize),
    picture: &Picture,
) -> Result<()> {
    let (left, top) = (left.round().max(0.0) as usize, top.round().max(0.0) as usize);
    let factor = width / picture.width();
    if factor > 0 && (width, height) == (factor * picture.width(), factor * picture.height()) {
        canvas.draw(left, top, picture, factor);
    } else {
        let resized = picture.resize(width.max(1), height.max(1), Filter::Bilinear)?;
        canvas.draw(left, top, &resized, 1);
    }
    Ok(())
}

fn draw_path(canvas: &mut Canvas, lines: &[Polyline], style: Style, scale: f64) {
    let mut edges = Vec::new();
    let paint = match style {
        Style::Fill(paint) => {
            lines.iter().for_each(|line| add_polygon(&mut edges, &line.points));
            paint
        }
        Style::Stroke(paint, width) => {
            lines.iter().for_each(|line| add_stroke(&mut edges, line, width * scale / 2.0));
            paint
        }
    };
    fill(canvas, edges, paint);
}

/// Adds the polygons that together cover a line: a quadrilateral for each piece and a disc for each joint, all
/// turning the same way, so that filling them at once paints nothing twice.
fn add_stroke(edges: &mut Vec<Edge>, line: &Polyline, radius: f64) {
    let points = &line.points;
    let pieces = if line.closed { points.len() } else { points.len() - 1 };
    for i in 0..pieces {
        let ((x0, y0), (x1, y1)) = (points[i], points[(i + 1) % points.len()]);
        let length = (x1 - x0).hypot(y1 - y0);
        if length > 0.0 {
            let (across, down) = (-(y1 - y0) / length * radius, (x1 - x0) / length * radius);
            let corners = [
                (x0 + across, y0 + down),
                (x1 + across, y1 + down),
                (x1 - across, y1 - down),
                (x0 - across, y0 - down),
            ];
            add_polygon(edges, &corners);
        }
        // The outer ends of an open line stay square.
        if line.closed || i > 0 {
            add_disc(edges, (x0, y0), radius);
        }
    }
}

fn add_disc(edges: &mut Vec<Edge>, (x, y): Point, radius: f64) {
    const CORNERS: usize = 8;
    let corners: [Point; CORNERS] = std::array::from_fn(|i| {
        let (sine, cosine) = (i as f64 / CORNERS as f64 * std::f64::consts::TAU).sin_cos();
        (x + radius * cosine, y - radius * sine)
    });
    add_polygon(edges, &corners);
}

/// One side of a polygon, from its upper to its lower end.
struct Edge {
    top: f64,
    bottom: f64,
    x: f64,
    slope: f64,
    /// 1 if the side runs down, -1 if it runs up.
    turn: i32,
}

fn add_polygon(edges: &mut Vec<Edge>, polygon: &[Point]) {
    for (i, &start) in polygon.iter().enumerate() {
        let end = polygon[(i + 1) % polygon.len()];
        let (upper, lower, turn) = if start.1 <= end.1 { (start, end, 1) } else { (end, start, -1) };
        if upper.1 < lower.1 {
            let slope = (lower.0 - upper.0) / (lower.1 - upper.1);
            edges.push(Edge { top: upper.1, bottom: lower.1, x: upper.0, slope, turn });
        }
    }
}

/// Paints what lies within any of the polygons that `edges` belong to (by the nonzero winding rule) once.
fn fill(canvas: &mut Canvas, mut edges: Vec<Edge>, paint: Paint) {
    edges.sort_unstable_by(|a, b| a.top.total_cmp(&b.top));
    let Some(top) = edges.first().map(|edge| edge.top.floor().max(0.0)) else { return };
    let bottom = edges.iter().fold(0.0f64, |low, edge| low.max(edge.bottom)).ceil();
    let rows = top as usize..(bottom as usize).min(canvas.height());
    let mut covered = vec![0f32; canvas.width()];
    let (mut active, mut next): (Vec<&Edge>, usize) = (Vec::new(), 0);
    let mut crossings: Vec<(f64, i32)> = Vec::new();
    for row in rows {
        let (mut left, mut right) = (usize::MAX, 0);
        for cut in 0..CUTS {
            let y = row as f64 + (cut as f64 + 0.5) / CUTS as f64;
            while let Some(edge) = edges.get(next).filter(|edge| edge.top <= y) {
                active.push(edge);
                next += 1;
            }
            active.retain(|edge| edge.bottom > y);
            crossings.clear();
            crossings.extend(active.iter().map(|edge| (edge.x + (y - edge.top) * edge.slope, edge.turn)));
            crossings.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let (mut winding, mut start) = (0, 0.0);
            for &(x, turn) in &crossings {
                if winding == 0 {
                    start = x;
                }
                winding += turn;
                if winding == 0 {
                    let touched = cover(&mut covered, start, x);
                    (left, right) = (left.min(touched.0), right.max(touched.1));
                }
            }
        }
        for (x, covered) in covered.iter_mut().enumerate().take(right).skip(left) {
            let share = f64::from(std::mem::take(covered)) / CUTS as f64 * paint.opacity;
            canvas.mix(x, row, paint.colour, share.min(1.0));
        }
    }
}

/// Adds the share of each pixel that lies between `start` and `end`; returns which pixels were touched.
fn cover(covered: &mut [f32], start: f64, end: f64) -> (usize, usize) {
    let width = covered.len() as f64;
    let (start, end) = (start.clamp(0.0, width), end.clamp(0.0, width));
    let (first, last) = (start.floor() as usize, end.ceil() as usize);
    for (i, share) in covered[first..last.max(first)].iter_mut().enumerate() {
        let x = (first + i) as f64;
        *share += (end.min(x + 1.0) - start.max(x)).max(0.0) as f32;
    }
    (first, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{INK, sample};

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
        let darkest = scene.to_picture().unwrap().rgb().iter().copied().min();
        assert_eq!(darkest, Some(128));
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
}
