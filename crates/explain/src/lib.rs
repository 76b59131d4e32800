//! What an explanation is: a graph that computes a network's class scores and, beside them, saliency maps.
//!
//! The split writes a ReLU network `f` as the difference of two monotone convex networks, `f = g − h`, and reads maps
//! off the pair. In sum/difference coordinates that is the untouched forward pass, one more pass with `|W|` for the
//! sum stream `s`, and three backward tensors: the gradient `d`, the hidden gradient `E` and the mass `σ`.
//!
//! This crate rewrites graphs and asks an engine to run them. It knows nothing of images, files or metrics.

mod axis;
mod closed_formula;
mod contest;
mod derivative;
mod explainer;
mod explanation;
mod gradient;
mod growth;
mod invariant;
mod linear;
mod maps;
mod network;
mod pair;
mod rectifier;
mod relevance;
mod scaled;
mod sensitivity;
mod shift;
mod split;
mod sum_stream;
mod walk;

pub use closed_formula::{ClosedFormula, Term, Whole};
pub use explainer::{Class, Explained, Explainer, Map, Settings};
pub use explanation::{ClassInput, Explanation, Reading, Request, inputs};
pub use maps::{Absolute, Finish, Method, Part, RelevanceMap, Size, Stream};
pub use pair::{Pair, materialise};
pub use split::{AlphaInput, InputSplit, Pooling, ReluMode, ShiftAt, Split, Stabiliser};
