//! The paper's algorithm to the letter, in double precision: every activation an explicit pair `(a⁺, a⁻)`, weights
//! materialised as `W⁺ = max(W, 0)` and `W⁻ = max(−W, 0)`, four sensitivities carried back. One sample at a time.
//! The original network's activations are cached; they correct the pairs and decide every mask and winner.

use std::collections::HashMap;

use monosplit_explain::{
    InputSplit, Method, Part, Pooling, RelevanceMap, ReluMode, ShiftAt, Split, Stabiliser, Stream,
};
use monosplit_graph::{Graph, NodeId, Op};

use crate::coefficients::Entry;
use crate::noise::Noise;
use crate::rule::{Rule, is_affine, is_shape_node, map_positions, rule, shape};
use crate::smooth;

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

    fn size(&self, i: usize) -> f64 {
        self.plus[i].abs() + self.minus[i].abs()
    }

    fn swapped(self) -> Self {
        Pair { plus: self.minus, minus: self.plus }
    }

    fn scaled(&self, factor: f64) -> Self {
        let times = |v: &[f64]| v.iter().map(|x| x * factor).collect();
        Pair { plus: times(&self.plus), minus: times(&self.minus) }
    }

    fn add(&mut self, other: &Pair) {
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
    fn shift(&mut self, alpha: f64) {
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
    graph: Graph,
    rules: Vec<Rule>,
    constants: HashMap<usize, Vec<f64>>,
    split: Split,
    numbers: Numbers,
}

/// One sample's pass through the network.
pub(crate) struct Sample {
    /// The network's own activations.
    pub(crate) original: Vec<Vec<f64>>,
    pub(crate) pairs: Vec<Pair>,
    /// How close a stabiliser's decision was, relative to the limit.
    pub(crate) margin: f64,
}

/// Sensitivities of `g` and `h` at every value they reach.
pub(crate) type Four = Vec<Option<(Pair, Pair)>>;

/// `z⁺ = W⁺a⁺ + W⁻a⁻`, `z⁻ = W⁻a⁺ + W⁺a⁻`
fn apply(entries: &[Entry], a: &Pair, z: &mut Pair) {
    for &(o, i, w) in entries {
        let (positive, negative) = (w.max(0.0), (-w).max(0.0));
        z.plus[o] += positive * a.plus[i] + negative * a.minus[i];
        z.minus[o] += negative * a.plus[i] + positive * a.minus[i];
    }
}

fn transposed(entries: &[Entry]) -> Vec<Entry> {
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

    fn count(&self, id: NodeId) -> usize {
        shape(&self.graph, id).iter().product()
    }

    fn values<'a>(&'a self, original: &'a [Vec<f64>], id: NodeId) -> &'a [f64] {
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
        let mut sample = Sample { original, pairs: Vec::new(), margin: f64::INFINITY };
        for (id, node) in self.graph.nodes() {
            let pair = if node.is_constant() {
                self.constants.get(&id.index()).map_or(Pair::default(), |values| Pair::parts_of(values))
            } else {
                let mut pair = self.split_value(id, &sample);
                let a = &sample.original[id.index()];
                pair.correct(a);
                if !is_shape_node(&node.op) && !matches!(node.op, Op::Input) {
                    sample.margin = sample.margin.min(self.stabilise(&mut pair, a));
                }
                pair
            };
            sample.pairs.push(pair);
        }
        sample
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
                let operands: Vec<Pair> = (0..node.inputs.len()).map(pair).map(|p| p.clone()).collect();
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
    fn winners(&self, id: NodeId, original: &[Vec<f64>]) -> Vec<usize> {
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

    /// Stabilises a pair; how close the decision was.
    fn stabilise(&self, pair: &mut Pair, a: &[f64]) -> f64 {
        match self.split.stabiliser {
            Stabiliser::None => {}
            Stabiliser::Scale => {
                let largest = pair.plus.iter().chain(&pair.minus).map(|v| v.abs()).fold(0.0, f64::max);
                if largest > self.numbers.limit {
                    *pair = pair.scaled(self.numbers.theta);
                    pair.correct(a);
                }
                return (largest / self.numbers.limit - 1.0).abs();
            }
            Stabiliser::Shift => {
                *pair = Pair {
                    plus: a.iter().map(|v| v / 2.0).collect(),
                    minus: a.iter().map(|v| -v / 2.0).collect(),
                };
            }
            Stabiliser::Recentre => *pair = Pair::parts_of(a),
        }
        f64::INFINITY
    }

    /// The names of the nodes where sensitivities are shifted, the class scores last.
    pub(crate) fn shifted(&self) -> Vec<NodeId> {
        let counted = self.graph.nodes().filter(|(id, node)| {
            let active = !node.is_constant() && !matches!(node.op, Op::Input) && !is_shape_node(&node.op);
            active && (self.split.shift_at == ShiftAt::Every || is_affine(&self.graph, *id))
        });
        counted.map(|(id, _)| id).chain([self.graph.outputs()[0].node]).collect()
    }

    /// The four sensitivities of class score `class` at every value.
    pub(crate) fn backward(&self, sample: &Sample, class: usize) -> Four {
        let logits = self.graph.outputs()[0].node;
        let shifted = self.shifted();
        let alphas = |at: usize| {
            if self.numbers.alpha.len() == 1 { self.numbers.alpha[0] } else { self.numbers.alpha[at] }
        };
        let at_node: HashMap<NodeId, f64> =
            shifted[..shifted.len() - 1].iter().enumerate().map(|(i, &id)| (id, alphas(i))).collect();
        let mut four: Four = vec![None; self.graph.len()];
        let count = self.count(logits);
        let (mut g, mut h) = (Pair::zero(count), Pair::zero(count));
        g.plus[class] = 1.0;
        h.minus[class] = 1.0;
        g.shift(alphas(shifted.len() - 1));
        h.shift(alphas(shifted.len() - 1));
        four[logits.index()] = Some((g, h));
        for (id, node) in self.graph.nodes().rev() {
            let Some((g, h)) = four[id.index()].clone() else { continue };
            let (to_g, to_h) = (self.back(id, sample, &g), self.back(id, sample, &h));
            for ((operand, mut g), (_, mut h)) in to_g.into_iter().zip(to_h) {
                if let Some(&alpha) = at_node.get(&id) {
                    g.shift(alpha);
                    h.shift(alpha);
                }
                let input = node.inputs[operand];
                if self.graph.node(input).is_constant() {
                    continue;
                }
                let zero = Pair::zero(self.count(input));
                let sum = four[input.index()].get_or_insert((zero.clone(), zero));
                sum.0.add(&g);
                sum.1.add(&h);
            }
        }
        four
    }

    /// What a node passes to its operands of one stream's sensitivities.
    fn back(&self, id: NodeId, sample: &Sample, delta: &Pair) -> Vec<(usize, Pair)> {
        let inputs = &self.graph.node(id).inputs;
        let values = |i: usize| self.values(&sample.original, inputs[i]);
        match &self.rules[id.index()] {
            Rule::Constant | Rule::Input => Vec::new(),
            Rule::Linear { maps, .. } => {
                let through = |(i, entries): &(usize, Vec<Entry>)| {
                    let mut sum = Pair::zero(self.count(inputs[*i]));
                    apply(&transposed(entries), delta, &mut sum);
                    (*i, sum)
                };
                maps.iter().map(through).collect()
            }
            Rule::Rectifier { slope } => vec![(0, self.rectified_back(delta, values(0), slope))],
            Rule::Absolute => {
                let none = vec![0.0; delta.plus.len()];
                let opposite: Vec<f64> = values(0).iter().map(|v| -v).collect();
                let mut sum = self.rectified_back(delta, values(0), &none);
                sum.add(&self.rectified_back(delta, &opposite, &none).swapped());
                vec![(0, sum)]
            }
            Rule::Clip { low, high } => {
                let none = vec![0.0; delta.plus.len()];
                let past = |bound: f64| values(0).iter().map(|v| v - bound).collect::<Vec<f64>>();
                let mut sum = delta.clone();
                if low.is_finite() {
                    sum = self.rectified_back(delta, &past(*low), &none);
                }
                if high.is_finite() {
                    let falling = delta.clone().swapped();
                    sum.add(&self.rectified_back(&falling, &past(*high), &none));
                }
                vec![(0, sum)]
            }
            Rule::Contest { windows, minimum } => {
                let mut sums: Vec<Pair> = inputs.iter().map(|&i| Pair::zero(self.count(i))).collect();
                for ((o, window), winner) in
                    windows.iter().enumerate().zip(self.winners(id, &sample.original))
                {
                    let both = delta.plus[o] + delta.minus[o];
                    for (j, &(k, i)) in window.iter().enumerate() {
                        if j == winner {
                            sums[k].plus[i] += delta.plus[o];
                            sums[k].minus[i] += delta.minus[o];
                        } else if self.split.pooling == Pooling::Convex {
                            let part = if *minimum { &mut sums[k].plus } else { &mut sums[k].minus };
                            part[i] += both;
                        }
                    }
                }
                sums.into_iter().enumerate().collect()
            }
            Rule::Product { terms } => {
                let (a, b) = (&sample.pairs[inputs[0].index()], &sample.pairs[inputs[1].index()]);
                let (mut to_a, mut to_b) = (Pair::zero(a.plus.len()), Pair::zero(b.plus.len()));
                for &(o, i, j) in terms {
                    let (plus, minus) = (delta.plus[o], delta.minus[o]);
                    to_a.plus[i] += plus * b.plus[j] + minus * b.minus[j];
                    to_a.minus[i] += plus * b.minus[j] + minus * b.plus[j];
                    to_b.plus[j] += plus * a.plus[i] + minus * a.minus[i];
                    to_b.minus[j] += plus * a.minus[i] + minus * a.plus[i];
                }
                vec![(0, to_a), (1, to_b)]
            }
            Rule::Smooth(function) => {
                let slopes = values(0).iter().enumerate().map(|(i, &z)| (i, i, smooth::slope(*function, z)));
                let mut sum = Pair::zero(delta.plus.len());
                apply(&slopes.collect::<Vec<_>>(), delta, &mut sum);
                vec![(0, sum)]
            }
        }
    }

    fn rectified_back(&self, delta: &Pair, original: &[f64], slope: &[f64]) -> Pair {
        let mut sum = Pair::zero(original.len());
        for i in 0..original.len() {
            let (plus, minus) = (delta.plus[i], delta.minus[i]);
            let relu = match self.split.relu {
                _ if original[i] >= 0.0 => (plus, minus),
                ReluMode::Max => (0.0, plus + minus),
                ReluMode::Min => (plus + minus, 0.0),
                ReluMode::Half => ((plus + minus) / 2.0, (plus + minus) / 2.0),
            };
            sum.plus[i] = slope[i] * plus + (1.0 - slope[i]) * relu.0;
            sum.minus[i] = slope[i] * minus + (1.0 - slope[i]) * relu.1;
        }
        sum
    }

    /// ε-LRP on the pair, from `(a⁺[class], 0)`. Every activation and denominator is disturbed by `jitter` times the
    /// size of its pair, which shows how much rounding can do where a denominator nearly vanishes.
    pub(crate) fn relevance(&self, sample: &Sample, class: usize, jitter: &mut Jitter) -> Vec<Option<Pair>> {
        let logits = self.graph.outputs()[0].node;
        let mut all: Vec<Option<Pair>> = vec![None; self.graph.len()];
        let mut seed = Pair::zero(self.count(logits));
        seed.plus[class] = sample.pairs[logits.index()].plus[class];
        all[logits.index()] = Some(seed);
        for (id, node) in self.graph.nodes().rev() {
            let Some(r) = all[id.index()].clone() else { continue };
            for (operand, r) in self.relevance_back(id, sample, &r, jitter) {
                let input = node.inputs[operand];
                if !self.graph.node(input).is_constant() {
                    all[input.index()].get_or_insert(Pair::zero(self.count(input))).add(&r);
                }
            }
        }
        all
    }

    fn relevance_back(
        &self,
        id: NodeId,
        sample: &Sample,
        r: &Pair,
        jitter: &mut Jitter,
    ) -> Vec<(usize, Pair)> {
        let node = self.graph.node(id);
        let inputs = &node.inputs;
        let pair = |i: usize| &sample.pairs[inputs[i].index()];
        match &self.rules[id.index()] {
            Rule::Constant | Rule::Input => Vec::new(),
            Rule::Rectifier { .. } | Rule::Absolute | Rule::Clip { .. } | Rule::Smooth(_) => {
                vec![(0, r.clone())]
            }
            Rule::Contest { windows, .. } => {
                let mut sums: Vec<Pair> = inputs.iter().map(|&i| Pair::zero(self.count(i))).collect();
                for ((o, window), winner) in
                    windows.iter().enumerate().zip(self.winners(id, &sample.original))
                {
                    let (k, i) = window[winner];
                    sums[k].plus[i] += r.plus[o];
                    sums[k].minus[i] += r.minus[o];
                }
                sums.into_iter().enumerate().collect()
            }
            Rule::Linear { maps, .. }
                if is_shape_node(&node.op) || ["Add", "Sub"].contains(&node.op.name()) =>
            {
                let share = if node.op.name() == "Concat" { 1.0 } else { 1.0 / maps.len() as f64 };
                let through = |(i, entries): &(usize, Vec<Entry>)| {
                    let mut sum = Pair::zero(self.count(inputs[*i]));
                    apply(&transposed(entries), &r.scaled(share), &mut sum);
                    (*i, sum)
                };
                maps.iter().map(through).collect()
            }
            Rule::Linear { maps, bias } => {
                let (i, entries) = &maps[0];
                let (mut z, mut sizes) =
                    (Pair::zero(r.plus.len()), bias.iter().map(|b| b.abs()).collect::<Vec<_>>());
                apply(entries, pair(*i), &mut z);
                entries.iter().for_each(|&(o, a, w)| sizes[o] += w.abs() * pair(*i).size(a));
                let mut sum = Pair::zero(self.count(inputs[*i]));
                jitter.disturb(&mut z, |o| sizes[o]);
                apply(&transposed(entries), &per_contribution(r, &z), &mut sum);
                vec![(*i, times(&sum, &jitter.disturbed(pair(*i))))]
            }
            Rule::Product { terms } => {
                // Affine in each factor while the other is held, each given half.
                let (a, b, mut z) = (pair(0), pair(1), Pair::zero(r.plus.len()));
                let mut sizes = vec![0.0; r.plus.len()];
                for &(o, i, j) in terms {
                    z.plus[o] += a.plus[i] * b.plus[j] + a.minus[i] * b.minus[j];
                    z.minus[o] += a.plus[i] * b.minus[j] + a.minus[i] * b.plus[j];
                    sizes[o] += a.size(i) * b.size(j);
                }
                jitter.disturb(&mut z, |o| sizes[o]);
                let c = per_contribution(&r.scaled(0.5), &z);
                let (mut to_a, mut to_b) = (Pair::zero(a.plus.len()), Pair::zero(b.plus.len()));
                for &(o, i, j) in terms {
                    to_a.plus[i] += c.plus[o] * b.plus[j] + c.minus[o] * b.minus[j];
                    to_a.minus[i] += c.plus[o] * b.minus[j] + c.minus[o] * b.plus[j];
                    to_b.plus[j] += c.plus[o] * a.plus[i] + c.minus[o] * a.minus[i];
                    to_b.minus[j] += c.plus[o] * a.minus[i] + c.minus[o] * a.plus[i];
                }
                vec![(0, times(&to_a, &jitter.disturbed(a))), (1, times(&to_b, &jitter.disturbed(b)))]
            }
        }
    }
}

/// Rounding, imitated: both parts of a pair are moved at random by a share of the size of what was added up.
pub(crate) struct Jitter {
    pub(crate) noise: Noise,
    pub(crate) share: f64,
}

impl Jitter {
    pub(crate) fn none() -> Self {
        Jitter { noise: Noise::new(0), share: 0.0 }
    }

    fn disturb(&mut self, pair: &mut Pair, size: impl Fn(usize) -> f64) {
        if self.share == 0.0 {
            return;
        }
        for (i, (plus, minus)) in pair.plus.iter_mut().zip(&mut pair.minus).enumerate() {
            let size = self.share * size(i);
            *plus += size * (2.0 * self.noise.uniform() - 1.0);
            *minus += size * (2.0 * self.noise.uniform() - 1.0);
        }
    }

    fn disturbed(&mut self, pair: &Pair) -> Pair {
        let mut disturbed = pair.clone();
        self.disturb(&mut disturbed, |i| pair.size(i));
        disturbed
    }
}

fn times(a: &Pair, b: &Pair) -> Pair {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).collect();
    Pair { plus: product(&a.plus, &b.plus), minus: product(&a.minus, &b.minus) }
}

/// `R/(z + ε·sign(z))` with `sign(0) = +1`.
fn per_contribution(r: &Pair, z: &Pair) -> Pair {
    const EPSILON: f64 = 1e-6;
    let divided = |r: &[f64], z: &[f64]| {
        r.iter().zip(z).map(|(r, &z)| r / (z + if z >= 0.0 { EPSILON } else { -EPSILON })).collect()
    };
    Pair { plus: divided(&r.plus, &z.plus), minus: divided(&r.minus, &z.minus) }
}

/// A map, and the size of the terms that were added up at its largest element: what rounding is relative to.
pub(crate) struct LiteralMap {
    pub(crate) values: Vec<f64>,
    pub(crate) terms: f64,
    /// How far imitated rounding moves the map.
    pub(crate) unsteady: f64,
}

impl LiteralMap {
    pub(crate) fn apart(&self, other: &LiteralMap) -> f64 {
        self.values.iter().zip(&other.values).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }
}

/// A map of a value of shape `shape`, given its own activation, its pair, its sensitivities and its relevance.
pub(crate) fn map(
    method: Method,
    shape: &[usize],
    a: &[f64],
    pair: &Pair,
    four: &(Pair, Pair),
    r: &Pair,
) -> LiteralMap {
    let (to, channels) = map_positions(shape);
    let count = to.iter().max().map_or(0, |m| m + 1);
    let (mut values, mut terms) = (vec![0.0; count], vec![0.0f64; count]);
    let half = |part: Part, p: &Pair, i: usize| match part {
        Part::Combined => (p.plus[i] - p.minus[i]) / 2.0,
        Part::Plus => p.plus[i],
        Part::Minus => p.minus[i],
    };
    let sensitivity = |stream: Stream, part: Part, i: usize| match stream {
        Stream::G => half(part, &four.0, i),
        Stream::H => half(part, &four.1, i),
    };
    for (i, &at) in to.iter().enumerate() {
        let all: f64 =
            [&four.0.plus, &four.0.minus, &four.1.plus, &four.1.minus].iter().map(|d| d[i].abs()).sum();
        let (value, size) = match method {
            Method::Gradient => {
                let d = half(Part::Combined, &four.0, i) - half(Part::Combined, &four.1, i);
                (d / channels as f64, all)
            }
            Method::SplitGrad(stream, part) => (sensitivity(stream, part, i) / channels as f64, all),
            Method::SplitCam(stream, part) => {
                let activation = if part == Part::Combined { a[i] } else { half(part, pair, i) };
                (sensitivity(stream, part, i) * activation, all * pair.size(i))
            }
            Method::SplitLrp(map) => {
                let value = match map {
                    RelevanceMap::Pos => r.plus[i],
                    RelevanceMap::Neg => r.minus[i],
                    RelevanceMap::Comb => r.plus[i] - r.minus[i],
                };
                (value, r.size(i))
            }
        };
        values[at] += value;
        terms[at] += size;
    }
    LiteralMap { values, terms: terms.into_iter().fold(0.0, f64::max), unsteady: 0.0 }
}
