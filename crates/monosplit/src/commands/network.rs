//! The options every command that opens a network has.

use std::path::{Path, PathBuf};

use clap::Args;
use monosplit_graph::passes::Stored;
use monosplit_graph::{Error, Result};

use super::run::Precision;
use crate::model::{ModelOptions, Origin};

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

    /// The shape of one sample where the file leaves it open, as C,H,W (3,224,224 for example).
    /// An architecture is built for images of 3,224,224 unless this says otherwise.
    #[arg(
        long,
        value_name = "C,H,W",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..),
        verbatim_doc_comment
    )]
    input_shape: Option<Vec<u32>>,
}

impl NetworkArgs {
    /// Where the network is: the architecture if one was asked for, otherwise `model`.
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

    /// How it is opened.
    pub(crate) fn options(&self) -> ModelOptions {
        let shape = self.input_shape.as_ref();
        let input_shape = shape.map(|lengths| lengths.iter().map(|&length| length as usize).collect());
        ModelOptions { input_shape, ..ModelOptions::default() }
    }

    /// Splits what was named on the command line into the network and its inputs, of which there must be some.
    pub(crate) fn split<'a>(&self, files: &'a [PathBuf], nothing: &str) -> Result<(Origin, &'a [PathBuf])> {
        let (origin, inputs) = match files.split_first() {
            Some((model, inputs)) if self.arch.is_none() => (self.origin(Some(model))?, inputs),
            _ => (self.origin(None)?, files),
        };
        if inputs.is_empty() { Err(Error::argument(nothing)) } else { Ok((origin, inputs)) }
    }

    /// How the network is opened to be run in `precision`: folded weights are kept in it.
    pub(crate) fn options_for(&self, precision: Precision) -> ModelOptions {
        let mut options = self.options();
        if precision == Precision::F64 {
            options.canonical.stored = Stored::Double;
        }
        options
    }
}
