//! The constructive proof of the paper's theorem as code: a network becomes one with two streams, every neuron a pair of
//! neurons whose difference it is, without a negative weight. It must not simplify what it reads; it leaves out only
//! streams that are zero by construction.

use monosplit_graph::{Error, Result};

use crate::network::MaxoutNetwork;
use crate::neuron::{Addition, Form, Multiplication, Neuron, NeuronId, add_term};
use crate::product::{ProductDecomposition, multiplied_out, polarised};
use crate::rational::Rational;
use crate::shift::shifted;

/// The inputs of the streams.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Inputs {
    /// `x⁺ = max(x, 0)` and `x⁻ = max(−x, 0)`, two addition neurons of rank 2: `g` and `h` are input-convex networks.
    #[default]
    Rectified,
    /// `x⁺` and `x⁻` are inputs of the networks: the paper's `g'` and `h'`, monotone networks.
    Streams,
    /// Inputs are not split. The network is seen from `−C`, split with `x⁻ = 0`, and moved back, which leaves the constant in
    /// the biases: `g` and `h` are monotone networks in `x`, and functions that never decrease on `x ≥ −C`.
    Shifted(Rational),
}

/// How a network is split.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SplitOptions {
    /// The inputs of the streams.
    pub inputs: Inputs,
    /// How multiplication neurons are decomposed.
    pub products: ProductDecomposition,
}

impl SplitOptions {
    /// The same with other inputs.
    #[must_use]
    pub fn inputs(self, inputs: Inputs) -> Self {
        SplitOptions { inputs, ..self }
    }

    /// The same with another decomposition of products.
    #[must_use]
    pub fn products(self, products: ProductDecomposition) -> Self {
        SplitOptions { products, ..self }
    }
}

/// A network `f` as a difference, `f = g − h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecomposedNetwork {
    /// Both streams in one network, which share most neurons. The outputs are `g₁, h₁, g₂, h₂, …` for the outputs of `f`.
    pub both: MaxoutNetwork,
    /// The first stream alone.
    pub g: MaxoutNetwork,
    /// The second stream alone.
    pub h: MaxoutNetwork,
}

impl DecomposedNetwork {
    /// `g − h` at a point.
    pub fn difference(&self, inputs: &[Rational]) -> Result<Vec<Rational>> {
        let both = self.both.evaluate(inputs)?;
        Ok(both.chunks_exact(2).map(|pair| &pair[0] - &pair[1]).collect())
    }
}

/// Splits a network, neuron by neuron in topological order. Addition neurons follow the paper's formula: with
/// `w_i = a_i − b_i`, `v⁺ = max_i Σ_u (a_i + Σ_(j≠i) b_j)·u` and `v⁻ = Σ_u Σ_j b_j·u`.
pub fn split(network: &MaxoutNetwork, options: &SplitOptions) -> Result<DecomposedNetwork> {
    if network.outputs().is_empty() {
        return Err(Error::argument("the network has no output, so there is nothing to split; name one"));
    }
    let both = match &options.inputs {
        Inputs::Shifted(constant) if constant.is_negative() => {
            return Err(Error::argument(format!("the constant C is {constant}, expected a number ≥ 0")));
        }
        Inputs::Shifted(constant) => {
            let seen = shifted(network, &-constant)?;
            shifted(&Splitting::run(&seen, options)?, constant)?
        }
        Inputs::Rectified | Inputs::Streams => Splitting::run(network, options)?,
    };
    let stream =
        |first: usize| -> Vec<NeuronId> { both.outputs().iter().skip(first).step_by(2).copied().collect() };
    let (g, h) = (both.restricted(&stream(0))?, both.restricted(&stream(1))?);
    Ok(DecomposedNetwork { both, g, h })
}

/// The two neurons a neuron is the difference of; one that is zero by construction is left out.
#[derive(Clone, Copy, Default)]
struct Pair {
    plus: Option<NeuronId>,
    minus: Option<NeuronId>,
}

/// The state of a split.
struct Splitting<'a> {
    source: &'a MaxoutNetwork,
    products: ProductDecomposition,
    target: MaxoutNetwork,
    pairs: Vec<Pair>,
}

impl<'a> Splitting<'a> {
    fn run(source: &'a MaxoutNetwork, options: &SplitOptions) -> Result<MaxoutNetwork> {
        let names = source.inputs().map(|input| source.name(input));
        let inputs: Vec<String> = match options.inputs {
            Inputs::Streams => names.flat_map(|name| [format!("{name}⁺"), format!("{name}⁻")]).collect(),
            Inputs::Rectified | Inputs::Shifted(_) => names.map(str::to_owned).collect(),
        };
        let target = MaxoutNetwork::new(inputs)?;
        let mut splitting = Splitting { source, products: options.products, target, pairs: Vec::new() };
        for (id, neuron) in source.neurons() {
            let pair = match neuron {
                // One is positive and needs no other half.
                Neuron::Unit => Pair { plus: Some(id), minus: None },
                Neuron::Input => splitting.input(id, &options.inputs)?,
                Neuron::Addition(addition) => splitting.addition(id, addition)?,
                Neuron::Multiplication(product) => {
                    splitting.multiplication(id, product).map_err(|error| error.at(source.name(id)))?
                }
            };
            splitting.pairs.push(pair);
        }
        splitting.finish()
    }

    fn name(&self, id: NeuronId, ending: &str) -> String {
        self.target.free_name(&format!("{}{ending}", self.source.name(id)))
    }

    fn input(&mut self, id: NeuronId, inputs: &Inputs) -> Result<Pair> {
        let mut rectified = |ending: &str, weight: i64| {
            let name = self.name(id, ending);
            self.target.addition(name, &[Form::from([(id, weight.into())]), Form::new()]).map(Some)
        };
        Ok(match inputs {
            Inputs::Rectified => Pair { plus: rectified("⁺", 1)?, minus: rectified("⁻", -1)? },
            Inputs::Streams => {
                let first = 2 * (id.0 - 1) + 1;
                Pair { plus: Some(NeuronId(first)), minus: Some(NeuronId(first + 1)) }
            }
            Inputs::Shifted(_) => Pair { plus: Some(id), minus: None },
        })
    }

    fn addition(&mut self, id: NeuronId, addition: &Addition) -> Result<Pair> {
        let mut plus = vec![Form::new(); addition.rank()];
        let mut minus = Form::new();
        for (source, weights) in addition.arcs() {
            let pair = self.pairs[source.index()];
            for (stream, flipped) in [(pair.plus, false), (pair.minus, true)] {
                let Some(stream) = stream else { continue };
                let weights: Vec<Rational> =
                    weights.iter().map(|w| if flipped { -w } else { w.clone() }).collect();
                // Σ_j b_j; and a_i + Σ_(j≠i) b_j is w_i more than that.
                let negative = weights.iter().fold(Rational::zero(), |sum, w| &sum + &(-w).positive_part());
                add_term(&mut minus, stream, &negative);
                for (row, weight) in plus.iter_mut().zip(&weights) {
                    add_term(row, stream, &(weight + &negative));
                }
            }
        }
        Ok(Pair { plus: self.sum(id, "⁺", &plus)?, minus: self.sum(id, "⁻", &[minus])? })
    }

    /// An addition neuron, unless it would be zero.
    fn sum(&mut self, id: NeuronId, ending: &str, rows: &[Form]) -> Result<Option<NeuronId>> {
        if rows.iter().all(|row| row.values().all(Rational::is_zero)) {
            return Ok(None);
        }
        let name = self.name(id, ending);
        self.target.addition(name, rows).map(Some)
    }

    fn multiplication(&mut self, id: NeuronId, product: &Multiplication) -> Result<Pair> {
        let exponents: Vec<u32> = product.factors().iter().map(|&(_, exponent)| exponent).collect();
        let streams: Vec<Option<NeuronId>> = product
            .factors()
            .iter()
            .flat_map(|&(source, _)| [self.pairs[source.index()].plus, self.pairs[source.index()].minus])
            .collect();
        let mut monomials = multiplied_out(&exponents)?;
        monomials
            .retain(|(powers, _)| powers.iter().zip(&streams).all(|(&p, stream)| p == 0 || stream.is_some()));
        let mut sides = [Form::new(), Form::new()];
        match self.products {
            ProductDecomposition::Binomial => {
                for (powers, coefficient) in monomials {
                    let factors = present(&powers, &streams);
                    self.summand(id, &mut sides, &coefficient, |target, name| {
                        target.multiplication(name, &factors)
                    })?;
                }
            }
            ProductDecomposition::Powers => {
                let degree = product.degree() as u32;
                for (i, (multiples, coefficient)) in polarised(&monomials, degree)?.into_iter().enumerate() {
                    let base = self.base(id, i, &present(&multiples, &streams))?;
                    self.summand(id, &mut sides, &coefficient, |target, name| {
                        target.multiplication(name, &[(base, degree)])
                    })?;
                }
            }
        }
        let [plus, minus] = sides;
        Ok(Pair { plus: self.collected(id, "⁺", plus)?, minus: self.collected(id, "⁻", minus)? })
    }

    /// Adds a neuron to the stream given by the sign of its coefficient.
    fn summand(
        &mut self,
        id: NeuronId,
        sides: &mut [Form; 2],
        coefficient: &Rational,
        build: impl FnOnce(&mut MaxoutNetwork, String) -> Result<NeuronId>,
    ) -> Result<()> {
        let side = usize::from(coefficient.is_negative());
        let name = self.name(id, &format!("{}.{}", ["⁺", "⁻"][side], sides[side].len() + 1));
        let neuron = build(&mut self.target, name)?;
        add_term(&mut sides[side], neuron, &coefficient.magnitude());
        Ok(())
    }

    /// The sum that is raised to a power; a single stream is one already.
    fn base(&mut self, id: NeuronId, serial: usize, multiples: &[(NeuronId, u32)]) -> Result<NeuronId> {
        if let [(stream, 1)] = multiples {
            return Ok(*stream);
        }
        let form = multiples.iter().map(|&(stream, n)| (stream, i64::from(n).into())).collect();
        let name = self.name(id, &format!(".{}", serial + 1));
        self.target.addition(name, &[form])
    }

    /// The collecting addition neuron. The paper's has weights 1; the binomial coefficients, for which multiplication
    /// neurons have no room, are its weights here.
    fn collected(&mut self, id: NeuronId, ending: &str, summands: Form) -> Result<Option<NeuronId>> {
        self.sum(id, ending, &[summands])
    }

    fn finish(mut self) -> Result<MaxoutNetwork> {
        for &output in self.source.outputs() {
            let pair = self.pairs[output.index()];
            for (stream, ending) in [(pair.plus, "⁺"), (pair.minus, "⁻")] {
                let neuron = match stream {
                    Some(neuron) => neuron,
                    None => {
                        let name = self.name(output, ending);
                        self.target.addition(name, &[Form::new()])?
                    }
                };
                self.target.output(neuron)?;
            }
        }
        Ok(self.target)
    }
}

/// The variables with an exponent, and the streams they stand for.
fn present(exponents: &[u32], streams: &[Option<NeuronId>]) -> Vec<(NeuronId, u32)> {
    let both = streams.iter().zip(exponents).filter(|&(_, &exponent)| exponent > 0);
    both.filter_map(|(stream, &exponent)| stream.map(|stream| (stream, exponent))).collect()
}
