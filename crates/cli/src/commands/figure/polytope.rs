//! `monosplit figure polytope`: the imaginative polytope of a class. A stream is the largest of many linear
//! functions; its gradients at several pictures are vertices of one polytope, and are drawn as such.

use std::io::Write;

use clap::Args;
use monosplit::catalogue::MethodChoice;
use monosplit::explain::Finish;
use monosplit::graph::{Error, Result};
use monosplit::image::Picture;
use monosplit::render;
use monosplit::render::{Blend, Cell, Edge, OverlayOptions, Polytope, Scene, blend};

use crate::commands::drawing::Draws;
use crate::commands::figure_input::{FigureInputArgs, short_name};
use crate::commands::panels::{Panel, Panels, picture_of};
use crate::failure::Failure;
use crate::table::printable;

/// More vertices than this cannot be told apart.
const MOST_VERTICES: usize = 24;
/// White pixels between a picture and its gradient.
const GAP: usize = 2;

/// Draws the gradients of g at several pictures as the vertices of a polytope
#[derive(Args)]
#[command(override_usage = "monosplit figure polytope MODEL PICTURE... [OPTIONS]")]
#[command(long_about = "\
Draws the gradients of g at several pictures of a class as the vertices of a polytope (the paper's
imaginative polytope): each vertex is a picture beside the gradient of g for the class there.

  monosplit figure polytope resnet18.onnx dragonflies/
  monosplit figure polytope resnet18.onnx a.jpg b.jpg c.jpg --class dragonfly -o polytope.pdf

The class is that of the first picture unless --class names it. The number on the line between two
vertices is the cosine of their gradients, left out with more than 8 pictures; the least cosine
found has the thinnest line, the largest the thickest. In the middle are the means. Cosines
and means are of the maps: gradients averaged over channels, each divided by its length.")]
pub(crate) struct PolytopeFigure {
    #[command(flatten)]
    pub(super) input: FigureInputArgs,

    /// The layer whose gradients are drawn [default: the picture itself].
    #[arg(long, value_name = "NAME[:out]")]
    layer: Option<String>,

    /// The network of the pair: g or h.
    #[arg(long, value_name = "NAME", default_value = "g")]
    stream: String,

    /// With respect to the positive (plus) or the negative input (minus), or combined.
    #[arg(long, value_name = "NAME", default_value = "combined")]
    part: String,

    /// How far sensitivities are shifted, from 0 to 0.5.
    #[arg(long, value_name = "A", default_value = "0.25")]
    alpha: String,
}

/// A picture and the gradient there.
struct Vertex {
    label: String,
    picture: Picture,
    gradient: render::Map,
}

impl PolytopeFigure {
    fn vertices(&self, out: &mut dyn Write) -> Result<(String, Vec<Vertex>), Failure> {
        let mut input = self.input.open()?;
        let options = [("stream", &self.stream), ("part", &self.part), ("alpha", &self.alpha)];
        let options = options.map(|(key, value)| (key.to_owned(), value.clone()));
        let chosen = MethodChoice::parse("splitgrad", &options)?.resolve(&input.bounds)?;
        let panel = Panel { chosen, layer: self.layer.clone(), header: String::new() };
        let engine = self.input.compute.engine()?;
        let panels = Panels::new(&input.model, vec![panel], Finish::default(), &*engine)?;
        let mut vertices = Vec::new();
        let mut class = input.classes.of(0, 1)?;
        let mut name = String::new();
        while let Some(sample) = input.reader.take(1)?.pop() {
            if vertices.len() == MOST_VERTICES {
                return Err(Error::argument(format!(
                    "a polytope is drawn with at most {MOST_VERTICES} vertices; name fewer pictures"
                ))
                .into());
            }
            let explained = panels.of(&sample, &class)?;
            // One polytope belongs to one class: all other pictures are asked about that of the first.
            class = monosplit::explain::Class::PerSample(explained.classes.clone());
            name = input.labels.name(explained.classes[0]);
            let found = input.named(&explained);
            writeln!(out, "{}: {}", printable(&sample.name), printable(&found))?;
            let [map] = &explained.maps[..] else { continue };
            let gradient = render::Map::from_tensor(&map.values, 0)?;
            let picture = picture_of(&sample)?.clone();
            vertices.push(Vertex { label: format!("{} {found}", short_name(&sample)), picture, gradient });
        }
        Ok((name, vertices))
    }
}

impl Draws for PolytopeFigure {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        let (class, vertices) = self.vertices(out)?;
        let options = OverlayOptions { opacity: 1.0, ..self.input.drawing.overlay() };
        let lengths: Vec<Vec<f64>> = vertices.iter().map(|vertex| unit(vertex.gradient.values())).collect();
        let count = vertices.len();
        let edges = (0..count).flat_map(|from| (from + 1..count).map(move |to| (from, to)));
        let edge = |(from, to): (usize, usize)| {
            let cosine = lengths[from].iter().zip(&lengths[to]).map(|(a, b)| a * b).sum();
            Edge { from, to, similarity: Some(cosine) }
        };
        let edges: Vec<Edge> = edges.map(edge).collect();
        let centre = if count > 2 { Some(mean(&vertices, &lengths)?.cell(&options)?) } else { None };
        let cells = vertices.iter().map(|vertex| vertex.cell(&options)).collect::<Result<Vec<_>>>()?;
        let mut title = format!("{class}: gradients of {}, α = {}", self.stream, self.alpha);
        if let Some((low, high)) = range(&edges) {
            title.push_str(&format!(", cosines from {low:.3} (thin) to {high:.3} (thick)"));
        }
        if count > Polytope::MOST_NUMBERED {
            let most = Polytope::MOST_NUMBERED;
            writeln!(out, "the cosines are not written on the lines: there are more than {most} pictures")?;
        }
        Ok(Polytope { title, vertices: cells, centre, edges, least_side: 128 }.into_scene()?)
    }
}

impl Vertex {
    /// The picture beside the gradient.
    fn cell(&self, options: &OverlayOptions) -> Result<Cell> {
        let Blend { picture, scale, .. } = blend(&self.picture, &self.gradient, options)?;
        let beside = beside(&self.picture, &picture)?;
        Ok(Cell { scale: Some(scale), ..Cell::picture(beside).labelled(self.label.clone()) })
    }
}

/// The least and the largest similarity of several.
fn range(edges: &[Edge]) -> Option<(f64, f64)> {
    let found = || edges.iter().filter_map(|edge| edge.similarity);
    let (low, high) = (found().reduce(f64::min)?, found().reduce(f64::max)?);
    (edges.len() > 1).then_some((low, high))
}

/// The values divided by their length; zeros stay what they are.
fn unit(values: &[f32]) -> Vec<f64> {
    let length = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
    values.iter().map(|&v| f64::from(v) * factor).collect()
}

/// The mean picture and the mean of the gradients of length one.
fn mean(vertices: &[Vertex], gradients: &[Vec<f64>]) -> Result<Vertex> {
    let count = vertices.len() as f64;
    let Some(first) = vertices.first() else { return Err(Error::argument("name at least one picture")) };
    let pixel = |i: usize| {
        let sum: f64 = vertices.iter().filter_map(|v| v.picture.rgb().get(i)).map(|&b| f64::from(b)).sum();
        (sum / count).round() as u8
    };
    let rgb = (0..first.picture.rgb().len()).map(pixel).collect();
    let picture = Picture::new(first.picture.width(), first.picture.height(), rgb)?;
    let value = |i: usize| (gradients.iter().filter_map(|g| g.get(i)).sum::<f64>() / count) as f32;
    let values = (0..first.gradient.values().len()).map(value).collect();
    let gradient = render::Map::new(first.gradient.width(), first.gradient.height(), values)?;
    Ok(Vertex { label: "their mean".into(), picture, gradient })
}

/// Two pictures of one height in one.
fn beside(left: &Picture, right: &Picture) -> Result<Picture> {
    let width = left.width() + GAP + right.width();
    let height = left.height().min(right.height());
    let mut rgb = Vec::with_capacity(width * height * 3);
    let rows = left.rgb().chunks_exact(3 * left.width()).zip(right.rgb().chunks_exact(3 * right.width()));
    for (left, right) in rows {
        rgb.extend_from_slice(left);
        rgb.extend([255; 3 * GAP]);
        rgb.extend_from_slice(right);
    }
    Picture::new(width, height, rgb)
}
