//! The paper's algorithm to the letter, in double precision: every activation an explicit pair `(a⁺, a⁻)`, weights
//! materialised as `W⁺ = max(W, 0)` and `W⁻ = max(−W, 0)`, four sensitivities carried back. One sample at a time.
//! The original network's activations are cached; they correct the pairs and decide every mask and winner.

use std::collections::HashMap;

use monosplit_explain::{
    Correction, InputSplit, Pooling, ReluMode, Repetition, ScaledOver, Split, Stabiliser, Threshold,
};
use monosplit_graph::{Graph, NodeId, Op};

use super::coefficients::Entry;
use super::rule::{Rule, is_shape_node, rule, shape};
use super::smooth;

/// A positive and a negative part: of an activation, of a sensitivity, of relevance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) plus: Vec<f64>,
    pub(crate) minus: Vec<f64>,
}

impl Pair {
    pub(crate) fn zero(count: usize) -> Self {
        Pair { plus: vec![0.0; count], minus: vec![0.0; count] }
    }

    pub(crate) fn size(&self, i: usize) -> f64 {
        self.plus[i].abs() + self.minus[i].abs()
    }

    pub(crate) fn swapped(self) -> Self {
        Pair { plus: self.minus, minus: self.plus }
    }

    pub(crate) fn scaled(&self, factor: f64) -> Self {
        let times = |v: &[f64]| v.iter().map(|x| x * factor).collect();
        Pair { plus: times(&self.plus), minus: times(&self.minus) }
    }

    pub(crate) fn add(&mut self, other: &Pair) {
        self.plus.iter_mut().zip(&other.plus).for_each(|(a, b)| *a += b);
        self.minus.iter_mut().zip(&other.minus).for_each(|(a, b)| *a += b);
    }

    fn parts_of(values: &[f64]) -> Self {
        Pair {
            plus: values.iter().map(|v| v.max(0.0)).collect(),
            minus: values.iter().map(|v| (-v).max(0.0)).collect(),
        }
    }

    /// Moves both parts equally far so that their difference is `a`.
    fn correct(&mut self, a: &[f64]) {
        for ((plus, minus), a) in self.plus.iter_mut().zip(&mut self.minus).zip(a) {
            let error = (a - (*plus - *minus)) / 2.0;
            *plus += error;
            *minus -= error;
        }
    }

    /// Subtracts from both parts α times their sum.
    pub(crate) fn shift(&mut self, alpha: f64) {
        for (plus, minus) in self.plus.iter_mut().zip(&mut self.minus) {
            let offset = alpha * (*plus + *minus);
            *plus -= offset;
            *minus -= offset;
        }
    }
}

/// The numbers of a run.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    /// One α, or one per shifted node and a last one for the class scores.
    pub(crate) alpha: Vec<f64>,
    pub(crate) theta: f64,
    pub(crate) limit: f64,
}

pub(crate) struct Literal {
    pub(crate) graph: Graph,
    pub(crate) rules: Vec<Rule>,
    constants: HashMap<usize, Vec<f64>>,
    pub(crate) split: Split,
    pub(crate) numbers: Numbers,
}

/// One sample's pass through the network.
pub(crate) struct Sample {
    /// The network's own activations.
    pub(crate) original: Vec<Vec<f64>>,
    pub(crate) pairs: Vec<Pair>,
    /// The magnitudes that were added up to get each pair, some of which may have cancelled: what rounding is relative to.
    pub(crate) terms: Vec<Vec<f64>>,
    /// How close a stabiliser's decision was, relative to the limit.
    pub(crate) margin: f64,
}

/// `z⁺ = W⁺a⁺ + W⁻a⁻`, `z⁻ = W⁻a⁺ + W⁺a⁻`
pub(crate) fn apply(entries: &[Entry], a: &Pair, z: &mut Pair) {
    for &(o, i, w) in entries {
        let (positive, negative) = (w.max(0.0), (-w).max(0.0));
        z.plus[o] += positive * a.plus[i] + negative * a.minus[i];
        z.minus[o] += negative * a.plus[i] + positive * a.minus[i];
    }
}

pub(crate) fn transposed(entries: &[Entry]) -> Vec<Entry> {
    entries.iter().map(|&(o, i, w)| (i, o, w)).collect()
}

impl Literal {
    pub(crate) fn new(graph: &Graph, split: &Split, numbers: &Numbers) -> Self {
        let ids: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
        let constants = graph.nodes().filter_map(|(id, node)| match &node.op {
            Op::Constant(tensor) => Some((id.index(), tensor.to_f64().to_vec())),
            _ => None,
        });
        Literal {
            graph: graph.clone(),
            rules: ids.iter().map(|&id| rule(graph, id)).collect(),
            constants: constants.collect(),
            split: *split,
            numbers: numbers.clone(),
        }
    }

    pub(crate) fn count(&self, id: NodeId) -> usize {
        shape(&self.graph, id).iter().product()
    }

    pub(crate) fn values<'a>(&'a self, original: &'a [Vec<f64>], id: NodeId) -> &'a [f64] {
        self.constants.get(&id.index()).unwrap_or(&original[id.index()])
    }

    /// The value of a node from the given values of its inputs, and the size of what was added up.
    pub(crate) fn plain(&self, id: NodeId, original: &[Vec<f64>]) -> (Vec<f64>, f64) {
        let node = self.graph.node(id);
        let operand = |i: usize| self.values(original, node.inputs[i]);
        let pairwise =
            |f: &dyn Fn(usize, f64) -> f64| operand(0).iter().enumerate().map(|(i, &z)| f(i, z)).collect();
        let mut size = 0f64;
        let values: Vec<f64> = match &self.rules[id.index()] {
            Rule::Constant | Rule::Input => original[id.index()].clone(),
            Rule::Linear { maps, bias } => {
                let (mut y, mut sizes) = (bias.clone(), vec![0.0; bias.len()]);
                for (i, entries) in maps {
                    let a = operand(*i);
                    for &(o, i, w) in entries {
                        y[o] += w * a[i];
                        sizes[o] += (w * a[i]).abs();
                    }
                }
                size = sizes.iter().zip(bias).map(|(s, b)| s + b.abs()).fold(0.0, f64::max);
                y
            }
            Rule::Rectifier { slope } => pairwise(&|i, z| if z >= 0.0 { z } else { slope[i] * z }),
            Rule::Absolute => pairwise(&|_, z| z.abs()),
            Rule::Clip { low, high } => pairwise(&|_, z| z.clamp(*low, *high)),
            Rule::Contest { windows, minimum } => {
                let sign = if *minimum { -1.0 } else { 1.0 };
                let best = |w: &Vec<(usize, usize)>| {
                    w.iter().map(|&(k, i)| sign * operand(k)[i]).fold(f64::MIN, f64::max)
                };
                windows.iter().map(|w| sign * best(w)).collect()
            }
            Rule::Product { terms } => {
                let mut y = vec![0.0; self.count(id)];
                for &(o, i, j) in terms {
                    y[o] += operand(0)[i] * operand(1)[j];
                    size = size.max((operand(0)[i] * operand(1)[j]).abs());
                }
                y
            }
            Rule::Smooth(function) => pairwise(&|_, z| smooth::value(*function, z)),
        };
        let size = values.iter().map(|v| v.abs()).fold(size, f64::max);
        (values, size)
    }

    pub(crate) fn forward(&self, original: Vec<Vec<f64>>) -> Sample {
        self.forward_batch(vec![original]).remove(0)
    }

    /// The samples of a batch, node by node, since the stabiliser may look at all of them.
    pub(crate) fn forward_batch(&self, originals: Vec<Vec<Vec<f64>>>) -> Vec<Sample> {
        let sample =
            |original| Sample { original, pairs: Vec::new(), terms: Vec::new(), margin: f64::INFINITY };
        let mut samples: Vec<Sample> = originals.into_iter().map(sample).collect();
        for (id, node) in self.graph.nodes() {
            let split = |sample: &Sample| {
                if node.is_constant() {
                    return self.constants.get(&id.index()).map_or(Pair::default(), |v| Pair::parts_of(v));
                }
                let mut pair = self.split_value(id, sample);
                pair.correct(&sample.original[id.index()]);
                pair
            };
            let mut pairs: Vec<Pair> = samples.iter().map(split).collect();
            if !node.is_constant() && self.is_stabilised(id) {
                let values: Vec<&[f64]> = samples.iter().map(|s| &*s.original[id.index()]).collect();
                let margins = self.stabilise(&mut pairs, &values);
                samples.iter_mut().zip(margins).for_each(|(s, margin)| s.margin = s.margin.min(margin));
            }
            for (sample, pair) in samples.iter_mut().zip(pairs) {
                let terms = self.terms(id, sample, &pair);
                sample.terms.push(terms);
                sample.pairs.push(pair);
            }
        }
        samples
    }

    /// Every node but the input and those that only move elements; flattening is not one of these.
    fn is_stabilised(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let rank = |i: usize| self.graph.node(node.inputs[i]).shape.rank();
        let flattens = matches!(node.op, Op::Reshape { .. }) && node.shape.rank() == 2 && rank(0) > 2;
        (!is_shape_node(&node.op) || flattens) && !matches!(node.op, Op::Input)
    }

    fn terms(&self, id: NodeId, sample: &Sample, pair: &Pair) -> Vec<f64> {
        let node = self.graph.node(id);
        let operand = |i: usize| &sample.terms[node.inputs[i].index()];
        let own = (0..pair.plus.len()).map(|i| pair.size(i));
        let restarts = matches!(self.split.stabiliser, Stabiliser::Shift | Stabiliser::Recentre);
        let gathered: Vec<f64> = match &self.rules[id.index()] {
            Rule::Constant | Rule::Input | Rule::Smooth(_) => return own.collect(),
            _ if restarts && self.is_stabilised(id) => return own.collect(),
            Rule::Linear { maps, bias } => {
                let mut sums: Vec<f64> = bias.iter().map(|b| b.abs()).collect();
                for (i, entries) in maps {
                    entries.iter().for_each(|&(o, a, w)| sums[o] += w.abs() * operand(*i)[a]);
                }
                sums
            }
            Rule::Rectifier { .. } | Rule::Absolute | Rule::Clip { .. } => operand(0).clone(),
            Rule::Contest { windows, .. } => {
                windows.iter().map(|w| w.iter().map(|&(k, i)| operand(k)[i]).sum()).collect()
            }
            Rule::Product { terms } => {
                let mut sums = vec![0.0; pair.plus.len()];
                terms.iter().for_each(|&(o, i, j)| sums[o] += operand(0)[i] * operand(1)[j]);
                sums
            }
        };
        own.zip(gathered).map(|(own, terms)| own.max(terms)).collect()
    }

    fn split_value(&self, id: NodeId, sample: &Sample) -> Pair {
        let node = self.graph.node(id);
        let pair = |i: usize| &sample.pairs[node.inputs[i].index()];
        let values = |i: usize| self.values(&sample.original, node.inputs[i]);
        match &self.rules[id.index()] {
            Rule::Constant => unreachable!(),
            Rule::Input => self.split_input(&sample.original[id.index()]),
            Rule::Linear { maps, bias } => {
                let mut z = Pair::parts_of(bias);
                maps.iter().for_each(|(i, entries)| apply(entries, pair(*i), &mut z));
                z
            }
            Rule::Rectifier { slope } => self.rectified(pair(0), values(0), slope),
            Rule::Absolute => {
                let (z, none) = (pair(0), vec![0.0; values(0).len()]);
                let opposite: Vec<f64> = values(0).iter().map(|v| -v).collect();
                let mut sum = self.rectified(z, values(0), &none);
                sum.add(&self.rectified(&z.clone().swapped(), &opposite, &none));
                sum
            }
            Rule::Clip { low, high } => self.clipped(pair(0), values(0), *low, *high),
            Rule::Contest { windows, minimum } => {
                let operands: Vec<Pair> = (0..node.inputs.len()).map(pair).cloned().collect();
                let winners = self.winners(id, &sample.original);
                self.contest(windows, &winners, &operands, *minimum)
            }
            Rule::Product { terms } => {
                let (a, b, mut z) = (pair(0), pair(1), Pair::zero(self.count(id)));
                for &(o, i, j) in terms {
                    z.plus[o] += a.plus[i] * b.plus[j] + a.minus[i] * b.minus[j];
                    z.minus[o] += a.plus[i] * b.minus[j] + a.minus[i] * b.plus[j];
                }
                z
            }
            Rule::Smooth(_) => Pair::parts_of(&sample.original[id.index()]),
        }
    }

    fn split_input(&self, x: &[f64]) -> Pair {
        let half = |sign: f64| x.iter().map(|v| sign * v / 2.0).collect();
        match self.split.input_split {
            InputSplit::Half => Pair { plus: half(1.0), minus: half(-1.0) },
            InputSplit::Signed => Pair::parts_of(x),
            InputSplit::Positive => Pair { plus: x.to_vec(), minus: vec![0.0; x.len()] },
            InputSplit::Negative => Pair { plus: vec![0.0; x.len()], minus: x.iter().map(|v| -v).collect() },
        }
    }

    /// `slope·z + (1 − slope)·relu(z)`, the ReLU being `(max(z⁺, z⁻), z⁻)`, `(z⁺, min(z⁺, z⁻))` or their mean.
    fn rectified(&self, z: &Pair, original: &[f64], slope: &[f64]) -> Pair {
        let mut a = Pair::zero(original.len());
        for i in 0..original.len() {
            let (plus, minus) = (z.plus[i], z.minus[i]);
            let (larger, smaller) = if original[i] >= 0.0 { (plus, minus) } else { (minus, plus) };
            let relu = match self.split.relu {
                ReluMode::Max => (larger, minus),
                ReluMode::Min => (plus, smaller),
                ReluMode::Half => ((larger + plus) / 2.0, (minus + smaller) / 2.0),
            };
            a.plus[i] = slope[i] * plus + (1.0 - slope[i]) * relu.0;
            a.minus[i] = slope[i] * minus + (1.0 - slope[i]) * relu.1;
        }
        a
    }

    /// `low + relu(z − low) − relu(z − high)`, a bound that is infinite left out.
    fn clipped(&self, z: &Pair, original: &[f64], low: f64, high: f64) -> Pair {
        let none = vec![0.0; original.len()];
        let relu_past = |bound: f64| {
            let mut moved = z.clone();
            moved.add(&Pair::parts_of(&vec![-bound; original.len()]));
            let original: Vec<f64> = original.iter().map(|v| v - bound).collect();
            self.rectified(&moved, &original, &none)
        };
        let mut sum = z.clone();
        if low.is_finite() {
            sum = relu_past(low);
            sum.add(&Pair::parts_of(&vec![low; original.len()]));
        }
        if high.is_finite() {
            sum.add(&relu_past(high).swapped());
        }
        sum
    }

    /// For each contest the position, among the contestants, of the first best by the original activations.
    pub(crate) fn winners(&self, id: NodeId, original: &[Vec<f64>]) -> Vec<usize> {
        let Rule::Contest { windows, minimum } = &self.rules[id.index()] else { return Vec::new() };
        let inputs = &self.graph.node(id).inputs;
        let sign = if *minimum { -1.0 } else { 1.0 };
        let value = |&(k, i): &(usize, usize)| sign * self.values(original, inputs[k])[i];
        let first_best = |w: &Vec<(usize, usize)>| {
            (1..w.len()).fold(0, |best, j| if value(&w[j]) > value(&w[best]) { j } else { best })
        };
        windows.iter().map(first_best).collect()
    }

    /// `max_j{a⁺_j + Σ_{i≠j} a⁻_i}` and `Σ_i a⁻_i`; a minimum is `−max(−a)`.
    fn contest(
        &self,
        windows: &[Vec<(usize, usize)>],
        winners: &[usize],
        operands: &[Pair],
        minimum: bool,
    ) -> Pair {
        let mut out = Pair::zero(windows.len());
        for (o, (window, &winner)) in windows.iter().zip(winners).enumerate() {
            let parts = |&(k, i): &(usize, usize)| {
                let (plus, minus) = (operands[k].plus[i], operands[k].minus[i]);
                if minimum { (minus, plus) } else { (plus, minus) }
            };
            let won = parts(&window[winner]);
            (out.plus[o], out.minus[o]) = match self.split.pooling {
                Pooling::Winner => won,
                Pooling::Convex => {
                    let others = window.iter().enumerate().filter(|(j, _)| *j != winner);
                    let others: f64 = others.map(|(_, member)| parts(member).1).sum();
                    (won.0 + others, others + won.1)
                }
            };
        }
        if minimum { out.swapped() } else { out }
    }

    /// Stabilises the pairs of a batch; how close the decisions were.
    fn stabilise(&self, pairs: &mut [Pair], values: &[&[f64]]) -> Vec<f64> {
        let mut margins = vec![f64::INFINITY; pairs.len()];
        match self.split.stabiliser {
            Stabiliser::None => {}
            Stabiliser::Scale => {
                let decisions: Vec<(i32, f64)> =
                    pairs.iter().zip(values).map(|(pair, a)| self.times_scaled(pair, a)).collect();
                let most = decisions.iter().map(|(times, _)| *times).max().unwrap_or(0);
                let closest = decisions.iter().map(|(_, margin)| *margin).fold(f64::INFINITY, f64::min);
                for (i, (pair, a)) in pairs.iter_mut().zip(values).enumerate() {
                    let (times, margin) = match self.split.scaling.over {
                        ScaledOver::Sample => decisions[i],
                        ScaledOver::Batch => (most, closest),
                    };
                    (0..times).for_each(|_| *pair = pair.scaled(self.numbers.theta));
                    if times > 0 {
                        self.restore(pair, a);
                    }
                    margins[i] = margin;
                }
            }
            Stabiliser::Shift => {
                for (pair, a) in pairs.iter_mut().zip(values) {
                    let half = |sign: f64| a.iter().map(|v| sign * v / 2.0).collect();
                    *pair = Pair { plus: half(1.0), minus: half(-1.0) };
                }
            }
            Stabiliser::Recentre => {
                pairs.iter_mut().zip(values).for_each(|(pair, a)| *pair = Pair::parts_of(a));
            }
        }
        margins
    }

    /// How often a pair is scaled, and how close that was to another number.
    fn times_scaled(&self, pair: &Pair, a: &[f64]) -> (i32, f64) {
        let Numbers { theta, limit, .. } = self.numbers;
        let largest = |values: &[f64]| values.iter().map(|v| v.abs()).fold(0.0, f64::max);
        let allowed = match self.split.scaling.threshold {
            Threshold::Absolute => limit,
            Threshold::Relative => limit * largest(a),
        };
        let mut size = largest(&pair.plus).max(largest(&pair.minus));
        if allowed == 0.0 {
            // Nothing is small enough: once, or for ever.
            let ever = if self.split.scaling.repetition == Repetition::Once { 1 } else { 2000 };
            return (if size > 0.0 { ever } else { 0 }, f64::INFINITY);
        }
        let (mut times, mut margin) = (0, (size / allowed - 1.0).abs());
        while size > allowed && (times == 0 || self.split.scaling.repetition == Repetition::UntilWithin) {
            size *= theta;
            times += 1;
            if self.split.scaling.repetition == Repetition::UntilWithin {
                margin = margin.min((size / allowed - 1.0).abs());
            }
        }
        (times, margin)
    }

    /// Brings the difference of a scaled pair back to `a`.
    fn restore(&self, pair: &mut Pair, a: &[f64]) {
        for ((plus, minus), a) in pair.plus.iter_mut().zip(&mut pair.minus).zip(a) {
            let missing = a - (*plus - *minus);
            match self.split.scaling.correction {
                Correction::Both => {
                    *plus += missing / 2.0;
                    *minus -= missing / 2.0;
                }
                Correction::Signed if *a >= 0.0 => *plus += missing,
                Correction::Signed => *minus -= missing,
                Correction::Plus => *plus = a + *minus,
            }
        }
    }
}
