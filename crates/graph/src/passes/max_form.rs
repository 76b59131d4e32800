//! Limits, minima and absolute values written with maxima alone (ReLU, max pooling, the larger of two), because those
//! are the ones the split has rules for.

use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Op, Reduction, Unary, Window};
use crate::shape::{Dim, Shape};
use crate::tensor::Kind;

use super::rewrite::{Rewrite, Step};

/// Rewrites real-valued clips, hard sigmoids, hard swishes, minima, absolute values, reductions to the largest or
/// smallest element, and leaky or parametric ReLUs with slopes outside `[0, 1]`, into sums of ReLUs, max pools and
/// maxima.
///
/// | node | becomes |
/// |---|---|
/// | `clip(x, l, h)` | `l + relu(x − l) − relu(x − h)`, without the part of an infinite bound |
/// | `hard_sigmoid(x)` | `clip(αx + β, 0, 1)` as above |
/// | `hard_swish(x)` | `x·hard_sigmoid(x)` |
/// | `min(x, c)`, `c` constant | `c − relu(c − x)` |
/// | `min(a, b)` | `−max(−a, −b)` |
/// | `abs(x)` | `relu(x) + relu(−x)` |
/// | `prelu(x, c)` | `relu(x) − c·relu(−x)` |
/// | the largest over some axes | a max pool whose window is all of them |
///
/// What cannot be written so (a largest element over the batch) stays.
pub fn max_form(graph: &Graph) -> Result<Graph> {
    Rewrite::run(graph, |rewrite, _, node| {
        if node.kind != Kind::Float {
            return Ok(Step::Keep);
        }
        let inputs = rewrite.inputs(node);
        let g = &mut rewrite.target;
        let value = match &node.op {
            Op::Unary(function) => unary(g, *function, inputs[0])?,
            Op::Binary(Binary::Min) => Some(smaller(g, inputs[0], inputs[1])?),
            Op::Binary(Binary::PRelu) if !slopes_are_gentle(g, inputs[1]) => {
                Some(sloped(g, inputs[0], inputs[1])?)
            }
            Op::Reduce { reduction: reduction @ (Reduction::Max | Reduction::Min), axes, .. } => {
                largest(g, node, inputs[0], axes, *reduction == Reduction::Min)?
            }
            _ => None,
        };
        Ok(value.map_or(Step::Keep, Step::Replace))
    })
}

fn unary(g: &mut Graph, function: Unary, x: NodeId) -> Result<Option<NodeId>> {
    match function {
        Unary::Clip { min, max } => clip(g, x, min, max),
        Unary::HardSigmoid { alpha, beta } => hard_sigmoid(g, x, alpha, beta),
        Unary::HardSwish => match hard_sigmoid(g, x, 1.0 / 6.0, 0.5)? {
            Some(gate) => g.binary(Binary::Mul, x, gate).map(Some),
            None => Ok(None),
        },
        Unary::Abs => {
            let positive = g.unary(Unary::Relu, x)?;
            let negative = negative_part(g, x)?;
            g.binary(Binary::Add, positive, negative).map(Some)
        }
        Unary::LeakyRelu { slope } if !(0.0..=1.0).contains(&slope) => {
            let slope = g.number(slope);
            sloped(g, x, slope).map(Some)
        }
        _ => Ok(None),
    }
}

fn negative_part(g: &mut Graph, x: NodeId) -> Result<NodeId> {
    let negated = g.unary(Unary::Neg, x)?;
    g.unary(Unary::Relu, negated)
}

fn clip(g: &mut Graph, x: NodeId, min: f64, max: f64) -> Result<Option<NodeId>> {
    if min.is_nan() || max.is_nan() || min == f64::INFINITY || max == f64::NEG_INFINITY {
        return Ok(None);
    }
    if min < max && min.is_finite() && max.is_finite() {
        let above_min = g.offset(-min, x)?;
        let above_min = g.unary(Unary::Relu, above_min)?;
        let above_max = g.offset(-max, x)?;
        let above_max = g.unary(Unary::Relu, above_max)?;
        let between = g.binary(Binary::Sub, above_min, above_max)?;
        return g.offset(min, between).map(Some);
    }
    let mut y = x;
    if min.is_finite() {
        let above = g.offset(-min, y)?;
        let above = g.unary(Unary::Relu, above)?;
        y = g.offset(min, above)?;
    }
    if max.is_finite() {
        let bound = g.number(max);
        y = smaller_than_constant(g, y, bound)?;
    }
    Ok(Some(y))
}

fn hard_sigmoid(g: &mut Graph, x: NodeId, alpha: f64, beta: f64) -> Result<Option<NodeId>> {
    let line = g.scaled(alpha, x)?;
    let line = g.offset(beta, line)?;
    clip(g, line, 0.0, 1.0)
}

fn smaller_than_constant(g: &mut Graph, x: NodeId, constant: NodeId) -> Result<NodeId> {
    let below = g.binary(Binary::Sub, constant, x)?;
    let below = g.unary(Unary::Relu, below)?;
    g.binary(Binary::Sub, constant, below)
}

fn smaller(g: &mut Graph, a: NodeId, b: NodeId) -> Result<NodeId> {
    let finite = |id: NodeId| g.constant_value(id).is_some_and(|t| t.to_f64().iter().all(|v| v.is_finite()));
    if finite(b) {
        return smaller_than_constant(g, a, b);
    }
    if finite(a) {
        return smaller_than_constant(g, b, a);
    }
    let (a, b) = (g.unary(Unary::Neg, a)?, g.unary(Unary::Neg, b)?);
    let larger = g.binary(Binary::Max, a, b)?;
    g.unary(Unary::Neg, larger)
}

fn slopes_are_gentle(g: &Graph, slope: NodeId) -> bool {
    g.constant_value(slope).is_some_and(|t| t.to_f64().iter().all(|c| (0.0..=1.0).contains(c)))
}

fn sloped(g: &mut Graph, x: NodeId, slope: NodeId) -> Result<NodeId> {
    let positive = g.unary(Unary::Relu, x)?;
    let negative = negative_part(g, x)?;
    let negative = g.binary(Binary::Mul, negative, slope)?;
    g.binary(Binary::Sub, positive, negative)
}

/// The reduced axes are brought to the end and made one, which a window then covers.
fn largest(g: &mut Graph, node: &Node, x: NodeId, axes: &[usize], smallest: bool) -> Result<Option<NodeId>> {
    let dims = g.node(x).shape.dims().to_vec();
    let reduced: Option<usize> = axes.iter().try_fold(1usize, |n, &axis| n.checked_mul(dims[axis].fixed()?));
    let Some(reduced) = reduced.filter(|&n| n > 0) else { return Ok(None) };
    let kept: Vec<usize> = (0..dims.len()).filter(|axis| !axes.contains(axis)).collect();
    let samples = kept.first().map_or(Dim::Fixed(1), |&axis| dims[axis]);
    let rest = kept.iter().skip(1).try_fold(Dim::Fixed(1), |n, &axis| n.times(dims[axis]));
    let Some(channels) = rest else { return Ok(None) };
    let mut y = if smallest { g.unary(Unary::Neg, x)? } else { x };
    let order = [&kept[..], axes].concat();
    if order.iter().enumerate().any(|(i, &axis)| i != axis) {
        y = g.add(Op::Transpose { axes: order }, &[y])?;
    }
    y = g.reshaped(y, Shape::new(vec![samples, channels, Dim::Fixed(reduced)]))?;
    y = g.add(Op::MaxPool(Window::new([reduced])), &[y])?;
    y = g.reshaped(y, node.shape.clone())?;
    if smallest {
        y = g.unary(Unary::Neg, y)?;
    }
    Ok(Some(y))
}

#[cfg(test)]
mod tests {
    use super::super::reference::{agree, count};
    use super::*;
    use crate::graph::Label;
    use crate::tensor::Tensor;

    fn rewritten(build: impl Fn(&mut Graph, NodeId) -> Result<NodeId>) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3, 2, 4]), Kind::Float);
        let y = build(&mut g, x).unwrap();
        *g.label_mut(y) = Label::named("layer");
        g.output("y", y);
        let new = max_form(&g).unwrap();
        agree(&g, &new, 1e-14);
        assert_eq!(new.node(new.outputs()[0].node).label.node, "layer");
        new
    }

    #[test]
    fn limits_become_relus() {
        let inf = f64::INFINITY;
        for (min, max) in [
            (0.0, 6.0),
            (-1.0, 2.0),
            (0.5, inf),
            (0.0, inf),
            (-inf, 1.5),
            (-inf, 0.0),
            (2.0, -1.0),
            (1.0, 1.0),
        ] {
            let g = rewritten(|g, x| g.unary(Unary::Clip { min, max }, x));
            assert_eq!(count(&g, "Clip"), 0);
        }
        let g = rewritten(|g, x| g.unary(Unary::HardSigmoid { alpha: 0.2, beta: 0.5 }, x));
        assert_eq!(count(&g, "HardSigmoid"), 0);
        let g = rewritten(|g, x| g.unary(Unary::HardSwish, x));
        assert_eq!((count(&g, "HardSwish"), count(&g, "Mul")), (0, 2));
    }

    #[test]
    fn a_clip_without_bounds_is_nothing() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[3]), Kind::Float);
        let y = g.unary(Unary::Clip { min: f64::NEG_INFINITY, max: f64::INFINITY }, x).unwrap();
        g.output("y", y);
        assert_eq!(max_form(&g).unwrap().len(), 1);
    }

    #[test]
    fn minima_become_maxima() {
        let g = rewritten(|g, x| {
            let y = g.unary(Unary::Tanh, x)?;
            g.binary(Binary::Min, x, y)
        });
        assert_eq!((count(&g, "Min"), count(&g, "Max")), (0, 1));
        let g = rewritten(|g, x| {
            let c = g.constant(Tensor::new([3, 1, 1], vec![0.5, -1.0, 0.0])?);
            g.binary(Binary::Min, c, x)
        });
        assert_eq!((count(&g, "Min"), count(&g, "Max")), (0, 0));
    }

    #[test]
    fn steep_slopes_become_relus_and_gentle_ones_stay() {
        rewritten(|g, x| g.unary(Unary::Abs, x));
        rewritten(|g, x| g.unary(Unary::LeakyRelu { slope: -0.5 }, x));
        let slopes = |values: Vec<f64>| {
            let g = rewritten(|g, x| {
                let slope = g.constant(Tensor::new([3, 1, 1], values.clone())?);
                g.binary(Binary::PRelu, x, slope)
            });
            count(&g, "PRelu")
        };
        assert_eq!(slopes(vec![0.0, 0.25, 1.0]), 1);
        assert_eq!(slopes(vec![0.0, -0.25, 1.5]), 0);
    }

    #[test]
    fn the_largest_over_axes_is_a_max_pool() {
        for reduction in [Reduction::Max, Reduction::Min] {
            for axes in [vec![1], vec![2], vec![3], vec![2, 3], vec![1, 3], vec![1, 2, 3]] {
                for keep in [false, true] {
                    let axes = axes.clone();
                    let g = rewritten(|g, x| g.add(Op::Reduce { reduction, axes: axes.clone(), keep }, &[x]));
                    assert_eq!((count(&g, reduction.name()), count(&g, "MaxPool")), (0, 1));
                }
            }
        }
        let g = rewritten(|g, x| g.reduced(Reduction::Max, x, &[0, 1], true));
        assert_eq!(count(&g, "ReduceMax"), 1, "the batch cannot be under a window");
    }
}
