//! Pictures as the vertices of a polygon: what a class looks like to the network in several of its images.
//!
//! The convex stream of a network is the largest of many affine functions; the gradients it takes at several
//! images are vertices of one polytope, and a figure of them side by side shows what they have in common.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::colour::Rgb;
use crate::grid::{Cell, draw_cell};
use crate::key::Key;
use crate::number::number;
use crate::overlay::Shown;
use crate::scene::{Anchor, PAPER, Point, Scene};
use crate::text::{self, TextSize};

const MOST_VERTICES: usize = 24;
const MARGIN: f64 = 6.0;
const SIZE: TextSize = TextSize::Small;
const LABEL_LINES: usize = 2;
const INSIDE: Rgb = [245, 245, 245];
const EDGE: Rgb = [140, 140, 140];

/// A line between two vertices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// The vertex it starts at, counted from 0.
    pub from: usize,
    /// The vertex it ends at.
    pub to: usize,
    /// How alike the two are, at most 1 in magnitude: drawn as thickness and written beside the line.
    pub similarity: Option<f64>,
}

/// Maps of several images arranged as the vertices of a polygon.
#[derive(Clone, Debug, PartialEq)]
pub struct Polytope {
    /// Words above the whole page.
    pub title: String,
    /// The pictures, clockwise from the top; 24 at most.
    pub vertices: Vec<Cell>,
    /// What stands in the middle: the mean of the others, for instance.
    pub centre: Option<Cell>,
    /// The lines; without any, each vertex is joined to the next.
    pub edges: Vec<Edge>,
    /// Pictures smaller than this are drawn with each pixel as a square.
    pub least_side: usize,
}

impl Default for Polytope {
    fn default() -> Self {
        let (title, vertices, centre, edges) = Default::default();
        Polytope { title, vertices, centre, edges, least_side: 224 }
    }
}

impl Polytope {
    /// Lays the pictures out.
    pub fn into_scene(self) -> Result<Scene> {
        self.check()?;
        let cells = || self.vertices.iter().chain(&self.centre);
        let longest =
            |side: fn(&Picture) -> usize| cells().map(|cell| side(&cell.picture)).max().unwrap_or(1);
        let shown = Shown::new(longest(Picture::width), longest(Picture::height), self.least_side);
        let lines = cells().map(|cell| text::lines(&cell.label, shown.width, SIZE, LABEL_LINES).len());
        let label = lines.max().unwrap_or(0) as f64 * SIZE.line();
        let size = (shown.width, label + shown.height);
        let middles = arranged(self.vertices.len(), self.centre.is_some(), size);
        let (low, high) = bounds(&middles);
        let key = Key::new(cells());
        let page = (high.0 - low.0 + size.0).max(key.width()) + 2.0 * MARGIN;
        let title = text::lines(&self.title, page - 2.0 * MARGIN, TextSize::Large, LABEL_LINES);
        let head = if title.is_empty() { 0.0 } else { MARGIN + title.len() as f64 * TextSize::Large.line() };
        let height = head + high.1 - low.1 + size.1 + 2.0 * MARGIN + key.height();
        let mut scene = Scene::new(page, height, &self.title)?
            .described(&format!("Pictures as the {} vertices of a polygon.", self.vertices.len()))
            .resolution(shown.pixels_per_unit);
        scene.paragraph(MARGIN, MARGIN, &title, TextSize::Large);
        let origin = (MARGIN + size.0 / 2.0 - low.0, MARGIN + head + size.1 / 2.0 - low.1);
        key.draw(&mut scene, MARGIN, height - key.height())?;
        let grid = |value: f64| (value * shown.pixels_per_unit as f64).round() / shown.pixels_per_unit as f64;
        let middles: Vec<Point> =
            middles.iter().map(|(x, y)| (grid(origin.0 + x), grid(origin.1 + y))).collect();
        self.draw_edges(&mut scene, &middles, size);
        for (cell, (x, y)) in self.vertices.into_iter().chain(self.centre).zip(middles) {
            let corner = (grid(x - size.0 / 2.0), grid(y - size.1 / 2.0));
            // Paper behind the label: lines end at the edge of a place, not among its words.
            scene.rectangle(corner.0 - 1.0, corner.1 - 1.0, size.0 + 2.0, size.1 + 2.0, PAPER);
            let name = cell.label.clone();
            scene.group(corner, &name, |scene| draw_cell(scene, cell, label, shown));
        }
        Ok(scene)
    }

    fn check(&self) -> Result<()> {
        let count = self.vertices.len();
        if !(1..=MOST_VERTICES).contains(&count) {
            return Err(Error::argument(format!(
                "a polytope is drawn with 1 to {MOST_VERTICES} vertices, but {count} were given"
            )));
        }
        match self.edges.iter().find(|edge| edge.from.max(edge.to) >= count || edge.from == edge.to) {
            None => Ok(()),
            Some(edge) => Err(Error::argument(format!(
                "an edge joins two different vertices of {count}, but {} and {} were given",
                edge.from, edge.to
            ))),
        }
    }

    fn draw_edges(&self, scene: &mut Scene, middles: &[Point], size: Point) {
        let count = self.vertices.len();
        scene.polygon(middles[..count].to_vec(), INSIDE);
        let around = |from: usize| Edge { from, to: (from + 1) % count, similarity: None };
        let outline: Vec<Edge> = (0..count).map(around).filter(|edge| edge.from != edge.to).collect();
        let edges = if self.edges.is_empty() { &outline } else { &self.edges };
        for edge in edges {
            let width = edge.similarity.map_or(1.0, |share| 0.5 + 3.0 * share.abs().clamp(0.0, 1.0));
            scene.line(middles[edge.from], middles[edge.to], EDGE, width);
        }
        let mut written: Vec<(Point, Point)> =
            middles.iter().map(|at| (*at, (size.0 / 2.0, size.1 / 2.0))).collect();
        for edge in edges {
            let Some(similarity) = edge.similarity else { continue };
            let words = number(similarity).replace('-', "−");
            let ((x0, y0), (x1, y1)) = (middles[edge.from], middles[edge.to]);
            let half = (text::width(&words, SIZE) / 2.0 + 2.0, SIZE.ascent() / 2.0 + 2.0);
            let free = |(x, y): Point| {
                let apart = |(at, room): &(Point, Point)| {
                    (at.0 - x).abs() >= room.0 + half.0 || (at.1 - y).abs() >= room.1 + half.1
                };
                written.iter().all(apart)
            };
            let places = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74];
            let places = places.map(|share| (x0 + share * (x1 - x0), y0 + share * (y1 - y0)));
            if let Some((x, y)) = places.into_iter().find(|place| free(*place)) {
                scene.rectangle(x - half.0, y - half.1, 2.0 * half.0, 2.0 * half.1, PAPER);
                scene.text((x, y + SIZE.ascent() / 2.0), &words, SIZE, Anchor::Middle);
                written.push(((x, y), half));
            }
        }
    }
}

/// The middles of `count` places of one `size` around a circle just large enough that they keep apart, and of
/// one more at its centre if asked for.
fn arranged(count: usize, centre: bool, size: Point) -> Vec<Point> {
    // Room between places, where the lines and their numbers are seen.
    let (width, height) =
        (size.0 + 0.25 * size.0.min(size.1) + 24.0, size.1 + 0.25 * size.0.min(size.1) + 16.0);
    let mut radius = if count > 1 { width.min(height) / 2.0 } else { 0.0 };
    if centre {
        radius = radius.max(width.min(height));
    }
    loop {
        let around = |i: usize| {
            let (sine, cosine) = (i as f64 / count as f64 * std::f64::consts::TAU).sin_cos();
            (radius * sine, -radius * cosine)
        };
        let places: Vec<Point> = (0..count).map(around).chain(centre.then_some((0.0, 0.0))).collect();
        let apart = |a: &Point, b: &Point| (a.0 - b.0).abs() >= width || (a.1 - b.1).abs() >= height;
        let far = places.iter().enumerate().all(|(i, a)| places[..i].iter().all(|b| apart(a, b)));
        // Twenty-four places keep apart long before this; the bound is for places without a size.
        if far || radius > 100.0 * (width + height) {
            return places;
        }
        radius *= 1.04;
    }
}

fn bounds(points: &[Point]) -> (Point, Point) {
    let start = ((f64::INFINITY, f64::INFINITY), (f64::NEG_INFINITY, f64::NEG_INFINITY));
    points
        .iter()
        .fold(start, |(low, high), (x, y)| ((low.0.min(*x), low.1.min(*y)), (high.0.max(*x), high.1.max(*y))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::assert_well_formed;

    fn polytope(count: usize) -> Polytope {
        let cell = |i: usize| {
            let picture = Picture::new(8 + i, 12, vec![10 * i as u8; (8 + i) * 12 * 3]).unwrap();
            Cell::picture(picture).labelled(format!("image {i}"))
        };
        Polytope { title: "class".into(), vertices: (0..count).map(cell).collect(), ..Polytope::default() }
    }

    #[test]
    fn places_keep_apart_and_as_close_as_that_allows() {
        for count in 1..=MOST_VERTICES {
            for (centre, size) in [(false, (100.0, 110.0)), (true, (100.0, 110.0)), (true, (300.0, 20.0))] {
                let places = arranged(count, centre, size);
                assert_eq!(places.len(), count + usize::from(centre));
                for (i, a) in places.iter().enumerate() {
                    for b in &places[..i] {
                        assert!((a.0 - b.0).abs() >= size.0 || (a.1 - b.1).abs() >= size.1);
                    }
                }
                let radius = places[0].0.hypot(places[0].1);
                assert!(radius <= (count as f64 + 2.0) * (size.0 + size.1), "{count} {radius}");
            }
        }
    }

    #[test]
    fn every_vertex_and_every_edge_is_drawn() {
        for count in [1, 2, 3, 7] {
            let svg = polytope(count).into_scene().unwrap().to_svg().unwrap();
            let tags = assert_well_formed(&svg);
            assert_eq!(tags.iter().filter(|tag| *tag == "image").count(), count);
            assert_eq!(svg.matches("stroke=").count(), if count == 1 { 0 } else { count });
        }
        let edges = vec![Edge { from: 0, to: 2, similarity: Some(-0.25) }];
        let centre = polytope(1).vertices.pop();
        let svg = Polytope { edges, centre, ..polytope(5) }.into_scene().unwrap().to_svg().unwrap();
        assert_eq!(svg.matches("stroke=").count(), 1);
        assert!(svg.contains(">−0.25</text>"));
    }

    #[test]
    fn polytopes_that_cannot_be_drawn_are_refused() {
        for count in [0, 25] {
            assert!(polytope(count).into_scene().is_err());
        }
        for (from, to) in [(0, 3), (1, 1), (usize::MAX, 0)] {
            let edges = vec![Edge { from, to, similarity: Some(f64::NAN) }];
            assert!(Polytope { edges, ..polytope(3) }.into_scene().is_err());
        }
        let edges = vec![Edge { from: 0, to: 1, similarity: Some(f64::NAN) }];
        assert!(Polytope { edges, ..polytope(3) }.into_scene().unwrap().to_svg().is_ok());
    }
}
