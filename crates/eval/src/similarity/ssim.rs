//! The structural similarity index, as scikit-image computes it.

/// The structural similarity index of Wang, Bovik, Sheikh and Simoncelli (2004): the mean, over all windows that lie in
/// the image, of `(2·μ_a·μ_b + C₁)(2·σ_ab + C₂) / ((μ_a² + μ_b² + C₁)(σ_a² + σ_b² + C₂))` with `C_i = (K_i·range)²`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ssim {
    /// The window.
    pub window: SsimWindow,
    /// `K₁`
    pub k1: f64,
    /// `K₂`
    pub k2: f64,
    /// Whether variances are divided by one less than the number of elements.
    pub sample_covariance: bool,
}

/// A window, the product of the same weights along both axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SsimWindow {
    /// Equal weights on this odd number of elements.
    Uniform(usize),
    /// A Gaussian of this deviation, out to 3.5 deviations.
    Gaussian(f64),
}

impl SsimWindow {
    /// The window of the original paper.
    pub const GAUSSIAN: SsimWindow = SsimWindow::Gaussian(1.5);

    fn weights(self) -> Vec<f64> {
        let weights: Vec<f64> = match self {
            SsimWindow::Uniform(size) => vec![1.0; size.max(1)],
            SsimWindow::Gaussian(deviation) => {
                let radius = (3.5 * deviation + 0.5) as i64;
                (-radius..=radius).map(|x| (-0.5 * (x as f64 / deviation).powi(2)).exp()).collect()
            }
        };
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }
}

impl Default for Ssim {
    /// The defaults of scikit-image.
    fn default() -> Self {
        Ssim { window: SsimWindow::Uniform(7), k1: 0.01, k2: 0.03, sample_covariance: true }
    }
}

impl Ssim {
    /// Of two images of so many rows, or of two rows of values where there is no height; `None` where no window fits in or
    /// the values have no range.
    pub fn of(&self, a: &[f64], b: &[f64], height: Option<usize>, range: f64) -> Option<f64> {
        let weights = self.window.weights();
        let rows = height.unwrap_or(1);
        if a.len() != b.len() || rows == 0 || !a.len().is_multiple_of(rows) || range <= 0.0 {
            return None;
        }
        let width = a.len() / rows;
        let fits = width >= weights.len() && (height.is_none() || rows >= weights.len());
        if !fits {
            return None;
        }
        let mean = |values: &dyn Fn(usize) -> f64| {
            let values: Vec<f64> = (0..a.len()).map(values).collect();
            let along = filtered(&values, width, &weights);
            if height.is_none() { along } else { filtered_down(&along, width + 1 - weights.len(), &weights) }
        };
        let means = [
            mean(&|i| a[i]),
            mean(&|i| b[i]),
            mean(&|i| a[i] * a[i]),
            mean(&|i| b[i] * b[i]),
            mean(&|i| a[i] * b[i]),
        ];
        let places = (weights.len() as f64).powi(if height.is_none() { 1 } else { 2 });
        let unbiased = if self.sample_covariance { places / (places - 1.0) } else { 1.0 };
        let (c1, c2) = ((self.k1 * range).powi(2), (self.k2 * range).powi(2));
        let at = |i: usize| {
            let [x, y, xx, yy, xy] = [0, 1, 2, 3, 4].map(|moment: usize| means[moment][i]);
            let (vx, vy, vxy) = (unbiased * (xx - x * x), unbiased * (yy - y * y), unbiased * (xy - x * y));
            ((2.0 * x * y + c1) * (2.0 * vxy + c2)) / ((x * x + y * y + c1) * (vx + vy + c2))
        };
        let count = means[0].len();
        Some((0..count).map(at).sum::<f64>() / count as f64)
    }
}

/// Weighted means along the rows, where all weights fall inside.
fn filtered(values: &[f64], width: usize, weights: &[f64]) -> Vec<f64> {
    let dot = |part: &[f64]| part.iter().zip(weights).map(|(value, weight)| value * weight).sum::<f64>();
    values.chunks(width).flat_map(|row| row.windows(weights.len()).map(dot)).collect()
}

/// Weighted means along the columns, where all weights fall inside.
fn filtered_down(values: &[f64], width: usize, weights: &[f64]) -> Vec<f64> {
    let height = (values.len() / width) + 1 - weights.len();
    let mut means = vec![0.0; height * width];
    for (y, row) in means.chunks_mut(width).enumerate() {
        for (k, weight) in weights.iter().enumerate() {
            let from = &values[(y + k) * width..][..width];
            row.iter_mut().zip(from).for_each(|(mean, value)| *mean += weight * value);
        }
    }
    means
}
