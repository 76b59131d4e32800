//! Unfolding: the patches a convolution reads, laid out as the columns of a matrix, and folding, its
//! transpose. Only a tile of positions is ever laid out at a time.

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

/// Lays out what every tap of one input plane reads at `positions`: `taps` rows of `positions.len()`.
pub(crate) fn unfold<R: Real>(walk: &Walk, plane: &[R], positions: Range<usize>, rows: &mut [R]) {
    let step = walk.step();
    for (tap, target) in rows.chunks_exact_mut(positions.len()).enumerate() {
        let mut done = 0;
        for (row, column, length) in pieces(walk, positions.clone()) {
            let piece = &mut target[done..done + length];
            done += length;
            let Some((start, run)) = walk.read(row, tap) else {
                piece.fill(R::ZERO);
                continue;
            };
            let first = run.first.clamp(column, column + length);
            let end = run.end.clamp(first, column + length);
            piece[..first - column].fill(R::ZERO);
            piece[end - column..].fill(R::ZERO);
            if first < end {
                let from = &plane[start + run.input + (first - run.first) * step..];
                copy_spaced(&mut piece[first - column..end - column], from, step);
            }
        }
    }
}

fn copy_spaced<R: Copy>(target: &mut [R], from: &[R], step: usize) {
    if step == 1 {
        target.copy_from_slice(&from[..target.len()]);
    } else {
        pair(target, from, step, |t, &f| *t = f);
    }
}

/// Adds `taps` rows of `positions.len()` back to where [`unfold`] would have read them.
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
