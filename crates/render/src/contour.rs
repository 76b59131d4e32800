//! Lines along which a map has one value, found by marching squares.
//!
//! Between the centres of its places a map is interpolated, and towards the edges of the picture it is
//! continued unchanged, as when it is scaled to the picture's size. No line passes where a value is not finite.

use std::collections::HashMap;

use monosplit_graph::{Error, Result};

use crate::scalar_field::ScalarField;
use crate::scale::{Palette, Scale};
use crate::scene::{INK, PAPER, Paint, Point, Polyline, Scene, Style};

/// Most levels that are drawn over one picture.
pub const MOST_LEVELS: usize = 32;

/// The lines of one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Contour {
    /// The value along the lines.
    pub level: f64,
    /// The lines, in shares of the map's width and height, 0 to 1.
    pub lines: Vec<Polyline>,
}

/// The lines of `map` at each of `levels`, at most [`MOST_LEVELS`].
pub fn contours(map: &ScalarField, levels: &[f64]) -> Result<Vec<Contour>> {
    if levels.len() > MOST_LEVELS {
        return Err(Error::argument(format!(
            "at most {MOST_LEVELS} contours are drawn over a map, but {} were asked for",
            levels.len()
        )));
    }
    if let Some(level) = levels.iter().find(|level| !level.is_finite()) {
        return Err(Error::argument(format!("a contour follows a finite value, not {level}")));
    }
    let lattice = Lattice { map };
    Ok(levels.iter().map(|&level| Contour { level, lines: joined(lattice.segments(level)) }).collect())
}

/// `count` levels on each side of zero that cut the colours of `scale` into equal steps; none for a flat map.
pub fn contour_levels(scale: &Scale, count: usize) -> Vec<f64> {
    let (low, high) = scale.ends();
    let share = |i: usize| i as f64 / (count as f64 + 1.0);
    let below = (1..=count).rev().map(|i| low * share(i));
    let above = (1..=count).map(|i| high * share(i));
    match scale.palette() {
        Palette::Flat => Vec::new(),
        Palette::Signed => below.chain(above).collect(),
        Palette::Positive => above.collect(),
        Palette::Negative => below.collect(),
    }
}

/// Draws `contours` over the area of a picture: dark on light, so that they are seen on every background.
pub(crate) fn draw(scene: &mut Scene, contours: &[Contour], (left, top): Point, (width, height): Point) {
    let place = |&(x, y): &Point| (left + x * width, top + y * height);
    let lines: Vec<Polyline> = contours
        .iter()
        .flat_map(|contour| &contour.lines)
        .map(|line| Polyline { points: line.points.iter().map(place).collect(), closed: line.closed })
        .collect();
    scene.path(lines.clone(), Style::Stroke(Paint { colour: PAPER, opacity: 0.7 }, 1.5));
    scene.path(lines, Style::Stroke(INK.into(), 0.6));
}

/// A piece of a contour within one square: where it enters and leaves, named by the square's sides.
struct Segment {
    sides: [usize; 2],
    points: [Point; 2],
}

/// The centres of a map's places, with one more all around on the edges of the picture.
struct Lattice<'a> {
    map: &'a ScalarField,
}

impl Lattice<'_> {
    fn columns(&self) -> usize {
        self.map.width() + 2
    }

    fn value(&self, column: usize, row: usize) -> f64 {
        let x = column.saturating_sub(1).min(self.map.width() - 1);
        let y = row.saturating_sub(1).min(self.map.height() - 1);
        self.map.values()[y * self.map.width() + x].into()
    }

    fn place(&self, column: usize, row: usize) -> Point {
        let along = |i: usize, length: usize| ((i as f64 - 0.5) / length as f64).clamp(0.0, 1.0);
        (along(column, self.map.width()), along(row, self.map.height()))
    }

    fn segments(&self, level: f64) -> Vec<Segment> {
        let mut segments = Vec::new();
        for row in 0..=self.map.height() {
            for column in 0..=self.map.width() {
                self.square(column, row, level, &mut segments);
            }
        }
        segments
    }

    /// Adds the pieces within the square whose upper left corner is given.
    fn square(&self, column: usize, row: usize, level: f64, segments: &mut Vec<Segment>) {
        let corners = [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1)];
        let values = corners.map(|(x, y)| self.value(x, y));
        if values.iter().any(|v| !v.is_finite()) {
            return;
        }
        let within = values.map(|v| v >= level);
        // Side `i` joins corner `i` to the next one: top, right, bottom, left.
        let crossed: Vec<usize> = (0..4).filter(|&i| within[i] != within[(i + 1) % 4]).collect();
        let pairs: &[[usize; 2]] = match crossed[..] {
            [a, b] => &[[a, b]],
            // The middle decides which two of the four corners hang together.
            [_, _, _, _] if (values.iter().sum::<f64>() / 4.0 >= level) == within[0] => &[[0, 1], [2, 3]],
            [_, _, _, _] => &[[3, 0], [1, 2]],
            _ => &[],
        };
        for sides in pairs {
            segments.push(Segment {
                sides: sides.map(|side| self.side(column, row, side)),
                points: sides.map(|side| {
                    let next = (side + 1) % 4;
                    let share = (level - values[side]) / (values[next] - values[side]);
                    let ((x0, y0), (x1, y1)) = (
                        self.place(corners[side].0, corners[side].1),
                        self.place(corners[next].0, corners[next].1),
                    );
                    (x0 + share * (x1 - x0), y0 + share * (y1 - y0))
                }),
            });
        }
    }

    /// A number for one side of a square that its neighbour gives to the same side.
    fn side(&self, column: usize, row: usize, side: usize) -> usize {
        let corner = |column: usize, row: usize| 2 * (row * self.columns() + column);
        match side {
            0 => corner(column, row),
            1 => corner(column + 1, row) + 1,
            2 => corner(column, row + 1),
            _ => corner(column, row) + 1,
        }
    }
}

/// Joins pieces that meet into lines, in the order in which they were found.
fn joined(segments: Vec<Segment>) -> Vec<Polyline> {
    let mut meeting: HashMap<usize, Vec<usize>> = HashMap::new();
    for (i, segment) in segments.iter().enumerate() {
        for side in segment.sides {
            meeting.entry(side).or_default().push(i);
        }
    }
    let mut used = vec![false; segments.len()];
    // Follows the line that leaves through `side` and returns the points after it.
    let follow = |mut side: usize, used: &mut Vec<bool>| {
        let mut points = Vec::new();
        while let Some(&next) = meeting.get(&side).and_then(|met| met.iter().find(|&&i| !used[i])) {
            used[next] = true;
            let end = usize::from(segments[next].sides[0] == side);
            points.push(segments[next].points[end]);
            side = segments[next].sides[end];
        }
        (points, side)
    };
    let mut lines = Vec::new();
    for (i, segment) in segments.iter().enumerate() {
        if std::mem::replace(&mut used[i], true) {
            continue;
        }
        let (forward, end) = follow(segment.sides[1], &mut used);
        let closed = end == segment.sides[0];
        let (mut points, _) = follow(segment.sides[0], &mut used);
        points.reverse();
        points.extend(segment.points);
        points.extend(forward);
        if closed {
            points.pop();
        }
        lines.push(Polyline { points, closed });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(width: usize, height: usize, value: impl Fn(f64, f64) -> f64) -> ScalarField {
        let values = (0..width * height).map(|i| {
            let x = ((i % width) as f64 + 0.5) / width as f64;
            let y = ((i / width) as f64 + 0.5) / height as f64;
            value(x, y) as f32
        });
        ScalarField::new(width, height, values.collect()).unwrap()
    }

    fn area(points: &[Point]) -> f64 {
        let pairs = points.iter().zip(points.iter().cycle().skip(1));
        pairs.map(|(a, b)| a.0 * b.1 - b.0 * a.1).sum::<f64>().abs() / 2.0
    }

    #[test]
    fn the_contour_of_a_cone_is_a_circle() {
        let cone = map(64, 64, |x, y| 1.0 - (x - 0.5).hypot(y - 0.5));
        for contour in contours(&cone, &[0.6, 0.7, 0.8]).unwrap() {
            let radius = 1.0 - contour.level;
            let [line] = &contour.lines[..] else { panic!("one line") };
            assert!(line.closed);
            assert!(line.points.iter().all(|(x, y)| ((x - 0.5).hypot(y - 0.5) - radius).abs() < 2e-3));
            assert!((area(&line.points) / (std::f64::consts::PI * radius * radius) - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn a_slope_is_cut_from_edge_to_edge_where_it_has_the_value() {
        let [contour] = &contours(&map(8, 5, |x, _| x), &[0.3]).unwrap()[..] else { panic!("one level") };
        let [line] = &contour.lines[..] else { panic!("one line") };
        assert!(!line.closed && line.points.iter().all(|(x, _)| (x - 0.3).abs() < 1e-6));
        let mut ends = [line.points[0].1, line.points[line.points.len() - 1].1];
        ends.sort_by(f64::total_cmp);
        assert_eq!(ends, [0.0, 1.0]);
    }

    #[test]
    fn both_halves_of_a_saddle_are_found_and_nothing_else() {
        for (corners, loops) in [([1.0, 0.0, 0.0, 1.0], 2), ([0.0, 1.0, 1.0, 0.0], 2)] {
            let saddle = ScalarField::new(2, 2, corners.to_vec()).unwrap();
            for level in [0.3, 0.7] {
                assert_eq!(contours(&saddle, &[level]).unwrap()[0].lines.len(), loops);
            }
        }
    }

    #[test]
    fn flat_maps_have_no_contours_and_holes_are_left_out() {
        for value in [0.0, 1.0, f32::NAN, f32::INFINITY, f32::MAX] {
            let flat = ScalarField::new(3, 2, vec![value; 6]).unwrap();
            assert!(contours(&flat, &[0.5, 1.0]).unwrap().iter().all(|contour| contour.lines.is_empty()));
        }
        let torn = map(9, 9, |x, y| if x > 0.6 && y > 0.6 { f64::NAN } else { x * y });
        for line in &contours(&torn, &[0.2]).unwrap()[0].lines {
            assert!(line.points.iter().all(|(x, y)| x.is_finite() && y.is_finite()));
        }
        let wild = ScalarField::new(2, 1, vec![f32::MIN, f32::MAX]).unwrap();
        assert_eq!(contours(&wild, &[0.0]).unwrap()[0].lines[0].points[0].0, 0.5);
        assert!(contours(&wild, &[f64::NAN]).is_err() && contours(&wild, &[0.0; 33]).is_err());
    }

    #[test]
    fn levels_cut_the_scale_evenly() {
        let scale = |values: &[f32]| {
            Scale::new(&ScalarField::new(values.len(), 1, values.to_vec()).unwrap(), None).unwrap()
        };
        assert_eq!(contour_levels(&scale(&[-1.0, 4.0]), 1), [-2.0, 2.0]);
        assert_eq!(contour_levels(&scale(&[0.0, 3.0]), 2), [1.0, 2.0]);
        assert_eq!(contour_levels(&scale(&[0.0, -3.0]), 2), [-2.0, -1.0]);
        assert!(contour_levels(&scale(&[1.0, 1.0]), 5).is_empty());
    }
}
