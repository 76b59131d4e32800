//! What an explanation is: a graph that computes a network's class scores and, beside them, saliency maps.
//!
//! The split writes a ReLU network `f` as the difference of two monotone convex networks, `f = g − h`, and reads maps
//! off the pair. In sum/difference coordinates that is the untouched forward pass, one more pass with `|W|` for the
//! sum stream `s`, and three backward tensors: the gradient `d`, the hidden gradient `E` and the mass `σ`.
//!
//! This crate rewrites graphs and asks an engine to run them. It knows nothing of images, files or metrics.
//!
//! ```
//! use monosplit_engine::Cpu;
//! use monosplit_explain::methods::{SplitCam, SplitGrad};
//! use monosplit_explain::{Class, Explainer, MapRequest, Settings, Stream};
//! use monosplit_graph::op::{Unary, Window};
//! use monosplit_graph::{Graph, Kind, Label, Op, Shape, Tensor};
//!
//! # fn main() -> monosplit_graph::Result<()> {
//! // A network: two convolutions, a mean over places, scores for two classes.
//! let mut network = Graph::new();
//! let image = network.input("image", Shape::batched(&[1, 4, 4]), Kind::Float);
//! let w1 = network.constant(Tensor::new([2, 1, 3, 3], (0..18).map(|i| (i as f32).sin()).collect::<Vec<_>>())?);
//! let w2 = network.constant(Tensor::new([2, 2, 2, 2], (0..16).map(|i| (i as f32).cos()).collect::<Vec<_>>())?);
//! let conv = |kernel: usize| Op::Conv { window: Window::new([kernel, kernel]), groups: 1 };
//! let a = network.add_named(Label::named("conv1"), conv(3), &[image, w1])?;
//! let a = network.add(Op::Unary(Unary::Relu), &[a])?;
//! let a = network.add_named(Label::named("conv2"), conv(2), &[a, w2])?;
//! let scores = network.reshaped(a, Shape::batched(&[2]))?;
//! network.output("scores", scores);
//!
//! // Two maps, compiled once, for whatever images, classes and α follow.
//! let requests = [
//!     MapRequest::new(SplitCam::default(), "conv2"),
//!     MapRequest::new(SplitGrad { stream: Stream::H, ..SplitGrad::default() }, "conv1"),
//! ];
//! let explainer = Explainer::new(&network, &requests, &Cpu::default())?;
//! let images = Tensor::new([3, 1, 4, 4], (0..48).map(|i| (i as f32 * 0.1).sin()).collect::<Vec<_>>())?;
//! let explained = explainer.explain(&images, &Class::PerSample(vec![0, 1, 1]), &Settings::default().alpha(0.3))?;
//! assert_eq!(explained.logits.shape(), [3, 2]);
//! assert_eq!(explained.maps[0].values.shape(), [3, 2, 2]);
//! assert_eq!(explained.maps[1].values.shape(), [3, 4, 4]);
//! # Ok(())
//! # }
//! ```

mod audit;
mod baseline;
mod bilinear;
mod bindings;
mod bounds;
mod cached_prologue;
mod cam;
mod channels;
mod closed_formula;
mod constant_elements;
mod default_layer;
mod explain_batch;
mod explained_inputs;
mod explainer;
mod explanation;
mod explanation_builder;
mod explanation_graph;
mod features;
mod finish;
mod hidden_share;
mod layer_alphas;
mod layer_pattern;
mod lrp;
mod method;
pub mod methods;
mod model_output;
mod network;
mod network_partition;
mod operator_norm;
mod pair;
mod patch_grid;
mod prologue;
mod quadrature;
mod reference;
mod regression;
mod relevance;
mod relevance_audit;
mod rescale;
mod resolution_stages;
mod sample_layout;
mod scaled;
mod scaling;
mod score_dependence;
mod scorer;
mod sensitivity;
mod shift;
mod slic;
mod split;
mod split_streams;
mod stabilised_quotient;
mod sum_stream;
mod target;
mod token_lookup;
mod unrolled;

pub use audit::{Audit, LayerAudit, PairAudit, STABILISERS, audit, audit_pair};
pub use baseline::Baseline;
pub use bounds::{BoxBounds, EnclosedBoxes, InputBoxes, LinearLowerBound, StreamBounds, StreamRanges};
pub use closed_formula::{ClosedFormula, DecomposedMap, Term};
pub use default_layer::{ChosenLayer, chosen_layer, layers_by_size};
pub use explain_batch::{BatchPosition, Class, ExplainBatch, NoProgress, Progress, Settings};
pub use explained_inputs::{ExplainedInputs, InputEncoder, InputPart};
pub use explainer::Explainer;
pub use explanation::{Explanation, SaliencyMap};
pub use explanation_builder::ExplanationBuilder;
pub use explanation_graph::{CLASS_IN_RANGE, ClassInput, ExplanationGraph, MapOutput, inputs};
pub use features::Features;
pub use finish::{Absolute, ChannelReduction, Finish, Normalise, Size, Upsampling};
pub use layer_alphas::LayerAlphas;
pub use lrp::{Composite, Conservation, LayerRelevance, NamedRule, Products, Rule};
pub use method::{
    AttributedLayer, Attribution, Attributions, DefaultLayer, Diagnostic, GraphMethod, MapRequest, Method,
    MultiPass, NetworkLayer, PreparedMethod, Procedure,
};
pub use network::class_scores;
pub use pair::{Pair, materialise};
pub use quadrature::Quadrature;
pub use reference::ReferenceImage;
pub use relevance_audit::RelevanceSize;
pub use scaling::{Correction, Repetition, ScaledOver, Scaling, Threshold};
pub use split::{AlphaInput, InputSplit, Invariant, Pooling, ReluMode, ShiftAt, Split, Stabiliser};
pub use split_streams::{Stream, StreamPart};
pub use target::{
    AxisIndex, Cells, Grafted, HeldNetwork, HeldValues, Mask, Parameters, Rival, Summary, TARGET_IN_RANGE,
    Target, is_target_score, parameter_inputs, settled, target_output,
};
