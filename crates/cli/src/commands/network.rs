//! The options every command that opens a network has.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use monosplit::engine::Engine;
use monosplit::graph::batch::repeated;
use monosplit::graph::{Error, Result, Tensor};
use monosplit::{Approximation, Model, ModelOptions, Origin, OutputChoice};

use super::compute::Precision;
use crate::failure::note;
use crate::table::counted;

/// Which network.
#[derive(Args)]
pub(crate) struct NetworkArgs {
    /// Take a known architecture instead of an ONNX file: alexnet, vgg11 … vgg19_bn, resnet18 …
    /// resnet152, resnext…, wide_resnet…, squeezenet1_0, densenet121, googlenet, mobilenet_v2;
    /// the names are torchvision's. Needs --weights.
    #[arg(long, value_name = "NAME", requires = "weights", verbatim_doc_comment)]
    pub(crate) arch: Option<String>,

    /// The weights of the architecture: a .safetensors file, or a .pth file of torch.save. Only
    /// tensors are read from it; it cannot run anything.
    #[arg(long, value_name = "FILE", requires = "arch", verbatim_doc_comment)]
    pub(crate) weights: Option<PathBuf>,

    /// The shape of one sample where the file leaves it open, as C,H,W (3,224,224 for example;
    /// 128 for texts of 128 tokens). Of several inputs it is that of all it fits; NAME=C,H,W,
    /// given as often as needed, is that of one. An architecture is built for images of
    /// 3,224,224 unless this says otherwise.
    #[arg(long, value_name = "[NAME=]C,H,W", value_parser = input_shape, verbatim_doc_comment)]
    input_shape: Vec<InputShape>,

    /// Do not change the colours of the image as torchvision does for its pretrained GoogLeNet:
    /// for weights that were trained from scratch.
    #[arg(long, requires = "arch", verbatim_doc_comment)]
    no_transform_input: bool,

    /// Batch norms: merged into the layers beside them (fold), or layers of their own, at
    /// which the split shifts sensitivities too (keep), as in the paper's modules
    /// [default: fold]
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true, verbatim_doc_comment)]
    batch_norms: Option<BatchNormsName>,

    /// Which scores of the network are meant: the NAME of an output, where it has several (by
    /// default the first), and whether they are the logits that enter a final softmax or sigmoid
    /// (logit, the default) or the probabilities it returns (probability); NAME,probability says
    /// both.
    #[arg(long, value_name = "NAME|logit|probability", verbatim_doc_comment)]
    output: Option<OutputChoice>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BatchNormsName {
    Fold,
    Keep,
}

/// The shape of one input, or of all that it fits.
#[derive(Clone)]
struct InputShape {
    name: Option<String>,
    lengths: Vec<usize>,
}

/// Parses the shape of an input.
fn input_shape(text: &str) -> Result<InputShape, String> {
    let (name, lengths) = match text.rsplit_once('=') {
        Some((name, lengths)) => (Some(name.to_owned()), lengths),
        None => (None, text),
    };
    let length = |word: &str| match word.parse::<u32>() {
        Ok(length) if length > 0 => Ok(length as usize),
        _ => Err(format!("expected lengths of at least 1, separated by commas, found '{word}'")),
    };
    let lengths = lengths.split(',').map(length).collect::<Result<Vec<_>, _>>()?;
    if name.as_ref().is_some_and(String::is_empty) {
        return Err("expected NAME=C,H,W, found no name".to_owned());
    }
    Ok(InputShape { name, lengths })
}

/// The option to make smooth functions piecewise linear.
#[derive(Args)]
pub(crate) struct PiecewiseArgs {
    /// Replace smooth functions (GELU, SiLU, sigmoid, …; the exponentials, reciprocals and roots
    /// in softmax and norms) by ReLU networks with N knots each, fitted to the values they see
    /// on the first input; the errors are printed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..=1024), verbatim_doc_comment)]
    piecewise: Option<u32>,
}

impl PiecewiseArgs {
    /// Whether the option was given.
    pub(crate) fn is_given(&self) -> bool {
        self.piecewise.is_some()
    }

    /// The network with its smooth functions replaced by piecewise-linear ones fitted to `sample` (or a whole batch) if the
    /// option was given, and the error that makes.
    pub(crate) fn apply(
        &self,
        model: Model,
        sample: &Tensor,
        engine: &dyn Engine,
    ) -> Result<(Model, Option<Approximation>)> {
        let Some(knots) = self.piecewise else { return Ok((model, None)) };
        let sample = match model.fixed_batch()? {
            Some(size) if sample.shape().first() != Some(&size) => repeated(sample, size)?,
            _ => sample.clone(),
        };
        let (model, found) = model.piecewise(&[sample], knots as usize, engine)?;
        match found.worst() {
            None => note("the network has no smooth function to replace"),
            Some(worst) => note(&format!(
                "{} replaced, {knots} knots each; the largest error is {:.1e}, of {} '{}' between {:.3} and {:.3}; \
                 class scores move by at most {:.1e} of the largest",
                counted(found.functions.len(), "smooth function"),
                worst.error_in_range,
                worst.function,
                worst.name,
                worst.range.0,
                worst.range.1,
                found.relative()
            )),
        }
        Ok((model, Some(found)))
    }
}

impl NetworkArgs {
    /// The origin of the network: the architecture if one was given, otherwise `model`.
    pub(crate) fn origin(&self, model: Option<&Path>) -> Result<Origin> {
        match (&self.arch, &self.weights, model) {
            (Some(name), Some(weights), None) => Ok(Origin::architecture(name, weights)),
            (None, None, Some(model)) => Ok(Origin::onnx(model)),
            (Some(_), Some(_), Some(model)) => Err(Error::argument(format!(
                "both --arch and the file '{}' say which network is meant; give one of them",
                model.display()
            ))),
            _ => Err(Error::argument("no network given; name an ONNX file, or --arch and --weights")),
        }
    }

    /// The options for opening it.
    pub(crate) fn options(&self) -> ModelOptions {
        let options = Model::options()
            .transform_input(!self.no_transform_input)
            .fold_batch_norms(self.batch_norms != Some(BatchNormsName::Keep));
        let options = match &self.output {
            Some(choice) => options.output(choice.clone()),
            None => options,
        };
        self.input_shape.iter().cloned().fold(options, |options, InputShape { name, lengths }| match name {
            Some(name) => options.named_input_shape(name, lengths),
            None => options.input_shape(lengths),
        })
    }

    /// Splits the files on the command line into the network and its inputs; an error if there are none.
    pub(crate) fn split<'a>(&self, files: &'a [PathBuf], nothing: &str) -> Result<(Origin, &'a [PathBuf])> {
        let (origin, inputs) = self.split_any(files)?;
        if inputs.is_empty() { Err(Error::argument(nothing)) } else { Ok((origin, inputs)) }
    }

    /// The same where there may be no inputs.
    pub(crate) fn split_any<'a>(&self, files: &'a [PathBuf]) -> Result<(Origin, &'a [PathBuf])> {
        Ok(match files.split_first() {
            Some((model, inputs)) if self.arch.is_none() => (self.origin(Some(model))?, inputs),
            _ => (self.origin(None)?, files),
        })
    }

    /// The options for opening it to be run in `precision`.
    pub(crate) fn options_for(&self, precision: Precision) -> ModelOptions {
        self.options().precision(precision.into())
    }
}
