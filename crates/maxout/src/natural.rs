//! Natural numbers of any size, with the operations that exact rationals need. Nothing here overflows; callers bound the size of
//! numbers.

use std::cmp::Ordering;
use std::fmt;

/// A natural number: limbs of 32 bits, the least significant first, the last one not zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Natural(Vec<u32>);

const LIMB: usize = 32;
/// The largest power of ten in a limb, and its exponent.
const TENS: (u32, usize) = (1_000_000_000, 9);

impl Natural {
    pub(crate) fn one() -> Self {
        Natural(vec![1])
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_one(&self) -> bool {
        self.0 == [1]
    }

    /// Number of binary digits.
    pub(crate) fn bits(&self) -> usize {
        self.0.last().map_or(0, |top| self.0.len() * LIMB - top.leading_zeros() as usize)
    }

    /// The number, if it is less than 2¹²⁸.
    pub(crate) fn small(&self) -> Option<u128> {
        let join = |n: u128, &limb: &u32| n << LIMB | u128::from(limb);
        (self.0.len() <= 4).then(|| self.0.iter().rev().fold(0, join))
    }

    fn trimmed(mut limbs: Vec<u32>) -> Self {
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
        Natural(limbs)
    }

    pub(crate) fn plus(&self, other: &Natural) -> Natural {
        let (long, short) = if self.0.len() < other.0.len() { (other, self) } else { (self, other) };
        let mut limbs = Vec::with_capacity(long.0.len() + 1);
        let mut carry = 0u64;
        for (i, &limb) in long.0.iter().enumerate() {
            carry += u64::from(limb) + u64::from(short.0.get(i).copied().unwrap_or(0));
            limbs.push(carry as u32);
            carry >>= LIMB;
        }
        limbs.push(carry as u32);
        Natural::trimmed(limbs)
    }

    /// `self − other`, where `other` is not larger.
    pub(crate) fn minus(&self, other: &Natural) -> Natural {
        debug_assert!(*other <= *self);
        let mut limbs = self.0.clone();
        let mut borrow = false;
        for (i, limb) in limbs.iter_mut().enumerate() {
            let (less, first) = limb.overflowing_sub(other.0.get(i).copied().unwrap_or(0));
            let (less, second) = less.overflowing_sub(u32::from(borrow));
            (*limb, borrow) = (less, first || second);
        }
        Natural::trimmed(limbs)
    }

    pub(crate) fn times(&self, other: &Natural) -> Natural {
        let mut limbs = vec![0u32; self.0.len() + other.0.len()];
        for (i, &a) in self.0.iter().enumerate() {
            let mut carry = 0u64;
            for (j, &b) in other.0.iter().enumerate() {
                carry += u64::from(a) * u64::from(b) + u64::from(limbs[i + j]);
                limbs[i + j] = carry as u32;
                carry >>= LIMB;
            }
            limbs[i + other.0.len()] = carry as u32;
        }
        Natural::trimmed(limbs)
    }

    pub(crate) fn power(&self, exponent: u32) -> Natural {
        let mut result = Natural::one();
        for bit in (0..u32::BITS - exponent.leading_zeros()).rev() {
            result = result.times(&result);
            if exponent >> bit & 1 == 1 {
                result = result.times(self);
            }
        }
        result
    }

    /// `self·2^places`
    pub(crate) fn raised(&self, places: usize) -> Natural {
        if self.is_zero() {
            return Natural::default();
        }
        let mut limbs = vec![0; places / LIMB];
        let shift = places % LIMB;
        let mut carry = 0u64;
        for &limb in &self.0 {
            carry |= u64::from(limb) << shift;
            limbs.push(carry as u32);
            carry >>= LIMB;
        }
        limbs.push(carry as u32);
        Natural::trimmed(limbs)
    }

    /// `⌊self/2^places⌋`
    fn lowered(&self, places: usize) -> Natural {
        let shift = places % LIMB;
        let kept = self.0.get(places / LIMB..).unwrap_or(&[]);
        let limb = |i: usize| {
            let wide = u64::from(kept[i]) | u64::from(kept.get(i + 1).copied().unwrap_or(0)) << LIMB;
            (wide >> shift) as u32
        };
        Natural::trimmed((0..kept.len()).map(limb).collect())
    }

    fn over_limb(&self, divisor: u32) -> (Natural, u32) {
        let mut rest = 0u64;
        let mut limbs = self.0.clone();
        for limb in limbs.iter_mut().rev() {
            rest = rest << LIMB | u64::from(*limb);
            *limb = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        (Natural::trimmed(limbs), rest as u32)
    }

    /// Quotient and remainder, by schoolbook division (Knuth's algorithm D); the divisor is not zero.
    pub(crate) fn divided(&self, divisor: &Natural) -> (Natural, Natural) {
        debug_assert!(!divisor.is_zero());
        if self < divisor {
            return (Natural::default(), self.clone());
        }
        if let [limb] = divisor.0[..] {
            let (quotient, rest) = self.over_limb(limb);
            return (quotient, Natural::from(u128::from(rest)));
        }
        // With the top bit of the divisor set, a digit estimated from two limbs is at most two too large.
        let shift = divisor.0.last().map_or(0, |top| top.leading_zeros()) as usize;
        let divisor = divisor.raised(shift);
        let mut rest = self.raised(shift).0;
        rest.push(0);
        let length = divisor.0.len();
        let mut quotient = vec![0; rest.len() - length];
        for at in (0..quotient.len()).rev() {
            quotient[at] = next_digit(&mut rest[at..=at + length], &divisor.0);
        }
        (Natural::trimmed(quotient), Natural::trimmed(rest).lowered(shift))
    }

    /// The greatest common divisor; zero only for two zeros.
    pub(crate) fn common_divisor(&self, other: &Natural) -> Natural {
        let (mut a, mut b) = (self.clone(), other.clone());
        while !b.is_zero() {
            if let (Some(mut x), Some(mut y)) = (a.small(), b.small()) {
                while y != 0 {
                    (x, y) = (y, x % y);
                }
                return Natural::from(x);
            }
            (a, b) = (b.clone(), a.divided(&b).1);
        }
        a
    }

    /// The number written in decimal `digits`, which hold nothing else.
    pub(crate) fn from_decimal(digits: &[u8]) -> Natural {
        digits.chunks(TENS.1).fold(Natural::default(), |number, chunk| {
            let value = chunk.iter().fold(0u32, |value, digit| value * 10 + u32::from(digit - b'0'));
            let scale = Natural::from(10u128.pow(chunk.len() as u32));
            number.times(&scale).plus(&Natural::from(u128::from(value)))
        })
    }
}

/// The next digit of a quotient. `rest` is one limb longer than the divisor and becomes the remainder.
fn next_digit(rest: &mut [u32], divisor: &[u32]) -> u32 {
    let length = divisor.len();
    let top = u64::from(rest[length]) << LIMB | u64::from(rest[length - 1]);
    let (lead, second) = (u64::from(divisor[length - 1]), u64::from(divisor[length - 2]));
    let (mut digit, mut over) = (top / lead, top % lead);
    while digit >> LIMB != 0 || digit * second > (over << LIMB | u64::from(rest[length - 2])) {
        digit -= 1;
        over += lead;
        if over >> LIMB != 0 {
            break;
        }
    }
    let (mut borrow, mut carry) = (false, 0u64);
    for (i, limb) in rest.iter_mut().enumerate() {
        carry += digit * divisor.get(i).map_or(0, |&limb| u64::from(limb));
        let (less, first) = limb.overflowing_sub(carry as u32);
        let (less, again) = less.overflowing_sub(u32::from(borrow));
        (*limb, borrow) = (less, first || again);
        carry >>= LIMB;
    }
    if borrow {
        digit -= 1;
        let mut carry = 0u64;
        for (i, limb) in rest.iter_mut().enumerate() {
            carry += u64::from(*limb) + divisor.get(i).map_or(0, |&limb| u64::from(limb));
            *limb = carry as u32;
            carry >>= LIMB;
        }
    }
    digit as u32
}

impl From<u128> for Natural {
    fn from(mut value: u128) -> Self {
        let mut limbs = Vec::new();
        while value != 0 {
            limbs.push(value as u32);
            value >>= LIMB;
        }
        Natural(limbs)
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl fmt::Display for Natural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(small) = self.small() {
            return write!(f, "{small}");
        }
        let (mut rest, mut groups) = (self.clone(), Vec::new());
        while !rest.is_zero() {
            let (quotient, group) = rest.over_limb(TENS.0);
            groups.push(group);
            rest = quotient;
        }
        let mut groups = groups.iter().rev();
        groups.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        groups.try_for_each(|group| write!(f, "{group:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    /// A number of up to eight limbs, many of them all zeros or all ones: the edge cases of carries and digit estimates.
    fn number(seed: &mut u64) -> Natural {
        let length = noise(seed) % 9;
        let limb = |seed: &mut u64| match noise(seed) % 4 {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << 31,
            _ => noise(seed) as u32,
        };
        Natural::trimmed((0..length).map(|_| limb(seed)).collect())
    }

    #[test]
    fn arithmetic_is_the_machines_where_it_fits() {
        let mut seed = 5;
        for _ in 0..5000 {
            let a = u128::from(noise(&mut seed) >> (noise(&mut seed) % 64));
            let b = u128::from(noise(&mut seed) >> (noise(&mut seed) % 63)).max(1);
            let (x, y) = (Natural::from(a), Natural::from(b));
            assert_eq!(x.plus(&y).small(), Some(a + b));
            assert_eq!(x.times(&y).small(), Some(a * b));
            assert_eq!(x.cmp(&y), a.cmp(&b));
            let (q, r) = x.divided(&y);
            assert_eq!((q.small(), r.small()), (Some(a / b), Some(a % b)));
        }
    }

    #[test]
    fn division_undoes_multiplication() {
        let mut seed = 7;
        for _ in 0..20_000 {
            let (a, b) = (number(&mut seed), number(&mut seed).plus(&Natural::one()));
            let (q, r) = a.divided(&b);
            assert!(r < b);
            assert_eq!(q.times(&b).plus(&r), a);
            assert_eq!(a.plus(&b).minus(&b), a);
            let places = (noise(&mut seed) % 100) as usize;
            assert_eq!(a.raised(places).lowered(places), a);
        }
    }

    #[test]
    fn common_divisors_divide_and_leave_nothing_in_common() {
        let mut seed = 9;
        for _ in 0..2000 {
            let [a, b, c] = [0; 3].map(|_| number(&mut seed).plus(&Natural::one()));
            let divisor = a.times(&c).common_divisor(&b.times(&c));
            assert!(divisor.divided(&c).1.is_zero());
            let [x, y] = [&a, &b].map(|n| n.times(&c).divided(&divisor));
            assert!(x.1.is_zero() && y.1.is_zero() && x.0.common_divisor(&y.0).is_one());
        }
    }

    #[test]
    fn decimal_digits_are_read_as_they_are_written() {
        let mut seed = 11;
        for _ in 0..500 {
            let a = number(&mut seed);
            assert_eq!(Natural::from_decimal(a.to_string().as_bytes()), a);
        }
        assert_eq!(Natural::from(10).power(40).to_string(), format!("1{}", "0".repeat(40)));
        assert_eq!(Natural::from(3).power(0), Natural::one());
    }
}
