//! Histograms of oriented gradients, as scikit-image computes them.

/// Keeps the norm of a block of zeros away from zero.
const LEAST_NORM: f64 = 1e-5;
/// The clipping value of L2-Hys.
const CLIP: f64 = 0.2;

/// Histograms of oriented gradients of Dalal and Triggs (2005): central differences, unsigned orientations in even bins,
/// magnitudes averaged per cell, cells gathered in overlapping blocks, blocks normalised by L2-Hys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hog {
    /// Bins from 0° to 180°.
    pub orientations: usize,
    /// Side of a cell in pixels.
    pub cell: usize,
    /// Side of a block in cells.
    pub block: usize,
}

impl Default for Hog {
    /// The defaults of scikit-image.
    fn default() -> Self {
        Hog { orientations: 9, cell: 8, block: 3 }
    }
}

impl Hog {
    /// The features of an image, block by block; `None` if no block fits.
    pub fn features(&self, image: &[f64], height: usize, width: usize) -> Option<Vec<f64>> {
        let (cell, block) = (self.cell.max(1), self.block.max(1));
        let (rows, columns) = (height / cell, width / cell);
        if image.len() != height.checked_mul(width)? || rows < block || columns < block {
            return None;
        }
        let histograms = self.histograms(image, height, width, rows, columns);
        let mut features = Vec::new();
        for (top, left) in (0..=rows - block).flat_map(|t| (0..=columns - block).map(move |l| (t, l))) {
            let run = block * self.orientations;
            let start = |row: usize| ((top + row) * columns + left) * self.orientations;
            let block: Vec<f64> =
                (0..block).flat_map(|row| histograms[start(row)..][..run].iter().copied()).collect();
            features.extend(normalised(block));
        }
        Some(features)
    }

    /// The histogram of each cell, end to end.
    fn histograms(
        &self,
        image: &[f64],
        height: usize,
        width: usize,
        rows: usize,
        columns: usize,
    ) -> Vec<f64> {
        let (cell, bins) = (self.cell.max(1), self.orientations);
        let mut histograms = vec![0.0; rows * columns * bins];
        let at = |y: usize, x: usize| image[y * width + x];
        for (y, x) in (0..rows * cell).flat_map(|y| (0..columns * cell).map(move |x| (y, x))) {
            let down = if y > 0 && y + 1 < height { at(y + 1, x) - at(y - 1, x) } else { 0.0 };
            let right = if x > 0 && x + 1 < width { at(y, x + 1) - at(y, x - 1) } else { 0.0 };
            let angle = down.atan2(right).to_degrees().rem_euclid(180.0);
            let width_of_bin = 180.0 / bins as f64;
            // An angle a rounding below 180° is 180°, which is in no bin.
            let bin = (0..bins).find(|&i| angle < width_of_bin * (i + 1) as f64);
            if let Some(bin) = bin {
                histograms[((y / cell) * columns + x / cell) * bins + bin] += down.hypot(right);
            }
        }
        histograms.iter_mut().for_each(|value| *value /= (cell * cell) as f64);
        histograms
    }
}

/// L2-Hys: normalised, clipped and normalised again.
fn normalised(mut block: Vec<f64>) -> Vec<f64> {
    for clip in [CLIP, f64::INFINITY] {
        let norm = (block.iter().map(|v| v * v).sum::<f64>() + LEAST_NORM * LEAST_NORM).sqrt();
        block.iter_mut().for_each(|value| *value = (*value / norm).min(clip));
    }
    block
}
