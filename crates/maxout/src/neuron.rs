//! The neurons of a multiplicative Maxout network and the arcs that enter them.

use std::collections::BTreeMap;
use std::fmt;

use crate::number::Number;
use crate::rational::Rational;
use monosplit_graph::Result;

/// A neuron of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NeuronId(pub(crate) u32);

impl NeuronId {
    /// The input neuron of constant activation 1 that every network has: an arc from it is a bias.
    pub const UNIT: NeuronId = NeuronId(0);

    /// Position in topological order.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NeuronId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// The kind of a neuron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Neuron {
    /// Constant activation 1.
    Unit,
    /// An input.
    Input,
    /// `a = max_i Σ_u w_i^u·a^u`
    Addition(Addition),
    /// `a = Π_u (a^u)^(w^u)`
    Multiplication(Multiplication),
}

impl Neuron {
    /// The neurons read, ascending.
    pub fn sources(&self) -> Vec<NeuronId> {
        match self {
            Neuron::Unit | Neuron::Input => Vec::new(),
            Neuron::Addition(addition) => addition.arcs.iter().map(|arc| arc.0).collect(),
            Neuron::Multiplication(product) => product.factors.iter().map(|factor| factor.0).collect(),
        }
    }
}

/// A sum with coefficients, over neurons; the coefficient of [`NeuronId::UNIT`] is a bias.
pub type Form = BTreeMap<NeuronId, Rational>;

/// A form with one more term.
pub(crate) fn add_term(form: &mut Form, neuron: NeuronId, weight: &Rational) {
    let slot = form.entry(neuron).or_insert_with(Rational::zero);
    *slot = &*slot + weight;
}

/// A rank-k Maxout neuron: the maximum of k weighted sums. The paper calls one of rank 1 simple (the same as rank k with k equal
/// rows).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    rank: usize,
    arcs: Vec<(NeuronId, Vec<Rational>)>,
}

impl Addition {
    /// The maximum of `rows`, of which there is at least one. Arcs whose weights are all zero are removed.
    pub(crate) fn new(rows: &[Form]) -> Self {
        let mut arcs: BTreeMap<NeuronId, Vec<Rational>> = BTreeMap::new();
        for (i, row) in rows.iter().enumerate() {
            for (&neuron, weight) in row.iter().filter(|(_, weight)| !weight.is_zero()) {
                arcs.entry(neuron).or_insert_with(|| vec![Rational::zero(); rows.len()])[i] = weight.clone();
            }
        }
        Addition { rank: rows.len(), arcs: arcs.into_iter().collect() }
    }

    /// Number of sums.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The neurons read, ascending, each with one weight for every sum.
    pub fn arcs(&self) -> &[(NeuronId, Vec<Rational>)] {
        &self.arcs
    }

    /// The sums.
    pub fn rows(&self) -> Vec<Form> {
        let row = |i: usize| self.arcs.iter().map(move |(neuron, weights)| (*neuron, weights[i].clone()));
        (0..self.rank).map(|i| row(i).filter(|(_, weight)| !weight.is_zero()).collect()).collect()
    }

    pub(crate) fn activation<T: Number>(&self, activations: &[T]) -> Result<T> {
        let mut largest: Option<T> = None;
        for i in 0..self.rank {
            let mut sum = T::from_rational(&Rational::zero());
            for (neuron, weights) in &self.arcs {
                if !weights[i].is_zero() {
                    let weight = T::from_rational(&weights[i]);
                    sum = sum.plus(&weight.times(&activations[neuron.index()])?)?;
                }
            }
            largest = Some(match largest {
                Some(before) if before >= sum => before,
                _ => sum,
            });
        }
        Ok(largest.unwrap_or_else(|| T::from_rational(&Rational::zero())))
    }
}

/// A product of powers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiplication {
    factors: Vec<(NeuronId, u32)>,
}

impl Multiplication {
    /// Factors of the same neuron are combined; those of exponent zero and of the unit are removed.
    pub(crate) fn new(factors: &[(NeuronId, u32)]) -> Self {
        let mut merged: BTreeMap<NeuronId, u32> = BTreeMap::new();
        for &(neuron, exponent) in factors {
            let slot = merged.entry(neuron).or_insert(0);
            *slot = slot.saturating_add(exponent);
        }
        merged.retain(|&neuron, exponent| *exponent > 0 && neuron != NeuronId::UNIT);
        Multiplication { factors: merged.into_iter().collect() }
    }

    /// The neurons read, ascending, with their exponents, which are at least 1.
    pub fn factors(&self) -> &[(NeuronId, u32)] {
        &self.factors
    }

    /// Sum of the exponents.
    pub fn degree(&self) -> u64 {
        self.factors.iter().map(|&(_, exponent)| u64::from(exponent)).sum()
    }

    pub(crate) fn activation<T: Number>(&self, activations: &[T]) -> Result<T> {
        let mut product = T::from_rational(&Rational::one());
        for &(neuron, exponent) in &self.factors {
            product = product.times(&activations[neuron.index()].power(exponent)?)?;
        }
        Ok(product)
    }
}
