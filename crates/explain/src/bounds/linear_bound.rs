//! Linear bounds: a backward walk that carries, from a weighted sum of the class scores to the image, the coefficients of a linear
//! function that is nowhere larger over the whole box. Affine nodes are passed as they are. Of a maximum the walk takes one
//! operand where a lower bound is needed, as a tangent of a convex function, and the chord where an upper one is needed.

use std::collections::HashMap;
use std::rc::Rc;

use monosplit_autodiff::linear::{Coefficients, transpose};
use monosplit_autodiff::{Edge, Rules, rectifier};
use monosplit_graph::op::{Binary, Linearity, Padding, Reduction, Unary};
use monosplit_graph::{Dim, Error, Graph, Kind, Node, NodeId, Op, Result, Shape, Tensor};

use super::MARGIN;
use crate::network::Network;
use crate::sum_stream::affine_bias;

/// What the walk has to know of a value: it becomes an input of the graph, and an output of the one of the enclosures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Known {
    Lower(NodeId),
    Upper(NodeId),
    Magnitude(NodeId),
}

impl Known {
    fn name(self) -> String {
        match self {
            Known::Lower(id) => format!("lower {}", id.index()),
            Known::Upper(id) => format!("upper {}", id.index()),
            Known::Magnitude(id) => format!("magnitude {}", id.index()),
        }
    }
}

/// The coefficients of a value.
#[derive(Clone, Copy)]
pub(super) struct Slopes {
    pub(super) value: NodeId,
    /// The sum of the magnitudes of what was added up to the coefficients, where something was.
    pub(super) terms: Option<NodeId>,
}

/// The rules of the walk.
pub(super) struct LinearBound {
    network: Rc<Network>,
    known: HashMap<Known, NodeId>,
    /// What was asked, in the order of the inputs that were added.
    pub(super) asked: Vec<Known>,
    /// The constants of the linear function, `[N]` each.
    pub(super) constants: Vec<NodeId>,
}

/// One piecewise-linear operand: slopes and constants of the functions below and above.
struct Relaxed {
    below: NodeId,
    above: NodeId,
}

impl LinearBound {
    pub(super) fn new(network: Rc<Network>) -> Self {
        LinearBound { network, known: HashMap::new(), asked: Vec::new(), constants: Vec::new() }
    }

    /// An input of the graph that holds what is known of a value of one box; a constant itself.
    pub(super) fn known(&mut self, g: &mut Graph, what: Known) -> Result<NodeId> {
        let (Known::Lower(id) | Known::Upper(id) | Known::Magnitude(id)) = what;
        if !self.network.is_active(id) {
            return match what {
                Known::Magnitude(id) => g.magnitude(id),
                _ => Ok(id),
            };
        }
        if let Some(&input) = self.known.get(&what) {
            return Ok(input);
        }
        let node = self.network.graph().node(id);
        let shape = one_sample(node)?;
        let input = g.input(what.name(), shape, Kind::Float);
        self.known.insert(what, input);
        self.asked.push(what);
        Ok(input)
    }

    fn ends(&mut self, g: &mut Graph, id: NodeId) -> Result<(NodeId, NodeId)> {
        Ok((self.known(g, Known::Lower(id))?, self.known(g, Known::Upper(id))?))
    }

    /// Adds `Σ slopes·value` to the constants, for each sample.
    fn add(&mut self, g: &mut Graph, products: NodeId) -> Result<()> {
        let axes: Vec<usize> = (1..g.node(products).shape.rank()).collect();
        let sum = if axes.is_empty() { products } else { g.reduced(Reduction::Sum, products, &axes, false)? };
        self.constants.push(sum);
        Ok(())
    }

    /// Takes off what rounding may have added: a share of the magnitudes of all terms.
    fn subtract_rounding(&mut self, g: &mut Graph, slopes: Slopes, magnitude: NodeId) -> Result<()> {
        let size = match slopes.terms {
            Some(terms) => terms,
            None => g.magnitude(slopes.value)?,
        };
        let product = g.times(size, magnitude)?;
        let product = g.scaled(-MARGIN, product)?;
        self.add(g, product)
    }

    /// `Λ⁺·below + Λ⁻·above`
    fn relaxed(g: &mut Graph, slopes: NodeId, relaxed: &Relaxed) -> Result<NodeId> {
        let (rising, falling) = parts(g, slopes)?;
        let (below, above) = (g.times(rising, relaxed.below)?, g.times(falling, relaxed.above)?);
        g.plus(below, above)
    }

    /// `max(z, c·z)`, between the steeper or the flatter line and the chord.
    fn rectified(
        &mut self,
        g: &mut Graph,
        edge: &Edge<'_>,
        message: Slopes,
        slope: Option<NodeId>,
    ) -> Result<NodeId> {
        let z = edge.node.inputs[0];
        let (lower, upper) = self.ends(g, z)?;
        let (zero, one) = (g.number(0.0), g.number(1.0));
        let flat = slope.unwrap_or(zero);
        let at = |g: &mut Graph, z: NodeId| -> Result<NodeId> {
            let low = g.times(flat, z)?;
            g.binary(Binary::Max, z, low)
        };
        let (first, last) = (at(g, lower)?, at(g, upper)?);
        let chord = chord(g, (lower, upper), (first, last), (flat, one))?;
        let middle = g.plus(lower, upper)?;
        let rising = g.binary(Binary::Greater, middle, zero)?;
        let below = g.select(rising, one, flat)?;
        let offset = above_ends(g, chord, (lower, upper), (first, last))?;
        let (_, falling) = parts(g, message.value)?;
        let constant = g.times(falling, offset)?;
        self.add(g, constant)?;
        let size = self.known(g, Known::Magnitude(z))?;
        self.subtract_rounding(g, message, size)?;
        Self::relaxed(g, message.value, &Relaxed { below, above: chord })
    }

    /// `max(a, b) = b + relu(a − b)`, `min(a, b) = a − relu(a − b)`
    fn extremum(
        &mut self,
        g: &mut Graph,
        edge: &Edge<'_>,
        message: Slopes,
        is_first: bool,
    ) -> Result<NodeId> {
        let [a, b] = [edge.node.inputs[0], edge.node.inputs[1]];
        let is_maximum = matches!(edge.node.op, Op::Binary(Binary::Max));
        let ((la, ua), (lb, ub)) = (self.ends(g, a)?, self.ends(g, b)?);
        let (lower, upper) = (g.minus(la, ub)?, g.minus(ua, lb)?);
        let (first, last) = (g.rectified(lower)?, g.rectified(upper)?);
        let (zero, one) = (g.number(0.0), g.number(1.0));
        // The share of a in the chord of a maximum, and of b in that of a minimum.
        let share = chord(g, (lower, upper), (first, last), (zero, one))?;
        let rest = g.minus(one, share)?;
        let middle = g.plus(lower, upper)?;
        let larger = g.binary(Binary::Greater, middle, zero)?;
        let (wins, loses) = (g.select(larger, one, zero)?, g.select(larger, zero, one)?);
        let relaxed = match (is_maximum, edge.index) {
            (true, 0) => Relaxed { below: wins, above: share },
            (true, _) => Relaxed { below: loses, above: rest },
            (false, 0) => Relaxed { below: rest, above: loses },
            (false, _) => Relaxed { below: share, above: wins },
        };
        if is_first {
            let offset = above_ends(g, share, (lower, upper), (first, last))?;
            let (rising, falling) = parts(g, message.value)?;
            let constant = if is_maximum { g.times(falling, offset)? } else { g.times(rising, offset)? };
            let constant = if is_maximum { constant } else { g.negated(constant)? };
            self.add(g, constant)?;
            let sizes = (self.known(g, Known::Magnitude(a))?, self.known(g, Known::Magnitude(b))?);
            let size = g.plus(sizes.0, sizes.1)?;
            self.subtract_rounding(g, message, size)?;
            // An operand that is a constant takes its share here.
            for (constant, relaxed) in [
                (a, if is_maximum { (wins, share) } else { (rest, loses) }),
                (b, if is_maximum { (loses, rest) } else { (share, wins) }),
            ] {
                if !self.network.is_active(constant) {
                    let (below, above) = relaxed;
                    let part = Self::relaxed(g, message.value, &Relaxed { below, above })?;
                    let part = g.times(part, constant)?;
                    self.add(g, part)?;
                }
            }
        }
        let slopes = Self::relaxed(g, message.value, &relaxed)?;
        let shape = g.node(edge.node.inputs[edge.index]).shape.clone();
        g.summed_to(slopes, &shape)
    }

    /// The constants of an affine node, `W·0 + b`; none where all of them are zero.
    fn constant_part(&self, g: &mut Graph, node: &Node) -> Result<Option<NodeId>> {
        if node.op.affine_layer().is_some() {
            return affine_bias(g, node);
        }
        let fills = matches!(&node.op, Op::Pad { padding: Padding::Constant(fill), .. } if *fill != 0.0);
        let constant = |input: &NodeId| !self.network.is_active(*input);
        let adds = matches!(node.op, Op::Binary(Binary::Add | Binary::Sub) | Op::Concat { .. } | Op::Where);
        if !(fills || adds && node.inputs.iter().any(constant)) {
            return Ok(None);
        }
        let mut operands = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            operands.push(match self.network.is_active(input) {
                false => input,
                true => zeros(g, self.network.graph().node(input))?,
            });
        }
        g.add(node.op.clone(), &operands).map(Some)
    }

    fn affine(&mut self, g: &mut Graph, edge: &Edge<'_>, message: Slopes, is_first: bool) -> Result<NodeId> {
        if is_first {
            if let Some(constant) = self.constant_part(g, edge.node)? {
                let products = g.times(message.value, constant)?;
                self.add(g, products)?;
            }
            if !has_exact_transpose(&edge.node.op) || message.terms.is_some() {
                let size = self.known(g, Known::Magnitude(edge.id))?;
                self.subtract_rounding(g, message, size)?;
            }
        }
        let coefficients = Coefficients { operands: &edge.node.inputs, magnitude: false };
        transpose(g, edge.id, edge.index, message.value, coefficients)
    }

    /// A value of which only the ends are known enters as a constant.
    fn bounded_by_constants(&mut self, g: &mut Graph, id: NodeId, message: Slopes) -> Result<()> {
        let (lower, upper) = self.ends(g, id)?;
        let part = Self::relaxed(g, message.value, &Relaxed { below: lower, above: upper })?;
        self.add(g, part)?;
        let size = self.known(g, Known::Magnitude(id))?;
        self.subtract_rounding(g, message, size)
    }
}

impl Rules for LinearBound {
    type Message = Slopes;

    fn join(&mut self, g: &mut Graph, a: Slopes, b: Slopes) -> Result<Slopes> {
        let mut size = |slopes: Slopes| slopes.terms.map_or_else(|| g.magnitude(slopes.value), Ok);
        let (first, second) = (size(a)?, size(b)?);
        Ok(Slopes { value: g.plus(a.value, b.value)?, terms: Some(g.plus(first, second)?) })
    }

    fn pass(&mut self, g: &mut Graph, edge: &Edge<'_>, message: Slopes) -> Result<Option<Slopes>> {
        let active = self.network.active_inputs(edge.id);
        let is_first = active.first().is_some_and(|&(index, _)| index == edge.index);
        let value = if let Some(rectifier) = rectifier(g, edge.node)? {
            self.rectified(g, edge, message, rectifier.slope)?
        } else if matches!(edge.node.op, Op::Binary(Binary::Max | Binary::Min)) {
            self.extremum(g, edge, message, is_first)?
        } else if is_affine(edge.node, edge.index, active.len()) {
            self.affine(g, edge, message, is_first)?
        } else {
            if is_first {
                self.bounded_by_constants(g, edge.id, message)?;
            }
            return Ok(None);
        };
        Ok(Some(Slopes { value, terms: None }))
    }
}

/// Whether the transpose only moves coefficients, and adds none of them up. Nor does the node add a constant.
fn has_exact_transpose(op: &Op) -> bool {
    let moves = matches!(op, Op::Reshape { .. } | Op::Transpose { .. } | Op::Slice { .. });
    moves || matches!(op, Op::Identity | Op::Dropout { .. } | Op::Unary(Unary::Neg))
}

/// Whether a node is affine in what depends on the input, of which it reads `active` values.
fn is_affine(node: &Node, index: usize, active: usize) -> bool {
    let linearity = node.op.properties().linearity;
    linearity.is_linear_in(index) && (active == 1 || !matches!(linearity, Linearity::Product(_)))
}

/// `relu(slopes)` and `−relu(−slopes)`
fn parts(g: &mut Graph, slopes: NodeId) -> Result<(NodeId, NodeId)> {
    let rising = g.rectified(slopes)?;
    let falling = g.minus(slopes, rising)?;
    Ok((rising, falling))
}

/// The slope of a convex function between two points, where they differ by more than rounding; any slope of the function else.
fn chord(
    g: &mut Graph,
    (lower, upper): (NodeId, NodeId),
    (first, last): (NodeId, NodeId),
    (least, most): (NodeId, NodeId),
) -> Result<NodeId> {
    let (width, rise) = (g.minus(upper, lower)?, g.minus(last, first)?);
    let some = g.more_than(width, f64::MIN_POSITIVE)?;
    let one = g.number(1.0);
    let width = g.select(some, width, one)?;
    let slope = g.over(rise, width)?;
    let slope = g.binary(Binary::Max, slope, least)?;
    g.binary(Binary::Min, slope, most)
}

/// The least constant with which the line of this slope is at least the function at both ends.
fn above_ends(
    g: &mut Graph,
    slope: NodeId,
    (lower, upper): (NodeId, NodeId),
    (first, last): (NodeId, NodeId),
) -> Result<NodeId> {
    let (left, right) = (g.times(slope, lower)?, g.times(slope, upper)?);
    let (left, right) = (g.minus(first, left)?, g.minus(last, right)?);
    g.binary(Binary::Max, left, right)
}

/// The shape of one sample of a value.
fn one_sample(node: &Node) -> Result<Shape> {
    let dims = node.shape.dims();
    match dims.split_first() {
        Some((Dim::Batch(1), rest)) if rest.iter().all(|dim| dim.fixed().is_some()) => {
            Ok(Shape::new([&[Dim::Fixed(1)], rest].concat()))
        }
        _ => Err(Error::unsupported(format!(
            "bounds need samples along the first axis, and this value has the shape {}",
            node.shape
        ))
        .at(node.label.display())),
    }
}

/// Zeros in the place of one sample.
fn zeros(g: &mut Graph, node: &Node) -> Result<NodeId> {
    let shape = one_sample(node)?.at(1).unwrap_or_default();
    let count = shape.iter().product();
    Ok(g.constant(Tensor::new(shape, vec![0f32; count])?))
}
