//! A multiplicative Maxout network: neurons in topological order, each with a name, some of them outputs. Neurons can only be
//! appended, so a network is always acyclic. Its size is bounded.

use std::collections::{BTreeSet, HashMap};

use monosplit_graph::{Error, Result};

use crate::neuron::{Addition, Form, Multiplication, Neuron, NeuronId};
use crate::number::Number;

/// The largest number of neurons.
pub const MAX_NEURONS: usize = 1 << 17;
/// The largest number of weights of all arcs together.
pub const MAX_WEIGHTS: usize = 1 << 19;
/// The largest rank of an addition neuron.
pub const MAX_RANK: usize = 1 << 12;
/// The largest sum of exponents of a multiplication neuron.
pub const MAX_DEGREE: u64 = 64;
/// The largest length of a name, in characters.
pub const MAX_NAME: usize = 256;

/// A network of input, addition and multiplication neurons (the paper's appendix "Generalization of the Split to
/// Multiplicative Maxout Networks").
///
/// The first neuron is [`NeuronId::UNIT`], the next ones are the inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxoutNetwork {
    neurons: Vec<Neuron>,
    names: Vec<String>,
    named: HashMap<String, NeuronId>,
    inputs: usize,
    outputs: Vec<NeuronId>,
    weights: usize,
}

impl MaxoutNetwork {
    /// A network with inputs of these names and nothing else.
    pub fn new<S: Into<String>>(inputs: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut network = MaxoutNetwork {
            neurons: vec![Neuron::Unit],
            names: vec!["1".to_owned()],
            named: HashMap::new(),
            inputs: 0,
            outputs: Vec::new(),
            weights: 0,
        };
        for name in inputs {
            network.push(name.into(), Neuron::Input, 0)?;
            network.inputs += 1;
        }
        Ok(network)
    }

    /// Adds the largest of `rows`, each a weighted sum of neurons.
    pub fn addition(&mut self, name: impl Into<String>, rows: &[Form]) -> Result<NeuronId> {
        let name = name.into();
        if rows.is_empty() || rows.len() > MAX_RANK {
            let found = rows.len();
            return Err(Error::argument(format!("its rank is {found}, expected 1 to {MAX_RANK}")).at(name));
        }
        rows.iter().flat_map(|row| row.keys()).try_for_each(|&neuron| self.known(neuron, &name))?;
        let sources: BTreeSet<NeuronId> = rows.iter().flat_map(|row| row.keys().copied()).collect();
        self.check_room(&name, sources.len().saturating_mul(rows.len()))?;
        let addition = Addition::new(rows);
        let weights = addition.arcs().len() * addition.rank();
        self.push(name, Neuron::Addition(addition), weights)
    }

    /// Adds a product of powers. A product of nothing is 1.
    pub fn multiplication(
        &mut self,
        name: impl Into<String>,
        factors: &[(NeuronId, u32)],
    ) -> Result<NeuronId> {
        let name = name.into();
        factors.iter().try_for_each(|&(neuron, _)| self.known(neuron, &name))?;
        let product = Multiplication::new(factors);
        if product.degree() > MAX_DEGREE {
            let found = product.degree();
            return Err(Error::unsupported(format!(
                "its exponents add up to {found}, expected at most {MAX_DEGREE}; make it a product of products"
            ))
            .at(name));
        }
        if product.factors().is_empty() {
            return self.addition(name, &[Form::from([(NeuronId::UNIT, 1.into())])]);
        }
        let weights = product.factors().len();
        self.push(name, Neuron::Multiplication(product), weights)
    }

    /// Makes a neuron the next output.
    pub fn output(&mut self, neuron: NeuronId) -> Result<()> {
        self.known(neuron, "output")?;
        if neuron == NeuronId::UNIT {
            return Err(Error::argument("the constant neuron cannot be an output; add a sum that reads it"));
        }
        self.outputs.push(neuron);
        Ok(())
    }

    fn known(&self, neuron: NeuronId, reader: &str) -> Result<()> {
        match neuron.index() < self.neurons.len() {
            true => Ok(()),
            false => Err(Error::argument(format!("reads {neuron}, which is not in this network")).at(reader)),
        }
    }

    fn push(&mut self, name: String, neuron: Neuron, weights: usize) -> Result<NeuronId> {
        check_name(&name)?;
        if self.named.contains_key(&name) {
            return Err(Error::argument(format!("there are two neurons called '{name}', expected one")));
        }
        self.check_room(&name, weights)?;
        self.weights += weights;
        let id = NeuronId(self.neurons.len() as u32);
        self.named.insert(name.clone(), id);
        self.neurons.push(neuron);
        self.names.push(name);
        Ok(id)
    }

    fn check_room(&self, name: &str, weights: usize) -> Result<()> {
        if self.neurons.len() < MAX_NEURONS && self.weights.saturating_add(weights) <= MAX_WEIGHTS {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "the network is too large, expected at most {MAX_NEURONS} neurons and {MAX_WEIGHTS} weights"
        ))
        .at(name))
    }

    /// A name like `wanted` that is not in use.
    pub(crate) fn free_name(&self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        while self.named.contains_key(&name) {
            name.push('\'');
        }
        name
    }

    /// All neurons in topological order.
    pub fn neurons(&self) -> impl ExactSizeIterator<Item = (NeuronId, &Neuron)> + DoubleEndedIterator {
        self.neurons.iter().enumerate().map(|(i, neuron)| (NeuronId(i as u32), neuron))
    }

    /// A neuron of this network.
    pub fn neuron(&self, id: NeuronId) -> &Neuron {
        &self.neurons[id.index()]
    }

    /// Its name.
    pub fn name(&self, id: NeuronId) -> &str {
        &self.names[id.index()]
    }

    /// The neuron of this name.
    pub fn find(&self, name: &str) -> Option<NeuronId> {
        self.named.get(name).copied()
    }

    /// The inputs, in the order in which values are given.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = NeuronId> + use<> {
        (1..self.inputs as u32 + 1).map(NeuronId)
    }

    /// The outputs, in the order they are returned.
    pub fn outputs(&self) -> &[NeuronId] {
        &self.outputs
    }

    /// Whether all weights are non-negative, which the paper calls monotone: the activations then never decrease where the
    /// inputs are ≥ 0.
    pub fn is_monotone(&self) -> bool {
        self.no_negative_weight(|_| true)
    }

    /// Whether all weights are non-negative but for those of arcs that leave inputs, which the paper calls input-convex.
    pub fn is_input_convex(&self) -> bool {
        self.no_negative_weight(|source| !matches!(self.neuron(source), Neuron::Input))
    }

    fn no_negative_weight(&self, considered: impl Fn(NeuronId) -> bool) -> bool {
        self.neurons.iter().all(|neuron| match neuron {
            Neuron::Addition(addition) => {
                let mut arcs = addition.arcs().iter().filter(|arc| considered(arc.0));
                arcs.all(|(_, weights)| weights.iter().all(|weight| !weight.is_negative()))
            }
            _ => true,
        })
    }

    /// The activations of all neurons.
    pub fn activations<T: Number>(&self, inputs: &[T]) -> Result<Vec<T>> {
        if inputs.len() != self.inputs {
            let (expected, found) = (self.inputs, inputs.len());
            return Err(Error::argument(format!(
                "{found} numbers were given, expected {expected}, one an input"
            )));
        }
        let mut activations: Vec<T> = Vec::with_capacity(self.neurons.len());
        let mut given = inputs.iter();
        for (id, neuron) in self.neurons() {
            let activation = match neuron {
                Neuron::Unit => Ok(T::from_rational(&1.into())),
                Neuron::Input => given.next().cloned().ok_or_else(|| Error::argument("an input is missing")),
                Neuron::Addition(addition) => addition.activation(&activations),
                Neuron::Multiplication(product) => product.activation(&activations),
            };
            activations.push(activation.map_err(|error| error.at(self.name(id)))?);
        }
        Ok(activations)
    }

    /// The activations of the outputs.
    pub fn evaluate<T: Number>(&self, inputs: &[T]) -> Result<Vec<T>> {
        let activations = self.activations(inputs)?;
        Ok(self.outputs.iter().map(|output| activations[output.index()].clone()).collect())
    }

    /// For every neuron, whether an output depends on it.
    pub fn needed(&self) -> Vec<bool> {
        self.needed_for(&self.outputs)
    }

    fn needed_for(&self, outputs: &[NeuronId]) -> Vec<bool> {
        let mut needed = vec![false; self.neurons.len()];
        outputs.iter().for_each(|output| needed[output.index()] = true);
        for (id, neuron) in self.neurons().rev() {
            if needed[id.index()] {
                neuron.sources().iter().for_each(|source| needed[source.index()] = true);
            }
        }
        needed
    }

    /// The part of the network that `outputs` depend on; the inputs all stay.
    pub fn restricted(&self, outputs: &[NeuronId]) -> Result<MaxoutNetwork> {
        outputs.iter().try_for_each(|&output| self.known(output, "output"))?;
        let needed = self.needed_for(outputs);
        let mut part = MaxoutNetwork::new(self.inputs().map(|input| self.name(input)))?;
        let mut new: Vec<NeuronId> = Vec::with_capacity(self.neurons.len());
        for (id, neuron) in self.neurons() {
            let copied = match neuron {
                Neuron::Unit | Neuron::Input => id,
                _ if !needed[id.index()] => NeuronId::UNIT,
                Neuron::Addition(addition) => part.addition(self.name(id), &renamed_rows(addition, &new))?,
                Neuron::Multiplication(product) => {
                    let factors = product.factors().iter().map(|&(u, exponent)| (new[u.index()], exponent));
                    part.multiplication(self.name(id), &factors.collect::<Vec<_>>())?
                }
            };
            new.push(copied);
        }
        outputs.iter().try_for_each(|output| part.output(new[output.index()]))?;
        Ok(part)
    }
}

fn renamed_rows(addition: &Addition, new: &[NeuronId]) -> Vec<Form> {
    let renamed = |row: Form| row.into_iter().map(|(u, weight)| (new[u.index()], weight)).collect();
    addition.rows().into_iter().map(renamed).collect()
}

/// Whether a character is allowed in a name, or as its first character.
pub(crate) fn is_name_character(c: char, first: bool) -> bool {
    c.is_alphabetic() || c == '_' || (!first && (c.is_ascii_digit() || matches!(c, '.' | '\'' | '⁺' | '⁻')))
}

/// Reserved words of the text format.
pub(crate) const RESERVED: [&str; 3] = ["input", "output", "max"];

fn check_name(name: &str) -> Result<()> {
    let fits = name.chars().enumerate().all(|(i, c)| is_name_character(c, i == 0));
    if name.is_empty() || name.chars().count() > MAX_NAME || !fits || RESERVED.contains(&name) {
        return Err(Error::argument(format!(
            "'{name}' cannot be the name of a neuron; expected a letter, then letters, digits, '.', '_' and the like, at most {MAX_NAME} of them"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rational::Rational;
    use monosplit_graph::ErrorKind;

    fn form(terms: &[(NeuronId, i64)]) -> Form {
        terms.iter().map(|&(neuron, weight)| (neuron, weight.into())).collect()
    }

    /// `max(x − 2y + 1, 0)·x²`
    fn gate() -> MaxoutNetwork {
        let mut network = MaxoutNetwork::new(["x", "y"]).unwrap();
        let [x, y] = [NeuronId(1), NeuronId(2)];
        let rows = [form(&[(x, 1), (y, -2), (NeuronId::UNIT, 1)]), Form::new()];
        let s = network.addition("s", &rows).unwrap();
        let p = network.multiplication("p", &[(x, 2), (s, 1)]).unwrap();
        network.output(p).unwrap();
        network
    }

    #[test]
    fn both_kinds_of_number_follow_the_definition() {
        let network = gate();
        for x in -4..5i64 {
            for y in -4..5i64 {
                let expected = (x - 2 * y + 1).max(0) * x * x;
                let exact = network.evaluate(&[Rational::from(x), Rational::from(y)]).unwrap();
                assert_eq!(exact, [Rational::from(expected)]);
                assert_eq!(network.evaluate(&[x as f64, y as f64]).unwrap(), [expected as f64]);
            }
        }
    }

    #[test]
    fn signs_of_weights_decide_what_a_network_is_called() {
        let network = gate();
        assert!(!network.is_monotone() && network.is_input_convex());
        let mut deeper = network.clone();
        let p = deeper.find("p").unwrap();
        deeper.addition("negated", &[form(&[(p, -1)])]).unwrap();
        assert!(!deeper.is_input_convex());
    }

    #[test]
    fn a_part_computes_what_it_did_in_the_whole() {
        let mut network = gate();
        let s = network.find("s").unwrap();
        network.addition("aside", &[form(&[(s, 3)])]).unwrap();
        let part = network.restricted(&[s]).unwrap();
        assert_eq!(part.neurons().len(), 4);
        let at = [Rational::from(3), Rational::from(-1)];
        assert_eq!(part.evaluate(&at).unwrap(), [network.activations(&at).unwrap()[s.index()].clone()]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut network = gate();
        let kind = |result: Result<NeuronId>| result.unwrap_err().kind();
        assert_eq!(kind(network.addition("s", &[Form::new()])), ErrorKind::Argument);
        assert_eq!(kind(network.addition("max", &[Form::new()])), ErrorKind::Argument);
        assert_eq!(kind(network.addition("t", &[])), ErrorKind::Argument);
        assert_eq!(kind(network.addition("t", &[form(&[(NeuronId(99), 1)])])), ErrorKind::Argument);
        assert_eq!(kind(network.multiplication("t", &[(NeuronId(1), 65)])), ErrorKind::Unsupported);
        let twice = [(NeuronId(1), u32::MAX), (NeuronId(1), u32::MAX)];
        assert_eq!(kind(network.multiplication("t", &twice)), ErrorKind::Unsupported);
        assert!(network.evaluate(&[1.0]).is_err());
        assert!(MaxoutNetwork::new(["x", "x"]).is_err());
    }

    #[test]
    fn exact_numbers_have_an_end() {
        let mut network = MaxoutNetwork::new(["x"]).unwrap();
        let mut last = NeuronId(1);
        for i in 0..10 {
            last = network.multiplication(format!("p{i}"), &[(last, 64)]).unwrap();
        }
        network.output(last).unwrap();
        let error = network.evaluate(&[Rational::from(3)]).unwrap_err();
        assert_eq!((error.kind(), error.node()), (ErrorKind::Unsupported, Some("p2")));
        assert_eq!(network.evaluate(&[1.0]).unwrap(), [1.0]);
    }
}
