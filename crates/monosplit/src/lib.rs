//! monosplit as a library: the rooms of the house under one roof, and [`Model`], an opened network ready to be run
//! or explained. The command line is [`commands`], and holds nothing that a program could not do with the rest.
//!
//! ```no_run
//! use monosplit::engine::{Cpu, Precision};
//! use monosplit::image::{Fit, Picture, Preset};
//! use monosplit::{Inference, Model, ModelOptions, Origin};
//!
//! # fn main() -> monosplit::Result<()> {
//! let model = Model::open(Origin::onnx("resnet18.onnx"), &ModelOptions::default())?;
//! let size = model.picture_input()?.size;
//! let prepared = Preset::Imagenet.options().fit(size, Fit::default())?.apply(&Picture::open("cat.jpg")?)?;
//! let logits = Inference::new(&model, &Cpu::default().precision(Precision::F32))?.run(&[prepared.tensor])?;
//! assert_eq!(logits.shape(), [1, 1000]);
//! # Ok(())
//! # }
//! ```

pub use monosplit_engine as engine;
pub use monosplit_eval as eval;
pub use monosplit_explain as explain;
pub use monosplit_graph as graph;
pub use monosplit_image as image;
pub use monosplit_maxout as maxout;
pub use monosplit_render as render;
pub use monosplit_train as train;

pub use monosplit_graph::{Error, ErrorKind, Result, Tensor};

mod any_batch;
pub mod catalogue;
pub mod commands;
mod compilation;
mod compiled;
mod config;
mod evaluation;
mod failure;
mod inference;
mod input;
mod interruption;
mod json;
mod labels;
mod layer_choice;
mod manner;
mod model;
mod prediction;
mod report;
mod table;

pub use compilation::{ClassSource, Compilation};
pub use compiled::{CompiledMap, compiled_maps};
pub use evaluation::Laboratory;
pub use inference::Inference;
pub use input::{Feed, Sample, Source};
pub use labels::Labels;
pub use layer_choice::{chosen_layer, default_layer, layers_by_size};
pub use model::{Layout, Model, ModelOptions, Origin, PictureInput};
pub use monosplit_graph::batch::stack;
pub use prediction::{Meaning, Ranked};

/// The README's example is compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
