//! `monosplit compare`: several methods beside each other, in one figure.

use std::io::Write;

use clap::Args;
use monosplit::catalogue;
use monosplit::graph::Result;
use monosplit::render::Scene;

use super::compare_named::{NamedComparison, NamedSamples};
use super::drawing::Draws;
use super::figure_input::{FigureInputArgs, OpenedFigure};
use super::method::FinishArgs;
use super::named_inputs::{ExplainedInputArgs, TokenArgs};
use super::panels::{Panel, Panels};
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
  monosplit compare ecg.onnx beats.npy --methods gradient,integrated-gradients,occlusion
  monosplit compare bert.onnx ids.npy --input mask=mask.npy --tokens vocab.txt --methods gradient

Each method is read off at a layer of its own choice, or at the one named after an `@`. The figure
is written as compared.png and compared.svg unless --out says otherwise. Series are drawn as curves
over a band of colours, tables as bars, volumes as strips of slices; texts are written as a page,
compared.html, and printed.")]
pub(crate) struct Compare {
    #[command(flatten)]
    input: FigureInputArgs,

    /// The methods, separated by commas: NAME[:KEY=VALUE,…][@LAYER].
    #[arg(long, value_name = "NAMES", default_value = METHODS, hide_default_value = true)]
    methods: String,

    #[command(flatten)]
    finish: FinishArgs,

    #[command(flatten)]
    of: ExplainedInputArgs,

    #[command(flatten)]
    tokens: TokenArgs,
}

/// What is compared, opened.
enum Opened<'a> {
    /// Pictures, or arrays of real numbers.
    Pictures(Box<OpenedFigure<'a>>),
    /// Inputs by name.
    Named(Box<(NamedComparison, NamedSamples)>),
}

impl Compare {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let drawing = &self.input.drawing;
        match self.opened()? {
            Opened::Named(found) if found.0.is_text() => {
                let page = |out: &mut dyn Write| found.0.page(&found.1, &drawing.overlay(), out);
                drawing.write_page(page, "compared", out)
            }
            opened => drawing.write(|out| self.drawn(opened, out), "compared", out),
        }
    }

    /// Opens the network, which reads standard input, and compiles the methods of inputs by name.
    fn opened(&self) -> Result<Opened<'_>> {
        let (input, preprocessing) = (&self.input, &self.input.preprocessing);
        let opened = input.opened()?;
        let Some(named) = self.of.chosen(&opened.model, &input.given, opened.files)? else {
            self.tokens.refuse(&opened.model)?;
            return Ok(Opened::Pictures(Box::new(opened)));
        };
        let OpenedFigure { model, target, sources, .. } = opened;
        let engine = input.compute.engine()?;
        let preprocess = preprocessing.known(&model);
        let model = input.class.with_target(model, target.as_ref(), preprocess.as_ref(), &*engine)?;
        let (methods, finish) = (catalogue::words(&self.methods)?, self.finish.finish());
        let compared = NamedComparison::new(&model, &named, &methods, finish, &self.tokens, &*engine)?;
        let (labels, score_kind) = input.class.labels(&model)?;
        let classes = input.class.classes(&model, &labels)?;
        let values = named.values(&model, &input.given, &sources, preprocessing)?;
        Ok(Opened::Named(Box::new((compared, NamedSamples { values, labels, score_kind, classes }))))
    }

    fn drawn(&self, opened: Opened<'_>, out: &mut dyn Write) -> Result<Scene, Failure> {
        let options = self.input.drawing.overlay();
        let opened = match opened {
            Opened::Named(found) => return found.0.scene(&found.1, &options, out),
            Opened::Pictures(opened) => opened,
        };
        let words = catalogue::words(&self.methods)?;
        let mut input = self.input.read(*opened)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let panels = Panel::parse_all(&input.model, &words, &input.bounds)?;
        let engine = self.input.compute.engine()?;
        let panels = Panels::new(&input.model, panels, self.finish.finish(), &*engine)?;
        let rows = panels.rows(&mut input, out)?;
        Ok(panels.scene(String::new(), rows, &options)?)
    }
}

impl Draws for Compare {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        self.drawn(self.opened()?, out)
    }
}
