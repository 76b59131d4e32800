//! Networks and points that look random and are the same in every run.

use monosplit_maxout::{Form, MaxoutNetwork, NeuronId, Rational};
use monosplit_testing::SplitMix64;

pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(SplitMix64::new(seed))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    /// A number between −4 and 4, mostly whole.
    pub(crate) fn weight(&mut self) -> Rational {
        let denominator = [1, 1, 1, 2, 3][self.below(5)];
        Rational::ratio(self.below(9) as i64 - 4, denominator).unwrap()
    }

    /// Numbers of at least `least`.
    pub(crate) fn point(&mut self, length: usize, least: i64) -> Vec<Rational> {
        let number = |random: &mut Self| {
            let denominator = [1, 1, 2, 3][random.below(4)];
            Rational::ratio(random.below(8 * denominator as usize) as i64, denominator).unwrap()
        };
        (0..length).map(|_| &number(self) + &Rational::from(least)).collect()
    }
}

/// What random networks are made of.
#[derive(Clone, Copy)]
pub(crate) struct Recipe {
    /// Whether weights may be negative.
    pub(crate) signed: bool,
    /// Whether a multiplication neuron may depend on several inputs.
    pub(crate) mixing: bool,
    /// The largest degree of a neuron as a polynomial of the inputs.
    pub(crate) degree: u64,
    /// The most neurons that are not inputs.
    pub(crate) neurons: usize,
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe { signed: true, mixing: true, degree: 6, neurons: 7 }
    }
}

/// A neuron under construction: its degree and the inputs it depends on.
#[derive(Clone, Default)]
struct Known {
    id: Option<NeuronId>,
    degree: u64,
    inputs: u64,
}

pub(crate) fn network(random: &mut Random, recipe: Recipe) -> MaxoutNetwork {
    let dimension = 1 + random.below(3);
    let mut network = MaxoutNetwork::new(["x", "y", "z"].into_iter().take(dimension)).unwrap();
    let mut known: Vec<Known> = network
        .inputs()
        .enumerate()
        .map(|(i, id)| Known { id: Some(id), degree: 1, inputs: 1 << i })
        .collect();
    for i in 0..2 + random.below(recipe.neurons - 1) {
        let name = format!("v{i}");
        let new = match random.below(3) {
            0 => multiplication(random, &mut network, name, &known, recipe),
            _ => addition(random, &mut network, name, &known, recipe),
        };
        known.push(new);
    }
    for _ in 0..1 + random.below(2) {
        // The last neurons depend on most others; now and then an output is an input.
        let reach = if random.below(8) == 0 { known.len() } else { 2 };
        let back = random.below(reach);
        network.output(known[known.len() - 1 - back].id.unwrap()).unwrap();
    }
    network
}

fn addition(
    random: &mut Random,
    network: &mut MaxoutNetwork,
    name: String,
    known: &[Known],
    recipe: Recipe,
) -> Known {
    let sources: Vec<&Known> = (0..1 + random.below(3)).map(|_| &known[random.below(known.len())]).collect();
    let (rank, floor) = (1 + random.below(3), random.below(3) == 0);
    let mut row = || -> Form {
        let weight = |random: &mut Random| {
            let weight = random.weight();
            if recipe.signed { weight } else { weight.magnitude() }
        };
        let mut row: Form = sources.iter().map(|known| (known.id.unwrap(), weight(random))).collect();
        if random.below(2) == 0 {
            row.insert(NeuronId::UNIT, weight(random));
        }
        row
    };
    let mut rows: Vec<Form> = (0..rank).map(|_| row()).collect();
    if floor {
        rows.push(Form::new());
    }
    Known {
        id: Some(network.addition(name, &rows).unwrap()),
        degree: sources.iter().map(|known| known.degree).max().unwrap_or(0),
        inputs: sources.iter().fold(0, |all, known| all | known.inputs),
    }
}

fn multiplication(
    random: &mut Random,
    network: &mut MaxoutNetwork,
    name: String,
    known: &[Known],
    recipe: Recipe,
) -> Known {
    let mut factors = Vec::new();
    let mut new = Known::default();
    for _ in 0..1 + random.below(3) {
        let factor = &known[random.below(known.len())];
        let exponent = 1 + random.below(3) as u32;
        let degree = new.degree + u64::from(exponent) * factor.degree;
        let mixed = (new.inputs | factor.inputs).count_ones() > 1;
        if degree <= recipe.degree && (recipe.mixing || !mixed) {
            factors.push((factor.id.unwrap(), exponent));
            new = Known { id: None, degree, inputs: new.inputs | factor.inputs };
        }
    }
    if factors.is_empty() {
        return addition(random, network, name, known, recipe);
    }
    Known { id: Some(network.multiplication(name, &factors).unwrap()), ..new }
}
