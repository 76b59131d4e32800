//! Backward walks over computation graphs.
//!
//! There is one walk, [`Walk`]. A backward method is a set of [`Rules`] for it: the message the method carries, and what each
//! node does to the message. The result is a larger graph that computes the messages beside the values of the original one.
//! [`GradientRules`] is the rule set of the chain rule; [`gradients`] uses it to return gradients as nodes.
//!
//! Gradients of a number with respect to any values of a graph:
//!
//! ```
//! use monosplit_autodiff::gradients;
//! use monosplit_engine::{Cpu, Engine};
//! use monosplit_graph::op::Reduction;
//! use monosplit_graph::{Graph, Kind, Shape, Tensor};
//!
//! # fn main() -> monosplit_graph::Result<()> {
//! let mut graph = Graph::new();
//! let x = graph.input("x", Shape::fixed(&[3]), Kind::Float);
//! let square = graph.times(x, x)?;
//! let sum = graph.reduced(Reduction::Sum, square, &[0], false)?;
//! let (mut graph, gradient) = gradients(&graph, sum, &[x])?;
//! graph.output("gradient", gradient[0]);
//! let outputs = Cpu::default().compile(&graph)?.run(&[Tensor::vector(vec![1f32, -2.0, 3.0])])?;
//! assert_eq!(&*outputs[0].to_f32(), &[2.0, -4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! A method of one's own is a type that implements [`Rules`]. This one is RectGrad with a fixed threshold `τ`: at a ReLU with
//! output `a`, a message `r` passes where `a·r > τ`. Everywhere else it follows the chain rule. The complete program is
//! `examples/own_method.rs`.
//!
//! ```
//! use monosplit_autodiff::{ActiveGraph, Edge, GradientRules, Rules, Walk};
//! use monosplit_engine::{Cpu, Engine};
//! use monosplit_graph::op::{Reduction, Unary};
//! use monosplit_graph::{Graph, Kind, NodeId, Op, Result, Shape, Tensor};
//!
//! struct RectGrad {
//!     threshold: f64,
//! }
//!
//! impl Rules for RectGrad {
//!     type Message = NodeId;
//!
//!     fn join(&mut self, g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
//!         g.plus(a, b)
//!     }
//!
//!     fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, r: NodeId) -> Result<Option<NodeId>> {
//!         if edge.node.op != Op::Unary(Unary::Relu) {
//!             return GradientRules::default().pass(g, edge, r);
//!         }
//!         let importance = g.times(edge.id, r)?;
//!         let passes = g.more_than(importance, self.threshold)?;
//!         g.masked(passes, r).map(Some)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let mut graph = Graph::new();
//! let x = graph.input("x", Shape::fixed(&[4]), Kind::Float);
//! let weights = graph.constant(Tensor::vector(vec![1f32, 2.0, 3.0, -1.0]));
//! let rectified = graph.unary(Unary::Relu, x)?;
//! let weighted = graph.times(rectified, weights)?;
//! let score = graph.reduced(Reduction::Sum, weighted, &[0], false)?;
//!
//! let active = ActiveGraph::new(&graph, score, &[x])?;
//! let mut g = active.graph().clone();
//! let seed = g.number(1.0);
//! let mut walk = Walk::new(RectGrad { threshold: 1.0 }, active.output(), seed);
//! let message = walk.message(&mut g, &active, active.inputs()[0])?.expect("the score depends on x");
//! g.output("rectgrad", message);
//! let outputs = Cpu::default().compile(&g)?.run(&[Tensor::vector(vec![1f32, -2.0, 0.5, 4.0])])?;
//! // a·r is 1, 0, 1.5 and −4: only the third passes.
//! assert_eq!(&*outputs[0].to_f32(), &[0.0, 0.0, 3.0, 0.0]);
//! # Ok(())
//! # }
//! ```
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
pub use gradient::{GradientRules, ReluBackward};
pub use gradients::gradients;
pub use rectifier::{Rectifier, rectifier};
pub use walk::{Edge, Rules, Walk};
