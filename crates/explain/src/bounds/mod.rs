//! Certified bounds over a box of inputs: what the class scores can be at most and at least, whatever input of the box is given.
//!
//! Three bounds are computed. *Interval propagation* encloses every value of the network by itself. *Linear bounds* keep how
//! values depend on the input together: from the convexity of ReLUs and maxima a linear function is found that is nowhere above
//! a weighted sum of the scores. [`StreamBounds`] evaluates the two monotone networks of the split at the two corners of the box.
//!
//! All are sound in floating point. They are computed in double precision, where a sum of `n` terms loses at most `n·2⁻⁵³` of their
//! magnitudes, in whatever order. Intervals are widened at every node by four times as much and more, linear bounds lose `2⁻³⁰` of
//! the magnitudes of all terms at every node; no sum has more than `2²²` terms.

mod enclosure;
mod linear_bound;
mod maxima;
mod streams;

use std::rc::Rc;

use monosplit_autodiff::Walk;
use monosplit_engine::{CompileOptions, Engine, Precision, Program};
use monosplit_graph::batch::rows;
use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Result, Shape, Tensor};

use enclosure::{Enclosures, Interval};
use linear_bound::{Known, LinearBound};
use maxima::pairwise_maxima;

use crate::network::Network;

pub use streams::{StreamBounds, StreamRanges};

/// The share of the magnitudes of all terms that is taken off for rounding: `2⁻³⁰`.
pub(crate) const MARGIN: f64 = 1.0 / (1u64 << 30) as f64;
/// The most elements that a value of one sample may have, so that no sum has more terms.
const MOST_ELEMENTS: usize = 1 << 22;
/// About how many numbers the enclosures of all boxes that are computed at once hold.
const NUMBERS_AT_ONCE: usize = 1 << 25;

/// Boxes of inputs, `lower ≤ x ≤ upper`, one for each sample.
#[derive(Clone, Debug)]
pub struct InputBoxes {
    lower: Tensor,
    upper: Tensor,
}

impl InputBoxes {
    /// The boxes between two batches of one shape `[N, …]`.
    pub fn new(lower: Tensor, upper: Tensor) -> Result<Self> {
        if lower.shape() != upper.shape() || lower.shape().is_empty() {
            return Err(Error::shape(format!(
                "a box needs two corners of one shape, samples along the first axis, found {:?} and {:?}",
                lower.shape(),
                upper.shape()
            )));
        }
        let pairs = || lower.to_f64().to_vec().into_iter().zip(upper.to_f64().to_vec());
        if let Some((lower, upper)) = pairs().find(|(l, u)| !(l <= u && l.is_finite() && u.is_finite())) {
            return Err(Error::argument(format!("the box has a side from {lower} to {upper}")));
        }
        let double = |corner: &Tensor| Tensor::new(corner.shape(), corner.to_f64().to_vec());
        Ok(InputBoxes { lower: double(&lower)?, upper: double(&upper)? })
    }

    /// How many boxes there are.
    pub fn count(&self) -> usize {
        self.lower.shape().first().copied().unwrap_or(0)
    }

    /// The corner where every element is least.
    pub fn lower(&self) -> &Tensor {
        &self.lower
    }

    /// The corner where every element is greatest.
    pub fn upper(&self) -> &Tensor {
        &self.upper
    }

    /// Some of the boxes.
    pub fn some(&self, which: std::ops::Range<usize>) -> Result<Self> {
        Ok(InputBoxes { lower: rows(&self.lower, which.clone())?, upper: rows(&self.upper, which)? })
    }
}

/// Bounds of a network's class scores, compiled.
pub struct BoxBounds {
    classes: usize,
    named: usize,
    enclosures: Box<dyn Program>,
    linear: Box<dyn Program>,
    numbers: usize,
}

/// Intervals of all values over some boxes, from which linear bounds are computed.
pub struct EnclosedBoxes<'b> {
    bounds: &'b BoxBounds,
    boxes: InputBoxes,
    /// Least and greatest scores, then those of the values that were named, `[N, …]` each.
    intervals: Vec<Tensor>,
    known: Vec<Tensor>,
}

/// A lower bound of a weighted sum of class scores, and the linear function it is the least value of.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearLowerBound {
    /// The bound.
    pub value: f64,
    /// The function's coefficients, one for each element of a sample.
    pub slopes: Vec<f64>,
}

impl BoxBounds {
    /// Compiles the bounds of `network`, for its class scores and for the values called `named`.
    ///
    /// Fails for nodes without bounds, naming the first: there are bounds for affine maps, rectifiers, maxima, functions that never
    /// decrease, products, reciprocals and softmax.
    pub fn new(network: &Graph, named: &[&str], engine: &dyn Engine) -> Result<Self> {
        let rewritten = pairwise_maxima(network)?;
        let network = Rc::new(Network::new(&rewritten)?);
        check(&network)?;
        let Linear { graph: linear, asked } = linear(&network)?;
        let Enclosing { graph: enclosing, numbers } = enclosing(&network, named, &asked)?;
        let double = CompileOptions::default().precision(Precision::F64);
        Ok(BoxBounds {
            classes: network.classes(),
            named: named.len(),
            enclosures: engine.compile_with(&enclosing, &double)?,
            linear: engine.compile_with(&linear, &double)?,
            numbers,
        })
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many boxes are best computed at once.
    pub fn boxes_at_once(&self) -> usize {
        (NUMBERS_AT_ONCE / self.numbers.max(1)).clamp(1, 1024)
    }

    /// Propagates intervals over `boxes`.
    pub fn enclose(&self, boxes: InputBoxes) -> Result<EnclosedBoxes<'_>> {
        let mut outputs = self.enclosures.run(&[boxes.lower.clone(), boxes.upper.clone()])?;
        let known = outputs.split_off(2 + 2 * self.named);
        Ok(EnclosedBoxes { bounds: self, boxes, intervals: outputs, known })
    }
}

impl EnclosedBoxes<'_> {
    /// The boxes.
    pub fn boxes(&self) -> &InputBoxes {
        &self.boxes
    }

    /// The least and the greatest score of every class in a box, by interval propagation.
    pub fn scores(&self, index: usize) -> Result<Vec<(f64, f64)>> {
        self.interval(0, index)
    }

    /// The least and the greatest elements of the value that was named at this position.
    pub fn named(&self, position: usize, index: usize) -> Result<Vec<(f64, f64)>> {
        self.interval(1 + position, index)
    }

    fn interval(&self, value: usize, index: usize) -> Result<Vec<(f64, f64)>> {
        let [lower, upper] = [2 * value, 2 * value + 1].map(|at| {
            let end = self.intervals.get(at).ok_or_else(|| Error::argument("no such value was named"))?;
            rows(end, std::iter::once(index)).map(|row| row.to_f64().to_vec())
        });
        // What is not a number bounds nothing.
        let end = |v: f64, none: f64| if v.is_nan() { none } else { v };
        let ends = lower?.into_iter().zip(upper?);
        Ok(ends.map(|(l, u)| (end(l, f64::NEG_INFINITY), end(u, f64::INFINITY))).collect())
    }

    /// Linear lower bounds, over one box, of weighted sums of the class scores, each given by its weights.
    pub fn least(&self, index: usize, weights: &[Vec<f64>]) -> Result<Vec<LinearLowerBound>> {
        let known: Vec<Tensor> =
            self.known.iter().map(|value| rows(value, std::iter::once(index))).collect::<Result<_>>()?;
        let lower = rows(&self.boxes.lower, std::iter::once(index))?.to_f64().to_vec();
        let upper = rows(&self.boxes.upper, std::iter::once(index))?.to_f64().to_vec();
        let mut found = Vec::with_capacity(weights.len());
        for several in weights.chunks(self.bounds.boxes_at_once().min(64)) {
            if let Some(odd) = several.iter().find(|row| row.len() != self.bounds.classes) {
                let (given, classes) = (odd.len(), self.bounds.classes);
                return Err(Error::argument(format!("{given} weights were given for {classes} scores")));
            }
            let count = several.len();
            let sample: usize = lower.len();
            let mut shape = self.boxes.lower.shape().to_vec();
            shape[0] = count;
            let mut inputs = vec![
                Tensor::new(shape, vec![0f64; count * sample])?,
                Tensor::new([count, self.bounds.classes], several.concat())?,
            ];
            inputs.extend(known.iter().cloned());
            let outputs = self.bounds.linear.run(&inputs)?;
            let [constants, slopes, terms] = &outputs[..] else {
                return Err(Error::argument("a linear bound has three parts"));
            };
            let (constants, slopes, terms) = (constants.to_f64(), slopes.to_f64(), terms.to_f64());
            for row in 0..count {
                let of = row * sample..(row + 1) * sample;
                let (slopes, terms) = (&slopes[of.clone()], &terms[of]);
                let mut value = constants[row];
                for (((&slope, &terms), &lower), &upper) in slopes.iter().zip(terms).zip(&lower).zip(&upper) {
                    value += slope * if slope > 0.0 { lower } else { upper };
                    value -= MARGIN * terms.max(slope.abs()) * lower.abs().max(upper.abs());
                }
                let value = if value.is_nan() { f64::NEG_INFINITY } else { value };
                found.push(LinearLowerBound { value, slopes: slopes.to_vec() });
            }
        }
        Ok(found)
    }

    /// Lower bounds of how far the score of `class` is above each other score in `rivals`, over one box: the larger of the linear
    /// bound and the one of intervals.
    pub fn margins(&self, index: usize, class: usize, rivals: &[usize]) -> Result<Vec<f64>> {
        let scores = self.scores(index)?;
        let weights = rivals.iter().map(|&rival| {
            let mut row = vec![0.0; self.bounds.classes];
            let known = row.get(class).is_some() && row.get(rival).is_some() && class != rival;
            if !known {
                return Err(Error::argument(format!(
                    "there is no margin between classes {class} and {rival}"
                )));
            }
            (row[class], row[rival]) = (1.0, -1.0);
            Ok(row)
        });
        let weights = weights.collect::<Result<Vec<_>>>()?;
        let linear = self.least(index, &weights)?;
        let margins = linear.iter().zip(rivals);
        // The difference is rounded, at most by half a unit in the last place.
        let apart = |rival: usize| (scores[class].0 - scores[rival].1).next_down();
        Ok(margins.map(|(linear, &rival)| linear.value.max(apart(rival))).collect())
    }
}

/// An error if a network has more inputs than the one that varies, or values too large for the margin.
fn check(network: &Network) -> Result<()> {
    if let [_, other, ..] = network.graph().inputs() {
        let name = &network.graph().node(*other).label.tensor;
        return Err(Error::unsupported(format!(
            "bounds are over a box of one input, and the network also reads '{name}'; hold it fixed"
        )));
    }
    for (id, node) in network.nodes().filter(|(id, _)| network.is_active(*id)) {
        let elements = match node.shape.dims().first() {
            Some(Dim::Batch(_)) => node.shape.at(1),
            _ => {
                return Err(Error::unsupported(format!(
                    "bounds need samples along the first axis, and this value has the shape {}; export the network with an \
                     open batch size",
                    node.shape
                ))
                .at(node.label.display()));
            }
        };
        if elements.is_none_or(|dims| dims.iter().product::<usize>() > MOST_ELEMENTS) {
            let name = network.graph().node(id).label.display().to_owned();
            let message =
                format!("its values of {} are too many for bounds to be safe from rounding", node.shape);
            return Err(Error::unsupported(message).at(name));
        }
    }
    Ok(())
}

struct Linear {
    graph: Graph,
    asked: Vec<Known>,
}

/// The graph of linear bounds. Its inputs are an image, which is not used, weights of the class scores, and what is known of values.
fn linear(network: &Rc<Network>) -> Result<Linear> {
    let mut g = network.graph().clone();
    g.set_outputs(Vec::new());
    let weights = g.input("weights", Shape::batched(&[network.classes()]), Kind::Float);
    let message = linear_bound::Slopes { value: weights, terms: None };
    let mut walk = Walk::new(LinearBound::new(Rc::clone(network)), network.logits(), message);
    let found = walk.message(&mut g, network, network.input())?;
    let LinearBound { constants, asked, .. } = walk.into_rules();
    let zero = g.scaled(0.0, weights)?;
    let zero = g.reduced(monosplit_graph::op::Reduction::Sum, zero, &[1], false)?;
    let constant = constants.into_iter().try_fold(zero, |sum, constant| g.plus(sum, constant))?;
    g.output("constant", constant);
    let (slopes, terms) = match found {
        Some(slopes) => (slopes.value, slopes.terms.map_or_else(|| g.magnitude(slopes.value), Ok)?),
        None => {
            let none = g.scaled(0.0, network.input())?;
            (none, none)
        }
    };
    g.output("slopes", slopes);
    g.output("terms", terms);
    Ok(Linear { graph: g.pruned()?, asked })
}

struct Enclosing {
    graph: Graph,
    numbers: usize,
}

/// The graph of intervals. Its inputs are both corners; its outputs are the ends of the scores, those of the values called `named`,
/// and what `asked` wants to know.
fn enclosing(network: &Network, named: &[&str], asked: &[Known]) -> Result<Enclosing> {
    let mut g = network.graph().clone();
    g.set_outputs(Vec::new());
    let lower = network.input();
    let upper = g.input("upper", g.node(lower).shape.clone(), Kind::Float);
    let enclosures = Enclosures::build(&mut g, network, Interval { lower, upper })?;
    let mut values = vec![network.logits()];
    for name in named {
        let found = network
            .nodes()
            .find(|(_, node)| node.label.tensor == *name || node.label.aliases.iter().any(|a| a == name));
        let (id, _) = found.ok_or_else(|| Error::argument(format!("the network has no value '{name}'")))?;
        values.push(id);
    }
    for id in values {
        let Interval { lower, upper } = enclosures.at(id)?;
        g.output("lower", lower);
        g.output("upper", upper);
    }
    let mut numbers = 0usize;
    for what in asked {
        let value: NodeId = match *what {
            Known::Lower(id) => enclosures.at(id)?.lower,
            Known::Upper(id) => enclosures.at(id)?.upper,
            Known::Magnitude(id) => enclosures.magnitude(&mut g, id)?,
        };
        let elements = g.node(value).shape.at(1).map_or(0, |dims| dims.iter().product());
        numbers = numbers.saturating_add(elements);
        g.output("known", value);
    }
    Ok(Enclosing { graph: g.pruned()?, numbers })
}
