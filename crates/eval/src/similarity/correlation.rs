//! Correlation of values and of ranks.

/// Pearson's correlation; `None` where one side does not vary.
pub fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() || a.len() < 2 {
        return None;
    }
    let (a, b) = (centred(a), centred(b));
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (of_a, of_b) = (product(&a, &a), product(&b, &b));
    // The root of the product is exact for equal values, whose correlation is then exactly one; the product may overflow.
    let root = (of_a * of_b).sqrt();
    let size = if root.is_normal() { root } else { of_a.sqrt() * of_b.sqrt() };
    (size > 0.0).then(|| (product(&a, &b) / size).clamp(-1.0, 1.0))
}

fn centred(values: &[f64]) -> Vec<f64> {
    let first = values.first().copied().unwrap_or(0.0);
    // A constant has no deviation, whatever rounding makes of its mean.
    if values.iter().all(|value| *value == first) {
        return vec![0.0; values.len()];
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| value - mean).collect()
}

/// Spearman's correlation: Pearson's of the ranks.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    pearson(&ranks(a), &ranks(b))
}

/// The rank of each value, from 1 on; equal values share the mean of theirs.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].partial_cmp(&values[b]).unwrap_or(std::cmp::Ordering::Equal));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let shared = start as f64 + (group.len() as f64 + 1.0) / 2.0;
        group.iter().for_each(|&place| ranks[place] = shared);
        start += group.len();
    }
    ranks
}
