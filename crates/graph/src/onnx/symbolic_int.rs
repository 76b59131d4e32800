//! Integers that shapes are computed from before anything runs: a number plus a multiple of the batch size,
//! which is at least one and otherwise unknown.

use std::cmp::Ordering;

use crate::shape::Dim;

/// `fixed + batch·N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SymbolicInt {
    pub(crate) fixed: i64,
    pub(crate) batch: i64,
}

impl From<i64> for SymbolicInt {
    fn from(fixed: i64) -> Self {
        SymbolicInt { fixed, batch: 0 }
    }
}

impl SymbolicInt {
    /// The length of an axis; `None` if it does not fit.
    pub(crate) fn of(dim: Dim) -> Option<Self> {
        Some(match dim {
            Dim::Fixed(n) => i64::try_from(n).ok()?.into(),
            Dim::Batch(k) => SymbolicInt { fixed: 0, batch: i64::try_from(k).ok()? },
        })
    }

    /// The number, if it does not depend on the batch size.
    pub(crate) fn known(self) -> Option<i64> {
        (self.batch == 0).then_some(self.fixed)
    }

    /// As the length of an axis, if it can be one.
    pub(crate) fn dim(self) -> Option<Dim> {
        match self {
            SymbolicInt { fixed, batch: 0 } => usize::try_from(fixed).ok().map(Dim::Fixed),
            SymbolicInt { fixed: 0, batch } => usize::try_from(batch).ok().map(Dim::Batch),
            _ => None,
        }
    }

    pub(crate) fn plus(self, other: SymbolicInt) -> Option<SymbolicInt> {
        Some(SymbolicInt {
            fixed: self.fixed.checked_add(other.fixed)?,
            batch: self.batch.checked_add(other.batch)?,
        })
    }

    pub(crate) fn minus(self, other: SymbolicInt) -> Option<SymbolicInt> {
        Some(SymbolicInt {
            fixed: self.fixed.checked_sub(other.fixed)?,
            batch: self.batch.checked_sub(other.batch)?,
        })
    }

    pub(crate) fn times(self, other: SymbolicInt) -> Option<SymbolicInt> {
        match (self.known(), other.known()) {
            (Some(k), _) => {
                Some(SymbolicInt { fixed: other.fixed.checked_mul(k)?, batch: other.batch.checked_mul(k)? })
            }
            (_, Some(_)) => other.times(self),
            _ => None,
        }
    }

    /// The quotient, rounded towards zero as ONNX does; with the batch size in it only if it is exact.
    pub(crate) fn over(self, other: SymbolicInt) -> Option<SymbolicInt> {
        match (self.known(), other.known()) {
            (Some(a), Some(b)) => a.checked_div(b).map(SymbolicInt::from),
            (None, Some(b)) if b != 0 && self.fixed % b == 0 && self.batch % b == 0 => {
                Some(SymbolicInt { fixed: self.fixed.checked_div(b)?, batch: self.batch.checked_div(b)? })
            }
            (None, None) if self.batch % other.batch == 0 => {
                let quotient = self.batch.checked_div(other.batch)?;
                (other.fixed.checked_mul(quotient)? == self.fixed).then(|| quotient.into())
            }
            _ => None,
        }
    }

    /// The remainder with the divisor's sign, as ONNX's integer `Mod`.
    pub(crate) fn modulo(self, other: SymbolicInt) -> Option<SymbolicInt> {
        match (self.known(), other.known()) {
            (Some(a), Some(b)) if b != 0 => {
                let rest = a.checked_rem(b)?;
                Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }.into())
            }
            _ => self.over(other).map(|_| 0.into()),
        }
    }

    /// Which is larger, where that is the same for every batch size; equality is for every batch size too,
    /// so that a dimension that could be anything is not taken for the one it happens to be.
    pub(crate) fn compare(self, other: SymbolicInt) -> Option<Ordering> {
        let difference = self.minus(other)?;
        match (difference.fixed.checked_add(difference.batch)?, difference.batch) {
            (first, 0) => Some(first.cmp(&0)),
            (first, slope) if first > 0 && slope > 0 => Some(Ordering::Greater),
            (first, slope) if first < 0 && slope < 0 => Some(Ordering::Less),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_agrees_with_numbers_at_every_batch_size() {
        let at = |e: SymbolicInt, n: i64| e.fixed + e.batch * n;
        let some = [(3, 0), (0, 1), (0, 4), (-2, 0), (5, 2), (8, 4), (-6, -3)];
        for (af, ab) in some {
            for (bf, bb) in some {
                let (a, b) = (SymbolicInt { fixed: af, batch: ab }, SymbolicInt { fixed: bf, batch: bb });
                for n in 1..20 {
                    let (x, y) = (at(a, n), at(b, n));
                    assert_eq!(at(a.plus(b).unwrap(), n), x + y);
                    assert_eq!(at(a.minus(b).unwrap(), n), x - y);
                    assert!(a.times(b).is_none_or(|e| at(e, n) == x * y));
                    assert!(a.over(b).is_none_or(|e| at(e, n) == x / y));
                    assert!(
                        a.modulo(b).is_none_or(|e| at(e, n)
                            == x.rem_euclid(y) + if y < 0 && x.rem_euclid(y) != 0 { y } else { 0 })
                    );
                    assert!(a.compare(b).is_none_or(|o| o == x.cmp(&y)));
                }
            }
        }
    }

    #[test]
    fn a_batch_is_never_minus_one() {
        let batch = SymbolicInt { fixed: 0, batch: 1 };
        assert_eq!(batch.compare((-1).into()), Some(Ordering::Greater));
        assert_eq!(batch.compare(2.into()), None);
    }
}
