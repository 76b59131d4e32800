//! `monosplit figure`: the figures of the paper, for any network and pictures.

mod alpha;
mod layers;
mod polytope;
mod split;

use std::io::Write;

use clap::{Args, Subcommand};
use monosplit::render::Scene;

use super::drawing::Draws;
use crate::failure::Failure;

/// Draws the figures of the paper: split, alpha, layers, polytope
#[derive(Args)]
#[command(long_about = "\
Draws the figures of the paper, of your own network and pictures, as PNG, SVG or PDF.

  monosplit figure split resnet18.onnx cat.jpg              what g sees, what h sees, f = g − h
  monosplit figure alpha resnet18.onnx cat.jpg              one map from α = 0 to α = 0.5
  monosplit figure layers resnet18.onnx cat.jpg             one map, layer by layer
  monosplit figure polytope resnet18.onnx photos/           gradients of g as vertices of a polytope

`monosplit figure KIND --help` explains each.")]
#[command(arg_required_else_help = true)]
pub(crate) struct Figure {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand)]
enum Kind {
    Split(Box<split::SplitFigure>),
    Alpha(Box<alpha::AlphaFigure>),
    Layers(Box<layers::LayersFigure>),
    Polytope(Box<polytope::PolytopeFigure>),
}

impl Figure {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.kind {
            Kind::Split(figure) => figure.input.drawing.write(|out| figure.scene(out), "split", out),
            Kind::Alpha(figure) => figure.input.drawing.write(|out| figure.scene(out), "alpha", out),
            Kind::Layers(figure) => figure.input.drawing.write(|out| figure.scene(out), "layers", out),
            Kind::Polytope(figure) => figure.input.drawing.write(|out| figure.scene(out), "polytope", out),
        }
    }
}

impl Draws for Figure {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        match &self.kind {
            Kind::Split(figure) => figure.scene(out),
            Kind::Alpha(figure) => figure.scene(out),
            Kind::Layers(figure) => figure.scene(out),
            Kind::Polytope(figure) => figure.scene(out),
        }
    }
}
