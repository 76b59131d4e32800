//! Networks as pictures: DOT for Graphviz, SVG with a layout of our own. What both show of a neuron and an arc is decided here.

mod dot;
mod layout;
mod svg;

use monosplit_graph::{Error, Result};

use crate::network::MaxoutNetwork;
use crate::neuron::{Neuron, NeuronId};
use crate::rational::Rational;

pub use dot::dot;
pub use svg::svg;

/// The largest number of neurons of a drawing.
pub const MAX_DRAWN_NEURONS: usize = 1000;
/// The largest number of arcs of a drawing.
pub const MAX_DRAWN_ARCS: usize = 4000;
/// Weights are written beside arcs if there are at most this many.
const LABELLED_ARCS: usize = 120;

/// The shape of a neuron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Input,
    Addition,
    Multiplication,
}

/// The stream of a neuron, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Plus,
    Minus,
    Neither,
}

struct NeuronBox {
    name: String,
    /// What the neuron computes, in a few characters.
    rule: String,
    shape: Shape,
    stream: Stream,
    output: bool,
}

struct Arrow {
    from: usize,
    to: usize,
    label: String,
    negative: bool,
}

/// Boxes in topological order, and the arrows between them. Biases are part of a box: arcs from one neuron to almost all
/// others would hide the rest.
struct Picture {
    boxes: Vec<NeuronBox>,
    arrows: Vec<Arrow>,
}

impl Picture {
    fn of(network: &MaxoutNetwork) -> Result<Self> {
        let neurons = network.neurons().len() - 1;
        let arcs: usize = network.neurons().map(|(_, neuron)| neuron.sources().len()).sum();
        if neurons > MAX_DRAWN_NEURONS || arcs > MAX_DRAWN_ARCS {
            return Err(Error::unsupported(format!(
                "the network has {neurons} neurons and {arcs} arcs, expected at most {MAX_DRAWN_NEURONS} and {MAX_DRAWN_ARCS} in a picture; draw a smaller one"
            )));
        }
        let labelled = arcs <= LABELLED_ARCS;
        let mut picture = Picture { boxes: Vec::new(), arrows: Vec::new() };
        for (id, neuron) in network.neurons().skip(1) {
            picture.boxes.push(described(network, id, neuron));
            picture.arrows.extend(arrows(id, neuron, labelled));
        }
        Ok(picture)
    }
}

fn described(network: &MaxoutNetwork, id: NeuronId, neuron: &Neuron) -> NeuronBox {
    let name = network.name(id).to_owned();
    let (shape, rule) = match neuron {
        Neuron::Unit | Neuron::Input => (Shape::Input, String::new()),
        Neuron::Multiplication(_) => (Shape::Multiplication, "Π".to_owned()),
        Neuron::Addition(addition) => {
            let sign =
                if addition.rank() == 1 { "Σ".to_owned() } else { format!("max of {}", addition.rank()) };
            let bias = addition.arcs().iter().find(|(source, _)| *source == NeuronId::UNIT);
            (
                Shape::Addition,
                bias.map_or(sign.clone(), |(_, weights)| format!("{sign}, bias {}", listed(weights))),
            )
        }
    };
    let stream = match name.chars().rev().find(|c| matches!(c, '⁺' | '⁻')) {
        Some('⁺') => Stream::Plus,
        Some(_) => Stream::Minus,
        None => Stream::Neither,
    };
    NeuronBox { name, rule, shape, stream, output: network.outputs().contains(&id) }
}

fn arrows(id: NeuronId, neuron: &Neuron, labelled: bool) -> Vec<Arrow> {
    let arrow = |from: NeuronId, label: String, negative: bool| Arrow {
        from: from.index() - 1,
        to: id.index() - 1,
        label: if labelled { label } else { String::new() },
        negative,
    };
    match neuron {
        Neuron::Unit | Neuron::Input => Vec::new(),
        Neuron::Addition(addition) => {
            let arcs = addition.arcs().iter().filter(|(source, _)| *source != NeuronId::UNIT);
            let plain = |weights: &[Rational]| weights.len() == 1 && weights[0].is_one();
            arcs.map(|(source, weights)| {
                let label = if plain(weights) { String::new() } else { listed(weights) };
                arrow(*source, label, weights.iter().any(Rational::is_negative))
            })
            .collect()
        }
        Neuron::Multiplication(product) => {
            let label = |exponent: u32| if exponent == 1 { String::new() } else { format!("^{exponent}") };
            product
                .factors()
                .iter()
                .map(|&(source, exponent)| arrow(source, label(exponent), false))
                .collect()
        }
    }
}

/// Weights in a few characters.
fn listed(weights: &[Rational]) -> String {
    const SHOWN: usize = 4;
    let mut numbers: Vec<String> = weights.iter().take(SHOWN).map(short).collect();
    if weights.len() > SHOWN {
        numbers.push("…".to_owned());
    }
    if numbers.len() == 1 { numbers.remove(0) } else { format!("({})", numbers.join(", ")) }
}

fn short(weight: &Rational) -> String {
    let exact = weight.to_string();
    let text = if exact.len() <= 5 { exact } else { format!("{:.3}", weight.to_f64()) };
    let text = if text.len() <= 9 { text } else { format!("{:.1e}", weight.to_f64()) };
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    #[test]
    fn both_languages_show_every_neuron_and_every_arc_between_neurons() {
        let network = parse("input x, y\ns = max(2x - y + 1/2, 0)\nf = x^2 * s\noutput f").unwrap();
        let (svg, dot) = (svg(&network).unwrap(), dot(&network).unwrap());
        for name in ["x", "y", "s", "f"] {
            assert!(svg.contains(&format!(">{name}</text>")) && dot.contains(&format!("label=\"{name}")));
        }
        assert_eq!((svg.matches("marker-end").count(), dot.matches(" -> ").count()), (4, 4));
        assert_eq!(
            (svg.matches("url(#negative)").count(), dot.matches("color=\"#c0392b\", ").count()),
            (1, 1)
        );
        for opened in ["<svg", "<text", "<defs>"] {
            let closed = opened.replace('<', "</").replace('>', "") + ">";
            assert_eq!(svg.matches(opened).count(), svg.matches(&closed).count(), "{opened}");
        }
    }

    #[test]
    fn a_network_without_neurons_has_a_picture() {
        let network = parse("input x\noutput x").unwrap();
        assert!(svg(&network).unwrap().contains(">x</text>") && dot(&network).unwrap().contains("n0"));
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let many: String = (0..=MAX_DRAWN_NEURONS).map(|i| format!("v{i} = x\n")).collect();
        let network = parse(&format!("input x\n{many}output v0")).unwrap();
        assert!(svg(&network).unwrap_err().to_string().contains("smaller"));
        assert!(dot(&network).is_err());
    }
}
