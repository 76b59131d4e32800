//! im2col: the patches that a convolution reads, packed as panels of a matrix product; and col2im, its transpose. Only a few
//! positions are packed at a time.

use std::ops::Range;

use super::row_loops::deinterleave;
use super::sliding_window::{SlidingWindow, pair};
use crate::cpu::real::Real;

/// The parts of output rows that a range of flat output positions covers: row, first column, length.
fn pieces(sliding: &SlidingWindow, positions: Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> {
    let width = sliding.width();
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

/// A run of elements that is copied for one tap.
#[derive(Clone, Copy, Debug)]
struct CopyRun {
    /// The index of its first element in the channel.
    from: usize,
    /// The first position it is copied for, counted from the first of the patches.
    to: u32,
    length: u32,
}

/// The memory layout of the planes that patches are read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneLayout {
    /// Distance from one channel to the next.
    pub(crate) channel: usize,
    /// Distance from one image to the next.
    pub(crate) image: usize,
    /// Length of a row, and its length filled up to whole strides where rows are deinterleaved.
    row: usize,
    phased_row: Option<usize>,
    step: usize,
}

impl PlaneLayout {
    /// Contiguous planes, of images of `channels` channels.
    pub(crate) fn plain(sliding: &SlidingWindow, channels: usize) -> Self {
        let (channel, row) = (sliding.input_len(), sliding.input[sliding.input.len() - 1]);
        PlaneLayout { channel, image: channels * channel, row, phased_row: None, step: sliding.step() }
    }

    /// Planes whose rows are deinterleaved by the stride, so that a tap reads contiguous elements.
    pub(crate) fn phased(sliding: &SlidingWindow, channels: usize) -> Self {
        let row = sliding.input[sliding.input.len() - 1];
        let phased = row.div_ceil(sliding.step()) * sliding.step();
        let channel = sliding.input_len() / row.max(1) * phased;
        PlaneLayout {
            channel,
            image: channels * channel,
            row,
            phased_row: Some(phased),
            step: sliding.step(),
        }
    }

    pub(crate) fn is_phased(&self) -> bool {
        self.phased_row.is_some()
    }

    /// Deinterleaves the rows of planes.
    pub(crate) fn deinterleave<R: Real>(&self, planes: &[R], apart: &mut [R]) {
        let Some(phased) = self.phased_row else { return };
        for (row, apart) in planes.chunks(self.row).zip(apart.chunks_mut(phased)) {
            deinterleave(row, self.step, apart);
        }
    }

    /// The offset of an element of a plane.
    fn offset_of(&self, at: usize) -> usize {
        match self.phased_row {
            None => at,
            Some(phased) => {
                let (row, column) = (at / self.row, at % self.row);
                row * phased + column % self.step * (phased / self.step) + column / self.step
            }
        }
    }

    /// Distance between what neighbouring positions read.
    fn spacing(&self) -> usize {
        if self.phased_row.is_some() { 1 } else { self.step }
    }
}

/// The copies that make up the patches at a range of positions, counted through all images. They are the same for every channel.
#[derive(Debug)]
pub(crate) struct Patches {
    positions: usize,
    spacing: usize,
    channel: usize,
    copies: Vec<CopyRun>,
    /// For every tap, the end of its copies and whether they cover every position.
    taps: Vec<(usize, bool)>,
}

impl Patches {
    pub(crate) fn new(sliding: &SlidingWindow, layout: &PlaneLayout, positions: Range<usize>) -> Self {
        let (plane, step) = (sliding.output_len(), sliding.step());
        let (mut copies, mut taps) = (Vec::new(), Vec::with_capacity(sliding.taps()));
        for tap in 0..sliding.taps() {
            let (mut done, mut served) = (0, 0);
            while done < positions.len() {
                let (image, first) = ((positions.start + done) / plane, (positions.start + done) % plane);
                let end = plane.min(first + positions.len() - done);
                for (row, column, length) in pieces(sliding, first..end) {
                    if let Some((start, run)) = sliding.read(row, tap) {
                        let first = run.first.clamp(column, column + length);
                        let end = run.end.clamp(first, column + length);
                        if first < end {
                            let at = start + run.input + (first - run.first) * step;
                            let from = image * layout.image + layout.offset_of(at);
                            let to = (done + first - column) as u32;
                            copies.push(CopyRun { from, to, length: (end - first) as u32 });
                            served += end - first;
                        }
                    }
                    done += length;
                }
            }
            taps.push((copies.len(), served == positions.len()));
        }
        let (spacing, channel) = (layout.spacing(), layout.channel);
        Patches { positions: positions.len(), spacing, channel, copies, taps }
    }

    /// Packs rows `depths` (channel by channel, tap by tap) of the patches of `planes` as one right panel of this width.
    pub(crate) fn pack<R: Real>(&self, planes: &[R], depths: Range<usize>, width: usize, panel: &mut [R]) {
        let taps = self.taps.len();
        for (k, target) in depths.zip(panel.chunks_exact_mut(width)) {
            let tap = k % taps;
            let first = if tap == 0 { 0 } else { self.taps[tap - 1].0 };
            let (end, whole) = self.taps[tap];
            let planes = &planes[k / taps * self.channel..];
            if !whole || self.positions < width {
                target.fill(R::ZERO);
            }
            for copy in &self.copies[first..end] {
                let target = &mut target[copy.to as usize..][..copy.length as usize];
                copy_spaced(target, &planes[copy.from..], self.spacing);
            }
        }
    }
}

fn copy_spaced<R: Copy>(target: &mut [R], from: &[R], step: usize) {
    if step == 1 {
        match <&mut [R; 32]>::try_from(&mut *target) {
            // A length known to the compiler avoids a call for a few vectors.
            Ok(target) => target.copy_from_slice(&from[..32]),
            Err(_) => target.copy_from_slice(&from[..target.len()]),
        }
    } else {
        pair(target, from, step, |t, &f| *t = f);
    }
}

/// Adds `taps` rows of `positions.len()` back to where [`Patches`] would have read them.
pub(crate) fn col2im<R: Real>(sliding: &SlidingWindow, rows: &[R], positions: Range<usize>, plane: &mut [R]) {
    let step = sliding.step();
    for (tap, source) in rows.chunks_exact(positions.len()).enumerate() {
        let mut done = 0;
        for (row, column, length) in pieces(sliding, positions.clone()) {
            let piece = &source[done..done + length];
            done += length;
            let Some((start, run)) = sliding.read(row, tap) else { continue };
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
