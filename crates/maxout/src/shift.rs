//! Translation of the inputs of a network: the constant is folded into the biases.

use monosplit_graph::Result;

use crate::network::MaxoutNetwork;
use crate::neuron::{Form, Neuron, NeuronId, add_term};
use crate::rational::Rational;

/// The network that does at `x` what `network` does at `x + distance`, all inputs moved by the same distance.
///
/// In an addition neuron the distance becomes bias, `w·(x + C) = w·x + w·C`. Multiplication neurons have no bias, so an input
/// that one of them reads, or that is an output, is given a simple addition neuron `x + C` in between.
pub fn shifted(network: &MaxoutNetwork, distance: &Rational) -> Result<MaxoutNetwork> {
    if distance.is_zero() {
        return Ok(network.clone());
    }
    let mut moved = MaxoutNetwork::new(network.inputs().map(|input| network.name(input)))?;
    let mut new: Vec<NeuronId> = Vec::new();
    let apart = read_apart(network);
    for (id, neuron) in network.neurons() {
        let name = network.name(id);
        new.push(match neuron {
            Neuron::Unit => id,
            Neuron::Input => match apart[id.index()] {
                true => {
                    let form = Form::from([(id, Rational::one()), (NeuronId::UNIT, distance.clone())]);
                    let name = unused(network, &moved, name);
                    moved.addition(name, &[form])?
                }
                false => id,
            },
            Neuron::Addition(addition) => {
                let rows: Vec<Form> =
                    addition.rows().iter().map(|row| shifted_row(network, row, distance, &new)).collect();
                moved.addition(name, &rows)?
            }
            Neuron::Multiplication(product) => {
                let factors: Vec<(NeuronId, u32)> =
                    product.factors().iter().map(|&(u, exponent)| (new[u.index()], exponent)).collect();
                moved.multiplication(name, &factors)?
            }
        });
    }
    network.outputs().iter().try_for_each(|output| moved.output(new[output.index()]))?;
    Ok(moved)
}

fn shifted_row(network: &MaxoutNetwork, row: &Form, distance: &Rational, new: &[NeuronId]) -> Form {
    let mut moved = Form::new();
    for (&source, weight) in row {
        if matches!(network.neuron(source), Neuron::Input) {
            add_term(&mut moved, source, weight);
            add_term(&mut moved, NeuronId::UNIT, &(weight * distance));
        } else {
            add_term(&mut moved, new[source.index()], weight);
        }
    }
    moved
}

/// The inputs that are read by multiplication neurons or are outputs, where there is no bias.
fn read_apart(network: &MaxoutNetwork) -> Vec<bool> {
    let mut apart = vec![false; network.neurons().len()];
    let products = network.neurons().filter(|(_, neuron)| matches!(neuron, Neuron::Multiplication(_)));
    products.flat_map(|(_, neuron)| neuron.sources()).for_each(|source| apart[source.index()] = true);
    network.outputs().iter().for_each(|output| apart[output.index()] = true);
    apart
}

/// A name for the moved input that neither network uses.
fn unused(network: &MaxoutNetwork, moved: &MaxoutNetwork, input: &str) -> String {
    let mut name = moved.free_name(&format!("{input}'"));
    while network.find(&name).is_some() {
        name = moved.free_name(&format!("{name}'"));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    #[test]
    fn the_moved_network_does_there_what_the_other_did_here() {
        let network = parse("input x, y\ns = max(2x - y + 1, x)\nx' = s\np = x^2 * x'\noutput p, y").unwrap();
        for distance in [-3, 0, 2] {
            let moved = shifted(&network, &Rational::from(distance)).unwrap();
            assert_eq!(moved.inputs().len(), 2);
            for x in -3..4i64 {
                for y in -3..4i64 {
                    let here = moved.evaluate(&[x, y].map(Rational::from)).unwrap();
                    let there = network.evaluate(&[x + distance, y + distance].map(Rational::from)).unwrap();
                    assert_eq!(here, there);
                }
            }
        }
    }
}
