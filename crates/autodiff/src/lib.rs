//! Backward walks over computation graphs.
//!
//! There is one walk ([`Walk`]). A backward method is a set of rules for it ([`Rules`]): the message it carries and what each
//! node does to the message. The ordinary gradient ([`Gradient`]) is one rule set, and [`gradients`] returns gradients as more
//! nodes of a graph.
//!
//! This crate rewrites graphs. It runs nothing and knows no engine, no explanation method and no training.

mod active_graph;
mod axis;
pub mod derivative;
mod gradient;
mod gradients;
pub mod linear;
mod rectifier;
mod walk;
pub mod window_max;

pub use active_graph::{ActiveGraph, User};
pub use axis::AxisMap;
pub use gradient::{Gradient, ReluBackward};
pub use gradients::gradients;
pub use rectifier::{Rectifier, rectifier};
pub use walk::{Edge, Rules, Walk};
