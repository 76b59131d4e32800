//! Maps read off the literal algorithm's streams, sensitivities and relevances.

use monosplit_explain::methods::RelevanceMap;
use monosplit_explain::{Stream, StreamPart};

use super::literal::{Pair, Sample};
use super::rule::map_positions;
use crate::split_map::SplitMap;

/// A map, and the size of the terms that were added up at its largest element: what rounding is relative to.
pub(crate) struct LiteralMap {
    pub(crate) values: Vec<f64>,
    pub(crate) terms: f64,
    /// How far imitated rounding moves the map.
    pub(crate) unsteady: f64,
}

impl LiteralMap {
    /// Takes note of how far the same map lies apart under imitated rounding.
    pub(crate) fn allow_for(&mut self, disturbed: impl Iterator<Item = LiteralMap>) {
        let apart = |other: LiteralMap| {
            self.values.iter().zip(&other.values).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        self.unsteady = disturbed.map(apart).fold(0.0, f64::max);
    }
}

/// A map of the value `at`, of shape `shape`, given its sensitivities and its relevance.
pub(crate) fn map(
    method: SplitMap,
    shape: &[usize],
    sample: &Sample,
    at: usize,
    four: &(Pair, Pair),
    r: &Pair,
) -> LiteralMap {
    let (a, pair) = (&sample.original[at], &sample.pairs[at]);
    let (to, channels) = map_positions(shape);
    let count = to.iter().max().map_or(0, |m| m + 1);
    let (mut values, mut terms) = (vec![0.0; count], vec![0.0f64; count]);
    let half = |part: StreamPart, p: &Pair, i: usize| match part {
        StreamPart::Combined => (p.plus[i] - p.minus[i]) / 2.0,
        StreamPart::Plus => p.plus[i],
        StreamPart::Minus => p.minus[i],
    };
    let sensitivity = |stream: Stream, part: StreamPart, i: usize| match stream {
        Stream::G => half(part, &four.0, i),
        Stream::H => half(part, &four.1, i),
    };
    for (i, &place) in to.iter().enumerate() {
        let all: f64 =
            [&four.0.plus, &four.0.minus, &four.1.plus, &four.1.minus].iter().map(|d| d[i].abs()).sum();
        let (value, size) = match method {
            SplitMap::Gradient => {
                let d = half(StreamPart::Combined, &four.0, i) - half(StreamPart::Combined, &four.1, i);
                (d / channels as f64, all)
            }
            SplitMap::SplitGrad(stream, part) => (sensitivity(stream, part, i) / channels as f64, all),
            SplitMap::SplitCam(stream, part) => {
                let activation = if part == StreamPart::Combined { a[i] } else { half(part, pair, i) };
                (sensitivity(stream, part, i) * activation, all * sample.terms[at][i])
            }
            SplitMap::SplitLrp(map) => {
                let value = match map {
                    RelevanceMap::Pos => r.plus[i],
                    RelevanceMap::Neg => r.minus[i],
                    RelevanceMap::Comb => r.plus[i] - r.minus[i],
                };
                (value, r.size(i))
            }
        };
        values[place] += value;
        terms[place] += size;
    }
    LiteralMap { values, terms: terms.into_iter().fold(0.0, f64::max), unsteady: 0.0 }
}
