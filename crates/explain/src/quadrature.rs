//! Quadrature rules: the points and weights of an integral along a path.

use monosplit_graph::{Error, Result};

/// A rule that approximates an integral from 0 to 1 by a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quadrature {
    /// Gauss–Legendre: exact for polynomials of degree 2n − 1.
    #[default]
    GaussLegendre,
    /// Left Riemann sum over n intervals.
    RiemannLeft,
    /// Right Riemann sum.
    RiemannRight,
    /// Midpoint rule.
    RiemannMiddle,
    /// Trapezoidal rule with n points. The weights sum to 1 (Captum's sum to 1 − 1/n).
    Trapezoid,
}

/// The number of Newton steps. Convergence is quadratic from the initial guess, so far fewer suffice.
const NEWTON_STEPS: usize = 100;

impl Quadrature {
    /// The `count` points with their weights.
    pub(crate) fn nodes(self, count: usize) -> Result<Vec<(f64, f64)>> {
        let least = if self == Quadrature::Trapezoid { 2 } else { 1 };
        if !(least..=MOST_STEPS).contains(&count) {
            return Err(Error::argument(format!(
                "{count} steps along the path, expected {least} to {MOST_STEPS}"
            )));
        }
        let n = count as f64;
        let even = |offset: f64| (0..count).map(|i| ((i as f64 + offset) / n, 1.0 / n)).collect();
        Ok(match self {
            Quadrature::GaussLegendre => gauss_legendre(count),
            Quadrature::RiemannLeft => even(0.0),
            Quadrature::RiemannRight => even(1.0),
            Quadrature::RiemannMiddle => even(0.5),
            Quadrature::Trapezoid => {
                let step = 1.0 / (n - 1.0);
                let weight = |i: usize| if i == 0 || i + 1 == count { step / 2.0 } else { step };
                (0..count).map(|i| (i as f64 * step, weight(i))).collect()
            }
        })
    }
}

/// The largest number of points accepted.
const MOST_STEPS: usize = 10_000;

/// The roots of the Legendre polynomial of degree `count`, moved to [0, 1], in ascending order.
fn gauss_legendre(count: usize) -> Vec<(f64, f64)> {
    let n = count as f64;
    let root = |i: usize| {
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n + 0.5)).cos();
        let mut slope = 0.0;
        for _ in 0..NEWTON_STEPS {
            let (value, derivative) = legendre(count, x);
            let step = value / derivative;
            slope = derivative;
            x -= step;
            if step.abs() <= f64::EPSILON {
                break;
            }
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    };
    let half: Vec<(f64, f64)> = (0..count.div_ceil(2)).map(root).collect();
    let mut nodes: Vec<(f64, f64)> = half.iter().map(|&(x, w)| (0.5 * (1.0 - x), 0.5 * w)).collect();
    nodes.extend(half[..count / 2].iter().rev().map(|&(x, w)| (0.5 * (1.0 + x), 0.5 * w)));
    nodes
}

/// The Legendre polynomial of a degree at `x`, and its derivative.
fn legendre(degree: usize, x: f64) -> (f64, f64) {
    let (mut before, mut value) = (1.0, x);
    for k in 2..=degree {
        let k = k as f64;
        (before, value) = (value, ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k);
    }
    let n = degree as f64;
    (value, n * (x * value - before) / (x * x - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauss_legendre_nodes_are_the_tabulated_ones() {
        // Abramowitz and Stegun, table 25.4, n = 5, on [−1, 1].
        let tabulated = [
            (-0.906_179_845_938_664, 0.236_926_885_056_189),
            (-0.538_469_310_105_683, 0.478_628_670_499_366),
            (0.0, 0.568_888_888_888_889),
            (0.538_469_310_105_683, 0.478_628_670_499_366),
            (0.906_179_845_938_664, 0.236_926_885_056_189),
        ];
        let nodes = Quadrature::GaussLegendre.nodes(5).unwrap();
        for ((x, w), (node, weight)) in nodes.into_iter().zip(tabulated) {
            assert!((2.0 * x - 1.0 - node).abs() < 1e-14, "{x}");
            assert!((2.0 * w - weight).abs() < 1e-14, "{w}");
        }
    }

    #[test]
    fn gauss_legendre_integrates_polynomials_of_degree_2n_minus_1_exactly() {
        for count in [1, 2, 3, 8, 50, 301] {
            let nodes = Quadrature::GaussLegendre.nodes(count).unwrap();
            assert!(nodes.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for degree in [0, 1, count, 2 * count - 1] {
                let integral: f64 = nodes.iter().map(|(x, w)| w * x.powi(degree as i32)).sum();
                assert!((integral * (degree + 1) as f64 - 1.0).abs() < 1e-12, "{count} {degree} {integral}");
            }
        }
    }

    #[test]
    fn weights_sum_to_one_and_the_sums_converge() {
        let rules = [
            Quadrature::GaussLegendre,
            Quadrature::RiemannLeft,
            Quadrature::RiemannRight,
            Quadrature::RiemannMiddle,
            Quadrature::Trapezoid,
        ];
        for rule in rules {
            let nodes = rule.nodes(1000).unwrap();
            assert!((nodes.iter().map(|(_, w)| w).sum::<f64>() - 1.0).abs() < 1e-12, "{rule:?}");
            let integral: f64 = nodes.iter().map(|(x, w)| w * x.exp()).sum();
            assert!((integral - (1f64.exp() - 1.0)).abs() < 1e-3, "{rule:?}");
        }
        assert!(Quadrature::Trapezoid.nodes(1).is_err());
        assert!(Quadrature::GaussLegendre.nodes(0).is_err());
        assert!(Quadrature::GaussLegendre.nodes(10_001).is_err());
    }
}
