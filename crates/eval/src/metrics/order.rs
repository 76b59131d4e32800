//! Positions from the most to the least important, with a defined order of ties, so that stored values are reproducible.

use std::cmp::Ordering;

/// The largest number of positions of an image.
pub(super) const MOST_PLACES: usize = 1 << 30;

/// Which of two equally important positions comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// The earlier one, as in a stable sort of the negated values.
    #[default]
    EarlierFirst,
    /// The later one, as in a stable ascending sort read backwards.
    LaterFirst,
}

/// The indices of `values`, largest value first.
pub(crate) fn descending(values: &[f64], ties: Ties) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| {
        let by_value = values[b].partial_cmp(&values[a]).unwrap_or(Ordering::Equal);
        by_value.then(match ties {
            Ties::EarlierFirst => a.cmp(&b),
            Ties::LaterFirst => b.cmp(&a),
        })
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_follow_the_rule() {
        let values = [1.0, 3.0, 1.0, 3.0, -0.0, 0.0];
        assert_eq!(descending(&values, Ties::EarlierFirst), [1, 3, 0, 2, 4, 5]);
        assert_eq!(descending(&values, Ties::LaterFirst), [3, 1, 2, 0, 5, 4]);
    }
}
