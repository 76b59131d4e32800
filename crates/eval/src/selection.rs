//! The paper's automated selection: of all layers, formulas and signs of a method, those of best average rank over some
//! metrics on validation images.

use crate::metric::Better;

/// The rank of each value, 1 for the best; equals share the mean of their ranks, and what has no value comes last.
pub fn ranks(values: &[Option<f64>], better: Better) -> Vec<f64> {
    let sign = match better {
        Better::Higher => -1.0,
        Better::Lower => 1.0,
    };
    let cost: Vec<f64> = values.iter().map(|value| value.map_or(f64::INFINITY, |v| sign * v)).collect();
    cost.iter()
        .map(|own| {
            let before = cost.iter().filter(|other| *other < own).count();
            let equal = cost.iter().filter(|other| *other == own).count();
            before as f64 + (equal as f64 + 1.0) / 2.0
        })
        .collect()
}

/// The mean of each candidate's ranks over several metrics, each given as its values and its good end.
pub fn average_ranks(metrics: &[(Vec<Option<f64>>, Better)]) -> Vec<f64> {
    let candidates = metrics.iter().map(|(values, _)| values.len()).max().unwrap_or(0);
    let mut sums = vec![0.0; candidates];
    for (values, better) in metrics {
        for (sum, rank) in sums.iter_mut().zip(ranks(values, *better)) {
            *sum += rank;
        }
    }
    sums.iter().map(|sum| sum / metrics.len().max(1) as f64).collect()
}

/// The candidate of best average rank, the first of equals; none if there are none.
pub fn best(metrics: &[(Vec<Option<f64>>, Better)]) -> Option<usize> {
    let averages = average_ranks(metrics);
    (0..averages.len()).min_by(|&a, &b| averages[a].total_cmp(&averages[b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `scipy.stats.rankdata([0.3, 0.1, 0.3, 0.2])` is `[3.5, 1, 3.5, 2]`.
    #[test]
    fn equals_share_their_ranks() {
        let values = [0.3, 0.1, 0.3, 0.2].map(Some);
        assert_eq!(ranks(&values, Better::Lower), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(ranks(&values, Better::Higher), [1.5, 4.0, 1.5, 3.0]);
        assert_eq!(ranks(&[None, Some(1.0)], Better::Higher), [2.0, 1.0]);
    }

    #[test]
    fn the_best_is_good_at_all_metrics_rather_than_best_at_one() {
        let metrics = [
            (vec![Some(0.9), Some(0.8), Some(0.1), Some(0.2)], Better::Higher),
            (vec![Some(9.0), Some(2.0), Some(1.0), Some(3.0)], Better::Lower),
        ];
        assert_eq!(average_ranks(&metrics), [2.5, 2.0, 2.5, 3.0]);
        assert_eq!(best(&metrics), Some(1));
        assert_eq!(best(&[]), None);
    }
}
