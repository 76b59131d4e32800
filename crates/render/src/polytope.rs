//! Pictures as the vertices of a polygon: what a class looks like to the network in several of its images.
//!
//! The convex stream of a network is the largest of many affine functions; the gradients it takes at several
//! images are vertices of one polytope, and a figure of them side by side shows what they have in common.

use monosplit_graph::{Error, Result};
use monosplit_image::Picture;

use crate::colour::Rgb;
use crate::grid::{GridCell, draw_cell};
use crate::key::Key;
use crate::number::number;
use crate::overlay::DisplaySize;
use crate::scene::{Anchor, PAPER, Point, Scene};
use crate::text::{self, TextSize};

const MOST_VERTICES: usize = 24;
/// Lines are as thick as this where the similarity is the least found, and the largest.
const THINNEST: f64 = 0.5;
const THICKEST: f64 = 5.0;
/// Places are moved apart by this factor, so many times at most.
const STEP: f64 = 1.06;
const MOST_STEPS: usize = 12;
const MARGIN: f64 = 6.0;
const SIZE: TextSize = TextSize::Small;
const LABEL_LINES: usize = 2;
const INSIDE: Rgb = [245, 245, 245];
const EDGE: Rgb = [140, 140, 140];

/// A line between two vertices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolytopeEdge {
    /// The vertex it starts at, counted from 0.
    pub from: usize,
    /// The vertex it ends at.
    pub to: usize,
    /// How alike the two are: drawn as thickness, from the least to the largest of the figure, and written on the line
    /// while there are few.
    pub similarity: Option<f64>,
}

/// Maps of several images arranged as the vertices of a polygon.
#[derive(Clone, Debug, PartialEq)]
pub struct Polytope {
    /// Words above the whole page.
    pub title: String,
    /// The pictures, clockwise from the top; 24 at most.
    pub vertices: Vec<GridCell>,
    /// What stands in the middle: the mean of the others, for instance.
    pub centre: Option<GridCell>,
    /// The lines; without any, each vertex is joined to the next.
    pub edges: Vec<PolytopeEdge>,
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
    /// With more vertices than this, lines are drawn without numbers: there is no room for them.
    pub const MOST_NUMBERED: usize = 8;

    /// Lays the pictures out.
    pub fn into_scene(self) -> Result<Scene> {
        self.check()?;
        let cells = || self.vertices.iter().chain(&self.centre);
        let longest =
            |side: fn(&Picture) -> usize| cells().map(|cell| side(&cell.picture)).max().unwrap_or(1);
        let display = DisplaySize::new(longest(Picture::width), longest(Picture::height), self.least_side);
        let lines = cells().map(|cell| text::lines(&cell.label, display.width, SIZE, LABEL_LINES).len());
        let label = lines.max().unwrap_or(0) as f64 * SIZE.line();
        let size = (display.width, label + display.height);
        let middles = self.spread(arranged(self.vertices.len(), self.centre.is_some(), size), size);
        let (low, high) = bounds(&middles);
        let key = Key::new(cells());
        let page = (high.0 - low.0 + size.0).max(key.width()) + 2.0 * MARGIN;
        let title = text::lines(&self.title, page - 2.0 * MARGIN, TextSize::Large, LABEL_LINES);
        let head = if title.is_empty() { 0.0 } else { MARGIN + title.len() as f64 * TextSize::Large.line() };
        let height = head + high.1 - low.1 + size.1 + 2.0 * MARGIN + key.height();
        let mut scene = Scene::new(page, height, &self.title)?
            .described(&format!("Pictures as the {} vertices of a polygon.", self.vertices.len()))
            .resolution(display.pixels_per_unit);
        scene.paragraph(MARGIN, MARGIN, &title, TextSize::Large);
        let origin = (MARGIN + size.0 / 2.0 - low.0, MARGIN + head + size.1 / 2.0 - low.1);
        key.draw(&mut scene, MARGIN, height - key.height())?;
        let grid =
            |value: f64| (value * display.pixels_per_unit as f64).round() / display.pixels_per_unit as f64;
        let middles: Vec<Point> =
            middles.iter().map(|(x, y)| (grid(origin.0 + x), grid(origin.1 + y))).collect();
        self.draw_edges(&mut scene, &middles, size);
        for (cell, (x, y)) in self.vertices.into_iter().chain(self.centre).zip(middles) {
            let corner = (grid(x - size.0 / 2.0), grid(y - size.1 / 2.0));
            // Paper behind the label: lines end at the edge of a place, not among its words.
            scene.rectangle(corner.0 - 1.0, corner.1 - 1.0, size.0 + 2.0, size.1 + 2.0, PAPER);
            let name = cell.label.clone();
            scene.group(corner, &name, |scene| draw_cell(scene, cell, label, display));
        }
        Ok(scene)
    }

    /// The places, moved apart until there is room for the number of every line.
    fn spread(&self, mut middles: Vec<Point>, size: Point) -> Vec<Point> {
        let edges = self.lines();
        for _ in 0..MOST_STEPS {
            if self.numbers(&edges, &middles, size).1 {
                break;
            }
            middles.iter_mut().for_each(|(x, y)| (*x, *y) = (*x * STEP, *y * STEP));
        }
        middles
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

    /// The lines that are drawn.
    fn lines(&self) -> Vec<PolytopeEdge> {
        let count = self.vertices.len();
        let around = |from: usize| PolytopeEdge { from, to: (from + 1) % count, similarity: None };
        match self.edges.is_empty() {
            true => (0..count).map(around).filter(|edge| edge.from != edge.to).collect(),
            false => self.edges.clone(),
        }
    }

    fn draw_edges(&self, scene: &mut Scene, middles: &[Point], size: Point) {
        scene.polygon(middles[..self.vertices.len()].to_vec(), INSIDE);
        let edges = self.lines();
        let thickness = Thickness::of(&edges);
        for edge in &edges {
            scene.line(middles[edge.from], middles[edge.to], EDGE, thickness.of_line(edge));
        }
        for number in self.numbers(&edges, middles, size).0 {
            let Number { words, at: (x, y), half } = number;
            scene.rectangle(x - half.0, y - half.1, 2.0 * half.0, 2.0 * half.1, PAPER);
            scene.text((x, y + SIZE.ascent() / 2.0), &words, SIZE, Anchor::Middle);
        }
    }

    /// The numbers of all lines, each a third along its line or near that, where it hides no other number, no picture
    /// and no other line; and whether there is such a place for each.
    fn numbers(&self, edges: &[PolytopeEdge], middles: &[Point], size: Point) -> (Vec<Number>, bool) {
        let mut taken: Vec<(Point, Point)> =
            middles.iter().map(|at| (*at, (size.0 / 2.0 + MARGIN, size.1 / 2.0 + MARGIN))).collect();
        let (mut numbers, mut all_free) = (Vec::new(), true);
        if self.vertices.len() > Polytope::MOST_NUMBERED {
            return (numbers, all_free);
        }
        for (index, edge) in edges.iter().enumerate() {
            let Some(similarity) = edge.similarity else { continue };
            let words = number(similarity).replace('-', "−");
            let half = (text::width(&words, SIZE) / 2.0 + 2.0, SIZE.ascent() / 2.0 + 2.0);
            let line = |edge: &PolytopeEdge| (middles[edge.from], middles[edge.to]);
            let others: Vec<(Point, Point)> =
                edges.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, edge)| line(edge)).collect();
            let apart = |place: &Point| {
                taken.iter().all(|(at, room)| {
                    (at.0 - place.0).abs() >= room.0 + half.0 || (at.1 - place.1).abs() >= room.1 + half.1
                })
            };
            let uncrossed = |place: &Point| others.iter().all(|other| !crosses(*other, *place, half));
            let places = along(line(edge));
            let free = places.iter().find(|place| apart(place) && uncrossed(place));
            all_free &= free.is_some();
            let at = free.or_else(|| places.iter().find(|place| apart(place))).unwrap_or(&places[0]);
            taken.push((*at, half));
            numbers.push(Number { words, at: *at, half });
        }
        (numbers, all_free)
    }
}

/// A number beside a line, in the middle of a box of twice `half`.
struct Number {
    words: String,
    at: Point,
    half: Point,
}

/// The thickness of lines: the range of the similarities that there are, from thin to thick.
struct Thickness {
    low: f64,
    high: f64,
}

impl Thickness {
    fn of(edges: &[PolytopeEdge]) -> Self {
        let found = || edges.iter().filter_map(|edge| edge.similarity).filter(|share| share.is_finite());
        Thickness {
            low: found().fold(f64::INFINITY, f64::min),
            high: found().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    fn of_line(&self, edge: &PolytopeEdge) -> f64 {
        let Some(similarity) = edge.similarity else { return 1.0 };
        let share = (similarity - self.low) / (self.high - self.low);
        // All alike: neither thin nor thick.
        let share = if share.is_finite() { share } else { 0.5 };
        THINNEST + (THICKEST - THINNEST) * share
    }
}

/// Places along a line, those a third from its ends first.
fn along((from, to): (Point, Point)) -> Vec<Point> {
    let mut shares: Vec<f64> = (4..=46).map(|i| f64::from(i) / 50.0).collect();
    let far = |share: &f64| (share - 1.0 / 3.0).abs().min((share - 2.0 / 3.0).abs() + 1e-6);
    shares.sort_by(|a, b| far(a).total_cmp(&far(b)));
    let place = |share: f64| (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
    shares.into_iter().map(place).collect()
}

/// Whether a line passes through the box around `at`.
fn crosses((from, to): (Point, Point), at: Point, half: Point) -> bool {
    // What is left of the line between the sides of the box, one axis after the other.
    let (mut enters, mut leaves) = (0.0f64, 1.0f64);
    for (start, end, middle, half) in [(from.0, to.0, at.0, half.0), (from.1, to.1, at.1, half.1)] {
        let length = end - start;
        if length.abs() < 1e-9 {
            if (start - middle).abs() >= half {
                return false;
            }
            continue;
        }
        let (a, b) = ((middle - half - start) / length, (middle + half - start) / length);
        (enters, leaves) = (enters.max(a.min(b)), leaves.min(a.max(b)));
    }
    enters < leaves
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
            GridCell::picture(picture).labelled(format!("image {i}"))
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
        let edges = vec![PolytopeEdge { from: 0, to: 2, similarity: Some(-0.25) }];
        let centre = polytope(1).vertices.pop();
        let svg = Polytope { edges, centre, ..polytope(5) }.into_scene().unwrap().to_svg().unwrap();
        assert_eq!(svg.matches("stroke=").count(), 1);
        assert!(svg.contains(">−0.25</text>"));
    }

    #[test]
    fn every_pair_has_its_number_where_it_hides_nothing() {
        for (count, centre) in (2..=Polytope::MOST_NUMBERED).flat_map(|count| [(count, false), (count, true)])
        {
            let pairs = (0..count).flat_map(|from| (from + 1..count).map(move |to| (from, to)));
            let edge = |(from, to): (usize, usize)| PolytopeEdge {
                from,
                to,
                similarity: Some(0.1234 * (from + to) as f64),
            };
            let edges: Vec<PolytopeEdge> = pairs.map(edge).collect();
            let polytope = Polytope { edges: edges.clone(), ..polytope(count) };
            let size = (258.0, 160.0);
            let middles = polytope.spread(arranged(count, centre, size), size);
            let (numbers, all_free) = polytope.numbers(&edges, &middles, size);
            assert_eq!((numbers.len(), all_free), (edges.len(), true), "{count} {centre}");
        }
        let many = Polytope::MOST_NUMBERED + 1;
        let edges = vec![PolytopeEdge { from: 0, to: 2, similarity: Some(0.25) }];
        let svg = Polytope { edges, ..polytope(many) }.into_scene().unwrap().to_svg().unwrap();
        assert!(!svg.contains("0.25") && svg.matches("stroke=").count() == 1);
    }

    #[test]
    fn thickness_spans_what_was_found() {
        let edges = [0.31, 0.33, 0.32].map(|share| PolytopeEdge { from: 0, to: 1, similarity: Some(share) });
        let thickness = Thickness::of(&edges);
        let drawn = edges.map(|edge| thickness.of_line(&edge));
        assert!((drawn[0] - THINNEST).abs() < 1e-9 && (drawn[1] - THICKEST).abs() < 1e-9, "{drawn:?}");
        assert!(drawn[0] < drawn[2] && drawn[2] < drawn[1]);
        let alone = Thickness::of(&edges[..1]).of_line(&edges[0]);
        assert!(alone > THINNEST && alone < THICKEST);
    }

    #[test]
    fn polytopes_that_cannot_be_drawn_are_refused() {
        for count in [0, 25] {
            assert!(polytope(count).into_scene().is_err());
        }
        for (from, to) in [(0, 3), (1, 1), (usize::MAX, 0)] {
            let edges = vec![PolytopeEdge { from, to, similarity: Some(f64::NAN) }];
            assert!(Polytope { edges, ..polytope(3) }.into_scene().is_err());
        }
        let edges = vec![PolytopeEdge { from: 0, to: 1, similarity: Some(f64::NAN) }];
        assert!(Polytope { edges, ..polytope(3) }.into_scene().unwrap().to_svg().is_ok());
    }
}
