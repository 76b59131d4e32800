//! `monosplit compare`: several methods beside each other, in one figure.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit::catalogue;
use monosplit::graph::Result;
use monosplit::render::Scene;

use super::compare_named::{NamedComparison, NamedSamples};
use super::drawing::Draws;
use super::figure_input::{FigureInputArgs, OpenedFigure};
use super::method::FinishArgs;
use super::named_inputs::ExplainedInputArgs;
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

    /// What token ids stand for: a vocab.txt, vocab.json or tokenizer.json.
    #[arg(long, value_name = "FILE", help_heading = "Several inputs")]
    tokens: Option<PathBuf>,
}

impl Compare {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let opened = self.input.opened()?;
        match self.named(&opened)? {
            Some((named, samples)) if named.is_text() => {
                let options = self.input.drawing.overlay();
                let page = |out: &mut dyn Write| named.page(&samples, &options, out);
                self.input.drawing.write_page(page, "compared", out)
            }
            _ => self.input.drawing.write(self, "compared", out),
        }
    }

    /// The comparison of inputs by name, where what is explained is no single picture or array of real numbers.
    fn named(&self, opened: &OpenedFigure<'_>) -> Result<Option<(NamedComparison, NamedSamples)>> {
        let (input, preprocessing) = (&self.input, &self.input.preprocessing);
        let Some(named) = self.of.chosen(&opened.model, &input.given, opened.files)? else {
            return match &self.tokens {
                Some(file) => Err(opened.model.unfit(format!(
                    "no input that is explained holds token ids; leave out the words of {}",
                    file.display()
                ))),
                None => Ok(None),
            };
        };
        let engine = input.compute.engine()?;
        let preprocess = preprocessing.known(&opened.model);
        let model = opened.model.clone();
        let model = input.class.with_target(model, opened.target.as_ref(), preprocess.as_ref(), &*engine)?;
        let (methods, finish) = (catalogue::words(&self.methods)?, self.finish.finish());
        let compared =
            NamedComparison::new(&model, &named, &methods, finish, self.tokens.as_ref(), &*engine)?;
        let (labels, score_kind) = input.class.labels(&model)?;
        let classes = input.class.classes(&model, &labels)?;
        let values = named.values(&model, &input.given, opened.files, preprocessing)?;
        Ok(Some((compared, NamedSamples { values, labels, score_kind, classes })))
    }
}

impl Draws for Compare {
    fn scene(&self, out: &mut dyn Write) -> Result<Scene, Failure> {
        let words = catalogue::words(&self.methods)?;
        let opened = self.input.opened()?;
        if let Some((named, samples)) = self.named(&opened)? {
            return named.scene(&samples, &self.input.drawing.overlay(), out);
        }
        let mut input = self.input.read(opened)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let panels = Panel::parse_all(&input.model, &words, &input.bounds)?;
        let engine = self.input.compute.engine()?;
        let panels = Panels::new(&input.model, panels, self.finish.finish(), &*engine)?;
        let rows = panels.rows(&mut input, out)?;
        Ok(panels.scene(String::new(), rows, &self.input.drawing.overlay())?)
    }
}
