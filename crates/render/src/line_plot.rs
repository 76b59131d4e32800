//! Line plots over layers, α or training steps.
//!
//! Series differ in colour and in the shape of their points, so that they can be distinguished without colour.

use monosplit_graph::{Error, Result};

use crate::axis::{Axis, Tick};
use crate::colour::Rgb;
use crate::colour_bar::ColourBar;
use crate::scalar_field::ScalarField;
use crate::scale::Scale;
use crate::scene::{Anchor, INK, Paint, Point, Polyline, Scene, Style};
use crate::text::{self, TextSize};

/// Colours that differ for every kind of eye (Okabe and Ito 2008, without the yellow that paper swallows).
const COLOURS: [Rgb; 7] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [34, 34, 34],
    [86, 180, 233],
    [230, 159, 0],
];
const SHAPES: usize = 5;
const MOST_SERIES: usize = COLOURS.len() * SHAPES;
/// The largest number of points that are marked.
const MOST_MARKS: usize = 40;
const MARGIN: f64 = 6.0;
const SIZE: TextSize = TextSize::Small;
/// The opacity of the strips, so that curves are seen before dark ones.
const STRIPS: f64 = 0.6;
/// The length of the key to the strips.
const KEY: f64 = 120.0;
const GRID_LINE: Rgb = [222, 222, 222];

/// One curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Its points in order; one that is not finite leaves a gap.
    pub points: Vec<(f64, f64)>,
    /// The lower and upper bound of each point's confidence interval; empty, or as many as there are points.
    pub band: Vec<(f64, f64)>,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinePlot {
    /// The title of the page.
    pub title: String,
    /// What the horizontal axis shows.
    pub x_label: String,
    /// What the vertical axis shows.
    pub y_label: String,
    /// The curves.
    pub series: Vec<Series>,
    /// A value for each of some places from left to right, drawn as coloured strips behind the curves, with their key.
    pub heat: Vec<(f64, f32)>,
    /// Names for places on the horizontal axis, layers for instance, in order; numbers where there are none.
    pub x_names: Vec<(f64, String)>,
    /// Width of the page in ninety-sixths of an inch.
    pub width: f64,
    /// Height of the page; more is taken where the legend needs it.
    pub height: f64,
}

impl Default for LinePlot {
    fn default() -> Self {
        LinePlot {
            title: String::new(),
            x_label: String::new(),
            y_label: String::new(),
            series: Vec::new(),
            heat: Vec::new(),
            x_names: Vec::new(),
            width: 480.0,
            height: 280.0,
        }
    }
}

impl LinePlot {
    /// Draws the curves.
    pub fn into_scene(self) -> Result<Scene> {
        self.check()?;
        let plot = Plot::new(&self);
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        let mut scene = Scene::new(self.width, plot.page_height, &self.title)?.described(&format!(
            "Curves of {} over {}: {}.",
            self.y_label,
            self.x_label,
            names.join(", ")
        ));
        scene.paragraph(MARGIN, MARGIN, &plot.title, TextSize::Large);
        plot.draw_heat(&mut scene, &self)?;
        plot.draw_axes(&mut scene, &self);
        for (i, series) in self.series.iter().enumerate() {
            plot.draw_band(&mut scene, i, series);
        }
        for (i, series) in self.series.iter().enumerate() {
            scene.group((0.0, 0.0), &series.name, |scene| plot.draw_series(scene, i, series));
        }
        plot.draw_legend(&mut scene, &self);
        Ok(scene)
    }

    fn check(&self) -> Result<()> {
        if self.series.is_empty() || self.series.len() > MOST_SERIES {
            return Err(Error::argument(format!(
                "a plot shows 1 to {MOST_SERIES} series, but {} were given",
                self.series.len()
            )));
        }
        if !(self.width >= 200.0 && self.height >= 120.0) {
            return Err(Error::argument(format!(
                "a plot takes at least 200×120 units, but {}×{} were given",
                self.width, self.height
            )));
        }
        match self.series.iter().find(|s| !s.band.is_empty() && s.band.len() != s.points.len()) {
            None => Ok(()),
            Some(series) => Err(Error::argument(format!(
                "the series '{}' has {} points but {} confidence intervals; give one for each or none",
                series.name,
                series.points.len(),
                series.band.len()
            ))),
        }
    }
}

/// The positions of all parts.
struct Plot {
    title: Vec<String>,
    x: Axis,
    y: Axis,
    left: f64,
    right: f64,
    /// The lower edge of the title.
    head: f64,
    top: f64,
    bottom: f64,
    page_height: f64,
}

const LEGEND_MARK: f64 = 22.0;

impl Plot {
    fn new(plot: &LinePlot) -> Self {
        let all = || plot.series.iter().flat_map(|series| &series.points);
        let bands = plot.series.iter().flat_map(|series| &series.band).flat_map(|&(low, high)| [low, high]);
        let y = Axis::spanning(all().map(|point| point.1).chain(bands), 5);
        let mut x =
            Axis::spanning(all().map(|point| point.0).chain(plot.x_names.iter().map(|name| name.0)), 6);
        if !plot.x_names.is_empty() {
            let tick = |(value, name): &(f64, String)| Tick { value: *value, label: name.clone() };
            x.ticks = plot.x_names.iter().filter(|name| name.0.is_finite()).map(tick).collect();
            let inner = |pick: fn(f64, f64) -> f64, start| x.ticks.iter().map(|t| t.value).fold(start, pick);
            let (low, high) = (inner(f64::min, f64::INFINITY), inner(f64::max, f64::NEG_INFINITY));
            // Names need no round numbers: the curves may reach from edge to edge.
            let holds = all().all(|point| !point.0.is_finite() || (low..=high).contains(&point.0));
            if low < high && holds {
                (x.low, x.high) = (low, high);
            }
        }
        let title = text::lines(&plot.title, plot.width - 2.0 * MARGIN, TextSize::Large, 2);
        let widest = y.ticks.iter().map(|tick| text::width(&tick.label, SIZE)).fold(0.0, f64::max);
        let head = MARGIN + title.len() as f64 * TextSize::Large.line();
        let key = if plot.heat.is_empty() { 0.0 } else { ColourBar::lying_height() };
        let top = head + key + SIZE.line() + 6.0;
        let names = plot.series.iter().map(|series| text::width(&series.name, SIZE)).fold(0.0, f64::max);
        let (legend, listed) = match plot.series.len() {
            1 => (0.0, top),
            count => ((LEGEND_MARK + names).min(0.35 * plot.width), top + count as f64 * SIZE.line()),
        };
        let foot = 2.0 * SIZE.line() + MARGIN + 4.0;
        let page_height = plot.height.max(listed + MARGIN).max(top + 60.0 + foot).ceil();
        Plot {
            title,
            x,
            y,
            left: (MARGIN + widest.min(80.0) + 5.0).ceil(),
            right: (plot.width - legend - 2.0 * MARGIN).floor(),
            head,
            top: top.ceil(),
            bottom: (page_height - foot).floor(),
            page_height,
        }
    }

    fn place(&self, (x, y): Point) -> Point {
        (
            self.left + self.x.share(x) * (self.right - self.left),
            self.bottom - self.y.share(y) * (self.bottom - self.top),
        )
    }

    /// Strips that meet halfway between the places of their values, and the key to their colours.
    fn draw_heat(&self, scene: &mut Scene, plot: &LinePlot) -> Result<()> {
        let values: Vec<f32> = plot.heat.iter().map(|(_, value)| *value).collect();
        if values.is_empty() {
            return Ok(());
        }
        let scale = Scale::new(&ScalarField::new(values.len(), 1, values)?, None)?;
        let edge = |x: f64| self.place((x, self.y.low)).0.clamp(self.left, self.right);
        let halfway = |a: usize, b: usize| edge((plot.heat[a].0 + plot.heat[b].0) / 2.0);
        for (i, &(_, value)) in plot.heat.iter().enumerate() {
            let from = if i == 0 { self.left } else { halfway(i - 1, i) };
            let to = if i + 1 == plot.heat.len() { self.right } else { halfway(i, i + 1) };
            let paint = Paint { colour: scale.colour(value), opacity: STRIPS };
            scene.rectangle(from, self.top, to - from, self.bottom - self.top, paint);
        }
        match ColourBar::new(&scale) {
            Some(bar) => bar.lying(scene, MARGIN, self.head, KEY),
            None => Ok(()),
        }
    }

    fn draw_axes(&self, scene: &mut Scene, plot: &LinePlot) {
        let (width, half) = (self.right - self.left, SIZE.ascent() / 2.0);
        for tick in &self.y.ticks {
            let (_, y) = self.place((self.x.low, tick.value));
            scene.rectangle(self.left, (2.0 * y).round() / 2.0, width, 0.5, GRID_LINE);
            scene.text((self.left - 5.0, y + half), &tick.label, SIZE, Anchor::End);
        }
        scene.rectangle(self.left, self.bottom, width, 0.5, INK);
        for tick in &self.x.ticks {
            let (x, _) = self.place((tick.value, self.y.low));
            scene.rectangle((2.0 * x).round() / 2.0, self.bottom, 0.5, 3.0, INK);
        }
        for (middle, label) in self.x_labels(plot.width) {
            scene.text((middle, self.bottom + 5.0 + SIZE.ascent()), &label, SIZE, Anchor::Middle);
        }
        let y_label = text::one_line(&plot.y_label, plot.width - 2.0 * MARGIN, SIZE);
        scene.text((MARGIN, self.top - 6.0 - 4.0), &y_label, SIZE, Anchor::Start);
        let x_label = text::one_line(&plot.x_label, width, SIZE);
        let foot = self.bottom + 5.0 + SIZE.ascent() + SIZE.line();
        scene.text(((self.left + self.right) / 2.0, foot), &x_label, SIZE, Anchor::Middle);
    }

    /// The middle of each label of the horizontal axis: of every tick or, where they would touch, of every
    /// second, third and so on.
    fn x_labels(&self, page: f64) -> Vec<(f64, String)> {
        const GAP: f64 = 6.0;
        let placed = |tick: &Tick| {
            let label = text::one_line(&tick.label, 90.0, SIZE);
            let wide = text::width(&label, SIZE);
            let middle = self.place((tick.value, self.y.low)).0;
            let last = (page - MARGIN / 2.0 - wide).max(MARGIN / 2.0);
            (((middle - wide / 2.0).clamp(MARGIN / 2.0, last), wide), label)
        };
        let all: Vec<((f64, f64), String)> = self.x.ticks.iter().map(placed).collect();
        let apart = |every: &usize| {
            let chosen: Vec<(f64, f64)> = all.iter().step_by(*every).map(|(place, _)| *place).collect();
            chosen.windows(2).all(|pair| pair[0].0 + pair[0].1 + GAP <= pair[1].0)
        };
        let every = (1..=all.len().max(1)).find(apart).unwrap_or(1);
        all.into_iter().step_by(every).map(|((start, wide), label)| (start + wide / 2.0, label)).collect()
    }

    fn draw_band(&self, scene: &mut Scene, index: usize, series: &Series) {
        let paint = Paint { colour: COLOURS[index % COLOURS.len()], opacity: 0.18 };
        let places: Vec<(f64, f64, f64)> =
            series.points.iter().zip(&series.band).map(|(point, band)| (point.0, band.0, band.1)).collect();
        let whole = |p: &(f64, f64, f64)| p.0.is_finite() && p.1.is_finite() && p.2.is_finite();
        for run in places.split(|place| !whole(place)).filter(|run| !run.is_empty()) {
            let upper = run.iter().map(|&(x, _, high)| self.place((x, high)));
            let lower = run.iter().rev().map(|&(x, low, _)| self.place((x, low)));
            scene.polygon(upper.chain(lower).collect(), paint);
        }
    }

    fn draw_series(&self, scene: &mut Scene, index: usize, series: &Series) {
        let colour = COLOURS[index % COLOURS.len()];
        let runs = series.points.split(|(x, y)| !x.is_finite() || !y.is_finite());
        let lines =
            runs.map(|run| Polyline { points: run.iter().map(|p| self.place(*p)).collect(), closed: false });
        scene.path(lines.collect(), Style::Stroke(colour.into(), 1.25));
        if series.points.len() <= MOST_MARKS {
            for point in series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
                scene.polygon(mark(index, self.place(*point)), colour);
            }
        }
    }

    fn draw_legend(&self, scene: &mut Scene, plot: &LinePlot) {
        if plot.series.len() < 2 {
            return;
        }
        let left = self.right + MARGIN;
        for (i, series) in plot.series.iter().enumerate() {
            let middle = self.top + (i as f64 + 0.5) * SIZE.line();
            let colour = COLOURS[i % COLOURS.len()];
            scene.line((left, middle), (left + LEGEND_MARK - 4.0, middle), colour, 1.25);
            scene.polygon(mark(i, (left + (LEGEND_MARK - 4.0) / 2.0, middle)), colour);
            let room = plot.width - left - LEGEND_MARK;
            let name = text::one_line(&series.name, room, SIZE);
            scene.text((left + LEGEND_MARK, middle + SIZE.ascent() / 2.0), &name, SIZE, Anchor::Start);
        }
    }
}

/// The shape that marks the points of a series: disc, square, triangle, diamond, triangle on its head.
fn mark(index: usize, (x, y): Point) -> Vec<Point> {
    let (corners, turn, radius) = match index % SHAPES {
        0 => (16, 0.0, 2.4),
        1 => (4, 0.125, 3.0),
        2 => (3, 0.0, 3.2),
        3 => (4, 0.0, 3.2),
        _ => (3, 0.5, 3.2),
    };
    let corner = |i: usize| {
        let (sine, cosine) = ((i as f64 / corners as f64 + turn) * std::f64::consts::TAU).sin_cos();
        (x + radius * sine, y - radius * cosine)
    };
    (0..corners).map(corner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour_vision::{EYES, seen};
    use crate::scene::{Item, PAPER};
    use crate::xml::assert_well_formed;

    fn plot(series: Vec<Series>) -> LinePlot {
        LinePlot {
            title: "t".into(),
            x_label: "x".into(),
            y_label: "y".into(),
            series,
            ..LinePlot::default()
        }
    }

    fn series(points: &[(f64, f64)]) -> Series {
        Series { name: "series".into(), points: points.to_vec(), ..Series::default() }
    }

    fn marks(scene: &Scene) -> Vec<&Polyline> {
        let fills = scene.items().iter().filter_map(|item| match item {
            Item::Path { lines, style: Style::Fill(_) } => lines.first(),
            _ => None,
        });
        fills.collect()
    }

    #[test]
    fn larger_values_lie_higher_and_further_right_within_the_page() {
        let scene = plot(vec![series(&[(0.0, -1.0), (1.0, 2.0), (2.0, 5.0)])]).into_scene().unwrap();
        let middles: Vec<Point> = marks(&scene)
            .iter()
            .map(|mark| {
                let count = mark.points.len() as f64;
                let sum = mark.points.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
                (sum.0 / count, sum.1 / count)
            })
            .collect();
        assert_eq!(middles.len(), 3);
        assert!(middles.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1), "{middles:?}");
        let equal = (middles[1].1 - middles[0].1) - (middles[2].1 - middles[1].1);
        assert!(equal.abs() < 1e-6, "equal steps are drawn equal");
        assert!(
            middles
                .iter()
                .all(|(x, y)| (0.0..scene.width()).contains(x) && (0.0..scene.height()).contains(y))
        );
    }

    /// As Captum and others draw series: what is high is coloured where it lies.
    #[test]
    fn strips_cover_the_plot_and_have_the_colours_of_their_values() {
        let heat = vec![(0.0, 1.0f32), (1.0, -1.0), (2.0, 0.0), (3.0, f32::NAN)];
        let curve = series(&[(0.0, 5.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]);
        let scene = LinePlot { heat, ..plot(vec![curve]) }.into_scene().unwrap();
        let strips: Vec<(f64, f64, Rgb)> = scene
            .items()
            .iter()
            .filter_map(|item| match item {
                Item::Rectangle { left, width, height, fill, .. } if *height > 50.0 && *width > 1.0 => {
                    Some((*left, *width, fill.colour))
                }
                _ => None,
            })
            .collect();
        assert_eq!(strips.len(), 4);
        assert!(strips.windows(2).all(|pair| (pair[0].0 + pair[0].1 - pair[1].0).abs() < 1e-9));
        let of = |value: f64| crate::colour::ColourMap::Diverging.at(value);
        assert_eq!(
            strips.iter().map(|strip| strip.2).collect::<Vec<_>>(),
            [of(1.0), of(-1.0), of(0.0), crate::colour::NOT_FINITE]
        );
    }

    #[test]
    fn gaps_and_wild_numbers_are_drawn_without_harm() {
        let wild = [
            series(&[(0.0, f64::NAN), (1.0, f64::INFINITY)]),
            series(&[]),
            series(&[(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0), (3.0, 1.0)]),
            series(&[(-f64::MAX, f64::MAX), (f64::MAX, -f64::MAX)]),
            Series { band: vec![(f64::NAN, 1.0), (0.0, f64::MAX)], ..series(&[(0.0, 0.0), (1.0, 1.0)]) },
        ];
        for series in wild {
            let scene = plot(vec![series.clone(), series]).into_scene().unwrap();
            let svg = scene.to_svg().unwrap();
            assert_well_formed(&svg);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(scene.to_picture().is_ok() && scene.to_pdf().is_ok());
        }
    }

    #[test]
    fn names_on_the_axis_keep_apart() {
        let x_names = (0..60).map(|i| (f64::from(i), format!("features.{i}.conv"))).collect();
        let points: Vec<Point> = (0..60).map(|i| (f64::from(i), f64::from(i % 7))).collect();
        let scene = LinePlot { x_names, ..plot(vec![series(&points)]) }.into_scene().unwrap();
        let mut places: Vec<(f64, f64)> = Vec::new();
        for item in scene.items() {
            if let Item::Text { place, words, size, .. } = item
                && words.starts_with("features")
            {
                let half = text::width(words, *size) / 2.0;
                places.push((place.0 - half, place.0 + half));
            }
        }
        assert!(places.len() >= 3 && places.windows(2).all(|pair| pair[0].1 < pair[1].0), "{places:?}");
        assert!(places.iter().all(|(start, end)| *start >= 0.0 && *end <= scene.width()));
    }

    #[test]
    fn the_first_series_differ_in_shape_and_all_in_shape_or_colour() {
        let kinds: std::collections::BTreeSet<(usize, usize)> =
            (0..MOST_SERIES).map(|i| (i % SHAPES, i % COLOURS.len())).collect();
        assert_eq!(kinds.len(), MOST_SERIES);
    }

    #[test]
    fn the_colours_of_series_differ_from_each_other_and_from_paper_for_every_eye() {
        let apart = |a: [f64; 3], b: [f64; 3]| (0..3).map(|i| (a[i] - b[i]).powi(2)).sum::<f64>().sqrt();
        for eye in &EYES {
            for (i, &colour) in COLOURS.iter().enumerate() {
                for &other in COLOURS[..i].iter().chain(&[PAPER]) {
                    let distance = apart(seen(colour, eye), seen(other, eye));
                    assert!(distance > 0.06, "{colour:?} {other:?}: {distance}");
                }
            }
        }
    }

    #[test]
    fn plots_that_cannot_be_drawn_are_refused() {
        assert!(plot(vec![]).into_scene().is_err());
        assert!(plot(vec![series(&[]); 36]).into_scene().is_err());
        assert!(LinePlot { width: f64::NAN, ..plot(vec![series(&[])]) }.into_scene().is_err());
        assert!(LinePlot { height: 1e9, ..plot(vec![series(&[])]) }.into_scene().is_err());
        let uneven = Series { band: vec![(0.0, 1.0)], ..series(&[]) };
        assert!(plot(vec![uneven]).into_scene().is_err());
    }
}
