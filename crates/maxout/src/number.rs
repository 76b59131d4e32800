//! The two number types a network is evaluated in: doubles, which round, and rationals, which are exact.

use monosplit_graph::{Error, Result};

use crate::rational::Rational;

/// A number type of activations.
pub trait Number: Clone + PartialOrd {
    /// The number nearest to a weight.
    fn from_rational(value: &Rational) -> Self;
    /// `self + other`
    fn plus(&self, other: &Self) -> Result<Self>;
    /// `self·other`
    fn times(&self, other: &Self) -> Result<Self>;
    /// `selfⁿ`
    fn power(&self, exponent: u32) -> Result<Self>;
}

/// The largest number of binary digits of an exact number. Powers of powers would grow without bound.
pub const MAX_BITS: usize = 1 << 17;

fn within(bits: usize) -> Result<()> {
    if bits <= MAX_BITS {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "an exact activation would have more than {MAX_BITS} binary digits; evaluate in floating point, or at smaller inputs"
    )))
}

impl Number for Rational {
    fn from_rational(value: &Rational) -> Self {
        value.clone()
    }

    fn plus(&self, other: &Self) -> Result<Self> {
        within(self.bits().saturating_add(other.bits()))?;
        Ok(self + other)
    }

    fn times(&self, other: &Self) -> Result<Self> {
        within(self.bits().saturating_add(other.bits()))?;
        Ok(self * other)
    }

    fn power(&self, exponent: u32) -> Result<Self> {
        within(self.bits().saturating_mul(exponent as usize))?;
        Ok(Rational::power(self, exponent))
    }
}

impl Number for f64 {
    fn from_rational(value: &Rational) -> Self {
        value.to_f64()
    }

    fn plus(&self, other: &Self) -> Result<Self> {
        Ok(self + other)
    }

    fn times(&self, other: &Self) -> Result<Self> {
        Ok(self * other)
    }

    fn power(&self, exponent: u32) -> Result<Self> {
        Ok(self.powi(exponent.min(i32::MAX as u32) as i32))
    }
}
