//! Weighted least squares: the normal equations are accumulated one observation at a time and solved by Cholesky
//! factorisation.

/// A pivot below this fraction of its diagonal element belongs to an unknown that the observations do not determine.
const NEGLIGIBLE: f64 = 1e-11;

/// The sums that a weighted regression without an intercept needs.
#[derive(Clone, Debug)]
pub(crate) struct Observations {
    unknowns: usize,
    /// The lower half of `Σ w z zᵀ`, row by row.
    products: Vec<f64>,
    /// `Σ w z y`.
    outputs_of: Vec<f64>,
}

impl Observations {
    pub(crate) fn new(unknowns: usize) -> Self {
        Observations {
            unknowns,
            products: vec![0.0; unknowns * (unknowns + 1) / 2],
            outputs_of: vec![0.0; unknowns],
        }
    }

    /// Adds an observation: its regressors `z`, its value `y` and its weight.
    pub(crate) fn add(&mut self, z: &[f64], y: f64, weight: f64) {
        let mut row = self.products.as_mut_slice();
        for (i, &left) in z.iter().enumerate() {
            let (own, rest) = row.split_at_mut(i + 1);
            row = rest;
            if left != 0.0 {
                own.iter_mut().zip(z).for_each(|(sum, right)| *sum += weight * left * right);
                self.outputs_of[i] += weight * left * y;
            }
        }
    }

    /// The `β` that minimises `Σ w (y − z·β)² + Σ λ β²`, with a `λ` for each unknown. An unknown that the observations do not
    /// determine is 0.
    pub(crate) fn solve(mut self, penalty: impl Fn(usize) -> f64) -> Vec<f64> {
        let n = self.unknowns;
        let at = |i: usize, j: usize| i * (i + 1) / 2 + j;
        let (l, b) = (&mut self.products, &mut self.outputs_of);
        (0..n).for_each(|i| l[at(i, i)] += penalty(i));
        for j in 0..n {
            let diagonal = l[at(j, j)];
            let pivot = diagonal - (0..j).map(|k| l[at(j, k)].powi(2)).sum::<f64>();
            if pivot <= NEGLIGIBLE * diagonal.abs() {
                (j..n).for_each(|i| l[at(i, j)] = 0.0);
                continue;
            }
            let root = pivot.sqrt();
            l[at(j, j)] = root;
            for i in j + 1..n {
                let inner: f64 = (0..j).map(|k| l[at(i, k)] * l[at(j, k)]).sum();
                l[at(i, j)] = (l[at(i, j)] - inner) / root;
            }
        }
        for i in 0..n {
            let inner: f64 = (0..i).map(|k| l[at(i, k)] * b[k]).sum();
            let pivot = l[at(i, i)];
            b[i] = if pivot == 0.0 { 0.0 } else { (b[i] - inner) / pivot };
        }
        for i in (0..n).rev() {
            let inner: f64 = (i + 1..n).map(|k| l[at(k, i)] * b[k]).sum();
            let pivot = l[at(i, i)];
            b[i] = if pivot == 0.0 { 0.0 } else { (b[i] - inner) / pivot };
        }
        self.outputs_of
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::Noise;

    use super::*;

    #[test]
    fn a_linear_law_is_recovered_and_an_unseen_unknown_is_zero() {
        let law = [2.0, -1.0, 0.5, 0.0];
        let mut observations = Observations::new(4);
        for i in 0..50 {
            let noise = Noise::new(3).numbered(i);
            let z = [noise.uniform(0), noise.uniform(1), noise.uniform(2), 0.0];
            let y = z.iter().zip(law).map(|(z, c)| z * c).sum();
            observations.add(&z, y, noise.uniform(3));
        }
        let found = observations.solve(|_| 0.0);
        assert!(found.iter().zip(law).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn a_penalty_shrinks_as_the_closed_form_says() {
        let mut observations = Observations::new(1);
        observations.add(&[2.0], 6.0, 1.5);
        // β = w z y / (w z² + λ)
        assert!((observations.solve(|_| 3.0)[0] - 18.0 / 9.0).abs() < 1e-12);
    }
}
