//! The paper's automated selection: of all layers, formulas and signs of a method, those with the best average rank over some
//! metrics on validation images. An undefined value must not help a candidate.

use crate::metric::Better;
use crate::statistics::mean;

/// The values of a metric for one candidate, image by image; `None` where undefined.
pub type MetricValues = Vec<Option<f64>>;

/// The mean of a metric for one candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CandidateMean {
    /// The mean over the images on which any candidate has a value; `None` if there is no such image.
    pub mean: Option<f64>,
    /// On how many of them the candidate's own value is undefined.
    pub undefined: usize,
}

/// The mean of a metric for each candidate. An undefined value is replaced by the worst value of any candidate on that image.
/// If it were left out, a hard image would lower only the means of the candidates that have a value there. Images on which
/// every value is undefined are left out.
pub fn candidate_means(candidates: &[MetricValues], better: Better) -> Vec<CandidateMean> {
    let images = candidates.iter().map(Vec::len).max().unwrap_or(0);
    let worst = |image: usize| {
        let values = candidates.iter().filter_map(|values| values.get(image).copied().flatten());
        values.reduce(match better {
            Better::Higher => f64::min,
            Better::Lower => f64::max,
        })
    };
    let worst: Vec<Option<f64>> = (0..images).map(worst).collect();
    let candidate_mean = |values: &MetricValues| {
        let own = |image: usize| values.get(image).copied().flatten();
        let counted = || (0..images).filter_map(|image| Some((own(image), worst[image]?)));
        let values: Vec<f64> = counted().map(|(own, worst)| own.unwrap_or(worst)).collect();
        CandidateMean { mean: mean(&values), undefined: counted().filter(|(own, _)| own.is_none()).count() }
    };
    candidates.iter().map(candidate_mean).collect()
}

/// The rank of each candidate by a metric, 1 for the best. Of equal means the one with fewer undefined values is first;
/// candidates equal in both share the mean of their ranks.
pub fn ranks(candidates: &[MetricValues], better: Better) -> Vec<f64> {
    let sign = match better {
        Better::Higher => -1.0,
        Better::Lower => 1.0,
    };
    let cost = |CandidateMean { mean, undefined }: CandidateMean| {
        (mean.map_or(f64::INFINITY, |mean| sign * mean), undefined)
    };
    let cost: Vec<(f64, usize)> = candidate_means(candidates, better).into_iter().map(cost).collect();
    cost.iter()
        .map(|own| {
            let before = cost.iter().filter(|other| *other < own).count();
            let equal = cost.iter().filter(|other| *other == own).count();
            before as f64 + (equal as f64 + 1.0) / 2.0
        })
        .collect()
}

/// The mean of each candidate's ranks over several metrics, each given by its values and whether higher is better.
pub fn average_ranks(metrics: &[(Vec<MetricValues>, Better)]) -> Vec<f64> {
    let candidates = metrics.iter().map(|(values, _)| values.len()).max().unwrap_or(0);
    let mut sums = vec![0.0; candidates];
    for (values, better) in metrics {
        for (sum, rank) in sums.iter_mut().zip(ranks(values, *better)) {
            *sum += rank;
        }
    }
    sums.iter().map(|sum| sum / metrics.len().max(1) as f64).collect()
}

/// The candidate with the best average rank, the first of equals; `None` if there are no candidates.
pub fn best(metrics: &[(Vec<MetricValues>, Better)]) -> Option<usize> {
    let averages = average_ranks(metrics);
    (0..averages.len()).min_by(|&a, &b| averages[a].total_cmp(&averages[b]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates with one value each, on one image.
    fn on_one_image<const N: usize>(values: [f64; N]) -> Vec<MetricValues> {
        values.map(|value| vec![Some(value)]).to_vec()
    }

    /// `scipy.stats.rankdata([0.3, 0.1, 0.3, 0.2])` is `[3.5, 1, 3.5, 2]`.
    #[test]
    fn equals_share_their_ranks() {
        let candidates = on_one_image([0.3, 0.1, 0.3, 0.2]);
        assert_eq!(ranks(&candidates, Better::Lower), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(ranks(&candidates, Better::Higher), [1.5, 4.0, 1.5, 3.0]);
    }

    #[test]
    fn the_best_is_good_at_all_metrics_rather_than_best_at_one() {
        let metrics = [
            (on_one_image([0.9, 0.8, 0.1, 0.2]), Better::Higher),
            (on_one_image([9.0, 2.0, 1.0, 3.0]), Better::Lower),
        ];
        assert_eq!(average_ranks(&metrics), [2.5, 2.0, 2.5, 3.0]);
        assert_eq!(best(&metrics), Some(1));
        assert_eq!(best(&[]), None);
    }

    /// The second image is hard. One candidate has a value on it and is better on both; the other would be ahead if its
    /// undefined value were left out of its mean.
    #[test]
    fn an_undefined_value_on_a_hard_image_does_not_help() {
        for (better, sign) in [(Better::Higher, 1.0), (Better::Lower, -1.0)] {
            let value = |value: f64| Some(sign * value);
            let defined_everywhere = vec![value(0.8), value(0.3), value(0.7)];
            let undefined = vec![value(0.7), None, value(0.7)];
            let poor = vec![value(0.1), value(0.1), value(0.1)];
            assert_eq!(
                ranks(&[undefined.clone(), defined_everywhere.clone(), poor.clone()], better),
                [2.0, 1.0, 3.0]
            );
            let means: Vec<f64> = candidate_means(&[undefined, defined_everywhere, poor], better)
                .iter()
                .map(|one| sign * one.mean.unwrap())
                .collect();
            assert!((means[0] - 0.5).abs() < 1e-12, "the poor one's value stands in: {means:?}");
        }
    }

    #[test]
    fn a_candidate_without_values_comes_last_even_if_only_the_worst_value_is_known() {
        assert_eq!(ranks(&[vec![None, None], vec![Some(1.0), Some(2.0)]], Better::Higher), [2.0, 1.0]);
        assert_eq!(ranks(&[vec![None, Some(2.0)], vec![Some(1.0), Some(2.0)]], Better::Higher), [2.0, 1.0]);
    }

    #[test]
    fn an_image_without_any_value_is_left_out() {
        let candidates = [vec![Some(1.0), None], vec![Some(2.0), None], vec![None, None]];
        let counted: Vec<usize> =
            candidate_means(&candidates, Better::Higher).iter().map(|one| one.undefined).collect();
        assert_eq!(counted, [0, 0, 1]);
        assert_eq!(ranks(&candidates, Better::Higher), [2.0, 1.0, 3.0]);
        assert_eq!(ranks(&[vec![None], vec![None]], Better::Lower), [1.5, 1.5]);
    }
}
