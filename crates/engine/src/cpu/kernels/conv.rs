//! Convolution as matrix products over tiles of unfolded patches; a 1×1 convolution needs no unfolding.
//! How the work is cut depends on the sizes alone, so the bits do not depend on the number of threads.

use std::ops::Range;

use monosplit_graph::op::Window;
use rayon::prelude::*;

use super::columns::unfold;
use super::gemm::{Matrix, MatrixMut, multiply};
use super::window::Walk;
use crate::cpu::real::Real;

/// Positions of a tile that one task handles alone, its patches staying in cache.
const NARROW_TILE: Range<usize> = 128..1024;
/// Elements of the patches of a narrow tile.
const NARROW_ELEMENTS: usize = 1 << 18;
/// Elements of the patches of a tile whose product is shared out by output channels.
const WIDE_ELEMENTS: usize = 1 << 22;
/// From this many narrow tiles on there is enough to share out by tiles.
const MANY_TILES: usize = 8;
/// Output channels of one task when channels are shared out, at most.
const CHANNEL_BLOCK: usize = 64;

/// A convolution of known sizes.
pub(crate) struct Convolution {
    walk: Walk,
    groups: usize,
    group_inputs: usize,
    group_outputs: usize,
    pointwise: bool,
}

impl Convolution {
    /// The convolution of an input `x` with a kernel `w` to an output `y`, each given by its shape.
    pub(crate) fn new(window: &Window, groups: usize, x: &[usize], w: &[usize], y: &[usize]) -> Self {
        Convolution {
            walk: Walk::new(window, &x[2..], &y[2..]),
            groups,
            group_inputs: w[1],
            group_outputs: w[0] / groups,
            pointwise: is_pointwise(window),
        }
    }

    fn depth(&self) -> usize {
        self.group_inputs * self.walk.taps()
    }

    /// Positions whose patches have about `elements` elements, and never more than [`WIDE_ELEMENTS`].
    fn tile(&self, elements: usize) -> usize {
        let within = |elements: usize| (elements / self.depth().max(1)).max(1);
        within(elements).max(NARROW_TILE.start.min(within(WIDE_ELEMENTS)))
    }

    /// `y ← w ⋆ x + bias`.
    pub(crate) fn run<R: Real>(&self, x: &[R], w: &[R], bias: Option<&[R]>, y: &mut [R]) {
        let (inputs, outputs) = (self.group_inputs * self.walk.input_len(), self.walk.output_len());
        let rows = self.group_outputs;
        y.par_chunks_mut(rows * outputs).enumerate().for_each(|(part, y)| {
            let group = part % self.groups;
            let x = &x[part * inputs..(part + 1) * inputs];
            let w = Matrix::dense(&w[group * rows * self.depth()..], rows, self.depth());
            let bias = bias.map(|b| &b[group * rows..(group + 1) * rows]);
            let narrow = self.tile(NARROW_ELEMENTS).min(NARROW_TILE.end);
            if outputs.div_ceil(narrow) >= MANY_TILES {
                self.share_tiles(x, w, bias, y, narrow);
            } else {
                self.share_channels(x, w, bias, y);
            }
        });
    }

    fn share_tiles<R: Real>(&self, x: &[R], w: Matrix<'_, R>, bias: Option<&[R]>, y: &mut [R], tile: usize) {
        let outputs = self.walk.output_len();
        let mut tiles: Vec<Vec<&mut [R]>> = (0..outputs.div_ceil(tile)).map(|_| Vec::new()).collect();
        for row in y.chunks_mut(outputs) {
            for (tile, piece) in tiles.iter_mut().zip(row.chunks_mut(tile)) {
                tile.push(piece);
            }
        }
        let scratch = || (Vec::new(), Vec::new());
        tiles.into_par_iter().enumerate().for_each_init(scratch, |(patches, product), (index, pieces)| {
            let positions = index * tile..((index + 1) * tile).min(outputs);
            let width = positions.len();
            if !self.pointwise {
                patches.resize(self.depth() * width, R::ZERO);
                for (channel, rows) in patches.chunks_mut(self.walk.taps() * width).enumerate() {
                    unfold(&self.walk, self.plane(x, channel), positions.clone(), rows);
                }
            }
            product.resize(w.rows * width, R::ZERO);
            let result =
                MatrixMut { data: product.as_mut_slice(), rows: w.rows, columns: width, row_stride: width };
            multiply(w, self.patches(x, patches, &positions), result, false);
            for (channel, (piece, row)) in pieces.into_iter().zip(product.chunks(width)).enumerate() {
                let shift = bias.map_or(R::ZERO, |b| b[channel]);
                for (y, &v) in piece.iter_mut().zip(row) {
                    *y = v + shift;
                }
            }
        });
    }

    fn share_channels<R: Real>(&self, x: &[R], w: Matrix<'_, R>, bias: Option<&[R]>, y: &mut [R]) {
        let outputs = self.walk.output_len();
        let tile = self.tile(WIDE_ELEMENTS).min(outputs);
        let block = w.rows.div_ceil(MANY_TILES).next_multiple_of(8).min(CHANNEL_BLOCK);
        let mut patches = Vec::new();
        for first in (0..outputs).step_by(tile) {
            let positions = first..(first + tile).min(outputs);
            let width = positions.len();
            if !self.pointwise {
                patches.resize(self.depth() * width, R::ZERO);
                patches.par_chunks_mut(self.walk.taps() * width).enumerate().for_each(|(channel, rows)| {
                    unfold(&self.walk, self.plane(x, channel), positions.clone(), rows);
                });
            }
            y.par_chunks_mut(block * outputs).enumerate().for_each(|(index, y)| {
                let channels = y.len() / outputs;
                let first_channel = index * block;
                for (channel, row) in y.chunks_mut(outputs).enumerate() {
                    let shift = bias.map_or(R::ZERO, |b| b[first_channel + channel]);
                    row[positions.clone()].fill(shift);
                }
                let y = &mut y[positions.start..];
                let result = MatrixMut { data: y, rows: channels, columns: width, row_stride: outputs };
                let w = w.rows(first_channel, channels);
                multiply(w, self.patches(x, &patches, &positions), result, true);
            });
        }
    }

    fn plane<'a, R>(&self, x: &'a [R], channel: usize) -> &'a [R] {
        let size = self.walk.input_len();
        &x[channel * size..(channel + 1) * size]
    }

    /// The patches at `positions` as a matrix: the input itself where nothing had to be unfolded.
    fn patches<'a, R>(&self, x: &'a [R], unfolded: &'a [R], positions: &Range<usize>) -> Matrix<'a, R> {
        if self.pointwise {
            Matrix::dense(x, self.depth(), self.walk.input_len()).columns(positions.start, positions.len())
        } else {
            Matrix::dense(unfolded, self.depth(), positions.len())
        }
    }
}

/// Whether a window reads exactly the element under it.
pub(crate) fn is_pointwise(window: &Window) -> bool {
    let ones = |v: &[usize]| v.iter().all(|&n| n == 1);
    ones(&window.kernel) && ones(&window.stride) && window.pad.iter().all(|&p| p == (0, 0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cpu::kernels::testing::{Random, assert_close, windows};

    /// The definition of a convolution, summed directly in double precision.
    pub(crate) fn definition(
        window: &Window,
        groups: usize,
        (x, xs): (&[f64], &[usize]),
        (w, ws): (&[f64], &[usize]),
        ys: &[usize],
    ) -> Vec<f64> {
        let axes = window.axes();
        let index = |at: &[usize], shape: &[usize]| at.iter().zip(shape).fold(0, |i, (&a, &n)| i * n + a);
        let digits = |mut flat: usize, shape: &[usize]| {
            let mut at = vec![0; shape.len()];
            for (digit, &n) in at.iter_mut().zip(shape).rev() {
                *digit = flat % n;
                flat /= n;
            }
            at
        };
        let taps: usize = window.kernel.iter().product();
        (0..ys.iter().product())
            .map(|flat| {
                let y = digits(flat, ys);
                let group = y[1] / (ws[0] / groups);
                let mut sum = 0.0;
                for channel in 0..ws[1] {
                    for tap in 0..taps {
                        let tap = digits(tap, &window.kernel);
                        let mut at = vec![y[0], group * ws[1] + channel];
                        for axis in 0..axes {
                            let c = y[2 + axis] * window.stride[axis] + tap[axis] * window.dilation[axis];
                            at.push(c.wrapping_sub(window.pad[axis].0));
                        }
                        if at[2..].iter().zip(&xs[2..]).all(|(a, n)| a < n) {
                            let weight = [&[y[1], channel], tap.as_slice()].concat();
                            sum += x[index(&at, xs)] * w[index(&weight, ws)];
                        }
                    }
                }
                sum
            })
            .collect()
    }

    pub(crate) fn output_shape(window: &Window, n: usize, channels: usize, input: &[usize]) -> Vec<usize> {
        let spatial = (0..window.axes()).map(|axis| window.positions(axis, input[axis]).unwrap());
        [n, channels].into_iter().chain(spatial).collect()
    }

    #[test]
    fn convolutions_of_one_to_three_axes_equal_direct_sums() {
        let mut random = Random::new(4);
        for axes in 1..=3 {
            for (mut window, input) in windows(&mut random, axes, 30) {
                window.ceil = false;
                let groups = random.within(1, 3);
                let (cin, cout, n) = (random.within(1, 3), random.within(1, 3), random.within(1, 2));
                let xs = [&[n, cin * groups], input.as_slice()].concat();
                let ws = [&[cout * groups, cin], window.kernel.as_slice()].concat();
                let ys = output_shape(&window, n, cout * groups, &input);
                let x = random.reals::<f64>(xs.iter().product());
                let w = random.reals::<f64>(ws.iter().product());
                let mut y = vec![f64::NAN; ys.iter().product()];
                Convolution::new(&window, groups, &xs, &ws, &ys).run(&x, &w, None, &mut y);
                assert_close(&y, &definition(&window, groups, (&x, &xs), (&w, &ws), &ys), 1e-13);
            }
        }
    }

    #[test]
    fn both_ways_of_sharing_work_and_the_pointwise_path_equal_direct_sums() {
        let mut random = Random::new(5);
        for (kernel, pad, size, channels, outputs) in
            [(3, 1, 100, 3, 4), (1, 0, 100, 5, 3), (1, 0, 9, 40, 70), (3, 1, 7, 20, 70)]
        {
            let mut window = Window::new([kernel, kernel]);
            window.pad = vec![(pad, pad); 2];
            let (xs, ws) = ([2, channels, size, size], [outputs, channels, kernel, kernel]);
            let ys = [2, outputs, size, size];
            let x = random.reals::<f64>(xs.iter().product());
            let w = random.reals::<f64>(ws.iter().product());
            let bias = random.reals::<f64>(outputs);
            let mut expected = definition(&window, 1, (&x, &xs), (&w, &ws), &ys);
            for (i, e) in expected.iter_mut().enumerate() {
                *e += bias[i / (size * size) % outputs];
            }
            let convolution = Convolution::new(&window, 1, &xs, &ws, &ys);
            let mut y = vec![f64::NAN; expected.len()];
            convolution.run(&x, &w, Some(&bias), &mut y);
            assert_close(&y, &expected, 1e-13);
            let narrow = |v: &[f64]| v.iter().map(|&v| v as f32).collect::<Vec<_>>();
            let mut y = vec![f32::NAN; expected.len()];
            convolution.run(&narrow(&x), &narrow(&w), Some(&narrow(&bias)), &mut y);
            assert_close(&y, &expected, 1e-6);
        }
    }
}
