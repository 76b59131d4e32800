//! The size of a network, and bounds on the size of the two networks of its split.

use crate::network::MaxoutNetwork;
use crate::neuron::{Neuron, NeuronId};
use crate::product::{ProductDecomposition, combinations};
use crate::split::{Inputs, SplitOptions};

/// Numbers of neurons and arcs. The neuron of constant activation 1 counts as an input where it is read. An arc counts once,
/// however many weights it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// Input neurons.
    pub inputs: usize,
    /// Addition neurons.
    pub additions: usize,
    /// Multiplication neurons.
    pub multiplications: usize,
    /// Arcs.
    pub arcs: usize,
    /// The largest rank of an addition neuron.
    pub rank: usize,
}

impl Counts {
    /// The counts of a network.
    pub fn of(network: &MaxoutNetwork) -> Self {
        let mut counts = Counts { inputs: network.inputs().len(), ..Counts::default() };
        let mut biased = false;
        for (_, neuron) in network.neurons() {
            let sources = neuron.sources();
            counts.arcs += sources.len();
            biased |= sources.contains(&NeuronId::UNIT);
            match neuron {
                Neuron::Addition(addition) => {
                    counts.additions += 1;
                    counts.rank = counts.rank.max(addition.rank());
                }
                Neuron::Multiplication(_) => counts.multiplications += 1,
                Neuron::Unit | Neuron::Input => {}
            }
        }
        counts.inputs += usize::from(biased);
        counts
    }

    /// Number of neurons.
    pub fn neurons(&self) -> usize {
        self.inputs + self.additions + self.multiplications
    }
}

/// Upper bounds on the neurons and arcs of a split.
///
/// Let `p_v` be the number of pieces of a multiplication neuron `v` with exponents `w`: `Π (w + 1)` multiplied out, of
/// multiplication neurons; `Π (w + 1)(w + 2)/2` as powers, of pairs of an addition and a multiplication neuron. With `d_v` arcs
/// into `v`, the two streams together have at most
///
/// | for every | neurons | arcs |
/// |---|---|---|
/// | input | 3 | 2 (3 if shifted) |
/// | addition neuron | 2 | `4·d_v` (and 2 if shifted) |
/// | multiplication neuron | `2 + p_v`, as powers `2 + 2·p_v` | `p_v·(2·d_v + 1)`, as powers `p_v·(2·d_v + 2)` |
///
/// which is linear in the size of the network as long as `p_v` is bounded. The paper asks for a bounded number of inputs of
/// every multiplication neuron; for that to be enough, an input counts as often as its exponent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    /// Upper bound on the neurons.
    pub neurons: usize,
    /// Upper bound on the arcs.
    pub arcs: usize,
    /// A number `c` for which a network of `n` neurons has at most `c·n` after splitting.
    pub factor: usize,
}

impl Bound {
    /// The bound for a network.
    pub fn of(network: &MaxoutNetwork, options: &SplitOptions) -> Self {
        let shifted = matches!(&options.inputs, Inputs::Shifted(constant) if !constant.is_zero());
        let inputs = Counts::of(network).inputs + usize::from(shifted && !is_biased(network));
        let mut bound = Bound { neurons: 3 * inputs, arcs: (2 + usize::from(shifted)) * inputs, factor: 3 };
        for (_, neuron) in network.neurons() {
            let (neurons, arcs) = match neuron {
                Neuron::Unit | Neuron::Input => continue,
                Neuron::Addition(addition) => (2, 4 * addition.arcs().len() + 2 * usize::from(shifted)),
                Neuron::Multiplication(product) => {
                    let (exponents, read) =
                        (product.factors().iter().map(|factor| factor.1), product.factors().len());
                    match options.products {
                        ProductDecomposition::Binomial => {
                            let pieces = combinations(exponents, 1);
                            (pieces.saturating_add(2), pieces.saturating_mul(2 * read + 1))
                        }
                        ProductDecomposition::Powers => {
                            let pieces = combinations(exponents, 2);
                            (pieces.saturating_mul(2).saturating_add(2), pieces.saturating_mul(2 * read + 2))
                        }
                    }
                }
            };
            bound.neurons = bound.neurons.saturating_add(neurons);
            bound.arcs = bound.arcs.saturating_add(arcs);
            bound.factor = bound.factor.max(neurons);
        }
        bound
    }

    /// Whether a network is within the bound.
    pub fn holds(&self, counts: &Counts) -> bool {
        counts.neurons() <= self.neurons && counts.arcs <= self.arcs
    }
}

fn is_biased(network: &MaxoutNetwork) -> bool {
    network.neurons().any(|(_, neuron)| neuron.sources().contains(&NeuronId::UNIT))
}
