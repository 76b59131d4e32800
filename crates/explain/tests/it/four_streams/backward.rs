//! The literal backward pass: four explicit sensitivities `δ⁺ᵍ`, `δ⁻ᵍ`, `δ⁺ʰ`, `δ⁻ʰ` through every node, shifted by
//! `δ± −= α(δ⁺ + δ⁻)` after each that counts.

use std::collections::HashMap;

use monosplit_explain::{Invariant, Pooling, ReluMode, ShiftAt};
use monosplit_graph::{NodeId, Op};

use super::coefficients::Entry;
use super::literal::{Literal, Pair, Sample, apply, transposed};
use super::rule::{Rule, is_affine, is_shape_node};
use super::smooth;

/// Sensitivities of `g` and `h` at every value they reach.
pub(crate) type Four = Vec<Option<(Pair, Pair)>>;

impl Literal {
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
        let four = self.carried(sample, class, None);
        if self.split.invariant == Invariant::Halved {
            return four;
        }
        let half = |(g, h): &(Pair, Pair)| {
            let sum = |i: usize| (g.plus[i] - g.minus[i]) - (h.plus[i] - h.minus[i]);
            (0..g.plus.len()).map(|i| sum(i) / 2.0).collect()
        };
        let gradients: Vec<Option<Vec<f64>>> = four.iter().map(|pair| pair.as_ref().map(half)).collect();
        self.carried(sample, class, Some(&gradients))
    }

    /// The same; if the network's own gradients are given, the four of each value are corrected alike until the paper's invariant
    /// holds.
    fn carried(&self, sample: &Sample, class: usize, gradients: Option<&[Option<Vec<f64>>]>) -> Four {
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
            let Some((mut g, mut h)) = four[id.index()].clone() else { continue };
            if let Some(gradient) = gradients.and_then(|all| all[id.index()].as_ref()) {
                for (i, gradient) in gradient.iter().enumerate() {
                    let missing = gradient - ((g.plus[i] - g.minus[i]) - (h.plus[i] - h.minus[i]));
                    g.plus[i] += missing / 4.0;
                    g.minus[i] -= missing / 4.0;
                    h.plus[i] -= missing / 4.0;
                    h.minus[i] += missing / 4.0;
                }
                four[id.index()] = Some((g.clone(), h.clone()));
            }
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
}
