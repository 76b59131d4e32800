//! Shapes known before anything runs. Every axis has a fixed length or is a multiple of the batch size,
//! the one number that is only known when a graph is run.

use std::fmt;

use crate::error::{Error, Result};

/// The length of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A length known now.
    Fixed(usize),
    /// This many times the batch size (`Batch(1)` is the batch axis itself).
    Batch(usize),
}

impl Dim {
    /// The length at batch size `batch`, `None` if it overflows.
    pub fn at(self, batch: usize) -> Option<usize> {
        match self {
            Dim::Fixed(n) => Some(n),
            Dim::Batch(k) => k.checked_mul(batch),
        }
    }

    /// The length, if it does not depend on the batch size.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Dim::Fixed(n) => Some(n),
            Dim::Batch(_) => None,
        }
    }

    /// Product of two lengths; `None` if it overflows or is quadratic in the batch size.
    pub fn times(self, other: Dim) -> Option<Dim> {
        match (self, other) {
            (Dim::Fixed(a), Dim::Fixed(b)) => a.checked_mul(b).map(Dim::Fixed),
            (Dim::Fixed(0), _) | (_, Dim::Fixed(0)) => Some(Dim::Fixed(0)),
            (Dim::Fixed(a), Dim::Batch(b)) | (Dim::Batch(a), Dim::Fixed(b)) => {
                a.checked_mul(b).map(Dim::Batch)
            }
            (Dim::Batch(_), Dim::Batch(_)) => None,
        }
    }

    /// The length `d` with `d.times(divisor) == self`, if there is one.
    pub fn over(self, divisor: Dim) -> Option<Dim> {
        let exact = |a: usize, b: usize| (b != 0 && a.is_multiple_of(b)).then(|| a / b);
        match (self, divisor) {
            (Dim::Fixed(a), Dim::Fixed(b)) => exact(a, b).map(Dim::Fixed),
            (Dim::Batch(a), Dim::Fixed(b)) => exact(a, b).map(Dim::Batch),
            (Dim::Batch(a), Dim::Batch(b)) => exact(a, b).map(Dim::Fixed),
            (Dim::Fixed(_), Dim::Batch(_)) => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Batch(1) => f.write_str("N"),
            Dim::Batch(k) => write!(f, "{k}N"),
        }
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Self {
        Dim::Fixed(n)
    }
}

/// The lengths of all axes of a value.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<Dim>);

impl Shape {
    /// A shape with the given axes.
    pub fn new(dims: impl Into<Vec<Dim>>) -> Self {
        Shape(dims.into())
    }

    /// A shape that does not depend on the batch size.
    pub fn fixed(dims: &[usize]) -> Self {
        Shape(dims.iter().map(|&n| Dim::Fixed(n)).collect())
    }

    /// A batch of values of shape `rest`.
    pub fn batched(rest: &[usize]) -> Self {
        Shape(std::iter::once(Dim::Batch(1)).chain(rest.iter().map(|&n| Dim::Fixed(n))).collect())
    }

    /// The axes.
    pub fn dims(&self) -> &[Dim] {
        &self.0
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Whether some axis depends on the batch size.
    pub fn is_batched(&self) -> bool {
        self.0.iter().any(|d| matches!(d, Dim::Batch(_)))
    }

    /// The length of axis `axis` if it is fixed.
    pub fn fixed_at(&self, axis: usize) -> Option<usize> {
        self.0.get(axis).and_then(|d| d.fixed())
    }

    /// The concrete axis lengths at batch size `batch`, `None` if one overflows.
    pub fn at(&self, batch: usize) -> Option<Vec<usize>> {
        self.0.iter().map(|d| d.at(batch)).collect()
    }

    /// Number of elements, as a length of its own.
    pub fn count(&self) -> Option<Dim> {
        let product = |n: Dim, d: &Dim| n.times(*d);
        self.0.iter().filter(|d| **d != Dim::Fixed(0)).try_fold(Dim::Fixed(1), product)?;
        self.0.iter().try_fold(Dim::Fixed(1), |n, &d| n.times(d))
    }

    /// NumPy broadcasting of two shapes.
    pub fn broadcast(&self, other: &Shape) -> Result<Shape> {
        let rank = self.rank().max(other.rank());
        let axis = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map_or(Dim::Fixed(1), |j| s.0[j]);
        let dims: Option<Vec<Dim>> = (0..rank)
            .map(|i| match (axis(self, i), axis(other, i)) {
                (a, b) if a == b => Some(a),
                (Dim::Fixed(1), b) => Some(b),
                (a, Dim::Fixed(1)) => Some(a),
                _ => None,
            })
            .collect();
        dims.map(Shape)
            .ok_or_else(|| Error::shape(format!("shapes {self} and {other} cannot be broadcast together")))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_multiples_follow_the_rules_of_arithmetic() {
        let n = Dim::Batch(1);
        assert_eq!(n.times(Dim::Fixed(6)), Some(Dim::Batch(6)));
        assert_eq!(n.times(n), None);
        assert_eq!(Dim::Batch(6).over(Dim::Fixed(4)), None);
        assert_eq!(Dim::Batch(6).over(Dim::Batch(3)), Some(Dim::Fixed(2)));
        assert_eq!(Dim::Fixed(usize::MAX).times(Dim::Fixed(2)), None);
    }

    #[test]
    fn broadcasting_is_numpys() {
        let a = Shape::batched(&[3, 1, 5]);
        assert_eq!(a.broadcast(&Shape::fixed(&[4, 1])).unwrap(), Shape::batched(&[3, 4, 5]));
        assert_eq!(a.broadcast(&Shape::default()).unwrap(), a);
        assert!(a.broadcast(&Shape::fixed(&[2, 3, 1, 5])).is_err());
        assert!(a.broadcast(&Shape::fixed(&[4])).is_err());
    }
}
