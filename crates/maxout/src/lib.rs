//! Multiplicative Maxout networks, one neuron at a time: the paper's appendix "Generalization of the Split to
//! Multiplicative Maxout Networks" as code that can be checked to the last digit.
//!
//! ```
//! use monosplit_maxout::{Rational, SplitOptions, parse, split};
//!
//! # fn main() -> monosplit_graph::Result<()> {
//! let f = parse("input x, y\n s = max(x - 2y, 0)\n f = s * y\n output f")?;
//! let pair = split(&f, &SplitOptions::default())?;
//! assert!(pair.g.is_input_convex() && pair.h.is_input_convex());
//! let at = [Rational::from(3), Rational::from(-1)];
//! let (g, h) = (&pair.g.evaluate(&at)?[0], &pair.h.evaluate(&at)?[0]);
//! assert_eq!(g - h, f.evaluate(&at)?[0]);
//! # Ok(())
//! # }
//! ```
//!
//! This crate knows neurons and graphs. It does not know how images are explained; the tensors of `monosplit-explain` are split
//! by the same formulas, thousands of neurons at a time.

mod counts;
mod drawing;
mod expansion;
mod from_graph;
mod network;
mod neuron;
mod number;
mod posynomial;
mod product;
mod rational;
mod shift;
mod split;
mod text;
mod token;

pub use counts::{Bound, Counts};
pub use drawing::{MAX_DRAWN_ARCS, MAX_DRAWN_NEURONS, dot, svg};
pub use expansion::{Expansion, MAX_POSYNOMIALS, MAX_TERMS, Variables};
pub use from_graph::from_graph;
pub use network::{MAX_DEGREE, MAX_NAME, MAX_NEURONS, MAX_RANK, MAX_WEIGHTS, MaxoutNetwork};
pub use neuron::{Addition, Form, Multiplication, Neuron, NeuronId};
pub use number::{MAX_BITS, Number};
pub use posynomial::{MAX_EXPONENT, Monomial, Posynomial, Style};
pub use product::{MAX_SUMMANDS, ProductDecomposition};
pub use rational::Rational;
pub use shift::shifted;
pub use split::{DecomposedNetwork, Inputs, SplitOptions, split};
pub use text::{MAX_TEXT, parse, parse_number};
