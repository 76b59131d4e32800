//! The option that says what of a network's outputs is explained.

use std::path::Path;

use clap::Args;
use monosplit::engine::Engine;
use monosplit::graph::Result;
use monosplit::image::Preprocess;
use monosplit::{Model, ModelOptions, TargetChoice, TargetContext};

/// What is explained.
#[derive(Args)]
pub(crate) struct TargetArgs {
    /// What is explained, where it is not the score of a class:
    ///   class:NAME, class:top, class:top2   the score of a class, or of the (second) best
    ///   contrast:A,B                        the score of A less that of B: why A and not B
    ///   region:MASK[,class=K]               a class's map, summed over a mask (a picture, white
    ///                                       inside, or a .npy array)
    ///   region:auto[,class=K]               the same where the network itself finds the class
    ///   cell:OUTPUT[i,j,…]                  one number of an output: -1 is the last, 0:3 a
    ///                                       range whose numbers are added, best the best cell
    ///   cell:OUTPUT[best=K]                 the number of the best cell of class K
    ///   sum:OUTPUT, mean:OUTPUT, norm:OUTPUT  all numbers of an output as one
    ///   similarity:REF                      the cosine to a picture's output or a .npy array
    ///   head:FILE.onnx                      what a graph makes of the outputs
    /// `monosplit inspect` lists the outputs of a network, and targets that suit them.
    #[arg(long, value_name = "TARGET", verbatim_doc_comment)]
    target: Option<String>,
}

impl TargetArgs {
    /// The target that was given.
    pub(crate) fn choice(&self) -> Result<Option<TargetChoice>> {
        self.target.as_deref().map(str::parse).transpose()
    }
}

/// The options for opening a network for a target.
pub(crate) fn opened_for(options: ModelOptions, target: Option<&TargetChoice>) -> ModelOptions {
    match target {
        Some(target) => options.target(target),
        None => options,
    }
}

/// A network with a target, if one was given.
pub(crate) fn with_target(
    model: Model,
    target: Option<&TargetChoice>,
    (labels, preprocess): (Option<&Path>, Option<&Preprocess>),
    engine: &dyn Engine,
) -> Result<Model> {
    let context = TargetContext { labels, preprocess, ..TargetContext::new(engine) };
    target.map_or(Ok(model.clone()), |target| model.with_target(target, &context))
}
