//! Targets as texts: what `class:tabby`, `region:mask.png,class=3` and the like mean, for a network, its class names and the
//! files that they name. Below this, targets are values of [`monosplit_explain::Target`].

mod choice;
mod grafting;
mod suggestions;

pub use choice::{CellChoice, MaskChoice, TargetChoice};
pub(crate) use grafting::ModelTarget;
pub use grafting::TargetContext;
pub use suggestions::SuggestedTargets;
