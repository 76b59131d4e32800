//! Implicit GEMM: convolutions and their transposes as matrix products that read padded planes in place. Every tap of every channel
//! is a row of the right operand; no patches are packed, and nothing is added up afterwards.
#![allow(unsafe_code)]

use std::ops::Range;

use monosplit_graph::op::Window;

use super::epilogue::Epilogue;
use super::gemm::{InitialSums, LhsPanels, Matrix, Region};
use super::gemm_rhs::{BEYOND, RhsPanels};
use super::padded_planes::{PaddedPlanes, PlanarWindow, Sums};
use super::scratch::Scratch;
use super::simd_level::SimdLevel;
use crate::cpu::real::Real;
use crate::cpu::thread_pool::{parallel_for, parallel_for_chunks};

/// About the most positions computed at a time.
pub(crate) const POSITIONS: usize = 1 << 10;
/// About how many tasks there are for every thread.
const PIECES: usize = 8;
/// Elements of padded planes that are in memory at a time, unless one group of an image has more.
const MAX_PADDED: usize = 1 << 24;
/// About how many elements of padded planes one task copies.
const GRAIN: usize = 1 << 13;

/// The weights of a transposed convolution, packed: for every group and every phase of the stride, the taps that reach it.
#[derive(Debug)]
pub(crate) struct PackedPhases<R> {
    window: PlanarWindow,
    groups: Vec<Vec<LhsPanels<R>>>,
}

impl<R: Real> PackedPhases<R> {
    /// Packs a kernel of shape `[inputs, outputs of a group, …]`.
    pub(crate) fn new(
        level: SimdLevel,
        window: PlanarWindow,
        groups: usize,
        w: &[R],
        shape: &[usize],
    ) -> Self {
        let (taps, inputs, outputs) = (window.taps(), shape[0] / groups, shape[1]);
        let pack = |group: usize, reaching: &[usize]| {
            let mut kernel = Vec::with_capacity(outputs * inputs * reaching.len());
            for output in 0..outputs {
                for input in 0..inputs {
                    let at = ((group * inputs + input) * outputs + output) * taps;
                    kernel.extend(reaching.iter().map(|tap| w[at + tap]));
                }
            }
            LhsPanels::pack(level, Matrix::dense(&kernel, outputs, inputs * reaching.len()))
        };
        let reaching: Vec<Vec<usize>> =
            window.phases().map(|phase| window.reaching(phase).collect()).collect();
        let phases = |group: usize| reaching.iter().map(|taps| pack(group, taps)).collect();
        let groups = (0..groups).map(phases).collect();
        PackedPhases { window, groups }
    }

    /// `y ← wᵀ ⋆ x + bias`, then the epilogue, for the transpose of the convolution that takes `y` to `x`.
    pub(crate) fn run(
        &self,
        (x, xs): (&[R], &[usize]),
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        (y, ys): (&mut [R], &[usize]),
    ) {
        let (input, output) = ([xs[2], xs[3]], [ys[2], ys[3]]);
        let padded = PaddedPlanes::transposed(&self.window, input, output);
        let inputs = xs[1] / self.groups.len();
        let groups: Vec<&[LhsPanels<R>]> = self.groups.iter().map(Vec::as_slice).collect();
        ImplicitGemm::new(padded, input, output, inputs).run(x, &groups, bias, epilogue, y);
    }
}

/// An implicit GEMM of known sizes.
pub(crate) struct ImplicitGemm {
    padded: PaddedPlanes,
    input: [usize; 2],
    output: [usize; 2],
    /// Channels of a group that are read.
    inputs: usize,
    /// For every sum, the offsets of its rows from the first padded plane of a group.
    tap_offsets: Vec<Vec<usize>>,
}

impl ImplicitGemm {
    fn new(padded: PaddedPlanes, input: [usize; 2], output: [usize; 2], inputs: usize) -> Self {
        let length = padded.length();
        let of_sum = |sums: &Sums| {
            let taps = &sums.taps;
            (0..inputs).flat_map(|input| taps.iter().map(move |tap| input * length + tap.1)).collect()
        };
        let tap_offsets = padded.sums.iter().map(of_sum).collect();
        ImplicitGemm { padded, input, output, inputs, tap_offsets }
    }

    /// The convolution of planes of `inputs` channels a group, if it has two axes and a small window.
    pub(crate) fn convolution(
        window: &Window,
        inputs: usize,
        input: &[usize],
        output: &[usize],
    ) -> Option<Self> {
        let window = PlanarWindow::new(window)?;
        let (&[height, width], &[rows, columns]) = (input, output) else { return None };
        let padded = PaddedPlanes::new(&window, [rows, columns]);
        Some(ImplicitGemm::new(padded, [height, width], [rows, columns], inputs))
    }

    /// Computes all sums, for each of which `w` has a left operand in every group, and applies the epilogue.
    pub(crate) fn run<R: Real>(
        &self,
        x: &[R],
        w: &[&[LhsPanels<R>]],
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        y: &mut [R],
    ) {
        let Some(left) = w.first().and_then(|sums| sums.first()) else { return };
        let outputs = left.rows_of(&(0..left.panels())).len();
        let (group, read) = (self.inputs * self.padded.length(), self.inputs * self.input[0] * self.input[1]);
        let written = (outputs * self.output[0] * self.output[1]).max(1);
        let parts = (MAX_PADDED / group.max(1)).max(1);
        for (index, y) in y.chunks_mut(parts * written).enumerate() {
            let first = index * parts;
            let x = &x[first * read..(first + y.len() / written) * read];
            self.run_some(x, (w, left), first, (bias, epilogue), y);
        }
    }

    /// The same for some groups of images, of which `before` come before the first; `left` is one of the left operands.
    fn run_some<R: Real>(
        &self,
        x: &[R],
        (w, left): (&[&[LhsPanels<R>]], &LhsPanels<R>),
        before: usize,
        (bias, epilogue): (Option<&[R]>, Option<&Epilogue<'_, R>>),
        y: &mut [R],
    ) {
        let (panels, outputs) = (left.panels(), left.rows_of(&(0..left.panels())).len());
        let (plane, group) = (self.output[0] * self.output[1], self.inputs * self.padded.length());
        let parts = y.len() / (outputs * plane).max(1);
        let (padded, bands) = (self.pad_planes(x, parts * self.inputs), self.bands(parts * panels));
        let y = Region::new(y, parts * outputs, plane, plane);
        parallel_for(parts * bands.len() * panels, |task| {
            let (part, panel) = (task / panels / bands.len(), task % panels..task % panels + 1);
            let of_group = (before + part) % w.len();
            let band = &bands[task / panels % bands.len()];
            let own = left.rows_of(&panel);
            let (rows, first) = (part * outputs + own.start, of_group * outputs + own.start);
            let tap_offsets = self.outputs(band);
            // SAFETY: tasks have disjoint channels and rows.
            let mut y = unsafe { y.part(rows..rows + own.len(), tap_offsets.clone()) };
            let start = bias.map_or(InitialSums::Zero, |bias| InitialSums::Rows(&bias[first..]));
            let limits = epilogue.and_then(Epilogue::clamp);
            for (sum, w) in w[of_group].iter().enumerate() {
                let w = (w, panel.clone());
                self.add_up(sum, &padded[part * group..], w, band, (start, limits), &mut y);
            }
            if let Some(Epilogue::Map(epilogue)) = epilogue {
                let rows = before * outputs + rows;
                (0..y.rows).for_each(|row| epilogue((rows + row) * plane + tap_offsets.start, y.row(row)));
            }
        });
    }

    /// One of the sums over the padded planes of a group, in a band of rows, for the channels of some panels.
    fn add_up<R: Real>(
        &self,
        sum: usize,
        padded: &[R],
        (w, panels): (&LhsPanels<R>, Range<usize>),
        band: &Range<usize>,
        (start, limits): (InitialSums<'_, R>, Option<[R; 2]>),
        y: &mut Region<'_, R>,
    ) {
        let (sums, pitch) = (&self.padded.sums[sum], self.padded.pitch);
        let rows = band.start.min(sums.rows)..band.end.min(sums.rows);
        if rows.is_empty() || sums.columns == 0 {
            return;
        }
        let columns = (rows.len() - 1) * pitch + sums.columns;
        let mut room = Scratch::new(y.rows * columns);
        let mut result = Region::new(&mut room, y.rows, columns, columns);
        let right = RhsPanels::offsets(&padded[rows.start * pitch..], &self.tap_offsets[sum], columns);
        w.multiply_within(panels, 0, right, start, limits, &mut result);
        for row in 0..y.rows {
            self.padded.place(sums, rows.len(), result.row(row), y.row(row), self.output[1]);
        }
    }

    /// `count` padded planes, one after the other, followed by zeros that may be read.
    fn pad_planes<R: Real>(&self, x: &[R], count: usize) -> Scratch<R> {
        let (plane, length) = (self.input[0] * self.input[1], self.padded.length());
        let mut all = Scratch::new(count * length + length + self.padded.beyond() + BEYOND);
        let (padded, beyond) = all.split_at_mut(count * length);
        beyond.fill(R::ZERO);
        let planes = GRAIN.div_ceil(length.max(1));
        parallel_for_chunks(padded, planes * length, |task, padded| {
            let mut apart = self.padded.row(self.input[1]);
            for (local, padded) in padded.chunks_mut(length.max(1)).enumerate() {
                padded.fill(R::ZERO);
                let x = &x[(task * planes + local) * plane..][..plane];
                if plane > 0 {
                    self.padded.fill(x, self.input, padded, &mut apart);
                }
            }
        });
        all
    }

    /// Bands of rows of sums. There are `others` tasks for each, and enough for all threads. Bits do not depend on them.
    fn bands(&self, others: usize) -> Vec<Range<usize>> {
        let rows = self.padded.sums.iter().map(|sums| sums.rows).max().unwrap_or(0);
        let wanted = (PIECES * rayon::current_num_threads()).div_ceil(others.max(1));
        let count = (rows * self.padded.pitch).div_ceil(POSITIONS).max(wanted).clamp(1, rows.max(1));
        (0..count).map(|band| band * rows / count..(band + 1) * rows / count).collect()
    }

    /// The positions in an output plane that a band of rows belongs to.
    fn outputs(&self, band: &Range<usize>) -> Range<usize> {
        let step = self.padded.sums.first().map_or(1, |sums| sums.step[0]);
        let row = |row: usize| (row * step).min(self.output[0]) * self.output[1];
        row(band.start)..row(band.end)
    }
}
