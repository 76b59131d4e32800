//! SVG: one file, no script, no font but the reader's own.

use std::fmt::Write;

use monosplit_graph::Result;

use super::layout::LayeredLayout;
use super::{Arrow, NeuronBox, Picture, Shape, Stream};
use crate::network::MaxoutNetwork;

const MARGIN: f64 = 40.0;
/// Half the height of a box.
const HALF: f64 = 20.0;
/// Room between the boxes of neighbouring layers, at least and at most.
const CORRIDOR: (f64, f64) = (100.0, 340.0);
const LETTER: f64 = 7.2;
const LEGEND: f64 = 30.0;
/// The candidate positions of a label on a curve, the best first.
const LABEL_PLACES: [f64; 9] = [0.5, 0.4, 0.6, 0.32, 0.68, 0.25, 0.75, 0.18, 0.82];

/// The network as an SVG picture.
pub fn svg(network: &MaxoutNetwork) -> Result<String> {
    let picture = Picture::of(network)?;
    let ends: Vec<(usize, usize)> = picture.arrows.iter().map(|arrow| (arrow.from, arrow.to)).collect();
    let layout = LayeredLayout::new(picture.boxes.len(), &ends)?;
    let columns = Columns::new(&picture, &layout);
    let width = (columns.width + 2.0 * MARGIN).max(560.0);
    let height = layout.height + 2.0 * (MARGIN + HALF) + LEGEND;
    // Writing to a string cannot fail.
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" text-anchor=\"middle\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<defs>{}{}</defs>",
        arrow_head("head", DARK),
        arrow_head("negative", RED)
    );
    for (arrow, way) in picture.arrows.iter().zip(&layout.ways) {
        columns.arrow(&mut text, arrow, way, &picture);
    }
    // Labels lie above all lines.
    let mut taken: Vec<Rectangle> = Vec::new();
    for (arrow, way) in picture.arrows.iter().zip(&layout.ways).filter(|(arrow, _)| !arrow.label.is_empty()) {
        columns.label(&mut text, arrow, way, &picture, &mut taken);
    }
    for (neuron_box, &(layer, y)) in picture.boxes.iter().zip(&layout.boxes) {
        columns.draw(&mut text, neuron_box, layer, y);
    }
    legend(
        &mut text,
        height - LEGEND / 2.0,
        picture.boxes.iter().any(|neuron_box| neuron_box.stream != Stream::Neither),
    );
    text.push_str("</svg>\n");
    Ok(text)
}

const DARK: &str = "#5b6673";
const RED: &str = "#c0392b";

fn arrow_head(id: &str, colour: &str) -> String {
    format!(
        "<marker id=\"{id}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0.8 8 4 0 7.2z\" fill=\"{colour}\"/></marker>"
    )
}

/// Half the width of a box.
fn half_width(neuron_box: &NeuronBox) -> f64 {
    let letters = neuron_box.name.chars().count().max(neuron_box.rule.chars().count()) as f64;
    let room = letters * LETTER / 2.0 + 12.0;
    match neuron_box.shape {
        Shape::Input => room.max(HALF),
        Shape::Addition => room.max(28.0),
        Shape::Multiplication => (room + 10.0).max(34.0),
    }
}

/// The area of a label: its centre, and half its width and height.
struct Rectangle {
    x: f64,
    y: f64,
    half_width: f64,
    half_height: f64,
}

impl Rectangle {
    fn overlaps(&self, other: &Rectangle) -> bool {
        (self.x - other.x).abs() < self.half_width + other.half_width
            && (self.y - other.y).abs() < self.half_height + other.half_height
    }
}

/// The horizontal positions of the layers.
struct Columns {
    middles: Vec<f64>,
    halves: Vec<f64>,
    width: f64,
}

impl Columns {
    fn new(picture: &Picture, layout: &LayeredLayout) -> Self {
        let depth = layout.boxes.iter().map(|place| place.0 + 1).max().unwrap_or(0);
        let mut halves = vec![HALF; depth];
        for (neuron_box, &(layer, _)) in picture.boxes.iter().zip(&layout.boxes) {
            halves[layer] = halves[layer].max(half_width(neuron_box));
        }
        let (mut middles, mut edge) = (Vec::with_capacity(depth), 0.0);
        let corridors = corridors(picture, layout, depth);
        for (layer, half) in halves.iter().enumerate() {
            edge += corridors[layer];
            middles.push(MARGIN + edge + half);
            edge += 2.0 * half;
        }
        Columns { middles, halves, width: edge }
    }

    fn place(&self, layer: usize, y: f64) -> (f64, f64) {
        (self.middles[layer], y + MARGIN + HALF)
    }

    /// The points of an arrow, from the right edge of one box to the left edge of another. It crosses a layer it passes level,
    /// so as not to touch the boxes there.
    fn points(&self, arrow: &Arrow, way: &[(usize, f64)], picture: &Picture) -> Vec<(f64, f64)> {
        let mut points = Vec::with_capacity(2 * way.len());
        for (i, &(layer, y)) in way.iter().enumerate() {
            let (x, y) = self.place(layer, y);
            if i == 0 {
                points.push((x + half_width(&picture.boxes[arrow.from]), y));
            } else if i + 1 == way.len() {
                points.push((x - half_width(&picture.boxes[arrow.to]) - 1.0, y));
            } else {
                points.extend([(x - self.halves[layer], y), (x + self.halves[layer], y)]);
            }
        }
        points
    }

    fn arrow(&self, text: &mut String, arrow: &Arrow, way: &[(usize, f64)], picture: &Picture) {
        let points = self.points(arrow, way, picture);
        let mut path = format!("M{:.1} {:.1}", points[0].0, points[0].1);
        for pair in points.windows(2) {
            let [(x, y), (to_x, to_y)] = [pair[0], pair[1]];
            let bend = (to_x - x) / 2.0;
            let _ = write!(path, "C{:.1} {y:.1} {:.1} {to_y:.1} {to_x:.1} {to_y:.1}", x + bend, to_x - bend);
        }
        let (colour, head) = if arrow.negative { (RED, "negative") } else { (DARK, "head") };
        let _ = writeln!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-opacity=\"0.75\" stroke-width=\"1.2\" marker-end=\"url(#{head})\"/>"
        );
    }

    /// Weights are written on the last segment of an arrow, at the first candidate position that is free.
    fn label(
        &self,
        text: &mut String,
        arrow: &Arrow,
        way: &[(usize, f64)],
        picture: &Picture,
        taken: &mut Vec<Rectangle>,
    ) {
        let points = self.points(arrow, way, picture);
        let [.., from, to] = points[..] else { return };
        let half_width = arrow.label.chars().count() as f64 * LETTER * 0.42 + 2.0;
        let place = |t: f64| {
            let (x, y) = on_curve(from, to, t);
            Rectangle { x, y, half_width, half_height: 7.0 }
        };
        let free = |place: &Rectangle| !taken.iter().any(|other| place.overlaps(other));
        let found =
            LABEL_PLACES.iter().map(|&t| place(t)).find(free).unwrap_or_else(|| place(LABEL_PLACES[0]));
        let colour = if arrow.negative { RED } else { "#2c3e50" };
        let _ = writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"white\" fill-opacity=\"0.9\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"{colour}\">{}</text>",
            found.x - half_width,
            found.y - 7.0,
            2.0 * half_width,
            found.x,
            found.y + 4.0,
            escaped(&arrow.label)
        );
        taken.push(found);
    }

    fn draw(&self, text: &mut String, neuron_box: &NeuronBox, layer: usize, y: f64) {
        let (x, y) = self.place(layer, y);
        let half = half_width(neuron_box);
        let (fill, stroke) = match neuron_box.stream {
            Stream::Plus => ("#fdebd3", "#c77d1e"),
            Stream::Minus => ("#dcebfa", "#2f6fad"),
            Stream::Neither => ("#f4f5f7", "#444c56"),
        };
        let border = if neuron_box.output { 3.0 } else { 1.3 };
        let style = format!("fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"{border}\"");
        let _ = match neuron_box.shape {
            Shape::Input => writeln!(
                text,
                "<ellipse cx=\"{x:.1}\" cy=\"{y:.1}\" rx=\"{half:.1}\" ry=\"{HALF}\" {style}/>"
            ),
            Shape::Addition => writeln!(
                text,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" rx=\"6\" {style}/>",
                x - half,
                y - HALF,
                2.0 * half,
                2.0 * HALF
            ),
            Shape::Multiplication => writeln!(
                text,
                "<path d=\"M{:.1} {y:.1}L{:.1} {:.1}H{:.1}L{:.1} {y:.1}L{:.1} {:.1}H{:.1}z\" {style}/>",
                x - half,
                x - half + 14.0,
                y - HALF,
                x + half - 14.0,
                x + half,
                x + half - 14.0,
                y + HALF,
                x - half + 14.0
            ),
        };
        let name_y = if neuron_box.rule.is_empty() { y + 4.5 } else { y - 2.0 };
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{name_y:.1}\" font-weight=\"bold\">{}</text>",
            escaped(&neuron_box.name)
        );
        if !neuron_box.rule.is_empty() {
            let _ = writeln!(
                text,
                "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#444c56\">{}</text>",
                y + 13.0,
                escaped(&neuron_box.rule)
            );
        }
    }
}

/// The space before every layer: more for more or longer labels.
fn corridors(picture: &Picture, layout: &LayeredLayout, depth: usize) -> Vec<f64> {
    let mut labels = vec![(0, 0); depth];
    for arrow in picture.arrows.iter().filter(|arrow| !arrow.label.is_empty()) {
        let (count, longest) = &mut labels[layout.boxes[arrow.to].0];
        *count += 1;
        *longest = arrow.label.chars().count().max(*longest);
    }
    let room =
        |(count, longest): (usize, usize)| CORRIDOR.0 + longest as f64 * LETTER * 0.8 + 5.0 * count as f64;
    let room = |(layer, labels)| if layer == 0 { 0.0 } else { room(labels).min(CORRIDOR.1) };
    labels.into_iter().enumerate().map(room).collect()
}

/// A point of the curve that [`Columns::arrow`] draws between two points.
fn on_curve(from: (f64, f64), to: (f64, f64), t: f64) -> (f64, f64) {
    let s = 1.0 - t;
    let middle = (from.0 + to.0) / 2.0;
    let blend = |p: f64, q: f64, r: f64, u: f64| {
        s * s * s * p + 3.0 * s * s * t * q + 3.0 * s * t * t * r + t * t * t * u
    };
    (blend(from.0, middle, middle, to.0), blend(from.1, from.1, to.1, to.1))
}

fn legend(text: &mut String, y: f64, split: bool) {
    let streams = if split { " · orange: stream ⁺, blue: stream ⁻" } else { "" };
    let _ = writeln!(
        text,
        "<text x=\"{MARGIN}\" y=\"{:.1}\" font-size=\"11\" fill=\"#6b7580\" text-anchor=\"start\">round: input · box: sum, or the largest of k sums, with its bias · six corners: product · thick: output · red: a negative weight{streams}</text>",
        y + 8.0
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
