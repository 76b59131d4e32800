//! Exact rational numbers: what weights, activations and coefficients are made of when nothing may be rounded. The arithmetic is
//! dashu's; this is the part of it that networks need, and how numbers are written.

use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};

use dashu_int::ops::{Abs, BitTest, DivRem};
use dashu_int::{IBig, Sign, UBig};
use dashu_ratio::RBig;

/// A rational number in lowest terms. Arithmetic never rounds and never overflows; numbers grow instead.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rational(RBig);

/// Decimal places up to which a number is written as a decimal rather than as a fraction.
const PLACES: u32 = 9;

impl Rational {
    /// 0
    pub fn zero() -> Self {
        Rational(RBig::ZERO)
    }

    /// 1
    pub fn one() -> Self {
        Rational(RBig::ONE)
    }

    /// `numerator/denominator`; `None` if the denominator is zero.
    pub fn ratio(numerator: i64, denominator: u64) -> Option<Self> {
        (denominator != 0).then(|| Rational(RBig::from_parts(numerator.into(), denominator.into())))
    }

    /// The number a double stands for; `None` for infinities and what is no number.
    pub fn from_f64(value: f64) -> Option<Self> {
        RBig::try_from(value).ok().map(Rational)
    }

    /// The nearest double, the even one of two.
    pub fn to_f64(&self) -> f64 {
        self.0.to_f64().value()
    }

    /// `digits·10^exponent`, the digits being decimal and nothing else.
    pub(crate) fn from_decimal(digits: &[u8], exponent: i32) -> Self {
        let scale = UBig::from(10u8).pow(exponent.unsigned_abs() as usize);
        let digits = std::str::from_utf8(digits).ok().and_then(|text| UBig::from_str_radix(text, 10).ok());
        let digits = digits.unwrap_or_default();
        match exponent < 0 {
            true => Rational(RBig::from_parts(digits.into(), scale)),
            false => Rational((digits * scale).into()),
        }
    }

    /// A whole number that may be large.
    pub(crate) fn whole(value: u128) -> Self {
        Rational(value.into())
    }

    /// Quotient of two numbers; `None` if the divisor is zero.
    pub fn over(&self, divisor: &Rational) -> Option<Self> {
        (!divisor.is_zero()).then(|| Rational(&self.0 / &divisor.0))
    }

    /// `selfⁿ`, where `0⁰ = 1`.
    pub fn power(&self, exponent: u32) -> Self {
        // Where an exponent does not fit, only powers of 0, 1 and −1 have room, and they depend on its parity alone.
        let fitting =
            isize::try_from(exponent).unwrap_or(isize::MAX - isize::from(exponent.is_multiple_of(2)));
        Rational(self.0.pow(fitting))
    }

    /// `|self|`
    pub fn magnitude(&self) -> Self {
        Rational(self.0.clone().abs())
    }

    /// `max(self, 0)`
    pub fn positive_part(&self) -> Self {
        if self.is_negative() { Rational::zero() } else { self.clone() }
    }

    /// Whether this is 0.
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }

    /// Whether this is 1.
    pub fn is_one(&self) -> bool {
        self.0.is_one()
    }

    /// Whether this is less than 0.
    pub fn is_negative(&self) -> bool {
        self.0.sign() == Sign::Negative
    }

    /// How much room the number takes: the binary digits of numerator and denominator together.
    pub fn bits(&self) -> usize {
        self.0.numerator().bit_len() + self.0.denominator().bit_len()
    }

    /// Numerator without sign, and denominator, in decimal digits.
    pub(crate) fn parts(&self) -> (String, String) {
        (self.0.numerator().clone().abs().to_string(), self.0.denominator().to_string())
    }

    /// The magnitude as a decimal, if so few digits after the point say it all.
    fn decimal(&self) -> Option<String> {
        let denominator = self.0.denominator();
        let scale = |places: u32| UBig::from(10u32.pow(places));
        let places = (1..=PLACES).find(|&places| (scale(places) % denominator).is_zero())?;
        let (whole, rest) = self.0.numerator().clone().abs().div_rem(IBig::from(denominator.clone()));
        let digits = (rest * IBig::from(scale(places) / denominator)).to_string();
        Some(format!("{whole}.{digits:0>places$}", places = places as usize))
    }
}

impl From<i64> for Rational {
    fn from(value: i64) -> Self {
        Rational(value.into())
    }
}

impl Neg for &Rational {
    type Output = Rational;
    fn neg(self) -> Rational {
        Rational(-self.0.clone())
    }
}

impl Add for &Rational {
    type Output = Rational;
    fn add(self, other: &Rational) -> Rational {
        Rational(&self.0 + &other.0)
    }
}

impl Sub for &Rational {
    type Output = Rational;
    fn sub(self, other: &Rational) -> Rational {
        Rational(&self.0 - &other.0)
    }
}

impl Mul for &Rational {
    type Output = Rational;
    fn mul(self, other: &Rational) -> Rational {
        Rational(&self.0 * &other.0)
    }
}

/// A whole number, a decimal where nine places say it all, otherwise a fraction: `3`, `-0.25`, `2/3`. Always exact.
impl fmt::Display for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (numerator, denominator) = self.parts();
        let digits = match self.0.denominator().is_one() {
            true => numerator,
            false => self.decimal().unwrap_or_else(|| format!("{numerator}/{denominator}")),
        };
        f.pad_integral(!self.is_negative(), "", &digits)
    }
}

impl fmt::Debug for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(a: i64, b: u64) -> Rational {
        Rational::ratio(a, b).unwrap()
    }

    fn some() -> Vec<Rational> {
        let tops = [0, 1, -1, 3, -7, 30, i64::MAX, i64::MIN];
        tops.iter().flat_map(|&a| [1u64, 2, 9, 1 << 40, u64::MAX].map(|b| ratio(a, b))).collect()
    }

    #[test]
    fn the_laws_of_a_field_hold() {
        for a in &some() {
            for b in &some() {
                assert_eq!(&(a + b) - b, *a);
                assert_eq!(a * b, b * a);
                assert_eq!((a - b).is_negative(), a < b);
                assert_eq!(a.cmp(b), b.cmp(a).reverse());
                if let Some(quotient) = a.over(b) {
                    assert_eq!(&quotient * b, *a);
                }
                for c in &some()[..12] {
                    assert_eq!(c * &(a + b), &(c * a) + &(c * b));
                }
            }
        }
    }

    #[test]
    fn doubles_survive_the_way_there_and_back() {
        let mut bits = 1u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits);
            if value.is_normal() {
                assert_eq!(Rational::from_f64(value).unwrap().to_f64(), value);
            }
        }
        for value in [0.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, -1.5] {
            assert_eq!(Rational::from_f64(value).unwrap().to_f64(), value);
        }
        assert_eq!(Rational::from_f64(f64::NAN), None);
    }

    #[test]
    fn quotients_round_as_the_machines_do() {
        for a in 1..200i64 {
            for b in 1..50u64 {
                assert_eq!(ratio(a, b).to_f64(), a as f64 / b as f64);
            }
        }
        assert_eq!(Rational::from(2).power(3000).to_f64(), f64::INFINITY);
        assert_eq!(ratio(1, 2).power(3000).to_f64(), 0.0);
    }

    #[test]
    fn numbers_are_written_exactly() {
        let written = [(3, 1), (-1, 4), (2, 3), (0, 5), (1, 1 << 9), (1, 1 << 10)].map(|(a, b)| ratio(a, b));
        let written = written.map(|number| number.to_string());
        assert_eq!(written, ["3", "-0.25", "2/3", "0", "0.001953125", "1/1024"]);
        assert_eq!(ratio(-5, 2).to_string(), "-2.5");
        assert_eq!(ratio(1001, 1000).to_string(), "1.001");
    }

    #[test]
    fn powers_are_repeated_products() {
        for a in &some() {
            let mut product = Rational::one();
            for n in 0..6 {
                assert_eq!(a.power(n), product);
                product = &product * a;
            }
        }
    }

    /// Values of Python's `fractions`.
    #[test]
    fn large_numbers_are_those_of_python() {
        let harmonic = (1..=100).fold(Rational::zero(), |sum, n| &sum + &ratio(1, n));
        assert_eq!(
            harmonic.to_string(),
            "14466636279520351160221518043104131447711/\
             2788815009188499086581352357412492142272"
        );
        assert_eq!(harmonic.to_f64(), 5.187377517639621);
        let power = ratio(-355, 113).power(40);
        assert_eq!(
            power.parts().0,
            "102125482687998123114922754379265460126543468686574639153333\
            6911012449170821128063835203647613525390625"
        );
        assert_eq!(
            power.parts().1,
            "13278155163351753706317696533924544108513274407835339859871275831776558989263625601"
        );
        assert_eq!(power.to_f64(), 7.691240344130681e+19);
        // Among the subnormal doubles, and halfway between two of them.
        assert_eq!(ratio(3, 7).over(&Rational::from(2).power(1070)).unwrap().to_f64(), 3.5e-323);
        assert_eq!(Rational::from(2).power(1075).to_f64(), f64::INFINITY);
        assert_eq!(ratio(3, 1).over(&Rational::from(2).power(1075)).unwrap().to_f64(), 1e-323);
    }
}
