//! Short words for building expressions node by node, for code that writes formulas into graphs.

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::op::{Binary, Op, Reduction, Unary};
use crate::shape::Shape;
use crate::tensor::Tensor;

impl Graph {
    /// Adds a real constant without axes, which broadcasts against anything.
    pub fn scalar(&mut self, value: f64) -> NodeId {
        self.constant(Tensor::scalar(value))
    }

    /// Adds `function(x)`.
    pub fn unary(&mut self, function: Unary, x: NodeId) -> Result<NodeId> {
        self.add(Op::Unary(function), &[x])
    }

    /// Adds `function(a, b)`.
    pub fn binary(&mut self, function: Binary, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(Op::Binary(function), &[a, b])
    }

    /// Adds `factor·x`, or nothing if the factor is one.
    pub fn scaled(&mut self, x: NodeId, factor: f64) -> Result<NodeId> {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = self.scalar(factor);
        self.binary(Binary::Mul, x, factor)
    }

    /// Adds `x + offset`, or nothing if the offset is zero.
    pub fn shifted(&mut self, x: NodeId, offset: f64) -> Result<NodeId> {
        if offset == 0.0 {
            return Ok(x);
        }
        let offset = self.scalar(offset);
        self.binary(Binary::Add, x, offset)
    }

    /// Adds a reduction over `axes` that keeps them with length 1.
    pub fn reduced(&mut self, reduction: Reduction, x: NodeId, axes: &[usize]) -> Result<NodeId> {
        self.add(Op::Reduce { reduction, axes: axes.to_vec(), keep: true }, &[x])
    }

    /// Adds `x` under another shape, or nothing if it has it already.
    pub fn reshaped(&mut self, x: NodeId, shape: Shape) -> Result<NodeId> {
        if self.node(x).shape == shape {
            return Ok(x);
        }
        self.add(Op::Reshape { shape }, &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Kind;

    #[test]
    fn neutral_elements_add_no_node() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        assert_eq!(g.scaled(x, 1.0).unwrap(), x);
        assert_eq!(g.shifted(x, 0.0).unwrap(), x);
        assert_eq!(g.reshaped(x, Shape::batched(&[3])).unwrap(), x);
        assert_ne!(g.scaled(x, 2.0).unwrap(), x);
    }
}
