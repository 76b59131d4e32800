//! The theorem "maximum of posynomials" as code: the function of a monotone network as a list of posynomials. The list can be
//! exponentially long, so its size is checked while it is built.

use std::fmt;

use monosplit_graph::{Error, Result};

use crate::network::MaxoutNetwork;
use crate::neuron::{Addition, Multiplication, Neuron, NeuronId};
use crate::number::Number;
use crate::posynomial::{Monomial, Posynomial, Style};
use crate::rational::Rational;
use crate::shift::shifted;
use crate::split::{Inputs, SplitOptions, split};

/// The largest number of posynomials of a neuron.
pub const MAX_POSYNOMIALS: usize = 512;
/// The largest number of terms of a posynomial.
pub const MAX_TERMS: usize = 4096;
/// The largest number of steps in all, of about one term each.
const MAX_WORK: usize = 1 << 22;

/// The outputs of a monotone network as maxima of posynomials, for inputs ≥ 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion {
    /// Names of the variables.
    pub variables: Vec<String>,
    /// For every output, its name and its posynomials: none twice, and none that another one dominates term by term.
    pub outputs: Vec<(String, Vec<Posynomial>)>,
}

/// Which products of variables are known to be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Variables {
    /// None: the variables are any numbers ≥ 0.
    #[default]
    Free,
    /// Every first and second variable are `x⁺ = max(x, 0)` and `x⁻ = max(−x, 0)`, of which one is always zero.
    Streams,
}

impl Expansion {
    /// Expands a network without negative weights.
    pub fn of(network: &MaxoutNetwork, variables: Variables) -> Result<Self> {
        if !network.is_monotone() {
            return Err(Error::argument(
                "the network has negative weights, expected a monotone one; split it and expand the streams",
            ));
        }
        let needed = network.needed();
        let mut work = Work { left: MAX_WORK, variables };
        let mut lists: Vec<Vec<Posynomial>> = Vec::with_capacity(needed.len());
        for (id, neuron) in network.neurons() {
            let list = match neuron {
                _ if !needed[id.index()] => Ok(Vec::new()),
                Neuron::Unit => Ok(vec![Posynomial::constant(Rational::one())]),
                Neuron::Input => Ok(vec![Posynomial::variable(id.index() - 1)]),
                Neuron::Addition(addition) => work.addition(addition, &lists),
                Neuron::Multiplication(product) => work.multiplication(product, &lists),
            };
            lists.push(list.map_err(|error| error.at(network.name(id)))?);
        }
        let output = |&id: &NeuronId| (network.name(id).to_owned(), lists[id.index()].clone());
        Ok(Expansion {
            variables: network.inputs().map(|input| network.name(input).to_owned()).collect(),
            outputs: network.outputs().iter().map(output).collect(),
        })
    }

    /// Expands both streams of a split, `g₁, h₁, g₂, h₂, …`. The variables are the streams of the inputs, `x⁺` and `x⁻`; if
    /// they are not split, the inputs seen from `−C`, `x' = x + C`.
    pub fn of_split(network: &MaxoutNetwork, options: &SplitOptions) -> Result<Self> {
        if let Inputs::Shifted(constant) = &options.inputs {
            let unmoved = options.clone().inputs(Inputs::Shifted(Rational::zero()));
            let pair = split(&shifted(network, &-constant)?, &unmoved)?;
            let mut expansion = Expansion::of(&pair.both, Variables::Free)?;
            if !constant.is_zero() {
                expansion.variables.iter_mut().for_each(|name| name.push('\''));
            }
            return Ok(expansion);
        }
        let pair = split(network, &options.clone().inputs(Inputs::Streams))?;
        Expansion::of(&pair.both, Variables::Streams)
    }

    /// The largest posynomial of every output at a point.
    pub fn evaluate<T: Number>(&self, variables: &[T]) -> Result<Vec<T>> {
        if variables.len() != self.variables.len() {
            let (expected, found) = (self.variables.len(), variables.len());
            return Err(Error::argument(format!("{found} numbers were given, expected {expected}")));
        }
        let largest = |list: &[Posynomial]| -> Result<T> {
            let mut most = T::from_rational(&Rational::zero());
            for posynomial in list {
                let value = posynomial.evaluate(variables)?;
                most = if value > most { value } else { most };
            }
            Ok(most)
        };
        self.outputs.iter().map(|(_, list)| largest(list)).collect()
    }

    /// All outputs as formulas.
    pub fn written(&self, style: Style) -> impl fmt::Display + '_ {
        Formulas { expansion: self, style }
    }
}

struct Work {
    left: usize,
    variables: Variables,
}

impl Work {
    fn spend(&mut self, terms: usize) -> Result<()> {
        self.left = self.left.checked_sub(terms).ok_or_else(|| {
            Error::unsupported(
                "multiplying out takes too long; expand a smaller network, or one of its neurons",
            )
        })?;
        Ok(())
    }

    /// `max_i Σ_u w_i·max(P_u) = max` over `i` and one `P_u` for every `u` of `Σ_u w_i·P_u`.
    fn addition(&mut self, addition: &Addition, lists: &[Vec<Posynomial>]) -> Result<Vec<Posynomial>> {
        let mut all = Vec::new();
        for row in addition.rows() {
            let mut sums = vec![Posynomial::default()];
            for (source, weight) in &row {
                let list = &lists[source.index()];
                sums = self.pairs(&sums, list, |a, b| Ok(a.plus(weight, b)), |a, b| a + b)?;
            }
            for sum in sums {
                self.keep(&mut all, sum)?;
            }
        }
        Ok(all)
    }

    /// `Π max(P_u) = max` over one `P_u` for every factor of `Π P_u`, as all of them are ≥ 0.
    fn multiplication(
        &mut self,
        product: &Multiplication,
        lists: &[Vec<Posynomial>],
    ) -> Result<Vec<Posynomial>> {
        let streams = self.variables == Variables::Streams;
        let vanishes = |monomial: &Monomial| {
            streams && monomial.keys().any(|&v| v % 2 == 0 && monomial.contains_key(&(v + 1)))
        };
        let mut products = vec![Posynomial::constant(Rational::one())];
        for &(source, exponent) in product.factors() {
            // max(P, Q)² is max(P², Q²): the powers of a list are those of its members.
            let mut powers = Vec::new();
            for posynomial in &lists[source.index()] {
                let mut power = vec![Posynomial::constant(Rational::one())];
                for _ in 0..exponent {
                    let one = std::slice::from_ref(posynomial);
                    power = self.pairs(&power, one, |a, b| a.times(b, vanishes), |a, b| a * b)?;
                }
                powers.extend(power);
            }
            products = self.pairs(&products, &powers, |a, b| a.times(b, vanishes), |a, b| a * b)?;
        }
        self.undominated(products)
    }

    /// Every member of one list with every member of the other.
    fn pairs(
        &mut self,
        first: &[Posynomial],
        second: &[Posynomial],
        join: impl Fn(&Posynomial, &Posynomial) -> Result<Posynomial>,
        cost: impl Fn(usize, usize) -> usize,
    ) -> Result<Vec<Posynomial>> {
        let mut joined = Vec::new();
        for a in first {
            for b in second {
                self.spend(cost(a.size(), b.size()).saturating_add(1))?;
                let new = join(a, b)?;
                if new.terms().len() > MAX_TERMS {
                    return Err(Error::unsupported(format!(
                        "a posynomial has more than {MAX_TERMS} terms; expand a smaller network"
                    )));
                }
                joined.push(new);
            }
        }
        self.undominated(joined)
    }

    /// The list without members that another member dominates term by term.
    fn undominated(&mut self, list: Vec<Posynomial>) -> Result<Vec<Posynomial>> {
        let mut kept: Vec<Posynomial> = Vec::new();
        for new in list {
            self.keep(&mut kept, new)?;
        }
        Ok(kept)
    }

    /// Adds a member to such a list unless another dominates it, and removes those that it dominates.
    fn keep(&mut self, kept: &mut Vec<Posynomial>, new: Posynomial) -> Result<()> {
        self.spend(kept.len())?;
        if kept.iter().any(|old| new.is_dominated_by(old)) {
            return Ok(());
        }
        kept.retain(|old| !old.is_dominated_by(&new));
        kept.push(new);
        if kept.len() > MAX_POSYNOMIALS {
            return Err(Error::unsupported(format!(
                "this is the largest of more than {MAX_POSYNOMIALS} posynomials; expand a smaller network"
            )));
        }
        Ok(())
    }
}

struct Formulas<'a> {
    expansion: &'a Expansion,
    style: Style,
}

impl fmt::Display for Formulas<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, list) in &self.expansion.outputs {
            let written = list.iter().map(|p| p.written(&self.expansion.variables, self.style).to_string());
            let formulas: Vec<String> = written.collect();
            let name = self.style.name(name);
            match (self.style, &formulas[..]) {
                (_, []) => writeln!(f, "{name} = 0")?,
                (_, [only]) => writeln!(f, "{name} = {only}")?,
                (Style::Text, several) => writeln!(f, "{name} = max(\n  {}\n)", several.join(",\n  "))?,
                (Style::Latex, several) => writeln!(
                    f,
                    "{name} = \\max\\left\\{{\\begin{{array}}{{l}}\n  {}\n\\end{{array}}\\right\\}}",
                    several.join(",\\\\\n  ")
                )?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    fn expanded(text: &str) -> Expansion {
        Expansion::of(&parse(text).unwrap(), Variables::Free).unwrap()
    }

    #[test]
    fn maxima_are_closed_under_sums_and_products() {
        let expansion = expanded(
            "input x, y\n\
             s = max(2x + 1, y)\n\
             t = max(x, 3)\n\
             p = s * t\n\
             output p",
        );
        let text = expansion.written(Style::Text).to_string();
        assert_eq!(text, "p = max(\n  2·x² + x,\n  6·x + 3,\n  x·y,\n  3·y\n)\n");
    }

    #[test]
    fn what_is_never_largest_is_left_out() {
        let expansion = expanded("input x, y\ns = max(x, x + y, y, x + y, 2 x + y)\noutput s");
        assert_eq!(expansion.written(Style::Text).to_string(), "s = 2·x + y\n");
        assert_eq!(expanded("input x\ns = max(0, 0)\noutput s").written(Style::Text).to_string(), "s = 0\n");
    }

    #[test]
    fn growth_is_stopped_with_a_word() {
        let mut text = String::from("input x, y\nv0 = max(x, y + 1)\n");
        for i in 0..40 {
            text += &format!("u{i} = max(v{i} + 2 x, 2 y, v{i} + 3)\nv{} = u{i} * v{i}\n", i + 1);
        }
        let error = Expansion::of(&parse(&(text + "output v40")).unwrap(), Variables::Free).unwrap_err();
        assert_eq!(error.kind(), monosplit_graph::ErrorKind::Unsupported);
        assert!(error.node().is_some());
        let wide: String = (0..20).map(|i| format!("input x{i}, y{i}\n")).collect();
        let maxima: String = (0..20).map(|i| format!("v{i} = max(x{i}, y{i})\n")).collect();
        let sum: Vec<String> = (0..20).map(|i| format!("v{i}")).collect();
        let text = format!("{wide}{maxima}s = {}\noutput s", sum.join(" + "));
        assert!(Expansion::of(&parse(&text).unwrap(), Variables::Free).is_err());
    }

    #[test]
    fn negative_weights_are_refused() {
        let network = parse("input x\ns = max(-x, 0)\noutput s").unwrap();
        assert!(Expansion::of(&network, Variables::Free).unwrap_err().to_string().contains("split"));
    }

    #[test]
    fn a_maximum_of_as_many_lines_as_there_may_be_is_expanded() {
        let rows: Vec<String> =
            (1..=MAX_POSYNOMIALS).map(|i| format!("{i} x + {} y", MAX_POSYNOMIALS - i)).collect();
        let network = parse(&format!("input x, y\nf = max({})\noutput f\n", rows.join(", "))).unwrap();
        let expansion = Expansion::of(&network, Variables::Free).unwrap();
        assert_eq!(expansion.outputs[0].1.len(), MAX_POSYNOMIALS);
    }
}
