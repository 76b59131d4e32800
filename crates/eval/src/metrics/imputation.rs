//! Noisy linear imputation: removed pixels are the weighted means of their eight neighbours, solved for all of them together.

/// The offsets of the neighbours and their weights. Horizontal and vertical ones count double.
const NEIGHBOURS: [(isize, isize, f64); 8] = [
    (-1, -1, 1.0 / 12.0),
    (-1, 0, 1.0 / 6.0),
    (-1, 1, 1.0 / 12.0),
    (0, -1, 1.0 / 6.0),
    (0, 1, 1.0 / 6.0),
    (1, -1, 1.0 / 12.0),
    (1, 0, 1.0 / 6.0),
    (1, 1, 1.0 / 12.0),
];
/// The tolerance of the solver, relative to the right-hand side.
const TOLERANCE: f64 = 1e-10;

/// The linear system of the removed pixels: `Σ_j w_ij·(x_i − x_j) = 0` for each of them.
pub(crate) struct Imputation {
    unknown: Vec<usize>,
    /// The neighbours of each removed pixel: known ones by position, removed ones by index.
    known: Vec<Vec<(usize, f64)>>,
    removed: Vec<Vec<(usize, f64)>>,
    weights: Vec<f64>,
}

impl Imputation {
    /// The system of an image without the pixels `unknown`. At least one pixel is known.
    pub(crate) fn new(unknown: Vec<usize>, height: usize, width: usize) -> Self {
        let mut numbers = vec![usize::MAX; height * width];
        unknown.iter().enumerate().for_each(|(number, &place)| numbers[place] = number);
        let (mut known, mut removed, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for &place in &unknown {
            let (y, x) = (place / width, place % width);
            let inside = |&(down, right, weight): &(isize, isize, f64)| {
                let y = y.checked_add_signed(down).filter(|&y| y < height)?;
                let x = x.checked_add_signed(right).filter(|&x| x < width)?;
                Some((y * width + x, weight))
            };
            let near: Vec<(usize, f64)> = NEIGHBOURS.iter().filter_map(inside).collect();
            weights.push(near.iter().map(|(_, weight)| weight).sum());
            let (left, gone): (Vec<_>, Vec<_>) =
                near.into_iter().partition(|&(p, _)| numbers[p] == usize::MAX);
            known.push(left);
            removed.push(gone.into_iter().map(|(place, weight)| (numbers[place], weight)).collect());
        }
        Imputation { unknown, known, removed, weights }
    }

    /// Solves for one plane by conjugate gradients, starting from its present values.
    pub(crate) fn fill(&self, plane: &mut [f64]) {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let right: Vec<f64> =
            self.known.iter().map(|near| near.iter().map(|&(place, w)| w * plane[place]).sum()).collect();
        let mut x: Vec<f64> = self.unknown.iter().map(|&place| plane[place]).collect();
        let mut rest: Vec<f64> = right.iter().zip(self.product(&x)).map(|(b, ax)| b - ax).collect();
        let mut direction = rest.clone();
        let mut size = dot(&rest, &rest);
        let enough = TOLERANCE * TOLERANCE * dot(&right, &right).max(f64::MIN_POSITIVE);
        for _ in 0..4 * x.len() + 16 {
            if size <= enough {
                break;
            }
            let image = self.product(&direction);
            let step = size / dot(&direction, &image);
            if !step.is_finite() {
                break;
            }
            x.iter_mut().zip(&direction).for_each(|(x, d)| *x += step * d);
            rest.iter_mut().zip(&image).for_each(|(r, i)| *r -= step * i);
            let before = std::mem::replace(&mut size, dot(&rest, &rest));
            direction.iter_mut().zip(&rest).for_each(|(d, r)| *d = r + size / before * *d);
        }
        self.unknown.iter().zip(x).for_each(|(&place, value)| plane[place] = value);
    }

    fn product(&self, x: &[f64]) -> Vec<f64> {
        let row = |i: usize| {
            self.weights[i] * x[i] - self.removed[i].iter().map(|&(other, w)| w * x[other]).sum::<f64>()
        };
        (0..x.len()).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_that_rises_evenly_is_filled_in_as_it_was() {
        let (height, width) = (9, 7);
        let original: Vec<f64> =
            (0..height * width).map(|i| (i / width) as f64 - 2.0 * (i % width) as f64).collect();
        let hole: Vec<usize> = (2..6).flat_map(|y| (2..5).map(move |x| y * width + x)).collect();
        let mut plane = original.clone();
        hole.iter().for_each(|&place| plane[place] = 0.0);
        Imputation::new(hole, height, width).fill(&mut plane);
        for (found, was) in plane.iter().zip(&original) {
            assert!((found - was).abs() < 1e-8);
        }
    }
}
