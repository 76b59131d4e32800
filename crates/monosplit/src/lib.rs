//! monosplit as a library: the rooms of the house under one roof, and [`Model`], an opened network ready to be run
//! or explained.
//!
//! ```no_run
//! use monosplit::engine::{Cpu, Precision};
//! use monosplit::image::{Fit, Picture, Preset};
//! use monosplit::{Inference, Model};
//!
//! # fn main() -> monosplit::Result<()> {
//! let model = Model::open("resnet18.onnx")?;
//! let size = model.picture_input()?.size;
//! let prepared = Preset::Imagenet.options().fit(size, Fit::default())?.apply(&Picture::open("cat.jpg")?)?;
//! let logits = Inference::new(&model, &Cpu::default().precision(Precision::F32))?.run(&[prepared.tensor])?;
//! assert_eq!(logits.shape(), [1, 1000]);
//! # Ok(())
//! # }
//! ```

pub use monosplit_engine as engine;
#[cfg(feature = "eval")]
pub use monosplit_eval as eval;
pub use monosplit_explain as explain;
pub use monosplit_graph as graph;
pub use monosplit_image as image;
#[cfg(feature = "maxout")]
pub use monosplit_maxout as maxout;
pub use monosplit_render as render;
#[cfg(feature = "train")]
pub use monosplit_train as train;

pub use monosplit_graph::{Error, ErrorKind, Result, Tensor};

pub mod assets;
pub mod catalogue;
mod compilation;
mod compiled;
#[cfg(feature = "eval")]
mod evaluation;
mod inference;
mod input;
mod labels;
mod layer_choice;
mod model;
mod model_options;
mod open_batch;
mod prediction;

pub use compilation::{ClassSource, Compilation};
pub use compiled::{CompiledMap, Provenance, compiled_maps, is_compiled};
#[cfg(feature = "eval")]
pub use evaluation::Laboratory;
pub use inference::Inference;
pub use input::{Feed, Sample, Source};
pub use labels::Labels;
pub use layer_choice::{chosen_layer, default_layer, layers_by_size};
pub use model::{Approximation, ChannelOrder, Model, PictureInput, holds_maps, read_file};
pub use model_options::{ModelOptions, Origin};
pub use monosplit_graph::batch::stack;
pub use prediction::{Meaning, Ranked};

/// The README's example is compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
