//! SplitLRP to the letter: ε-LRP with the positive and the negative stream as two sets of neurons.

use monosplit_graph::op::Padding;
use monosplit_graph::{NodeId, Op};

use super::coefficients::Entry;
use super::literal::{Literal, Pair, Sample, apply, transposed};
use super::noise::Noise;
use super::rule::{Rule, is_shape_node};

impl Literal {
    /// ε-LRP on the pair, from `(a⁺[class], 0)`. Every activation and denominator is disturbed by `jitter` times the
    /// size of its pair, which shows how much rounding can do where a denominator nearly vanishes.
    pub(crate) fn relevance(&self, sample: &Sample, class: usize, jitter: &mut Jitter) -> Vec<Option<Pair>> {
        let logits = self.graph.outputs()[0].node;
        let mut all: Vec<Option<Pair>> = vec![None; self.graph.len()];
        let mut seed = Pair::zero(self.count(logits));
        let (pair, terms) = (&sample.pairs[logits.index()], &sample.terms[logits.index()]);
        seed.plus[class] = jitter.disturbed(pair, terms).plus[class];
        all[logits.index()] = Some(seed);
        let constants = self.constant_elements();
        for (id, node) in self.graph.nodes().rev() {
            let Some(r) = all[id.index()].clone() else { continue };
            for (operand, r) in self.relevance_back(id, sample, &r, &constants, jitter) {
                let input = node.inputs[operand];
                if !self.graph.node(input).is_constant() {
                    all[input.index()].get_or_insert(Pair::zero(self.count(input))).add(&r);
                }
            }
        }
        all
    }

    /// The elements of every value that padding by a number, or a constant part of a concatenation, has put there: they take no
    /// share of a weighted sum, as its bias takes none. What mixes elements ends them.
    fn constant_elements(&self) -> Vec<Vec<bool>> {
        let mut all: Vec<Vec<bool>> = Vec::with_capacity(self.graph.len());
        for (id, node) in self.graph.nodes() {
            let mut marks = vec![false; self.count(id)];
            let known = |operand: usize| &all[node.inputs[operand].index()];
            let filled = match node.op {
                Op::Pad { padding: Padding::Constant(c), .. } => c != 0.0,
                Op::Concat { .. } => true,
                _ => false,
            };
            match &self.rules[id.index()] {
                Rule::Rectifier { .. } | Rule::Absolute | Rule::Clip { .. } | Rule::Smooth(_) => {
                    marks.clone_from(known(0));
                }
                Rule::Linear { maps, .. } => {
                    let moves = is_shape_node(&node.op) && !matches!(node.op, Op::Expand { .. });
                    let by_element = matches!(node.op, Op::Binary(_) | Op::BatchNorm { .. });
                    if moves || by_element && maps.len() == 1 && known(maps[0].0).len() == marks.len() {
                        let mut reached = vec![false; marks.len()];
                        for (operand, entries) in maps {
                            for &(o, a, _) in entries {
                                (marks[o], reached[o]) = (known(*operand)[a], true);
                            }
                        }
                        if filled {
                            reached.iter().zip(&mut marks).for_each(|(reached, mark)| *mark |= !reached);
                        }
                    }
                }
                Rule::Constant | Rule::Input | Rule::Contest { .. } | Rule::Product { .. } => {}
            }
            all.push(marks);
        }
        all
    }

    fn relevance_back(
        &self,
        id: NodeId,
        sample: &Sample,
        r: &Pair,
        constants: &[Vec<bool>],
        jitter: &mut Jitter,
    ) -> Vec<(usize, Pair)> {
        let node = self.graph.node(id);
        let inputs = &node.inputs;
        let pair = |i: usize| &sample.pairs[inputs[i].index()];
        let terms = |i: usize| &sample.terms[inputs[i].index()][..];
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
                let is_sum = !matches!(node.op, Op::Binary(_) | Op::BatchNorm { .. });
                let known = &constants[inputs[*i].index()];
                let varies = |&&(_, a, _): &&Entry| !(is_sum && known[a]);
                let entries: &Vec<Entry> = &entries.iter().filter(varies).copied().collect();
                let (mut z, mut sizes) =
                    (Pair::zero(r.plus.len()), bias.iter().map(|b| b.abs()).collect::<Vec<_>>());
                apply(entries, pair(*i), &mut z);
                entries.iter().for_each(|&(o, a, w)| sizes[o] += w.abs() * terms(*i)[a]);
                let mut sum = Pair::zero(self.count(inputs[*i]));
                jitter.disturb(&mut z, |o| sizes[o]);
                apply(&transposed(entries), &per_contribution(r, &z), &mut sum);
                vec![(*i, times(&sum, &jitter.disturbed(pair(*i), terms(*i))))]
            }
            Rule::Product { terms: factors } => {
                // Affine in each factor while the other is held, each given half.
                let (a, b, mut z) = (pair(0), pair(1), Pair::zero(r.plus.len()));
                let mut sizes = vec![0.0; r.plus.len()];
                for &(o, i, j) in factors {
                    z.plus[o] += a.plus[i] * b.plus[j] + a.minus[i] * b.minus[j];
                    z.minus[o] += a.plus[i] * b.minus[j] + a.minus[i] * b.plus[j];
                    sizes[o] += terms(0)[i] * terms(1)[j];
                }
                jitter.disturb(&mut z, |o| sizes[o]);
                let c = per_contribution(&r.scaled(0.5), &z);
                let (mut to_a, mut to_b) = (Pair::zero(a.plus.len()), Pair::zero(b.plus.len()));
                for &(o, i, j) in factors {
                    to_a.plus[i] += c.plus[o] * b.plus[j] + c.minus[o] * b.minus[j];
                    to_a.minus[i] += c.plus[o] * b.minus[j] + c.minus[o] * b.plus[j];
                    to_b.plus[j] += c.plus[o] * a.plus[i] + c.minus[o] * a.minus[i];
                    to_b.minus[j] += c.plus[o] * a.minus[i] + c.minus[o] * a.plus[i];
                }
                vec![
                    (0, times(&to_a, &jitter.disturbed(a, terms(0)))),
                    (1, times(&to_b, &jitter.disturbed(b, terms(1)))),
                ]
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

    fn disturbed(&mut self, pair: &Pair, terms: &[f64]) -> Pair {
        let mut disturbed = pair.clone();
        self.disturb(&mut disturbed, |i| terms[i]);
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
