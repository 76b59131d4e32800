//! Interval propagation as a graph: for every value of a network its least and its greatest number over a box of inputs. Of a
//! network whose weights are not negative these are two evaluations of the network itself, at the two corners of the box.

use std::collections::HashMap;

use monosplit_autodiff::linear::{batch_norm_scale, resized_in_magnitude};
use monosplit_autodiff::rectifier;
use monosplit_graph::op::{Binary, Reduction, Unary};
use monosplit_graph::{Error, Graph, Node, NodeId, Op, Result};

use super::{MARGIN, MOST_ELEMENTS};
use crate::network::Network;
use crate::sum_stream::affine_bias;

/// The least and the greatest number of a value, element by element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) lower: NodeId,
    pub(super) upper: NodeId,
}

/// The intervals of all active values of a network.
pub(super) struct Enclosures<'a> {
    network: &'a Network,
    /// Values that depend on the explained input, whatever kind of number they hold.
    dependent: Vec<bool>,
    intervals: HashMap<NodeId, Interval>,
    /// Sums of the magnitudes of all terms of a weighted sum.
    sums: HashMap<NodeId, NodeId>,
}

impl<'a> Enclosures<'a> {
    /// Adds the intervals to `g`, which starts with the nodes of the network.
    pub(super) fn build(g: &mut Graph, network: &'a Network, input: Interval) -> Result<Self> {
        let dependent = network.graph().descendants([network.input()]);
        let (intervals, sums) = (HashMap::from([(network.input(), input)]), HashMap::new());
        let mut enclosures = Enclosures { network, dependent, intervals, sums };
        let needed = network.output_dependencies();
        for (id, node) in network.nodes() {
            if needed[id.index()] && network.is_active(id) && id != network.input() {
                let interval = enclosures.node(g, id, node).map_err(|e| e.at(node.label.display()))?;
                enclosures.intervals.insert(id, interval);
            }
        }
        Ok(enclosures)
    }

    /// The interval of a value; that of a constant is the constant.
    pub(super) fn at(&self, id: NodeId) -> Result<Interval> {
        match self.intervals.get(&id) {
            Some(&interval) => Ok(interval),
            None if self.dependent.get(id.index()) == Some(&false) => Ok(Interval { lower: id, upper: id }),
            None => {
                let name = self.network.graph().node(id).label.display();
                Err(Error::unsupported(
                    "the class scores are not computed from this value, so that it has no bounds",
                )
                .at(name))
            }
        }
    }

    /// A bound on the sum of the magnitudes of all terms that make up a value, which is what its rounding is relative to.
    pub(super) fn magnitude(&self, g: &mut Graph, id: NodeId) -> Result<NodeId> {
        match self.sums.get(&id) {
            Some(&sum) => Ok(sum),
            None => magnitude(g, self.at(id)?),
        }
    }

    fn node(&mut self, g: &mut Graph, id: NodeId, node: &Node) -> Result<Interval> {
        if let Some(result) = self.network.decomposition(id) {
            return self.at(result);
        }
        let hidden = |input: &&NodeId| self.dependent[input.index()] && !self.network.is_active(**input);
        if node.inputs.iter().any(|input| hidden(&input)) {
            return Err(Error::unsupported(format!(
                "{} depends on the input through numbers that are not real, for which there are no bounds",
                node.op.name()
            )));
        }
        // What chooses among the elements of another value is no factor of them.
        let linearity = node.op.properties().linearity;
        if node.op.is_linear()
            && self.network.active_inputs(id).iter().any(|&(index, _)| !linearity.is_linear_in(index))
        {
            return Err(Error::unsupported(format!(
                "{} depends on the input through an operand in which it is not linear, for which there are no bounds",
                node.op.name()
            )));
        }
        if rectifier(g, node)?.is_some() {
            let value = self.at_the_ends(g, node)?;
            // The product with a slope is rounded.
            return match node.op {
                Op::Unary(Unary::Relu) => Ok(value),
                _ => {
                    let size = magnitude(g, value)?;
                    let slack = g.scaled(MARGIN, size)?;
                    widened(g, value, slack)
                }
            };
        }
        if matches!(node.op, Op::Binary(Binary::Max | Binary::Min)) {
            return self.at_the_ends(g, node);
        }
        match &node.op {
            Op::Unary(Unary::Neg) => {
                let Interval { lower, upper } = self.at(node.inputs[0])?;
                Ok(Interval { lower: g.negated(upper)?, upper: g.negated(lower)? })
            }
            Op::Unary(function) if function.never_decreases() => {
                let value = self.at_the_ends(g, node)?;
                // Engines compute functions to a few units in the last place; where they are near zero, to that of one.
                let size = magnitude(g, value)?;
                let size = g.offset(1.0, size)?;
                let slack = g.scaled(MARGIN, size)?;
                widened(g, value, slack)
            }
            Op::Unary(Unary::Reciprocal) => self.reciprocal(g, node),
            Op::Binary(Binary::Add | Binary::Sub) => self.sum(g, id, node),
            Op::Binary(Binary::Mul) if self.network.active_inputs(id).len() == 2 => self.product(g, node),
            // What is left of these are steps of decompositions; the others have been written as maxima of two.
            Op::MaxPool(_) | Op::Reduce { reduction: Reduction::Max | Reduction::Min, .. } => {
                self.at_the_ends(g, node)
            }
            op if op.is_selection() => self.at_the_ends(g, node),
            op if op.is_linear() => self.weighted_sum(g, id, node),
            op => Err(unsupported(op)),
        }
    }

    /// The node, which never decreases in what it reads, at both ends.
    fn at_the_ends(&self, g: &mut Graph, node: &Node) -> Result<Interval> {
        let ends = node.inputs.iter().map(|&input| self.at(input)).collect::<Result<Vec<Interval>>>()?;
        let lower: Vec<NodeId> = ends.iter().map(|end| end.lower).collect();
        let upper: Vec<NodeId> = ends.iter().map(|end| end.upper).collect();
        Ok(Interval { lower: g.add(node.op.clone(), &lower)?, upper: g.add(node.op.clone(), &upper)? })
    }

    fn sum(&mut self, g: &mut Graph, id: NodeId, node: &Node) -> Result<Interval> {
        let (a, b) = (self.at(node.inputs[0])?, self.at(node.inputs[1])?);
        let value = match &node.op {
            Op::Binary(Binary::Sub) => {
                Interval { lower: g.minus(a.lower, b.upper)?, upper: g.minus(a.upper, b.lower)? }
            }
            _ => Interval { lower: g.plus(a.lower, b.lower)?, upper: g.plus(a.upper, b.upper)? },
        };
        let (a, b) = (magnitude(g, a)?, magnitude(g, b)?);
        let terms = g.plus(a, b)?;
        self.sums.insert(id, terms);
        let slack = g.scaled(margin(2), terms)?;
        widened(g, value, slack)
    }

    /// `W·c + b ± |W|·r` for the middle `c` and the half width `r` of what the node reads.
    fn weighted_sum(&mut self, g: &mut Graph, id: NodeId, node: &Node) -> Result<Interval> {
        let active = self.network.active_inputs(id);
        let [(index, input)] = active[..] else {
            let message =
                format!("{} of several values that depend on the input has no bounds", node.op.name());
            return Err(Error::unsupported(message));
        };
        let Interval { lower, upper } = self.at(input)?;
        let (sum, width) = (g.plus(lower, upper)?, g.minus(upper, lower)?);
        let (middle, radius) = (g.scaled(0.5, sum)?, g.scaled(0.5, width)?);
        let mut operands = node.inputs.clone();
        operands[index] = middle;
        let centre = g.add(node.op.clone(), &operands)?;
        let spread = in_magnitude(g, node, index, radius)?;
        let size = g.magnitude(middle)?;
        let size = g.plus(size, radius)?;
        let mut terms = in_magnitude(g, node, index, size)?;
        for offset in offsets(g, node)? {
            let offset = g.magnitude(offset)?;
            terms = g.plus(terms, offset)?;
        }
        self.sums.insert(id, terms);
        let rounding = g.plus(spread, terms)?;
        let rounding = g.scaled(margin_of_sum(g, node), rounding)?;
        let spread = g.plus(spread, rounding)?;
        Ok(Interval { lower: g.minus(centre, spread)?, upper: g.plus(centre, spread)? })
    }

    /// The extremes of a product lie at corners.
    fn product(&self, g: &mut Graph, node: &Node) -> Result<Interval> {
        let (a, b) = (self.at(node.inputs[0])?, self.at(node.inputs[1])?);
        let corners = [(a.lower, b.lower), (a.lower, b.upper), (a.upper, b.lower), (a.upper, b.upper)];
        let corners = corners.map(|(a, b)| g.times(a, b));
        let [first, second, third, fourth] = corners;
        let (first, second, third, fourth) = (first?, second?, third?, fourth?);
        let mut fold = |binary: Binary| -> Result<NodeId> {
            let (left, right) = (g.binary(binary, first, second)?, g.binary(binary, third, fourth)?);
            g.binary(binary, left, right)
        };
        let value = Interval { lower: fold(Binary::Min)?, upper: fold(Binary::Max)? };
        let size = magnitude(g, value)?;
        let slack = g.scaled(MARGIN, size)?;
        widened(g, value, slack)
    }

    /// `1/x` of an interval without zero, and no bound elsewhere.
    fn reciprocal(&self, g: &mut Graph, node: &Node) -> Result<Interval> {
        let Interval { lower, upper } = self.at(node.inputs[0])?;
        let (zero, infinity) = (g.number(0.0), g.number(f64::INFINITY));
        let above = g.binary(Binary::Greater, lower, zero)?;
        let below = g.binary(Binary::Less, upper, zero)?;
        let known = g.binary(Binary::Or, above, below)?;
        let (least, most) = (g.unary(Unary::Reciprocal, upper)?, g.unary(Unary::Reciprocal, lower)?);
        let value = Interval { lower: least, upper: most };
        let size = magnitude(g, value)?;
        let slack = g.scaled(MARGIN, size)?;
        let value = widened(g, value, slack)?;
        let minus = g.negated(infinity)?;
        Ok(Interval {
            lower: g.select(known, value.lower, minus)?,
            upper: g.select(known, value.upper, infinity)?,
        })
    }
}

/// The share of the magnitudes of all terms that a sum of `terms` products may lose to rounding, four times over: `n·2⁻⁵³` is
/// what it loses at most in any order, and computing middles, half widths and their own sums loses less than as much again.
fn margin(terms: usize) -> f64 {
    (terms as f64 + 16.0) * 4.0 * f64::EPSILON
}

/// The same for a node, from how many terms its longest sum has.
fn margin_of_sum(g: &Graph, node: &Node) -> f64 {
    let lengths = |id: NodeId| g.node(id).shape.at(1).unwrap_or_default();
    let terms = match &node.op {
        Op::Conv { .. } => lengths(node.inputs[1]).iter().skip(1).product(),
        Op::MatMul { .. } => lengths(node.inputs[1]).into_iter().max().unwrap_or(MOST_ELEMENTS),
        Op::BatchNorm { .. } | Op::Binary(_) => 4,
        Op::AveragePool { window, .. } => window.kernel.iter().product(),
        // No sum is longer than all that the node reads.
        _ => {
            let sizes = node.inputs.iter().map(|&input| lengths(input).iter().product::<usize>());
            sizes.max().unwrap_or(MOST_ELEMENTS)
        }
    };
    margin(terms)
}

/// The larger of the magnitudes of both ends.
pub(super) fn magnitude(g: &mut Graph, Interval { lower, upper }: Interval) -> Result<NodeId> {
    let (lower, upper) = (g.magnitude(lower)?, g.magnitude(upper)?);
    g.binary(Binary::Max, lower, upper)
}

fn widened(g: &mut Graph, Interval { lower, upper }: Interval, by: NodeId) -> Result<Interval> {
    Ok(Interval { lower: g.minus(lower, by)?, upper: g.plus(upper, by)? })
}

/// The node applied to `value` in place of the operand `index`, with the magnitudes of its coefficients and without constants
/// added.
fn in_magnitude(g: &mut Graph, node: &Node, index: usize, value: NodeId) -> Result<NodeId> {
    match &node.op {
        Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } if index < 2 => {
            let mut operands = [node.inputs[0], node.inputs[1]];
            operands[1 - index] = g.magnitude(operands[1 - index])?;
            operands[index] = value;
            g.add(node.op.clone(), &operands)
        }
        Op::Binary(Binary::Mul | Binary::Div) => {
            let other = g.magnitude(node.inputs[1 - index])?;
            g.add(node.op.clone(), &[value, other])
        }
        Op::BatchNorm { epsilon } => {
            let scale = batch_norm_scale(g, node, *epsilon)?;
            let scale = g.magnitude(scale)?;
            g.times(value, scale)
        }
        Op::Resize { .. } => resized_in_magnitude(g, node, value),
        Op::AveragePool { .. }
        | Op::AveragePoolTranspose { .. }
        | Op::Reduce { reduction: Reduction::Sum | Reduction::Mean, .. }
        | Op::Dropout { .. } => g.add(node.op.clone(), &[value]),
        op => Err(unsupported(op)),
    }
}

/// The constants that a weighted sum adds, as they are computed with.
fn offsets(g: &mut Graph, node: &Node) -> Result<Vec<NodeId>> {
    let mut offsets: Vec<NodeId> = affine_bias(g, node)?.into_iter().collect();
    if let Op::BatchNorm { epsilon } = &node.op {
        // The mean is subtracted first, so that it counts beside what is left of it.
        let scale = batch_norm_scale(g, node, *epsilon)?;
        let mean = g.per_channel(node.inputs[3], node.shape.rank())?;
        offsets.push(g.times(mean, scale)?);
        offsets.push(g.per_channel(node.inputs[2], node.shape.rank())?);
    }
    Ok(offsets)
}

pub(super) fn unsupported(op: &Op) -> Error {
    Error::unsupported(format!(
        "there are no bounds for {}; there are for affine maps, rectifiers, maxima, functions that never decrease, products, \
         reciprocals and softmax",
        op.name()
    ))
}
