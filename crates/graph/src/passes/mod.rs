//! Passes: functions from graph to graph. Each is a walk over the old graph ([`Rewrite`]) that leaves outputs, names and
//! properties where they were; none of them knows how a graph is run.

mod batch_norm;
mod canonical;
mod compose;
mod constants;
mod decompose;
mod function;
mod identities;
mod max_form;
#[cfg(test)]
mod reference;
mod rewrite;
mod softmax;

pub use batch_norm::fold_batch_norm;
pub use canonical::{Canonical, CanonicalOptions, canonicalise};
pub use constants::{Evaluate, fold_constants};
pub use decompose::decompose;
pub use identities::drop_identities;
pub use max_form::max_form;
pub use rewrite::{NodeMap, Rewrite, Step};
pub use softmax::{Stripped, strip_softmax};
