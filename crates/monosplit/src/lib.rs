//! monosplit explains what a trained image classifier saw. [`Model`] is an opened network, ready to be run or explained.
//!
//! ```
//! use monosplit::Model;
//! use monosplit::image::Picture;
//!
//! # fn main() -> monosplit::Result<()> {
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/assets")).unwrap();
//! let model = Model::open("pets-small.onnx")?;
//! let explanation = model.explain(&Picture::open("chelsea.png")?)?;
//! println!("{}: {:.1} %", explanation.class_name, 100.0 * explanation.probability.unwrap_or_default());
//! # std::env::set_current_dir(std::env::temp_dir()).unwrap();
//! explanation.save("explained.png")?;
//! # assert_eq!(explanation.class, explanation.ranking[0].class);
//! # assert_eq!(Picture::open("explained.png")?, explanation.overlay()?);
//! # Ok(())
//! # }
//! ```
//!
//! Options are builders. An explainer is compiled once and explains any number of pictures:
//!
//! ```
//! # use monosplit::Model;
//! # use monosplit::image::Picture;
//! # fn main() -> monosplit::Result<()> {
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/assets")).unwrap();
//! # let picture = Picture::open("chelsea.png")?;
//! let model = Model::options().input_shape([3, 128, 128]).open("pets-small.onnx")?;
//! let explainer = model.explainer("splitgrad").layer("layer2.1.conv2").alpha(0.3).class("bengal").build()?;
//! let explanation = explainer.explain(&picture)?;
//! assert_eq!(explanation.class_name.to_lowercase(), "bengal");
//! assert_eq!(explanation.map.values.shape()[0], 1);
//! # Ok(())
//! # }
//! ```
//!
//! The crates below this one are its modules: [`graph`] is what a network is, [`autodiff`] walks it backward, [`engine`]
//! runs it, [`explain`] holds the
//! methods, [`image`] and [`render`] read and draw pictures. The features `eval` (metrics and the store of results),
//! `train` and `maxout` add theirs; `onnxruntime` and `cuda` add engines.

pub use monosplit_autodiff as autodiff;
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
mod certified_bounds;
mod channel_cancellation;
#[cfg(feature = "eval")]
mod channels_first;
mod compilation;
mod compiled;
#[cfg(feature = "train")]
mod counterfactual_figure;
#[cfg(feature = "eval")]
mod evaluation;
mod given_inputs;
mod gradient_polytope;
mod held_inputs;
mod inference;
mod input;
mod input_facts;
mod input_list;
mod inputs_explainer;
mod labels;
mod layer_choice;
mod layer_contributions;
mod method_set;
mod model;
#[cfg(feature = "eval")]
mod model_comparison;
mod model_facts;
mod model_options;
mod open_batch;
mod open_network;
mod output_choice;
mod pair_cancellation;
mod picture_explainer;
mod pixel_values;
mod prediction;
mod sample_figure;
mod standard_input;
mod table_file;
mod target;
mod verification;
mod vocabulary;

pub use certified_bounds::{
    Certificate, CertifiedBounds, InputBox, LEAST_CHANGE, MarginBound, PatchCertificates, SampledInputs,
};
pub use channel_cancellation::{cancelled_share, channel_magnitudes};
pub use compilation::{ClassSource, Compilation};
pub use compiled::{CompiledFileFacts, CompiledMap, compiled_maps, is_compiled};
#[cfg(feature = "train")]
pub use counterfactual_figure::counterfactual_tiles;
#[cfg(feature = "eval")]
pub use evaluation::{EvaluationContext, with_target};
pub use gradient_polytope::{GradientVertex, gradient_polytope};
pub use inference::Inference;
pub use input::{FileShape, InputFile, Sample, SampleReader, SkippedInput};
pub use input_facts::{InputFacts, InputKind};
pub use input_list::InputList;
pub use inputs_explainer::{InputMap, InputsExplainer, InputsExplanation};
pub use labels::Labels;
pub use layer_choice::default_layer;
pub use layer_contributions::{LayerContributions, LayerDecomposition};
pub use method_set::MethodSet;
pub use model::{Approximation, ChannelOrder, Model, PictureInput, holds_maps, read_file};
#[cfg(feature = "eval")]
pub use model_comparison::{DifferenceMeasure, MapDifference, ModelComparison, SampleDifference};
pub use model_options::{ModelOptions, Origin};
pub use monosplit_graph::batch::stack;
pub use open_network::OpenNetwork;
pub use output_choice::OutputChoice;
pub use pair_cancellation::PairCancellation;
pub use picture_explainer::{
    ClassChoice, DEFAULT_METHOD, ExplainerBuilder, PictureExplainer, PictureExplanation,
};
pub use pixel_values::PixelValues;
pub use prediction::{RankedClass, ScoreKind};
pub use sample_figure::unit_figure;
pub use target::{CellChoice, MaskChoice, SuggestedTargets, TargetChoice, TargetContext};
pub use verification::{Finding, Verdict, Verification};
pub use vocabulary::Vocabulary;

/// The README's example is compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the book's page are compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/library.md")]
struct LibraryPage;

/// The example of the page on inputs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/inputs.md")]
struct InputsPage;
