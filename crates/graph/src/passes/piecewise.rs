//! Smooth functions replaced by small ReLU networks: one hidden layer with a unit per knot, applied to every element.
//! Besides activations these are the exponential, the reciprocal and the reciprocal root that softmax and the norms are
//! made of; what is left then are affine maps, maxima and products: a multiplicative Maxout network.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Output};
use crate::op::{Op, Unary, Window};
use crate::shape::{Dim, Shape};
use crate::tensor::Tensor;

use super::convex::{Convex, convex_function};
use super::decompose::decompose;
use super::interpolation::{Curve, ReluSum};
use super::rewrite::{Rewrite, Step};
use super::smooth::{recognise_activations, smooth_activations};

/// How many knots a function may have.
const KNOTS: std::ops::RangeInclusive<usize> = 4..=1024;

/// How closely smooth functions are approximated, and where.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PiecewiseOptions {
    /// Knots per function, from 4 to 1024. The error falls with their square; the memory of the map grows with
    /// them, since every knot is a channel while the function is computed.
    pub knots: usize,
    /// The values a function sees, by the node that produces them; see [`Observation`].
    pub ranges: HashMap<NodeId, (f64, f64)>,
    /// The range of those not listed. An exponential, a reciprocal or a reciprocal root is only replaced where its own is
    /// finite, and the latter two where it is positive: elsewhere nothing is near them.
    pub range: (f64, f64),
}

impl Default for PiecewiseOptions {
    /// Sixteen knots, spread over everything: the largest error anywhere is below 0.008 for each activation with
    /// its usual parameters (ELU 0.002, GELU 0.004, tanh 0.006, SiLU 0.008).
    fn default() -> Self {
        PiecewiseOptions { knots: 16, ranges: HashMap::new(), range: (f64::NEG_INFINITY, f64::INFINITY) }
    }
}

impl PiecewiseOptions {
    /// The same with this many knots per function.
    #[must_use]
    pub fn knots(self, knots: usize) -> Self {
        PiecewiseOptions { knots, ..self }
    }

    /// The same with these ranges, by the node that produces the values.
    #[must_use]
    pub fn ranges(self, ranges: HashMap<NodeId, (f64, f64)>) -> Self {
        PiecewiseOptions { ranges, ..self }
    }

    /// The same with this range for functions that none is listed for.
    #[must_use]
    pub fn range(self, range: (f64, f64)) -> Self {
        PiecewiseOptions { range, ..self }
    }
}

/// How well one function was approximated.
#[derive(Clone, Debug, PartialEq)]
pub struct PiecewiseReport {
    /// The node in the graph that was given.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The name of the function replaced.
    pub function: &'static str,
    /// Number of knots.
    pub knots: usize,
    /// The range it was fitted to.
    pub range: (f64, f64),
    /// Largest error within that range.
    pub error_in_range: f64,
    /// Largest error anywhere; infinite for functions that grow faster than straight lines.
    pub error: f64,
}

/// The form in which [`piecewise`] finds all it can replace: activations in one node each, softmax, norms, divisions and
/// powers spelled out.
pub fn multiplicative_form(graph: &Graph) -> Result<Graph> {
    decompose(&recognise_activations(graph)?)
}

/// A smooth function of a value.
#[derive(Clone, Copy)]
enum Smooth {
    Activation(Unary),
    Convex(Convex),
}

/// All of them, by the node that ends each: what it is and which value it is a function of.
fn smooth_functions(graph: &Graph) -> HashMap<NodeId, (Smooth, NodeId)> {
    // A hard swish is a product of clipped lines as it is.
    let activations = smooth_activations(graph).into_iter().filter(|a| a.function != Unary::HardSwish);
    let mut found: HashMap<NodeId, (Smooth, NodeId)> =
        activations.map(|a| (a.node, (Smooth::Activation(a.function), a.input))).collect();
    for (id, _) in graph.nodes() {
        if let Some((function, input)) = convex_function(graph, id) {
            found.entry(id).or_insert((Smooth::Convex(function), input));
        }
    }
    found
}

/// What stands in for a smooth function, and how far off it is within a range and anywhere.
struct Fit {
    name: &'static str,
    line: ReluSum,
    error_in_range: f64,
    error: f64,
}

impl Smooth {
    /// `None` if the function cannot be approximated there.
    fn fit(self, knots: usize, range: (f64, f64)) -> Option<Fit> {
        match self {
            Smooth::Activation(function) => {
                let curve = Curve::of(function)?;
                let line = ReluSum::new(&curve, knots, range);
                let (error_in_range, error) = line.errors(&curve, range);
                Some(Fit { name: function.name(), line, error_in_range, error })
            }
            Smooth::Convex(function) => {
                let line = function.lines(knots, range)?;
                let error_in_range = function.error(&line, range);
                Some(Fit { name: function.name(), line, error_in_range, error: f64::INFINITY })
            }
        }
    }
}

/// Replaces every smooth activation ([`smooth_activations`]), and every exponential, reciprocal and reciprocal square root
/// whose range is known, by a continuous piecewise-linear function, written `b + Σ cᵢ·relu(±x − tᵢ)`, and says how large the
/// errors are. [`multiplicative_form`] first spells out what these hide in.
///
/// An activation is interpolated between the first and the last knot, densest in the range given and where it bends most;
/// outside it is its asymptote exactly (GELU: 0 and `x`; tanh: −1 and 1; ELU: −α and `x`). The other three are convex, and
/// become the maximum of chords between points on them. In the graph the function is a
/// convolution with kernel 1 from one channel to a channel per knot, a ReLU, and a convolution back: two affine nodes
/// deep, whatever the number of knots.
pub fn piecewise(graph: &Graph, options: &PiecewiseOptions) -> Result<(Graph, Vec<PiecewiseReport>)> {
    if !KNOTS.contains(&options.knots) {
        return Err(Error::argument(format!(
            "a function can have from {} to {} knots, not {}",
            KNOTS.start(),
            KNOTS.end(),
            options.knots
        )));
    }
    let found = smooth_functions(graph);
    let mut reports = Vec::new();
    let graph = Rewrite::run(graph, |rewrite, id, node| {
        let Some(&(function, input)) = found.get(&id) else { return Ok(Step::Keep) };
        let Some(columns) = as_columns(&node.shape) else { return Ok(Step::Keep) };
        let range = *options.ranges.get(&input).unwrap_or(&options.range);
        if range.0.is_nan() || range.1.is_nan() || range.0 > range.1 {
            return Err(Error::argument(format!("from {} to {} is not a range", range.0, range.1)));
        }
        let Some(fit) = function.fit(options.knots, range) else { return Ok(Step::Keep) };
        reports.push(PiecewiseReport {
            node: id,
            name: node.label.display().to_string(),
            function: fit.name,
            knots: fit.line.knots.len(),
            range,
            error_in_range: fit.error_in_range,
            error: fit.error,
        });
        let x = rewrite.value(input);
        subnetwork(&mut rewrite.target, x, columns, &fit.line).map(Step::Replace)
    })?;
    Ok((graph, reports))
}

/// `shape` as `[samples, 1, elements]`, which a convolution over single elements can read; `None` if it is empty.
fn as_columns(shape: &Shape) -> Option<Shape> {
    let count = shape.count()?;
    let samples = shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
    let rest = count.over(samples).filter(|rest| rest.fixed().is_some_and(|n| n > 0));
    let (samples, elements) = rest.map_or((count, Dim::Fixed(1)), |rest| (samples, rest));
    (count != Dim::Fixed(0)).then(|| Shape::new(vec![samples, Dim::Fixed(1), elements]))
}

fn subnetwork(g: &mut Graph, x: NodeId, columns: Shape, line: &ReluSum) -> Result<NodeId> {
    let shape = g.node(x).shape.clone();
    let knots = line.knots.len();
    let each = Op::Conv { window: Window::new([1]), groups: 1 };
    let to_knots = g.constant(Tensor::new([knots, 1, 1], vec![line.direction; knots])?);
    let thresholds = g.constant(Tensor::vector(line.knots.iter().map(|t| -t).collect::<Vec<f64>>()));
    let from_knots = g.constant(Tensor::new([1, knots, 1], line.coefficients.clone())?);
    let offset = g.constant(Tensor::vector(vec![line.offset]));
    let x = g.reshaped(x, columns)?;
    let above = g.add(each.clone(), &[x, to_knots, thresholds])?;
    let above = g.unary(Unary::Relu, above)?;
    let y = g.add(each, &[above, from_knots, offset])?;
    g.reshaped(y, shape)
}

/// What to run on calibration inputs to learn which values the smooth functions of a graph see.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The graph to run: its outputs are those values.
    pub graph: Graph,
    /// The nodes of the original graph that produce them, in the order of the outputs.
    pub nodes: Vec<NodeId>,
}

impl Observation {
    /// Prepares to observe the smooth functions of `graph`.
    pub fn new(graph: &Graph) -> Result<Self> {
        let mut nodes: Vec<NodeId> = smooth_functions(graph).values().map(|(_, input)| *input).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut observed = graph.clone();
        let output = |&node: &NodeId| Output { name: format!("value {node}"), node };
        observed.set_outputs(nodes.iter().map(output).collect());
        Ok(Observation { graph: observed.pruned()?, nodes })
    }

    /// Widens `ranges` to contain the values of one run. Numbers that are not finite are passed over.
    pub fn widen(&self, values: &[Tensor], ranges: &mut HashMap<NodeId, (f64, f64)>) {
        for (&node, tensor) in self.nodes.iter().zip(values) {
            for &v in tensor.to_f64().iter().filter(|v| v.is_finite()) {
                let range = ranges.entry(node).or_insert((v, v));
                *range = (range.0.min(v), range.1.max(v));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{is_relu_network, run};
    use super::*;
    use crate::graph::Label;
    use crate::op::Binary;
    use crate::tensor::Kind;

    fn activation(function: Unary, shape: Shape) -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", shape, Kind::Float);
        let y = g.add_named(Label::named("activation"), Op::Unary(function), &[x]).unwrap();
        g.output("y", y);
        g
    }

    fn distance(a: &Graph, b: &Graph, spread: f64) -> f64 {
        let (a, b) = (run(a, spread)[0].to_f64(), run(b, spread)[0].to_f64());
        a.iter().zip(&*b).map(|(p, q)| (p - q).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn a_hard_swish_is_exact_as_it_is() {
        let graph = activation(Unary::HardSwish, Shape::batched(&[3]));
        let (same, reports) = piecewise(&graph, &PiecewiseOptions::default()).unwrap();
        assert!(reports.is_empty());
        assert_eq!(distance(&graph, &same, 4.0), 0.0);
    }

    #[test]
    fn the_network_is_as_close_as_reported_at_any_rank() {
        let shapes = [
            Shape::default(),
            Shape::fixed(&[5]),
            Shape::batched(&[]),
            Shape::batched(&[3]),
            Shape::batched(&[3, 2, 4, 5]),
            Shape::new(vec![Dim::Fixed(3), Dim::Batch(2), Dim::Fixed(2)]),
        ];
        for function in [Unary::Gelu, Unary::Tanh, Unary::Elu { alpha: 1.0 }] {
            for shape in &shapes {
                let g = activation(function, shape.clone());
                let (new, reports) = piecewise(&g, &PiecewiseOptions::default()).unwrap();
                assert!(is_relu_network(&new));
                assert_eq!(new.node(new.outputs()[0].node).label.node, "activation");
                for spread in [1.0, 5.0, 50.0] {
                    assert!(distance(&g, &new, spread) <= 1.001 * reports[0].error);
                }
            }
        }
    }

    #[test]
    fn observed_ranges_make_it_closer_there() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[400]), Kind::Float);
        let half = g.scaled(0.5, x).unwrap();
        let gate = g.unary(Unary::Sigmoid, half).unwrap();
        let y = g.binary(Binary::Mul, half, gate).unwrap();
        g.output("y", y);
        let observation = Observation::new(&g).unwrap();
        assert_eq!(observation.nodes, [half]);
        let mut options = PiecewiseOptions::default();
        observation.widen(&run(&observation.graph, 1.0), &mut options.ranges);
        let range = options.ranges[&half];
        assert!(range.0 < -0.9 && range.0 >= -1.0 && range.1 > 0.9 && range.1 <= 1.0, "{range:?}");
        let (new, reports) = piecewise(&g, &options).unwrap();
        assert_eq!((reports.len(), reports[0].function, reports[0].range), (1, "Silu", range));
        assert!(distance(&g, &new, 1.0) <= 1.001 * reports[0].error_in_range);
        assert!(reports[0].error_in_range < 0.25 * reports[0].error);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let g = activation(Unary::Mish, Shape::batched(&[3]));
        for knots in [0, 3, 5000] {
            assert!(piecewise(&g, &PiecewiseOptions { knots, ..Default::default() }).is_err());
        }
        for range in [(1.0, -1.0), (f64::NAN, 1.0)] {
            let error = piecewise(&g, &PiecewiseOptions { range, ..Default::default() }).unwrap_err();
            assert_eq!(error.node(), Some("activation"));
        }
    }
}
