//! The functions that softmax and the norms are made of, the exponential, the reciprocal and the reciprocal square root,
//! as maxima of straight lines. All three are convex where they are used, so chords between points on them bend one way:
//! every coefficient of the sum of ReLUs is positive.

use std::f64::consts::E;

use crate::graph::{Graph, NodeId};
use crate::op::{Op, Unary};
use crate::tensor::Kind;

use super::interpolation::ReluSum;

/// How far past what it sees a reciprocal is followed, as a factor.
const BEYOND: f64 = 4.0;
/// The share of the lines that lie within what it sees.
const WITHIN: f64 = 0.75;
/// Points per straight line at which errors are measured.
const POINTS: usize = 64;

/// A convex function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convex {
    /// `exp x`
    Exp,
    /// `1/x` for `x > 0`
    Reciprocal,
    /// `1/√x` for `x > 0`
    ReciprocalRoot,
}

/// Where one stands in a graph: a node and the value it is a function of.
pub(crate) fn convex_function(graph: &Graph, id: NodeId) -> Option<(Convex, NodeId)> {
    let node = graph.node(id);
    if node.kind != Kind::Float || node.is_constant() {
        return None;
    }
    let input = *node.inputs.first()?;
    match (&node.op, &graph.node(input).op) {
        (Op::Unary(Unary::Exp), _) => Some((Convex::Exp, input)),
        (Op::Unary(Unary::Reciprocal), Op::Unary(Unary::Sqrt)) => {
            Some((Convex::ReciprocalRoot, graph.node(input).inputs[0]))
        }
        (Op::Unary(Unary::Reciprocal), _) => Some((Convex::Reciprocal, input)),
        _ => None,
    }
}

impl Convex {
    /// The name of the function.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Convex::Exp => "Exp",
            Convex::Reciprocal => "Reciprocal",
            Convex::ReciprocalRoot => "ReciprocalRoot",
        }
    }

    fn value(self, x: f64) -> f64 {
        match self {
            Convex::Exp => x.exp(),
            Convex::Reciprocal => x.recip(),
            Convex::ReciprocalRoot => x.sqrt().recip(),
        }
    }

    /// Chords through `count` points, for values between the ends of `range`. `None` where the function is not convex
    /// there, or the range is not known.
    pub(crate) fn lines(self, count: usize, range: (f64, f64)) -> Option<ReluSum> {
        let (low, high) = range;
        if !(low.is_finite() && high.is_finite() && low <= high) {
            return None;
        }
        let line = match self {
            Convex::Exp => exponential(count, high),
            _ if low > 0.0 => self.falling(count, low, high),
            _ => return None,
        };
        let finite = |values: &[f64]| values.iter().all(|v| v.is_finite());
        (finite(&line.knots) && finite(&line.coefficients) && line.offset.is_finite()).then_some(line)
    }

    /// A function that falls to zero is one of `−x` that rises from it. Its knots lie at equal ratios, which makes the
    /// relative error the same everywhere.
    fn falling(self, count: usize, low: f64, high: f64) -> ReluSum {
        let each = (((count - 1) as f64 * (1.0 - WITHIN) / 2.0) as usize).max(1);
        let inside = (count - 1).saturating_sub(2 * each).max(1);
        let mut points = vec![low / BEYOND];
        let ends = [(low / BEYOND, low, each), (low, high, inside), (high, high * BEYOND, each)];
        for (from, to, lines) in ends.into_iter().filter(|(from, to, _)| to > from) {
            points.extend((1..=lines).map(|i| from * (to / from).powf(i as f64 / lines as f64)));
        }
        let knots: Vec<f64> = points.iter().rev().map(|x| -x).collect();
        let values: Vec<f64> = points.iter().rev().map(|&x| self.value(x)).collect();
        let nearest = points[0];
        let power = if self == Convex::Reciprocal { 1.0 } else { 0.5 };
        let slope = power * self.value(nearest) / nearest;
        ReluSum::chords(knots, &values, slope, -1.0)
    }

    /// The largest distance from the function within `range`, on a dense grid.
    pub(crate) fn error(self, line: &ReluSum, range: (f64, f64)) -> f64 {
        let within = |x: f64| x.clamp(range.0, range.1);
        let corners = line.knots.iter().map(|t| within(t * line.direction)).chain([range.0, range.1]);
        let mut corners: Vec<f64> = corners.collect();
        corners.sort_by(f64::total_cmp);
        let points = corners.windows(2).flat_map(|pair| {
            let (from, width) = (pair[0], pair[1] - pair[0]);
            (0..=POINTS).map(move |i| from + width * i as f64 / POINTS as f64)
        });
        points.map(|x| (line.value(x) - self.value(x)).abs()).fold(0.0, f64::max)
    }
}

/// `exp` up to `high` on which it goes on along its tangent, zero far down. The knots lie where the error is the same
/// everywhere, `e^high·(2/count)²/8`; the lowest line is flatter than the tangent at its upper end, as it must be.
fn exponential(count: usize, high: f64) -> ReluSum {
    let lines = (count - 2).max(1) as f64;
    let ratio = (E / 2.0).sqrt() / lines;
    let lowest = ratio / (1.0 + ratio);
    let root = |i: usize| lowest + (1.0 - lowest) * i as f64 / lines;
    let mut knots = vec![high + 2.0 * lowest.ln() - 1.0];
    knots.extend((0..count - 1).map(|i| high + 2.0 * root(i).ln()));
    let mut values: Vec<f64> = knots.iter().map(|x| x.exp()).collect();
    values[0] = 0.0;
    ReluSum::chords(knots, &values, high.exp(), 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Convex; 3] = [Convex::Exp, Convex::Reciprocal, Convex::ReciprocalRoot];
    const RANGES: [(f64, f64); 5] = [(1.0, 200.0), (1e-6, 100.0), (0.5, 0.5), (3.0, 3.1), (12.0, 30.0)];

    #[test]
    fn every_piece_bends_upwards() {
        for function in ALL {
            for range in RANGES {
                for count in [4, 7, 16, 64, 1024] {
                    let line = function.lines(count, range);
                    let line = line.unwrap_or_else(|| panic!("{function:?} {range:?} {count}"));
                    assert!(line.knots.len() <= count, "{function:?} {range:?}: {}", line.knots.len());
                    assert!(line.knots.windows(2).all(|pair| pair[0] < pair[1]));
                    let largest = line.coefficients.iter().fold(0.0f64, |m, c| m.max(c.abs()));
                    assert!(
                        line.coefficients.iter().all(|&c| c >= -1e-9 * largest),
                        "{function:?} {range:?} {count}: {:?}",
                        line.coefficients
                    );
                }
            }
        }
    }

    #[test]
    fn the_error_is_as_reported_and_falls_with_the_square_of_the_knots() {
        for function in ALL {
            for range in [(1.0, 200.0), (0.01, 5.0)] {
                let error = |count| function.error(&function.lines(count, range).unwrap(), range);
                for count in [16, 32, 64, 128] {
                    let ratio = error(count) / error(2 * count);
                    assert!((2.8..6.5).contains(&ratio), "{function:?} {range:?} {count}: {ratio}");
                }
                let (line, reported) = (function.lines(64, range).unwrap(), error(64));
                for i in 0..10_000 {
                    let x = range.0 + (range.1 - range.0) * i as f64 / 9999.0;
                    let apart = (line.value(x) - function.value(x)).abs();
                    assert!(apart <= 1.001 * reported + 1e-15, "{function:?} at {x}: {apart}");
                }
            }
        }
    }

    #[test]
    fn the_exponential_is_near_everywhere_below_and_zero_far_down() {
        let line = Convex::Exp.lines(64, (-3.0, 0.0)).unwrap();
        for i in 0..5000 {
            let x = -0.01 * i as f64;
            assert!((line.value(x) - x.exp()).abs() < 1.4e-4, "{x}: {}", line.value(x));
        }
        assert_eq!(line.value(-100.0), 0.0);
        assert!((line.value(0.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn where_a_reciprocal_is_not_convex_there_are_no_lines() {
        for range in [(-1.0, 1.0), (0.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (2.0, 1.0)] {
            assert!(Convex::Reciprocal.lines(16, range).is_none(), "{range:?}");
        }
        assert!(Convex::Exp.lines(16, (0.0, 1e4)).is_none(), "what overflows has no lines");
    }
}
