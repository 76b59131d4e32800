//! Checks the properties that a restriction guarantees on a trained network: its streams are convex and monotone on sampled
//! inputs, and restricted weights are non-negative.

use monosplit_engine::{CompileOptions, Engine, Precision};
use monosplit_graph::op::Binary;
use monosplit_graph::{Error, Graph, Noise, Op, Result, Tensor};

use crate::restriction::Restriction;
use crate::streams::{restriction_of, streams};

/// The result of checking the guaranteed properties of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct PropertyCheck {
    /// The restriction of the network.
    pub restriction: Restriction,
    /// The smallest restricted parameter and its name; `None` if none is restricted.
    pub smallest: Option<(f64, String)>,
    /// Largest violation of convexity: the score of a stream at a midpoint less the mean at the ends, relative to the scores.
    pub excess: f64,
    /// Largest violation of monotonicity: the decrease of a score of a stream when its input grows, relative to the scores.
    pub decrease: f64,
    /// Number of sampled pairs of inputs.
    pub pairs: usize,
}

impl PropertyCheck {
    /// Checks a network on `pairs` random pairs of inputs around `image`; `None` if it has no restriction.
    pub fn check(network: &Graph, image: &Tensor, pairs: usize, engine: &dyn Engine) -> Result<Option<Self>> {
        let Some(restriction) = restriction_of(network)? else { return Ok(None) };
        let mut check = PropertyCheck {
            restriction,
            smallest: smallest(network, restriction),
            excess: 0.0,
            decrease: 0.0,
            pairs,
        };
        for stream in streams(network)? {
            let program = engine
                .compile_with(&stream.alone(network), &CompileOptions::default().precision(Precision::F64))?;
            let run = |x: Vec<f64>| -> Result<Vec<f64>> {
                let outputs = program.run(&[Tensor::new(image.shape(), x)?])?;
                let scores = outputs.first().ok_or_else(|| Error::argument("the stream has no scores"))?;
                Ok(scores.to_f64().to_vec())
            };
            let sign = if stream.inverted { -1.0 } else { 1.0 };
            check.probe(&run, &image.to_f64(), sign)?;
        }
        Ok(Some(check))
    }

    fn probe(&mut self, run: &dyn Fn(Vec<f64>) -> Result<Vec<f64>>, image: &[f64], sign: f64) -> Result<()> {
        let noise = Noise::new(0).stream("promise");
        for pair in 0..self.pairs as u64 {
            let draw = |which: u64| noise.numbered(3 * pair + which);
            let around = |noise: Noise| (0u64..).zip(image).map(move |(i, v)| v + noise.uniform(i) - 0.5);
            let a: Vec<f64> = around(draw(0)).collect();
            let b: Vec<f64> = around(draw(1)).collect();
            let larger = (0u64..).zip(&a).map(|(i, v)| v + sign * draw(2).uniform(i)).collect();
            let middle = a.iter().zip(&b).map(|(a, b)| (a + b) / 2.0).collect();
            let (first, second, between, larger) = (run(a)?, run(b)?, run(middle)?, run(larger)?);
            let all = || first.iter().chain(&second).chain(&larger);
            let size = all().fold(f64::MIN_POSITIVE, |most, v| most.max(v.abs()));
            for class in 0..first.len() {
                let mean = (first[class] + second[class]) / 2.0;
                self.excess = worse(self.excess, (between[class] - mean) / size);
                self.decrease = worse(self.decrease, (first[class] - larger[class]) / size);
            }
        }
        Ok(())
    }
}

/// The larger number; NaN counts as larger than all.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The smallest restricted parameter.
fn smallest(network: &Graph, restriction: Restriction) -> Option<(f64, String)> {
    if !restriction.is_convex() {
        return None;
    }
    let first = |name: &str| name.ends_with(".weight") && is_first_affine(network, name);
    let restricted = |name: &str| {
        let trained = [".weight", ".bias", ".scale", ".shift"].iter().any(|ending| name.ends_with(ending));
        trained && (restriction.is_monotone() || !first(name))
    };
    let parameters = network.nodes().filter_map(|(id, node)| {
        let name = &node.label.tensor;
        let tensor = network.constant_value(id).filter(|_| restricted(name))?;
        Some((tensor.to_f64().iter().copied().reduce(least)?, name.clone()))
    });
    parameters.reduce(|a, b| if least(a.0, b.0) == a.0 || a.0.is_nan() { a } else { b })
}

/// The smaller number; NaN counts as smaller than all.
fn least(a: f64, b: f64) -> f64 {
    if a.is_nan() || a <= b { a } else { b }
}

/// Whether the parameter called `name` belongs to the first affine layer of its stream: what that layer reads depends on
/// no other weights, and no maximum was taken on the way to it.
fn is_first_affine(network: &Graph, name: &str) -> bool {
    let mut bound = vec![false; network.len()];
    for (id, node) in network.nodes() {
        let weights = network.constant_value(id).is_some() && node.label.tensor.ends_with(".weight");
        let bends =
            matches!(node.op, Op::MaxPool(_) | Op::Unary(_) | Op::Binary(Binary::Max) | Op::Reduce { .. });
        bound[id.index()] = weights || bends || node.inputs.iter().any(|i| bound[i.index()]);
    }
    let reader = network
        .nodes()
        .find(|(_, node)| node.inputs.iter().any(|&input| network.node(input).label.tensor == name));
    reader.is_some_and(|(_, node)| node.inputs.first().is_some_and(|x| !bound[x.index()]))
}
