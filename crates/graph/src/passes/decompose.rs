//! Composite ops decomposed into primitive ones, so that backward methods need rules for the primitive ones only.

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::op::{Binary, Divisor, Op, Reduction, Unary, Window};
use crate::shape::{Dim, Shape};
use crate::tensor::Kind;

use super::rewrite::{Rewrite, Step};

/// The largest integer exponent that is written as a product.
const LARGEST_PRODUCT: f64 = 64.0;

/// Spells out layer norm, group norm, softmax, log-softmax, local response norm, division by an activation and powers
/// with one constant exponent, in means, sums, products, reciprocals, roots, exponentials and logarithms.
///
/// | node | becomes |
/// |---|---|
/// | layer and group norm | `c = x − mean(x)`, `c·1/√(mean(c²) + ε)·scale + bias` |
/// | softmax | `e = exp(x − max(x))`, `e·1/Σe` |
/// | log-softmax | `z = x − max(x)`, `z − log Σ exp z` |
/// | local response norm | `x·(bias + alpha/size·Σ x²)^−beta`, the sum a pool over channels |
/// | `a/b` | `a·1/b` unless `b` is constant |
/// | `xⁿ`, `x^½`, other `xᶜ` | products, square root, `exp(c·log x)` |
pub fn decompose(graph: &Graph) -> Result<Graph> {
    Rewrite::run(graph, |rewrite, _, node| {
        let inputs = rewrite.inputs(node);
        let value = primitive(&mut rewrite.target, &node.op, &inputs)?;
        Ok(value.map_or(Step::Keep, Step::Replace))
    })
}

/// Appends the composition of primitive ops that computes `op`, as [`decompose`] spells it; `None` if `op` is
/// primitive itself.
pub fn primitive(g: &mut Graph, op: &Op, inputs: &[NodeId]) -> Result<Option<NodeId>> {
    if inputs.first().is_none_or(|&x| g.node(x).kind != Kind::Float) {
        return Ok(None);
    }
    Ok(match op {
        Op::LayerNorm { axis, epsilon } => Some(layer_norm(g, inputs, *axis, *epsilon)?),
        Op::GroupNorm { groups, epsilon } => Some(group_norm(g, inputs, *groups, *epsilon)?),
        Op::Softmax { axis } => Some(softmax(g, inputs[0], *axis)?),
        Op::LogSoftmax { axis } => Some(log_softmax(g, inputs[0], *axis)?),
        Op::LocalResponseNorm { size, alpha, beta, bias } => {
            let sum = sum_of_neighbours(g, inputs[0], *size)?;
            let sum = g.scaled(alpha / *size as f64, sum)?;
            let base = g.offset(*bias, sum)?;
            let factor = power(g, base, -beta)?;
            Some(g.times(inputs[0], factor)?)
        }
        Op::Binary(Binary::Div) if !g.node(inputs[1]).is_constant() => {
            let inverse = g.unary(Unary::Reciprocal, inputs[1])?;
            Some(g.times(inputs[0], inverse)?)
        }
        Op::Binary(Binary::Pow) => {
            let (base, result) = (&g.node(inputs[0]).shape, &g.node(inputs[1]).shape);
            let same_shape = base.broadcast(result)? == *base;
            let exponent = exponent(g, inputs[1]).filter(|_| same_shape);
            exponent.map(|exponent| power(g, inputs[0], exponent)).transpose()?
        }
        _ => None,
    })
}

/// A value normalised over some of its axes, and what it was normalised by: both keep those axes with length 1.
pub(crate) struct Normalised {
    /// `(x − mean)/√(variance + ε)`
    pub(crate) value: NodeId,
    pub(crate) mean: NodeId,
    /// The mean of `(x − mean)²`.
    pub(crate) variance: NodeId,
}

/// `(x − mean)/√(variance + ε)` over `axes`.
pub(crate) fn normalised(g: &mut Graph, x: NodeId, axes: &[usize], epsilon: f64) -> Result<Normalised> {
    let mean = g.reduced(Reduction::Mean, x, axes, true)?;
    let centred = g.binary(Binary::Sub, x, mean)?;
    let squared = g.binary(Binary::Mul, centred, centred)?;
    let variance = g.reduced(Reduction::Mean, squared, axes, true)?;
    let raised = g.offset(epsilon, variance)?;
    let deviation = g.unary(Unary::Sqrt, raised)?;
    let inverse = g.unary(Unary::Reciprocal, deviation)?;
    let value = g.binary(Binary::Mul, centred, inverse)?;
    Ok(Normalised { value, mean, variance })
}

fn layer_norm(g: &mut Graph, inputs: &[NodeId], axis: usize, epsilon: f64) -> Result<NodeId> {
    let axes: Vec<usize> = (axis..g.node(inputs[0]).shape.rank()).collect();
    let y = normalised(g, inputs[0], &axes, epsilon)?.value;
    let y = g.binary(Binary::Mul, y, inputs[1])?;
    inputs.get(2).map_or(Ok(y), |&bias| g.binary(Binary::Add, y, bias))
}

fn group_norm(g: &mut Graph, inputs: &[NodeId], groups: usize, epsilon: f64) -> Result<NodeId> {
    let shape = g.node(inputs[0]).shape.clone();
    let (channels, samples) = (shape.dims()[1], shape.dims()[0]);
    let each = product(&shape.dims()[1..])?.over(Dim::Fixed(groups)).ok_or_else(|| too_large(&shape))?;
    let grouped = g.reshaped(inputs[0], Shape::new(vec![samples, Dim::Fixed(groups), each]))?;
    let y = normalised(g, grouped, &[2], epsilon)?.value;
    let y = g.reshaped(y, shape.clone())?;
    let mut per_channel = vec![Dim::Fixed(1); shape.rank() - 1];
    per_channel[0] = channels;
    let scale = reshaped_parameter(g, inputs[1], &per_channel)?;
    let bias = reshaped_parameter(g, inputs[2], &per_channel)?;
    let y = g.binary(Binary::Mul, y, scale)?;
    g.binary(Binary::Add, y, bias)
}

fn reshaped_parameter(g: &mut Graph, parameter: NodeId, dims: &[Dim]) -> Result<NodeId> {
    let shape = Shape::new(dims);
    match (g.constant_value(parameter).cloned(), shape.at(1)) {
        (Some(tensor), Some(lengths)) => {
            let label = g.node(parameter).label.clone();
            Ok(g.named_constant(label, tensor.reshaped(lengths)?))
        }
        _ => g.reshaped(parameter, shape),
    }
}

fn softmax(g: &mut Graph, x: NodeId, axis: usize) -> Result<NodeId> {
    let (_, exponentials, sum) = exponentials(g, x, axis)?;
    let inverse = g.unary(Unary::Reciprocal, sum)?;
    g.binary(Binary::Mul, exponentials, inverse)
}

fn log_softmax(g: &mut Graph, x: NodeId, axis: usize) -> Result<NodeId> {
    let (shifted, _, sum) = exponentials(g, x, axis)?;
    let log = g.unary(Unary::Log, sum)?;
    g.binary(Binary::Sub, shifted, log)
}

/// `x − max(x)`, its exponential, and the sum of that. The maximum keeps the exponential from overflowing.
fn exponentials(g: &mut Graph, x: NodeId, axis: usize) -> Result<(NodeId, NodeId, NodeId)> {
    let largest = g.reduced(Reduction::Max, x, &[axis], true)?;
    let shifted = g.binary(Binary::Sub, x, largest)?;
    let exponentials = g.unary(Unary::Exp, shifted)?;
    let sum = g.reduced(Reduction::Sum, exponentials, &[axis], true)?;
    Ok((shifted, exponentials, sum))
}

/// `Σ x²` over `size` neighbouring channels: the channels become a spatial axis that a pool slides over.
fn sum_of_neighbours(g: &mut Graph, x: NodeId, size: usize) -> Result<NodeId> {
    let shape = g.node(x).shape.clone();
    let plane = product(&shape.dims()[2..])?;
    let mut window = Window::new([size, 1]);
    window.pad[0] = ((size - 1) / 2, size / 2);
    let squared = g.binary(Binary::Mul, x, x)?;
    let flat = Shape::new(vec![shape.dims()[0], Dim::Fixed(1), shape.dims()[1], plane]);
    let flat = g.reshaped(squared, flat)?;
    let sum = g.add(Op::AveragePool { window, divisor: Divisor::One }, &[flat])?;
    g.reshaped(sum, shape)
}

fn product(dims: &[Dim]) -> Result<Dim> {
    let product = dims.iter().try_fold(Dim::Fixed(1), |n, &d| n.times(d));
    product.ok_or_else(|| too_large(&Shape::new(dims)))
}

fn too_large(shape: &Shape) -> Error {
    Error::shape(format!("the axes {shape} cannot be made one"))
}

/// The one number an exponent consists of.
fn exponent(g: &Graph, id: NodeId) -> Option<f64> {
    let values = g.constant_value(id)?.to_f64();
    let first = *values.first()?;
    (first.is_finite() && values.iter().all(|&v| v == first)).then_some(first)
}

fn power(g: &mut Graph, x: NodeId, exponent: f64) -> Result<NodeId> {
    let magnitude = exponent.abs();
    let whole = magnitude.fract() == 0.0 && magnitude <= LARGEST_PRODUCT;
    if !whole && magnitude != 0.5 {
        let log = g.unary(Unary::Log, x)?;
        let scaled = g.scaled(exponent, log)?;
        return g.unary(Unary::Exp, scaled);
    }
    let y = if whole { integer_power(g, x, magnitude as u32)? } else { g.unary(Unary::Sqrt, x)? };
    if exponent < 0.0 { g.unary(Unary::Reciprocal, y) } else { Ok(y) }
}

/// By repeated squaring.
fn integer_power(g: &mut Graph, x: NodeId, exponent: u32) -> Result<NodeId> {
    let (mut square, mut left, mut result) = (x, exponent, None);
    while left > 0 {
        if left % 2 == 1 {
            result = Some(match result {
                Some(y) => g.binary(Binary::Mul, y, square)?,
                None => square,
            });
        }
        left /= 2;
        if left > 0 {
            square = g.binary(Binary::Mul, square, square)?;
        }
    }
    match result {
        Some(y) => Ok(y),
        None => {
            let nothing = g.scaled(0.0, x)?;
            g.offset(1.0, nothing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{SampleNumbers, agree, count};
    use super::*;
    use crate::tensor::Tensor;

    fn decomposed(build: impl Fn(&mut Graph, NodeId, &mut SampleNumbers) -> Result<NodeId>) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[6, 2, 3]), Kind::Float);
        let y = build(&mut g, x, &mut SampleNumbers::new(5)).unwrap();
        g.output("y", y);
        let new = decompose(&g).unwrap();
        agree(&g, &new, 1e-12);
        let composite =
            ["LayerNormalization", "GroupNormalization", "Softmax", "LogSoftmax", "LRN", "Div", "Pow"];
        assert!(composite.iter().all(|name| count(&new, name) == 0));
        new
    }

    #[test]
    fn normalisations_keep_their_values() {
        decomposed(|g, x, noise| {
            let (scale, bias) = (g.constant(noise.tensor(&[2, 3])), g.constant(noise.tensor(&[3])));
            g.add(Op::LayerNorm { axis: 2, epsilon: 1e-5 }, &[x, scale, bias])
        });
        decomposed(|g, x, noise| {
            let scale = g.constant(noise.tensor(&[3]));
            g.add(Op::LayerNorm { axis: 1, epsilon: 1e-3 }, &[x, scale])
        });
        decomposed(|g, x, noise| {
            let (scale, bias) = (g.constant(noise.tensor(&[6])), g.constant(noise.tensor(&[6])));
            g.add(Op::GroupNorm { groups: 3, epsilon: 1e-5 }, &[x, scale, bias])
        });
        for (size, beta) in [(3, 0.75), (4, 1.0), (1, 0.5), (9, 2.0)] {
            decomposed(|g, x, _| g.add(Op::LocalResponseNorm { size, alpha: 0.5, beta, bias: 1.5 }, &[x]));
        }
    }

    #[test]
    fn softmax_keeps_its_values() {
        for axis in [1, 3] {
            decomposed(|g, x, _| g.add(Op::Softmax { axis }, &[x]));
            decomposed(|g, x, _| g.add(Op::LogSoftmax { axis }, &[x]));
        }
    }

    #[test]
    fn quotients_and_powers_keep_their_values() {
        decomposed(|g, x, _| {
            let e = g.unary(Unary::Exp, x)?;
            g.binary(Binary::Div, x, e)
        });
        for exponent in [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 7.0] {
            decomposed(|g, x, _| {
                let exponent = g.constant(Tensor::vector(vec![exponent; 3]));
                g.binary(Binary::Pow, x, exponent)
            });
        }
        for exponent in [-0.5, 0.5, 1.5, -0.75] {
            decomposed(|g, x, _| {
                let positive = g.unary(Unary::Abs, x)?;
                let exponent = g.number(exponent);
                g.binary(Binary::Pow, positive, exponent)
            });
        }
    }

    #[test]
    fn integers_are_divided_as_they_were() {
        let mut g = Graph::new();
        let [a, b] = ["a", "b"].map(|name| g.input(name, Shape::batched(&[3]), Kind::Int));
        let y = g.over(a, b).unwrap();
        g.output("y", y);
        assert_eq!(count(&decompose(&g).unwrap(), "Div"), 1);
    }

    #[test]
    fn division_by_a_constant_is_affine_and_stays() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let c = g.number(3.0);
        let y = g.binary(Binary::Div, x, c).unwrap();
        g.output("y", y);
        assert_eq!(count(&decompose(&g).unwrap(), "Div"), 1);
    }
}
