//! Unfolding: the patches a convolution reads, laid out as panels of a matrix product, and folding, its
//! transpose. Only a few positions are ever laid out at a time.

use std::ops::Range;

use super::window::{Walk, pair};
use crate::cpu::real::Real;

/// The pieces of output rows that a range of flat output positions covers: row, first column, length.
fn pieces(walk: &Walk, positions: Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> {
    let width = walk.width();
    let mut at = positions.start;
    std::iter::from_fn(move || {
        let (row, column) = (at / width, at % width);
        let length = (width - column).min(positions.end - at);
        (length > 0).then(|| {
            at += length;
            (row, column, length)
        })
    })
}

/// A run of elements that a tap reads for some of the positions.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The first position it serves, counted from the first of the patches.
    to: usize,
    /// Where in a plane it begins.
    from: usize,
    length: usize,
}

/// How the patches at a range of positions are read from a plane: the same for every channel.
#[derive(Debug)]
pub(crate) struct Patches {
    positions: usize,
    step: usize,
    /// For every tap, what it reads and whether that serves every position.
    taps: Vec<(Vec<Reading>, bool)>,
}

impl Patches {
    pub(crate) fn new(walk: &Walk, positions: Range<usize>) -> Self {
        let step = walk.step();
        let tap = |tap: usize| {
            let (mut readings, mut done, mut served) = (Vec::new(), 0, 0);
            for (row, column, length) in pieces(walk, positions.clone()) {
                if let Some((start, run)) = walk.read(row, tap) {
                    let first = run.first.clamp(column, column + length);
                    let end = run.end.clamp(first, column + length);
                    if first < end {
                        let from = start + run.input + (first - run.first) * step;
                        readings.push(Reading { to: done + first - column, from, length: end - first });
                        served += end - first;
                    }
                }
                done += length;
            }
            (readings, served == positions.len())
        };
        Patches { positions: positions.len(), step, taps: (0..walk.taps()).map(tap).collect() }
    }

    /// The patches of a 1×1 window, which reads every element in turn.
    pub(crate) fn pointwise(positions: Range<usize>) -> Self {
        let reading = Reading { to: 0, from: positions.start, length: positions.len() };
        Patches { positions: positions.len(), step: 1, taps: vec![(vec![reading], true)] }
    }

    /// Lays out rows `depths` (channel by channel, tap by tap) of the patches of `planes`, each `plane` long,
    /// as one right panel `width` wide.
    pub(crate) fn pack<R: Real>(
        &self,
        (planes, plane): (&[R], usize),
        depths: Range<usize>,
        width: usize,
        panel: &mut [R],
    ) {
        let taps = self.taps.len();
        for (k, target) in depths.zip(panel.chunks_exact_mut(width)) {
            let (readings, whole) = &self.taps[k % taps];
            let plane = &planes[k / taps * plane..][..plane];
            if !*whole || self.positions < width {
                target.fill(R::ZERO);
            }
            for reading in readings {
                let from = &plane[reading.from..];
                copy_spaced(&mut target[reading.to..reading.to + reading.length], from, self.step);
            }
        }
    }
}

fn copy_spaced<R: Copy>(target: &mut [R], from: &[R], step: usize) {
    if step == 1 {
        match <&mut [R; 32]>::try_from(&mut *target) {
            // A length known to the compiler spares a call for what is a handful of vectors.
            Ok(target) => target.copy_from_slice(&from[..32]),
            Err(_) => target.copy_from_slice(&from[..target.len()]),
        }
    } else {
        pair(target, from, step, |t, &f| *t = f);
    }
}

/// Adds `taps` rows of `positions.len()` back to where [`Patches`] would have read them.
pub(crate) fn fold<R: Real>(walk: &Walk, rows: &[R], positions: Range<usize>, plane: &mut [R]) {
    let step = walk.step();
    for (tap, source) in rows.chunks_exact(positions.len()).enumerate() {
        let mut done = 0;
        for (row, column, length) in pieces(walk, positions.clone()) {
            let piece = &source[done..done + length];
            done += length;
            let Some((start, run)) = walk.read(row, tap) else { continue };
            let first = run.first.clamp(column, column + length);
            let end = run.end.clamp(first, column + length);
            if first < end {
                let to = &mut plane[start + run.input + (first - run.first) * step..];
                add_spaced(to, &piece[first - column..end - column], step);
            }
        }
    }
}

fn add_spaced<R: Real>(to: &mut [R], source: &[R], step: usize) {
    if step == 1 {
        for (t, &s) in to.iter_mut().zip(source) {
            *t += s;
        }
    } else {
        for (t, &s) in to.iter_mut().step_by(step).zip(source) {
            *t += s;
        }
    }
}
