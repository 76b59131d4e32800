//! Posynomials: polynomials with positive coefficients. Neurons of monotone networks are maxima of posynomials.

use std::collections::BTreeMap;
use std::fmt;

use crate::number::Number;
use crate::rational::Rational;
use monosplit_graph::{Error, Result};

/// The largest exponent of a variable of a posynomial.
pub const MAX_EXPONENT: u32 = 1 << 16;

/// The largest number of binary digits of a coefficient.
const MAX_COEFFICIENT_BITS: usize = 1 << 12;

/// A product of powers: variables, by their position among the inputs, and exponents of at least 1.
pub type Monomial = BTreeMap<usize, u32>;

/// A sum of monomials with coefficients above zero; the empty sum is 0.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Posynomial(BTreeMap<Monomial, Rational>);

impl Posynomial {
    /// A number, which is not negative.
    pub(crate) fn constant(value: Rational) -> Self {
        Posynomial::default().with(Monomial::new(), value)
    }

    /// One variable.
    pub(crate) fn variable(position: usize) -> Self {
        Posynomial::default().with(Monomial::from([(position, 1)]), Rational::one())
    }

    fn with(mut self, monomial: Monomial, coefficient: Rational) -> Self {
        self.add(monomial, coefficient);
        self
    }

    fn add(&mut self, monomial: Monomial, coefficient: Rational) {
        if !coefficient.is_zero() {
            let slot = self.0.entry(monomial).or_insert_with(Rational::zero);
            *slot = &*slot + &coefficient;
        }
    }

    /// The terms.
    pub fn terms(&self) -> impl ExactSizeIterator<Item = (&Monomial, &Rational)> {
        self.0.iter()
    }

    /// The cost of computing with it: the number of terms, weighted by the length of their coefficients.
    pub(crate) fn size(&self) -> usize {
        self.0.values().map(|coefficient| 1 + coefficient.bits() / 64).sum()
    }

    /// `self + factor·other`, where the factor is not negative.
    pub(crate) fn plus(&self, factor: &Rational, other: &Posynomial) -> Posynomial {
        let mut sum = self.clone();
        other.terms().for_each(|(monomial, c)| sum.add(monomial.clone(), c * factor));
        sum
    }

    /// `self·other`, without the monomials that `vanishes` knows to be zero.
    pub(crate) fn times(
        &self,
        other: &Posynomial,
        vanishes: impl Fn(&Monomial) -> bool,
    ) -> Result<Posynomial> {
        let mut product = Posynomial::default();
        for (a, x) in self.terms() {
            for (b, y) in other.terms() {
                let mut monomial = a.clone();
                for (&variable, &n) in b {
                    let exponent = monomial.entry(variable).or_insert(0);
                    *exponent = exponent.saturating_add(n);
                    if *exponent > MAX_EXPONENT {
                        return Err(Error::unsupported(format!(
                            "a posynomial has an exponent above {MAX_EXPONENT}; expand a smaller network"
                        )));
                    }
                }
                if !vanishes(&monomial) {
                    product.add(monomial, coefficient(x, y)?);
                }
            }
        }
        Ok(product)
    }

    /// Whether no coefficient is larger than that of `other`: then neither is the value, wherever the variables are ≥ 0.
    pub(crate) fn is_dominated_by(&self, other: &Posynomial) -> bool {
        self.0.len() <= other.0.len()
            && self.terms().all(|(monomial, c)| other.0.get(monomial).is_some_and(|d| c <= d))
    }

    /// The value.
    pub fn evaluate<T: Number>(&self, variables: &[T]) -> Result<T> {
        let mut sum = T::from_rational(&Rational::zero());
        for (monomial, coefficient) in self.terms() {
            let mut term = T::from_rational(coefficient);
            for (&variable, &exponent) in monomial {
                term = term.times(&variables[variable].power(exponent)?)?;
            }
            sum = sum.plus(&term)?;
        }
        Ok(sum)
    }

    /// The posynomial written with names for its variables, terms of high degree first.
    pub fn written<'a>(&'a self, names: &'a [String], style: Style) -> impl fmt::Display + 'a {
        Written { posynomial: self, names, style }
    }
}

fn coefficient(x: &Rational, y: &Rational) -> Result<Rational> {
    if x.bits() + y.bits() > MAX_COEFFICIENT_BITS {
        return Err(Error::unsupported(format!(
            "a posynomial has a coefficient of more than {MAX_COEFFICIENT_BITS} binary digits; expand a smaller network"
        )));
    }
    Ok(x * y)
}

/// How formulas are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Style {
    /// `2·x⁺²·y + 1`, as a terminal shows it.
    #[default]
    Text,
    /// `2\,{x^{+}}^{2}\,y + 1`, for LaTeX's mathematical mode.
    Latex,
}

struct Written<'a> {
    posynomial: &'a Posynomial,
    names: &'a [String],
    style: Style,
}

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms: Vec<(&Monomial, &Rational)> = self.posynomial.terms().collect();
        terms.sort_by_key(|(monomial, _)| {
            let degree: u64 = monomial.values().map(|&n| u64::from(n)).sum();
            (
                std::cmp::Reverse(degree),
                monomial.iter().map(|(&v, &n)| (v, std::cmp::Reverse(n))).collect::<Vec<_>>(),
            )
        });
        if terms.is_empty() {
            return f.write_str("0");
        }
        for (i, (monomial, coefficient)) in terms.into_iter().enumerate() {
            f.write_str(if i == 0 { "" } else { " + " })?;
            let mut factors: Vec<String> = Vec::new();
            if !coefficient.is_one() || monomial.is_empty() {
                factors.push(self.style.number(coefficient));
            }
            factors.extend(monomial.iter().map(|(&v, &n)| self.style.power(&self.names[v], n)));
            f.write_str(&factors.join(if self.style == Style::Latex { "\\," } else { "·" }))?;
        }
        Ok(())
    }
}

impl Style {
    fn number(self, value: &Rational) -> String {
        let plain = value.to_string();
        match (self, plain.contains('/')) {
            (Style::Latex, true) => {
                let (top, bottom) = value.parts();
                format!("\\tfrac{{{top}}}{{{bottom}}}")
            }
            _ => plain,
        }
    }

    /// A power of a variable, whose name may itself end in a sign.
    fn power(self, name: &str, exponent: u32) -> String {
        match (self, exponent) {
            (Style::Text, 1) => name.to_owned(),
            (Style::Text, _) => {
                let digits = exponent.to_string();
                let raised = digits.bytes().map(|digit| SUPERSCRIPTS[usize::from(digit - b'0')]);
                let raised: String = raised.collect();
                if name.ends_with(['⁺', '⁻']) {
                    format!("({name}){raised}")
                } else {
                    format!("{name}{raised}")
                }
            }
            (Style::Latex, 1) => self.name(name),
            (Style::Latex, _) => {
                let base = self.name(name);
                let plain = base.chars().all(|c| c.is_ascii_alphanumeric());
                if plain {
                    format!("{base}^{{{exponent}}}")
                } else {
                    format!("\\left({base}\\right)^{{{exponent}}}")
                }
            }
        }
    }

    /// The name of a variable.
    pub(crate) fn name(self, name: &str) -> String {
        if self == Style::Text {
            return name.to_owned();
        }
        let end = name.trim_end_matches(['⁺', '⁻']);
        let signs: String = name[end.len()..].chars().map(|c| if c == '⁺' { '+' } else { '-' }).collect();
        let primes = end.len() - end.trim_end_matches('\'').len();
        let stem = end.trim_end_matches('\'').replace('_', "\\_").replace(['⁺', '⁻'], "");
        let stem = if stem.chars().count() == 1 { stem } else { format!("\\mathrm{{{stem}}}") };
        let above = format!("{}{signs}", "\\prime".repeat(primes));
        if above.is_empty() { stem } else { format!("{stem}^{{{above}}}") }
    }
}

const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Posynomial {
        let [x, y] = [0, 1].map(Posynomial::variable);
        let square = x.times(&x, |_| false).unwrap();
        let half = Rational::ratio(1, 3).unwrap();
        Posynomial::constant(half).plus(&2.into(), &square.times(&y, |_| false).unwrap()).plus(&1.into(), &y)
    }

    #[test]
    fn values_are_those_of_the_formula() {
        for x in 0..5i64 {
            for y in 0..5i64 {
                let expected = Rational::ratio(3 * (2 * x * x * y + y) + 1, 3).unwrap();
                assert_eq!(sample().evaluate(&[Rational::from(x), Rational::from(y)]).unwrap(), expected);
            }
        }
    }

    #[test]
    fn formulas_read_as_people_write_them() {
        let names = ["x⁺".to_owned(), "y".to_owned()];
        assert_eq!(sample().written(&names, Style::Text).to_string(), "2·(x⁺)²·y + y + 1/3");
        let latex = sample().written(&names, Style::Latex).to_string();
        assert_eq!(latex, "2\\,\\left(x^{+}\\right)^{2}\\,y + y + \\tfrac{1}{3}");
        assert_eq!(Posynomial::default().written(&names, Style::Text).to_string(), "0");
        assert_eq!(Style::Latex.name("fc_1'⁻"), "\\mathrm{fc\\_1}^{\\prime-}");
    }

    #[test]
    fn domination_is_by_coefficients() {
        let [x, one] = [Posynomial::variable(0), Posynomial::constant(Rational::one())];
        let both = x.plus(&1.into(), &one);
        assert!(x.is_dominated_by(&both) && one.is_dominated_by(&both) && both.is_dominated_by(&both));
        assert!(!both.is_dominated_by(&x) && !x.is_dominated_by(&one));
    }
}
