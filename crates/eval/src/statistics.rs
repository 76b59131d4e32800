//! Means over images with confidence intervals by the percentile bootstrap.

use monosplit_graph::Noise;

/// The number of bootstrap samples.
const DRAWS: usize = 2000;
/// The share of bootstrap means beyond each end of an interval.
const TAIL: f64 = 0.025;

/// A mean over images with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Number of images.
    pub count: usize,
}

impl Estimate {
    /// The mean of `values`; `None` if there are none. The same values give the same interval.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = mean(values)?;
        let noise = Noise::new(values.len() as u64).stream("bootstrap");
        let count = values.len();
        let draw = |number: usize| {
            let own = noise.numbered(number as u64);
            let pick = |i: usize| values[((own.uniform(i as u64) * count as f64) as usize).min(count - 1)];
            (0..count).map(pick).sum::<f64>() / count as f64
        };
        let mut means: Vec<f64> = (0..DRAWS).map(draw).collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[((share * DRAWS as f64) as usize).min(DRAWS - 1)];
        Some(Estimate { mean, low: at(TAIL), high: at(1.0 - TAIL), count })
    }
}

/// The mean of some values; `None` if there are none.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The result of a paired comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonVerdict {
    /// The first is better: the interval of the differences does not contain zero.
    Won,
    /// The interval contains zero.
    Tied,
    /// The second is better.
    Lost,
}

/// The fewest images of a comparison. The bootstrap intervals of fewer images are too narrow.
const LEAST: usize = 5;

/// Compares the first of each pair with the second; `sign` is 1 if more is better, else −1. `None` if there are too few
/// pairs.
pub fn verdict(pairs: &[(f64, f64)], sign: f64) -> Option<(ComparisonVerdict, Estimate)> {
    if pairs.len() < LEAST {
        return None;
    }
    let differences: Vec<f64> = pairs.iter().map(|(one, other)| sign * (one - other)).collect();
    let estimate = Estimate::of(&differences)?;
    let verdict = match estimate {
        Estimate { low, .. } if low > 0.0 => ComparisonVerdict::Won,
        Estimate { high, .. } if high < 0.0 => ComparisonVerdict::Lost,
        _ => ComparisonVerdict::Tied,
    };
    Some((verdict, estimate))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For many images the interval is the normal one: mean ± 1.96·s/√n.
    #[test]
    fn intervals_are_those_of_the_normal_distribution() {
        let noise = Noise::new(1);
        let values: Vec<f64> = (0..400).map(|i| 3.0 + noise.gaussian(i)).collect();
        let Estimate { mean, low, high, count } = Estimate::of(&values).unwrap();
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 399.0).sqrt();
        let half = 1.96 * deviation / 20.0;
        assert_eq!(count, 400);
        assert!((high - mean - half).abs() < 0.1 * half && (mean - low - half).abs() < 0.1 * half);
    }

    #[test]
    fn values_without_spread_have_an_interval_without_width() {
        assert_eq!(Estimate::of(&[2.0; 5]), Some(Estimate { mean: 2.0, low: 2.0, high: 2.0, count: 5 }));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn a_small_steady_advantage_wins_and_a_noisy_one_does_not() {
        let noise = Noise::new(2);
        let level = |i: u64| 10.0 * noise.gaussian(i);
        let steady: Vec<(f64, f64)> = (0..50).map(|i| (level(i) + 0.1, level(i))).collect();
        assert_eq!(verdict(&steady, 1.0).unwrap().0, ComparisonVerdict::Won);
        assert_eq!(verdict(&steady, -1.0).unwrap().0, ComparisonVerdict::Lost);
        assert_eq!(verdict(&steady[..LEAST - 1], 1.0), None, "too few to tell");
        let noisy: Vec<(f64, f64)> = (0..50).map(|i| (level(i) + 0.1, level(i + 50))).collect();
        assert_eq!(verdict(&noisy, 1.0).unwrap().0, ComparisonVerdict::Tied);
    }
}
