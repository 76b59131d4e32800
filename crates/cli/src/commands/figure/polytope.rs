//! `monosplit figure polytope`: the imaginative polytope of a class. A stream is the largest of many linear
//! functions; its gradients at several pictures are vertices of one polytope, and are drawn as such.

use std::io::Write;

use clap::Args;
use monosplit::catalogue::MethodChoice;
use monosplit::explain::Finish;
use monosplit::graph::{Error, Result};
use monosplit::render;
use monosplit::render::{OverlayOptions, Polytope, PolytopeEdge, Scene};
use monosplit::{GradientVertex, gradient_polytope};

use crate::commands::drawing::Draws;
use crate::commands::figure_input::{FigureInputArgs, short_name};
use crate::commands::panels::{Panel, Panels, picture_of};
use crate::failure::Failure;
use crate::table::printable;

/// The largest number of vertices.
const MOST_VERTICES: usize = 24;

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

impl PolytopeFigure {
    fn vertices(&self, out: &mut dyn Write) -> Result<(String, Vec<GradientVertex>), Failure> {
        let mut input = self.input.open()?;
        let options = [("stream", &self.stream), ("part", &self.part), ("alpha", &self.alpha)];
        let options = options.map(|(key, value)| (key.to_owned(), value.clone()));
        let chosen =
            MethodChoice::parse("splitgrad", &options)?.resolve(&input.bounds, input.model.graph())?;
        let panel = Panel { chosen, layer: self.layer.clone(), header: String::new() };
        let engine = self.input.compute.engine()?;
        let panels = Panels::new(&input.model, vec![panel], Finish::default(), &*engine)?;
        let mut vertices = Vec::new();
        let mut class = input.classes.of(0, 1)?;
        let mut name = String::new();
        while let Some(sample) = input.next_sample()? {
            if vertices.len() == MOST_VERTICES {
                return Err(Error::argument(format!(
                    "a polytope is drawn with at most {MOST_VERTICES} vertices; name fewer pictures"
                ))
                .into());
            }
            let explained = panels.of(&sample, &class)?;
            // One polytope belongs to one class: the other pictures are explained for the class of the first.
            class = monosplit::explain::Class::PerSample(explained.classes.clone());
            name = input.labels.name(explained.classes[0]);
            let found = input.named(&explained);
            writeln!(out, "{}: {}", printable(&sample.name), printable(&found))?;
            let [map] = &explained.maps[..] else { continue };
            let gradient = render::ScalarField::from_tensor(&map.values, 0)?;
            let picture = picture_of(&sample)?.clone();
            vertices.push(GradientVertex {
                label: format!("{} {found}", short_name(&sample)),
                picture,
                gradient,
            });
        }
        Ok((name, vertices))
    }
}

impl Draws for PolytopeFigure {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        let (class, vertices) = self.vertices(out)?;
        let options = OverlayOptions { opacity: 1.0, ..self.input.drawing.overlay() };
        let polytope = gradient_polytope(&vertices, &options)?;
        let mut title = format!("{class}: gradients of {}, α = {}", self.stream, self.alpha);
        if let Some((low, high)) = range(&polytope.edges) {
            title.push_str(&format!(", cosines from {low:.3} (thin) to {high:.3} (thick)"));
        }
        if vertices.len() > Polytope::MOST_NUMBERED {
            let most = Polytope::MOST_NUMBERED;
            writeln!(out, "the cosines are not written on the lines: there are more than {most} pictures")?;
        }
        Ok(Polytope { title, ..polytope }.into_scene()?)
    }
}

/// The least and the largest similarity of several.
fn range(edges: &[PolytopeEdge]) -> Option<(f64, f64)> {
    let found = || edges.iter().filter_map(|edge| edge.similarity);
    let (low, high) = (found().reduce(f64::min)?, found().reduce(f64::max)?);
    (edges.len() > 1).then_some((low, high))
}
