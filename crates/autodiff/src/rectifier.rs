//! Rectifiers: ReLU, leaky ReLU and parametric ReLU.

use monosplit_graph::op::{Binary, Unary};
use monosplit_graph::{Graph, Node, NodeId, Op, Result};

/// A node that computes `z` where `z ≥ 0` and `slope·z` elsewhere, with a slope between 0 and 1.
#[derive(Clone, Copy, Debug)]
pub struct Rectifier {
    /// The slope for negative `z`; none is 0.
    pub slope: Option<NodeId>,
}

/// The rectifier that a node is; `None` for other ops, and for slopes outside 0 to 1.
pub fn rectifier(g: &mut Graph, node: &Node) -> Result<Option<Rectifier>> {
    let within = |slope: f64| (0.0..=1.0).contains(&slope);
    Ok(match &node.op {
        Op::Unary(Unary::Relu) => Some(Rectifier { slope: None }),
        Op::Unary(Unary::LeakyRelu { slope }) if within(*slope) => {
            Some(Rectifier { slope: Some(g.number(*slope)) })
        }
        Op::Binary(Binary::PRelu) => {
            let slopes = g.constant_value(node.inputs[1]);
            let fits = slopes.is_some_and(|t| t.to_f64().iter().all(|&slope| within(slope)));
            fits.then_some(Rectifier { slope: Some(node.inputs[1]) })
        }
        _ => None,
    })
}
