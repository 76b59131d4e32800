//! Arithmetic on the values of a graph, for code that writes graphs: each function appends the node that
//! computes what it says.

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::op::{Binary, Op, Reduction, Unary};
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

impl Graph {
    /// A real number.
    pub fn number(&mut self, value: f64) -> NodeId {
        self.constant(Tensor::scalar(value))
    }

    /// `f(a)`
    pub fn unary(&mut self, function: Unary, a: NodeId) -> Result<NodeId> {
        self.add(Op::Unary(function), &[a])
    }

    /// `f(a, b)`
    pub fn binary(&mut self, function: Binary, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(Op::Binary(function), &[a, b])
    }

    /// `a + b`
    pub fn plus(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.binary(Binary::Add, a, b)
    }

    /// `a − b`
    pub fn minus(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.binary(Binary::Sub, a, b)
    }

    /// `a·b`, elementwise
    pub fn times(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.binary(Binary::Mul, a, b)
    }

    /// `a/b`, elementwise
    pub fn over(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.binary(Binary::Div, a, b)
    }

    /// `factor·a`; `a` itself if the factor is one.
    pub fn scaled(&mut self, factor: f64, a: NodeId) -> Result<NodeId> {
        if factor == 1.0 {
            return Ok(a);
        }
        let factor = self.number(factor);
        self.times(factor, a)
    }

    /// `term + a`; `a` itself if the term is zero.
    pub fn offset(&mut self, term: f64, a: NodeId) -> Result<NodeId> {
        if term == 0.0 {
            return Ok(a);
        }
        let term = self.number(term);
        self.plus(term, a)
    }

    /// `−a`
    pub fn negated(&mut self, a: NodeId) -> Result<NodeId> {
        self.unary(Unary::Neg, a)
    }

    /// `|a|`
    pub fn magnitude(&mut self, a: NodeId) -> Result<NodeId> {
        self.unary(Unary::Abs, a)
    }

    /// `max(a, 0)`
    pub fn rectified(&mut self, a: NodeId) -> Result<NodeId> {
        self.unary(Unary::Relu, a)
    }

    /// The truth values of `a ≥ bound`.
    pub fn at_least(&mut self, a: NodeId, bound: f64) -> Result<NodeId> {
        let bound = self.number(bound);
        self.binary(Binary::GreaterOrEqual, a, bound)
    }

    /// The truth values of `a > bound`.
    pub fn more_than(&mut self, a: NodeId, bound: f64) -> Result<NodeId> {
        let bound = self.number(bound);
        self.binary(Binary::Greater, a, bound)
    }

    /// `a` where `condition` holds, else `b`.
    pub fn select(&mut self, condition: NodeId, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.add(Op::Where, &[condition, a, b])
    }

    /// `a` where `condition` holds, else 0.
    pub fn masked(&mut self, condition: NodeId, a: NodeId) -> Result<NodeId> {
        let zero = self.number(0.0);
        self.select(condition, a, zero)
    }

    /// `a` reduced over `axes`, which stay with length 1 if `keep`.
    pub fn reduced(&mut self, reduction: Reduction, a: NodeId, axes: &[usize], keep: bool) -> Result<NodeId> {
        self.add(Op::Reduce { reduction, axes: axes.to_vec(), keep }, &[a])
    }

    /// The elements of `a` under another shape; `a` itself if it has that shape.
    pub fn reshaped(&mut self, a: NodeId, shape: Shape) -> Result<NodeId> {
        if self.node(a).shape == shape {
            return Ok(a);
        }
        self.add(Op::Reshape { shape }, &[a])
    }

    /// A vector over channels, shaped to meet axis 1 of a value of rank `rank`.
    pub fn per_channel(&mut self, vector: NodeId, rank: usize) -> Result<NodeId> {
        let mut dims = vec![Dim::Fixed(1); rank];
        dims[1] = self.node(vector).shape.dims()[0];
        self.reshaped(vector, Shape::new(dims))
    }

    /// `a` summed over the axes along which a value of shape `shape` was broadcast to it: the transpose of
    /// broadcasting.
    pub fn summed_to(&mut self, a: NodeId, shape: &Shape) -> Result<NodeId> {
        let from = self.node(a).shape.clone();
        if from == *shape {
            return Ok(a);
        }
        let lead = from.rank().checked_sub(shape.rank());
        let lead =
            lead.ok_or_else(|| Error::shape(format!("no value of shape {shape} broadcasts to {from}")))?;
        let stretched = |axis: usize| {
            axis < lead || (shape.dims()[axis - lead] == Dim::Fixed(1) && from.dims()[axis] != Dim::Fixed(1))
        };
        let axes: Vec<usize> = (0..from.rank()).filter(|&axis| stretched(axis)).collect();
        let summed = if axes.is_empty() { a } else { self.reduced(Reduction::Sum, a, &axes, true)? };
        self.reshaped(summed, shape.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Kind;

    #[test]
    fn summing_undoes_the_shape_of_broadcasting() {
        let mut g = Graph::new();
        let a = g.input("a", Shape::batched(&[3, 4, 5]), Kind::Float);
        for shape in
            [Shape::fixed(&[4, 1]), Shape::batched(&[1, 1, 5]), Shape::default(), Shape::batched(&[3, 4, 5])]
        {
            let summed = g.summed_to(a, &shape).unwrap();
            assert_eq!(g.node(summed).shape, shape);
        }
    }

    #[test]
    fn neutral_elements_add_no_node() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        assert_eq!(g.scaled(1.0, x).unwrap(), x);
        assert_eq!(g.offset(0.0, x).unwrap(), x);
        assert_eq!(g.reshaped(x, Shape::batched(&[3])).unwrap(), x);
        assert_ne!(g.scaled(2.0, x).unwrap(), x);
    }
}
