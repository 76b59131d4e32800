//! `monosplit compare`: several methods beside each other, in one figure.

use std::io::Write;

use clap::Args;
use monosplit::catalogue;
use monosplit::graph::Result;
use monosplit::render::Scene;

use super::drawing::Draws;
use super::figure_input::FigureInputArgs;
use super::method::FinishArgs;
use super::panels::{Panel, Panels, scene};
use crate::failure::Failure;

/// The methods that are compared by default.
const METHODS: &str =
    "splitcam,splitgrad,splitlrp:map=pos,layercam,gradcam,guided-backprop,input-x-gradient,saliency";

/// Draws several methods beside each other, in one figure
#[derive(Args)]
#[command(override_usage = "monosplit compare MODEL PICTURE... [OPTIONS]
       monosplit compare --arch NAME --weights FILE PICTURE... [OPTIONS]")]
#[command(long_about = "\
Draws several methods beside each other: one row for each picture, one column for each method.

  monosplit compare resnet18.onnx cat.jpg dog.jpg
  monosplit compare resnet18.onnx photos/ --methods splitcam,gradcam,occlusion:stride=16
  monosplit compare vgg16.onnx cat.jpg --methods splitcam@features.14,splitcam@features.28 -o layers

Each method is read off at a layer of its own choice, or at the one named after an `@`. The figure
is written as compared.png and compared.svg unless --out says otherwise.")]
pub(crate) struct Compare {
    #[command(flatten)]
    input: FigureInputArgs,

    /// The methods, separated by commas: NAME[:KEY=VALUE,…][@LAYER].
    #[arg(long, value_name = "NAMES", default_value = METHODS, hide_default_value = true)]
    methods: String,

    #[command(flatten)]
    finish: FinishArgs,
}

impl Compare {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        self.input.drawing.write(self, "compared", out)
    }
}

impl Draws for Compare {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        let words = catalogue::words(&self.methods)?;
        let mut input = self.input.open()?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let panels = Panel::parse_all(&input.model, &words, &input.bounds)?;
        let engine = self.input.compute.engine()?;
        let panels = Panels::new(&input.model, panels, self.finish.finish(), &*engine)?;
        let rows = panels.rows(&mut input, &self.input.drawing.overlay(), out)?;
        Ok(scene(String::new(), panels.headers(), rows)?)
    }
}
