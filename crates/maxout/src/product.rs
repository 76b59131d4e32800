//! A product of differences, `Π (u⁺ − u⁻)^w`, as a difference of two sums with positive coefficients: of products, as the paper
//! does it, or of powers of sums, which are convex.

use std::collections::BTreeMap;

use monosplit_graph::{Error, Result};

use crate::rational::Rational;

/// How multiplication neurons are decomposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ProductDecomposition {
    /// Multiplied out by the binomial theorem, one multiplication neuron a summand: the paper's proof.
    ///
    /// The streams are the largest of posynomials. Those never decrease where their variables are ≥ 0, and are convex along
    /// every line on which all variables grow together. But a product of two variables is not convex (`xy` is 0 at `(2, 0)`
    /// and at `(0, 2)` and 1 between them), so the streams are sure to be convex in all directions only if no multiplication
    /// neuron mixes two inputs.
    #[default]
    Binomial,
    /// The same, and every summand of degree d written as a sum of d-th powers of sums by the polarisation identity,
    /// `Π u_i^(e_i) = 1/d!·Σ_(0≤q≤e) (−1)^(d−|q|)·Π binomial(e_i, q_i)·(Σ q_i·u_i)^d`.
    ///
    /// A power of a non-negative convex function is convex, so these streams are convex in all directions.
    Powers,
}

/// A multiplication neuron may fall apart into this many pieces.
pub const MAX_SUMMANDS: usize = 1 << 12;

/// Exponents, one a variable.
pub(crate) type Exponents = Vec<u32>;

/// `binomial(n, k)` for `n ≤` [`crate::network::MAX_DEGREE`]` + 3`.
pub(crate) fn binomial(n: u32, k: u32) -> u128 {
    (0..k.min(n - k)).fold(1, |product, i| product * u128::from(n - i) / u128::from(i + 1))
}

/// `Π binomial(w + extra, extra)` over the exponents, without end where it is too large to matter.
pub(crate) fn combinations(exponents: impl IntoIterator<Item = u32>, extra: u32) -> usize {
    exponents.into_iter().fold(1usize, |product, w| {
        product.saturating_mul(usize::try_from(binomial(w + extra, extra)).unwrap_or(usize::MAX))
    })
}

/// The summands of `Π_i (u_i⁺ − u_i⁻)^(w_i)`: exponents of `u_0⁺, u_0⁻, u_1⁺, …` and coefficients with their sign.
pub(crate) fn multiplied_out(exponents: &[u32]) -> Result<Vec<(Exponents, Rational)>> {
    check_size(combinations(exponents.iter().copied(), 1))?;
    let summand = |q: &Exponents| {
        let mut powers = Exponents::with_capacity(2 * exponents.len());
        let mut coefficient = Rational::one();
        for (&w, &q) in exponents.iter().zip(q) {
            powers.extend([w - q, q]);
            coefficient = &coefficient * &Rational::whole(binomial(w, q));
        }
        (powers, with_sign(coefficient, q.iter().sum::<u32>() % 2 == 1))
    };
    Ok(up_to(exponents).iter().map(summand).collect())
}

/// A sum of monomials of degree `degree` as a sum of `degree`-th powers: which multiples of the variables are added up, and
/// the coefficient of the power, never zero.
pub(crate) fn polarised(
    monomials: &[(Exponents, Rational)],
    degree: u32,
) -> Result<BTreeMap<Exponents, Rational>> {
    let work = |(powers, _): &(Exponents, Rational)| combinations(powers.iter().copied(), 1);
    // Most powers are met several times on the way.
    check_size(monomials.iter().map(work).fold(0, usize::saturating_add) / 16)?;
    let factorial = (1..=degree).fold(Rational::one(), |product, n| &product * &i64::from(n).into());
    let mut powers: BTreeMap<Exponents, Rational> = BTreeMap::new();
    for (exponents, coefficient) in monomials {
        let coefficient = coefficient.over(&factorial).unwrap_or_else(Rational::zero);
        for q in up_to(exponents).into_iter().filter(|q| q.iter().any(|&n| n > 0)) {
            let mut share = coefficient.clone();
            for (&e, &q) in exponents.iter().zip(&q) {
                share = &share * &Rational::whole(binomial(e, q));
            }
            // (t·u)^d = t^d·u^d, so multiples of one sum are the same sum.
            let divisor = q.iter().fold(0, |a, &b| common_divisor(a, b));
            share = &share * &Rational::from(i64::from(divisor)).power(degree);
            let share = with_sign(share, (degree - q.iter().sum::<u32>()) % 2 == 1);
            let sum = powers.entry(q.iter().map(|n| n / divisor).collect()).or_insert_with(Rational::zero);
            *sum = &*sum + &share;
        }
    }
    powers.retain(|_, coefficient| !coefficient.is_zero());
    check_size(powers.len())?;
    Ok(powers)
}

fn check_size(summands: usize) -> Result<()> {
    if summands <= MAX_SUMMANDS {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "multiplied out, this product has more than {MAX_SUMMANDS} summands; make it a product of products of fewer factors or smaller exponents"
    )))
}

fn with_sign(value: Rational, negative: bool) -> Rational {
    if negative { -&value } else { value }
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// All vectors from zero to `most`.
fn up_to(most: &[u32]) -> Vec<Exponents> {
    most.iter().fold(vec![Exponents::new()], |all, &n| {
        all.iter().flat_map(|q| (0..=n).map(move |k| [q.as_slice(), &[k]].concat())).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn power_product(values: &[Rational], exponents: &[u32]) -> Rational {
        values.iter().zip(exponents).fold(Rational::one(), |product, (v, &e)| &product * &v.power(e))
    }

    fn streams(count: usize, seed: i64) -> Vec<Rational> {
        (0..2 * count as i64).map(|i| Rational::ratio((i * 7 + seed * 5) % 11, 3).unwrap()).collect()
    }

    #[test]
    fn both_sums_are_the_product_they_came_from() {
        for exponents in [vec![1], vec![5], vec![1, 1], vec![3, 2], vec![1, 1, 1], vec![2, 1, 3]] {
            for seed in 0..4 {
                let values = streams(exponents.len(), seed);
                let differences: Vec<Rational> = values.chunks(2).map(|pair| &pair[0] - &pair[1]).collect();
                let expected = power_product(&differences, &exponents);
                let monomials = multiplied_out(&exponents).unwrap();
                let sum = monomials.iter().fold(Rational::zero(), |sum, (powers, coefficient)| {
                    &sum + &(coefficient * &power_product(&values, powers))
                });
                assert_eq!(sum, expected);
                let degree = exponents.iter().sum();
                let powers = polarised(&monomials, degree).unwrap();
                assert!(powers.len() <= combinations(exponents.iter().copied(), 2));
                let sum = powers.iter().fold(Rational::zero(), |sum, (multiples, coefficient)| {
                    let base = multiples.iter().zip(&values).fold(Rational::zero(), |base, (&n, value)| {
                        &base + &(&Rational::from(i64::from(n)) * value)
                    });
                    &sum + &(coefficient * &base.power(degree))
                });
                assert_eq!(sum, expected);
            }
        }
    }

    #[test]
    fn a_product_of_two_is_four_squares() {
        let powers = polarised(&multiplied_out(&[1, 1]).unwrap(), 2).unwrap();
        let half = Rational::ratio(1, 2).unwrap();
        let expected = [
            ([0, 1, 0, 1], half.clone()),
            ([0, 1, 1, 0], -&half),
            ([1, 0, 0, 1], -&half),
            ([1, 0, 1, 0], half),
        ];
        assert_eq!(powers, expected.map(|(multiples, c)| (multiples.to_vec(), c)).into());
    }

    #[test]
    fn binomials_are_pascals() {
        for n in 1..68 {
            for k in 1..n {
                assert_eq!(binomial(n, k), binomial(n - 1, k - 1) + binomial(n - 1, k));
            }
        }
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_is_made() {
        assert!(multiplied_out(&[1; 60]).is_err());
        assert!(polarised(&multiplied_out(&[20, 20]).unwrap(), 40).is_err());
        assert!(multiplied_out(&[63]).is_ok());
    }
}
