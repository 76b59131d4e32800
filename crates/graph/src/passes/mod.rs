//! Passes: functions from graph to graph. Each is a walk over the old graph ([`Rewrite`]) that leaves outputs, names and
//! properties where they were; none of them knows how a graph is run.

mod affine_weights;
mod batch_norm;
mod canonical;
mod channel_map;
mod constants;
mod convex;
mod decompose;
mod dropout;
mod identities;
mod interpolation;
mod matrix_form;
mod max_form;
mod piecewise;
mod portable;
mod real_input;
#[cfg(test)]
mod reference;
mod rewrite;
mod rounding;
mod sharing;
mod smooth;
mod softmax;

pub use affine_weights::Stored;
pub use batch_norm::fold_batch_norm;
pub use canonical::{Canonical, CanonicalOptions, canonicalise};
pub use constants::{Evaluate, fold_constants};
pub(crate) use decompose::normalised;
pub use decompose::{decompose, primitive};
pub use dropout::mask_dropout;
pub use identities::drop_identities;
pub use matrix_form::matrix_form;
pub use max_form::max_form;
pub use piecewise::{Observation, PiecewiseOptions, PiecewiseReport, multiplicative_form, piecewise};
pub use portable::portable;
pub use real_input::with_real_input;
pub use rewrite::{NodeMap, Rewrite, Step};
pub use rounding::drop_rounding;
pub use sharing::{share_computations, share_constants};
pub use smooth::{SmoothActivation, recognise_activations, smooth_activations};
pub use softmax::{Stripped, strip_probabilities};
