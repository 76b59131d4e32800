//! A smooth function of one number as a continuous piecewise-linear one: knots where the function bends most, straight
//! lines between them, and its asymptotes outside.

use crate::op::Unary;

/// A smooth function with a constant asymptote on the left and a straight one on the right.
pub(crate) struct Curve {
    function: Unary,
    left: f64,
    /// Slope and intercept.
    right: (f64, f64),
    /// Where the function meets its asymptotes, if it does.
    meets: (Option<f64>, Option<f64>),
    /// The length over which the function changes.
    unit: f64,
}

/// Within this many units of zero every curve is as good as its asymptotes.
const WIDE: f64 = 64.0;
/// How much sparser knots lie outside the range that matters.
const OUTSIDE: f64 = 0.25;
/// Pieces an integral is summed from.
const PIECES: usize = 4096;
/// Points per straight line at which errors are measured.
const POINTS: usize = 64;

impl Curve {
    /// `None` if the function is not smooth in this sense.
    pub(crate) fn of(function: Unary) -> Option<Curve> {
        let curve = |left, right, meets, unit| Curve { function, left, right, meets, unit };
        let (open, identity, one) = ((None, None), (1.0, 0.0), (0.0, 1.0));
        let bent_at_zero = (None, Some(0.0));
        let found = match function {
            Unary::Elu { alpha } => curve(-alpha, identity, bent_at_zero, 1.0),
            Unary::Selu { alpha, gamma } => curve(-alpha * gamma, (gamma, 0.0), bent_at_zero, 1.0),
            Unary::Celu { alpha } if alpha > 0.0 => curve(-alpha, identity, bent_at_zero, alpha),
            Unary::Sigmoid => curve(0.0, one, open, 1.0),
            Unary::Tanh | Unary::Erf => curve(-1.0, one, open, 1.0),
            Unary::Softplus | Unary::Silu | Unary::Gelu | Unary::GeluTanh | Unary::Mish => {
                curve(0.0, identity, open, 1.0)
            }
            Unary::HardSwish => curve(0.0, identity, (Some(-3.0), Some(3.0)), 1.0),
            _ => return None,
        };
        [found.left, found.right.0, found.unit].iter().all(|v| v.is_finite()).then_some(found)
    }

    /// The function itself.
    pub(crate) fn value(&self, x: f64) -> f64 {
        self.function.eval(x).unwrap_or(f64::NAN)
    }

    fn right_line(&self, x: f64) -> f64 {
        self.right.0 * x + self.right.1
    }

    /// `√|f''|`, whose integral over an interval says how many knots it needs; taken inside `[from, to]`, at whose
    /// ends the function may have a corner.
    fn bend(&self, x: f64, from: f64, to: f64) -> f64 {
        let step = (0.01 * self.unit).min((to - from) / 2.0);
        let x = x.clamp(from + step, (to - step).max(from + step));
        let second = self.value(x + step) - 2.0 * self.value(x) + self.value(x - step);
        second.abs().sqrt() / step
    }

    fn bends(&self, from: f64, to: f64) -> f64 {
        let width = (to - from) / PIECES as f64;
        (0..PIECES).map(|i| self.bend(from + (i as f64 + 0.5) * width, from, to) * width).sum()
    }

    /// The points between which the function is farther than `tolerance` from its asymptotes.
    fn support(&self, tolerance: f64) -> (f64, f64) {
        let far = WIDE * self.unit;
        let at = |i: usize| far * (1.0 - i as f64 / (PIECES / 2) as f64);
        let strays = |x: f64, asymptote: f64| (self.value(x) - asymptote).abs() > tolerance;
        let left = (1..PIECES).map(|i| -at(i)).find(|&x| strays(x, self.left));
        let right = (1..PIECES).map(at).find(|&x| strays(x, self.right_line(x)));
        let step = at(0) - at(1);
        (
            self.meets.0.unwrap_or(left.map_or(0.0, |x| x - step)),
            self.meets.1.unwrap_or(right.map_or(0.0, |x| x + step)),
        )
    }
}

/// `offset + Σ coefficient·relu(direction·x − knot)`.
#[derive(Clone, Debug)]
pub(crate) struct ReluSum {
    pub(crate) knots: Vec<f64>,
    pub(crate) coefficients: Vec<f64>,
    pub(crate) offset: f64,
    /// 1, or −1 for a function that is constant on the right.
    pub(crate) direction: f64,
}

impl ReluSum {
    /// Interpolates `curve` at `count` knots, most of them inside `range`, such that the error is about the same
    /// between any two there.
    pub(crate) fn new(curve: &Curve, count: usize, range: (f64, f64)) -> Self {
        let far = WIDE * curve.unit;
        let whole = (curve.meets.0.unwrap_or(-far), curve.meets.1.unwrap_or(far));
        let clamped = (range.0.max(whole.0), range.1.min(whole.1));
        let range = if clamped.0 < clamped.1 { clamped } else { whole };
        let inside = curve.bends(range.0, range.1);
        let outside = [(whole.0, range.0), (range.1, whole.1)]
            .map(|(a, b)| if a < b { curve.bends(a, b) } else { 0.0 });
        let total = inside + OUTSIDE * (outside[0] + outside[1]);
        let error = (total / (count - 1) as f64).powi(2) / 8.0;
        let ends = ends(curve, error.max(1e-12), range);
        let knots = place(curve, count, ends, range);
        ReluSum::through(curve, knots)
    }

    fn through(curve: &Curve, knots: Vec<f64>) -> Self {
        let last = knots.len() - 1;
        let value = |(i, &x): (usize, &f64)| match i {
            0 => curve.left,
            _ if i == last => curve.right_line(x),
            _ => curve.value(x),
        };
        let values: Vec<f64> = knots.iter().enumerate().map(value).collect();
        ReluSum::chords(knots, &values, curve.right.0, 1.0)
    }

    /// The chords between the points `(knot, value)`, constant before the first, with `slope` after the last.
    pub(crate) fn chords(knots: Vec<f64>, values: &[f64], slope: f64, direction: f64) -> Self {
        let pairs = knots.windows(2).zip(values.windows(2));
        let slopes = pairs.map(|(x, y)| (y[1] - y[0]) / (x[1] - x[0])).chain([slope]);
        let coefficients = slopes.scan(0.0, |before, slope| Some(slope - std::mem::replace(before, slope)));
        let coefficients = coefficients.collect();
        ReluSum { knots, coefficients, offset: values[0], direction }
    }

    pub(crate) fn value(&self, x: f64) -> f64 {
        let bends = self.knots.iter().zip(&self.coefficients);
        self.offset + bends.map(|(t, c)| c * (self.direction * x - t).max(0.0)).sum::<f64>()
    }

    /// The largest distance from `curve` within `range` and anywhere, on a dense grid.
    pub(crate) fn errors(&self, curve: &Curve, range: (f64, f64)) -> (f64, f64) {
        let far = WIDE * curve.unit;
        let (first, last) = (self.knots[0], self.knots[self.knots.len() - 1]);
        let between = |a: f64, b: f64, n: usize| (0..=n).map(move |i| a + (b - a) * i as f64 / n as f64);
        let tails = between(first - far, first, PIECES).chain(between(last, last + far, PIECES));
        let lines = self.knots.windows(2).flat_map(|pair| between(pair[0], pair[1], POINTS));
        let ends = [range.0, range.1].into_iter().filter(|x| x.is_finite());
        let (mut within, mut anywhere) = (0.0f64, 0.0f64);
        for x in tails.chain(lines).chain(ends) {
            let error = (self.value(x) - curve.value(x)).abs();
            anywhere = anywhere.max(error);
            if (range.0..=range.1).contains(&x) {
                within = within.max(error);
            }
        }
        (within, anywhere)
    }
}

/// Where the first and the last knot lie: where the step onto the asymptote is no larger than the error between knots,
/// which is larger outside `range`.
fn ends(curve: &Curve, error: f64, range: (f64, f64)) -> (f64, f64) {
    let (near, wide) = (curve.support(error / OUTSIDE.powi(2)), curve.support(error));
    let first = if near.0 <= range.0 { near.0 } else { wide.0 };
    let last = if near.1 >= range.1 { near.1 } else { wide.1 };
    (first, last)
}

/// `count` knots from `ends.0` to `ends.1`, the ends of `range` among them.
fn place(curve: &Curve, count: usize, ends: (f64, f64), range: (f64, f64)) -> Vec<f64> {
    let middle = (range.0.max(ends.0), range.1.min(ends.1));
    let sections: Vec<(f64, f64, f64)> = match middle.0 < middle.1 {
        true => vec![(ends.0, middle.0, OUTSIDE), (middle.0, middle.1, 1.0), (middle.1, ends.1, OUTSIDE)],
        false => vec![(ends.0, ends.1, 1.0)],
    };
    let narrow = 1e-6 * curve.unit;
    let sections: Vec<_> = sections.into_iter().filter(|(a, b, _)| b - a > narrow).collect();
    let weights: Vec<f64> = sections.iter().map(|&(a, b, weight)| weight * curve.bends(a, b)).collect();
    let lines = share(count - 1, &weights);
    let mut knots = vec![ends.0];
    for ((from, to, _), lines) in sections.iter().zip(lines) {
        knots.extend(quantiles(curve, *from, *to, lines));
    }
    knots.dedup_by(|next, previous| *next - *previous <= narrow);
    knots
}

/// Splits `total` in proportion to `weights`, at least one each.
fn share(total: usize, weights: &[f64]) -> Vec<usize> {
    let sum: f64 = weights.iter().sum();
    let spare = total.saturating_sub(weights.len());
    let part = |weight: f64| if sum > 0.0 { weight / sum * spare as f64 } else { 0.0 };
    let mut shares: Vec<usize> = weights.iter().map(|&w| 1 + part(w) as usize).collect();
    let largest = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b]));
    let given: usize = shares.iter().sum();
    if let Some(largest) = largest {
        shares[largest] += total.saturating_sub(given);
    }
    shares
}

/// The ends of `lines` pieces of equal bend, without the first.
fn quantiles(curve: &Curve, from: f64, to: f64, lines: usize) -> Vec<f64> {
    let width = (to - from) / PIECES as f64;
    // A trace of evenness keeps knots apart where the function is straight.
    let floor = curve.bends(from, to) / (to - from) * 1e-3 + f64::MIN_POSITIVE;
    let piece = |i: usize| (curve.bend(from + (i as f64 + 0.5) * width, from, to) + floor) * width;
    let total: f64 = (0..PIECES).map(piece).sum();
    let (mut ends, mut sum) = (Vec::with_capacity(lines), 0.0);
    for i in 0..PIECES {
        let bend = piece(i);
        while ends.len() + 1 < lines && (ends.len() + 1) as f64 / lines as f64 * total <= sum + bend {
            let rest = (ends.len() + 1) as f64 / lines as f64 * total - sum;
            ends.push(from + (i as f64 + rest / bend) * width);
        }
        sum += bend;
    }
    ends.push(to);
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYWHERE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);
    const ALL: [Unary; 12] = [
        Unary::Elu { alpha: 1.0 },
        Unary::Elu { alpha: 2.5 },
        Unary::Selu { alpha: 1.673_263_242_354_377_2, gamma: 1.050_700_987_355_480_5 },
        Unary::Celu { alpha: 0.1 },
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Erf,
        Unary::Softplus,
        Unary::Silu,
        Unary::Gelu,
        Unary::Mish,
        Unary::HardSwish,
    ];

    fn error(function: Unary, knots: usize, range: (f64, f64)) -> (f64, f64) {
        let curve = Curve::of(function).unwrap();
        ReluSum::new(&curve, knots, range).errors(&curve, range)
    }

    #[test]
    fn twice_the_knots_leave_a_quarter_of_the_error() {
        for function in ALL {
            for knots in [12, 24, 48, 96] {
                let ratio = error(function, knots, EVERYWHERE).1 / error(function, 2 * knots, EVERYWHERE).1;
                assert!((2.8..6.5).contains(&ratio), "{function:?} at {knots} knots: {ratio}");
            }
        }
    }

    #[test]
    fn the_asymptotes_are_exact() {
        for function in ALL {
            let curve = Curve::of(function).unwrap();
            for range in [EVERYWHERE, (-1.0, 2.0), (5.0, 6.0)] {
                let line = ReluSum::new(&curve, 16, range);
                for x in [-1e4, -100.0, -65.0] {
                    assert_eq!(line.value(x), curve.left);
                }
                for x in [65.0, 100.0, 1e4] {
                    assert!((line.value(x) - curve.right_line(x)).abs() <= 1e-12 * x, "{function:?} at {x}");
                }
            }
        }
    }

    #[test]
    fn knots_ascend_and_are_as_many_as_asked_for() {
        for function in ALL {
            for range in [EVERYWHERE, (-1.0, 2.0), (-100.0, 0.0), (0.0, 1e-9), (5.0, 6.0), (-3.0, 200.0)] {
                for count in [4, 5, 16, 33] {
                    let knots = ReluSum::new(&Curve::of(function).unwrap(), count, range).knots;
                    assert!(
                        knots.windows(2).all(|pair| pair[0] < pair[1]),
                        "{function:?} {range:?} {knots:?}"
                    );
                    assert!(knots.len() <= count && knots.len() + 2 >= count.min(5), "{knots:?}");
                }
            }
        }
    }

    #[test]
    fn sixteen_knots_give_the_documented_error() {
        for function in ALL {
            let (_, anywhere) = error(function, 16, EVERYWHERE);
            assert!(anywhere < 8e-3, "{function:?}: {anywhere}");
        }
    }

    #[test]
    fn a_narrow_range_is_met_more_closely_than_the_whole_line() {
        for function in [Unary::Sigmoid, Unary::Tanh, Unary::Softplus, Unary::Silu, Unary::Gelu, Unary::Mish]
        {
            let (within, anywhere) = error(function, 16, (-1.0, 1.0));
            assert!(within < 0.5 * error(function, 16, EVERYWHERE).1, "{function:?}: {within}");
            assert!(anywhere < 0.15, "{function:?}: {anywhere}");
        }
    }
}
