//! Exact rational numbers: what weights, activations and coefficients are made of when nothing may be rounded.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};

use crate::natural::Natural;

/// A rational number in lowest terms. Arithmetic never rounds and never overflows; numbers grow instead.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Rational {
    negative: bool,
    numerator: Natural,
    denominator: Natural,
}

/// Decimal places up to which a number is written as a decimal rather than as a fraction.
const PLACES: u32 = 9;

impl Rational {
    /// 0
    pub fn zero() -> Self {
        Rational::from(0)
    }

    /// 1
    pub fn one() -> Self {
        Rational::from(1)
    }

    /// `numerator/denominator`; `None` if the denominator is zero.
    pub fn ratio(numerator: i64, denominator: u64) -> Option<Self> {
        let top = Natural::from(u128::from(numerator.unsigned_abs()));
        (denominator != 0).then(|| Rational::reduced(numerator < 0, top, u128::from(denominator).into()))
    }

    /// The number a double stands for; `None` for infinities and what is no number.
    pub fn from_f64(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let bits = value.to_bits();
        let (field, fraction) = (bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
        let mantissa = if field == 0 { fraction } else { fraction | 1 << 52 };
        let exponent = field.max(1) as i64 - 1075;
        let (up, down) = (exponent.max(0) as usize, exponent.min(0).unsigned_abs() as usize);
        let numerator = Natural::from(u128::from(mantissa)).raised(up);
        Some(Rational::reduced(value < 0.0, numerator, Natural::one().raised(down)))
    }

    /// The nearest double (within one unit in the last place among the subnormal ones).
    pub fn to_f64(&self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        // A quotient of 66 or 67 bits, its last bit set if anything was left over, rounds as the exact number does.
        let places = 66 + self.denominator.bits() as i64 - self.numerator.bits() as i64;
        let numerator = self.numerator.raised(places.max(0) as usize);
        let denominator = self.denominator.raised(places.min(0).unsigned_abs() as usize);
        let (quotient, rest) = numerator.divided(&denominator);
        let digits = quotient.small().unwrap_or(u128::MAX) | u128::from(!rest.is_zero());
        let mut value = digits as f64;
        let mut left = places.clamp(-4000, 4000);
        while left != 0 {
            let step = left.clamp(-1000, 1000);
            value *= 2f64.powi(-step as i32);
            left -= step;
        }
        if self.negative { -value } else { value }
    }

    /// `±digits·10^exponent`, the digits being decimal and nothing else.
    pub(crate) fn from_decimal(digits: &[u8], exponent: i32) -> Self {
        let scale = Natural::from(10).power(exponent.unsigned_abs());
        let digits = Natural::from_decimal(digits);
        match exponent < 0 {
            true => Rational::reduced(false, digits, scale),
            false => Rational::reduced(false, digits.times(&scale), Natural::one()),
        }
    }

    /// A whole number that may be large.
    pub(crate) fn whole(value: u128) -> Self {
        Rational { negative: false, numerator: value.into(), denominator: Natural::one() }
    }

    /// Quotient of two numbers; `None` if the divisor is zero.
    pub fn over(&self, divisor: &Rational) -> Option<Self> {
        let negative = self.negative != divisor.negative;
        let top = self.numerator.times(&divisor.denominator);
        (!divisor.is_zero())
            .then(|| Rational::reduced(negative, top, self.denominator.times(&divisor.numerator)))
    }

    /// `selfⁿ`, where `0⁰ = 1`.
    pub fn power(&self, exponent: u32) -> Self {
        Rational {
            negative: self.negative && exponent % 2 == 1,
            numerator: self.numerator.power(exponent),
            denominator: self.denominator.power(exponent),
        }
    }

    /// `|self|`
    pub fn magnitude(&self) -> Self {
        Rational { negative: false, ..self.clone() }
    }

    /// `max(self, 0)`
    pub fn positive_part(&self) -> Self {
        if self.negative { Rational::zero() } else { self.clone() }
    }

    /// Whether this is 0.
    pub fn is_zero(&self) -> bool {
        self.numerator.is_zero()
    }

    /// Whether this is 1.
    pub fn is_one(&self) -> bool {
        !self.negative && self.numerator.is_one() && self.denominator.is_one()
    }

    /// Whether this is less than 0.
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// How much room the number takes: the binary digits of numerator and denominator together.
    pub fn bits(&self) -> usize {
        self.numerator.bits() + self.denominator.bits()
    }

    /// Numerator without sign, and denominator, in decimal digits.
    pub(crate) fn parts(&self) -> (String, String) {
        (self.numerator.to_string(), self.denominator.to_string())
    }

    fn reduced(negative: bool, numerator: Natural, denominator: Natural) -> Self {
        if numerator.is_zero() {
            return Rational { negative: false, numerator, denominator: Natural::one() };
        }
        if denominator.is_one() {
            return Rational { negative, numerator, denominator };
        }
        let common = numerator.common_divisor(&denominator);
        if common.is_one() {
            return Rational { negative, numerator, denominator };
        }
        let [numerator, denominator] = [numerator, denominator].map(|n| n.divided(&common).0);
        Rational { negative, numerator, denominator }
    }

    /// Both numerators over the product of the denominators, or over the one denominator they share.
    fn common(&self, other: &Rational) -> (Natural, Natural, Natural) {
        if self.denominator == other.denominator {
            return (self.numerator.clone(), other.numerator.clone(), self.denominator.clone());
        }
        let (top, bottom) =
            (self.numerator.times(&other.denominator), other.numerator.times(&self.denominator));
        (top, bottom, self.denominator.times(&other.denominator))
    }

    /// The digits after the point, if so few of them say it all.
    fn decimal(&self) -> Option<String> {
        let places =
            (1..=PLACES).find(|&n| Natural::from(10u128.pow(n)).divided(&self.denominator).1.is_zero())?;
        let scale = Natural::from(10u128.pow(places));
        let (whole, rest) = self.numerator.divided(&self.denominator);
        let digits = rest.times(&scale).divided(&self.denominator).0.to_string();
        Some(format!("{whole}.{digits:0>places$}", places = places as usize))
    }
}

impl From<i64> for Rational {
    fn from(value: i64) -> Self {
        let numerator = Natural::from(u128::from(value.unsigned_abs()));
        Rational { negative: value < 0, numerator, denominator: Natural::one() }
    }
}

impl Neg for &Rational {
    type Output = Rational;
    fn neg(self) -> Rational {
        Rational { negative: !self.negative && !self.is_zero(), ..self.clone() }
    }
}

impl Add for &Rational {
    type Output = Rational;
    fn add(self, other: &Rational) -> Rational {
        let (a, b, denominator) = self.common(other);
        if self.negative == other.negative {
            return Rational::reduced(self.negative, a.plus(&b), denominator);
        }
        match a < b {
            true => Rational::reduced(other.negative, b.minus(&a), denominator),
            false => Rational::reduced(self.negative, a.minus(&b), denominator),
        }
    }
}

impl Sub for &Rational {
    type Output = Rational;
    fn sub(self, other: &Rational) -> Rational {
        self + &-other
    }
}

impl Mul for &Rational {
    type Output = Rational;
    fn mul(self, other: &Rational) -> Rational {
        let numerator = self.numerator.times(&other.numerator);
        let denominator = self.denominator.times(&other.denominator);
        Rational::reduced(self.negative != other.negative, numerator, denominator)
    }
}

impl PartialOrd for Rational {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rational {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (negative, _) => {
                let (a, b, _) = self.common(other);
                if negative { b.cmp(&a) } else { a.cmp(&b) }
            }
        }
    }
}

/// A whole number, a decimal where nine places say it all, otherwise a fraction: `3`, `-0.25`, `2/3`. Always exact.
impl fmt::Display for Rational {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.denominator.is_one() {
            self.numerator.to_string()
        } else {
            self.decimal().unwrap_or_else(|| format!("{}/{}", self.numerator, self.denominator))
        };
        f.pad_integral(!self.negative, "", &digits)
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
}
