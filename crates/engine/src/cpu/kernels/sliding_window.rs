//! A window sliding over the spatial axes of one plane, for any number of axes. In convolutions and pools alike, for every output row
//! and every tap, a span of output elements reads evenly spaced input elements.

use monosplit_graph::op::{Divisor, Window};

/// The output elements of a row for which one tap of the last axis reads input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TapSpan {
    /// First output column.
    pub(crate) first: usize,
    /// One past the last output column; `first` if the tap reads only padding.
    pub(crate) end: usize,
    /// The input column that the first output column reads.
    pub(crate) input: usize,
}

/// Calls `f` with every element of `y` and the element of `x` it reads, `step` apart.
#[inline]
pub(crate) fn pair<A, B>(y: &mut [A], x: &[B], step: usize, f: impl Fn(&mut A, &B)) {
    match step {
        1 => y.iter_mut().zip(x).for_each(|(y, x)| f(y, x)),
        2 => y.iter_mut().zip(x.chunks(2)).for_each(|(y, x)| f(y, &x[0])),
        _ => y.iter_mut().zip(x.iter().step_by(step)).for_each(|(y, x)| f(y, x)),
    }
}

/// A window that slides over an input of known size.
#[derive(Clone, Debug)]
pub(crate) struct SlidingWindow {
    pub(crate) input: Vec<usize>,
    pub(crate) output: Vec<usize>,
    window: Window,
    runs: Vec<TapSpan>,
}

impl SlidingWindow {
    /// The window over an input of spatial size `input` with `output` positions.
    pub(crate) fn new(window: &Window, input: &[usize], output: &[usize]) -> Self {
        let last = window.axes() - 1;
        let (stride, dilation, before) = (window.stride[last], window.dilation[last], window.pad[last].0);
        let run = |tap: usize| {
            let ahead = tap * dilation;
            let first = before.saturating_sub(ahead).div_ceil(stride);
            let end = match (input[last] + before).checked_sub(ahead + 1) {
                Some(room) if input[last] > 0 => (room / stride + 1).min(output[last]),
                _ => 0,
            };
            match first < end {
                true => TapSpan { first, end, input: first * stride + ahead - before },
                false => TapSpan { first: 0, end: 0, input: 0 },
            }
        };
        let runs = (0..window.kernel[last]).map(run).collect();
        SlidingWindow { input: input.to_vec(), output: output.to_vec(), window: window.clone(), runs }
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Elements of an input plane.
    pub(crate) fn input_len(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of an output plane.
    pub(crate) fn output_len(&self) -> usize {
        self.output.iter().product()
    }

    /// Number of taps.
    pub(crate) fn taps(&self) -> usize {
        self.window.kernel.iter().product()
    }

    /// Elements of an output row.
    pub(crate) fn width(&self) -> usize {
        self.output[self.output.len() - 1]
    }

    /// Distance between the input elements that neighbouring output elements read.
    pub(crate) fn step(&self) -> usize {
        self.window.stride[self.window.axes() - 1]
    }

    /// What tap `tap` (row-major in the kernel) reads for output row `row`: the start of the input row and
    /// the span along it; `None` if it reads only padding.
    pub(crate) fn read(&self, row: usize, tap: usize) -> Option<(usize, TapSpan)> {
        let last = self.window.axes() - 1;
        let width = self.window.kernel[last];
        let run = self.runs[tap % width];
        if run.first == run.end {
            return None;
        }
        self.input_row(row, tap / width).map(|start| (start, run))
    }

    /// Start of the input row that the outer tap `tap` reads for output row `row`.
    fn input_row(&self, mut row: usize, mut tap: usize) -> Option<usize> {
        let last = self.window.axes() - 1;
        let (mut start, mut pitch) = (0, self.input[last]);
        for axis in (0..last).rev() {
            let (position, offset) = (row % self.output[axis], tap % self.window.kernel[axis]);
            row /= self.output[axis];
            tap /= self.window.kernel[axis];
            let at = (position * self.window.stride[axis] + offset * self.window.dilation[axis])
                .checked_sub(self.window.pad[axis].0)
                .filter(|&at| at < self.input[axis])?;
            start += at * pitch;
            pitch *= self.input[axis];
        }
        Some(start)
    }

    /// Whether there is one position and its window is the whole input.
    pub(crate) fn covers_everything(&self) -> bool {
        self.output_len() == 1
            && self.input == self.window.kernel
            && self.window.pad.iter().all(|pad| pad.0 == 0)
            && self.window.dilation.iter().all(|&dilation| dilation == 1)
    }

    /// The span of every tap of the last axis.
    pub(crate) fn runs(&self) -> &[TapSpan] {
        &self.runs
    }

    /// The starts of the input rows that output row `row` reads.
    pub(crate) fn input_rows(&self, row: usize) -> impl Iterator<Item = usize> {
        (0..self.taps() / self.runs.len()).filter_map(move |tap| self.input_row(row, tap))
    }

    /// Calls `visit(tap, input row start, span)` for every tap of output row `row` that reads input, taps in
    /// row-major order.
    pub(crate) fn visit(&self, row: usize, mut visit: impl FnMut(usize, usize, TapSpan)) {
        let outer_taps = self.taps() / self.runs.len();
        for outer in 0..outer_taps {
            let Some(start) = self.input_row(row, outer) else { continue };
            for (column, &run) in self.runs.iter().enumerate() {
                if run.first < run.end {
                    visit(outer * self.runs.len() + column, start, run);
                }
            }
        }
    }

    /// One over the divisor of every output element of a plane.
    pub(crate) fn reciprocals(&self, divisor: Divisor) -> Vec<f64> {
        let counts: Vec<Vec<usize>> = (0..self.window.axes()).map(|axis| self.count(axis, divisor)).collect();
        let mut all = vec![1.0];
        for axis in &counts {
            all = all.iter().flat_map(|&n: &f64| axis.iter().map(move |&m| n * m as f64)).collect();
        }
        // A window that covers nothing has the sum zero; its mean is taken to be zero too.
        all.iter().map(|&n| 1.0 / n.max(1.0)).collect()
    }

    fn count(&self, axis: usize, divisor: Divisor) -> Vec<usize> {
        let (before, after) = self.window.pad[axis];
        let counted = match divisor {
            Divisor::One => return vec![1; self.output[axis]],
            Divisor::Covered => before..before + self.input[axis],
            Divisor::Padded => 0..before + self.input[axis] + after,
        };
        let taps = 0..self.window.kernel[axis];
        (0..self.output[axis])
            .map(|position| {
                let start = position * self.window.stride[axis];
                taps.clone()
                    .filter(|tap| counted.contains(&(start + tap * self.window.dilation[axis])))
                    .count()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::{Random, windows};

    #[test]
    fn every_tap_reads_the_element_the_definition_names() {
        let mut random = Random::new(3);
        for axes in 1..=3 {
            for (window, input) in windows(&mut random, axes, 40) {
                let output: Vec<usize> =
                    (0..axes).map(|axis| window.positions(axis, input[axis]).unwrap()).collect();
                let sliding = SlidingWindow::new(&window, &input, &output);
                let mut found = vec![vec![None; sliding.taps()]; sliding.output_len()];
                for row in 0..sliding.output_len() / sliding.width() {
                    sliding.visit(row, |tap, start, run| {
                        for x in run.first..run.end {
                            let read = start + run.input + (x - run.first) * sliding.step();
                            found[row * sliding.width() + x][tap] = Some(read);
                        }
                    });
                }
                for (position, taps) in found.iter().enumerate() {
                    for (tap, &read) in taps.iter().enumerate() {
                        assert_eq!(read, definition(&window, &input, &output, position, tap));
                    }
                }
            }
        }
    }

    fn definition(
        window: &Window,
        input: &[usize],
        output: &[usize],
        mut position: usize,
        mut tap: usize,
    ) -> Option<usize> {
        let mut at = vec![0; input.len()];
        for axis in (0..input.len()).rev() {
            let coordinate = (position % output[axis]) as isize * window.stride[axis] as isize
                + (tap % window.kernel[axis]) as isize * window.dilation[axis] as isize
                - window.pad[axis].0 as isize;
            if coordinate < 0 || coordinate >= input[axis] as isize {
                return None;
            }
            at[axis] = coordinate as usize;
            position /= output[axis];
            tap /= window.kernel[axis];
        }
        Some(at.iter().zip(input).fold(0, |index, (&a, &n)| index * n + a))
    }
}
