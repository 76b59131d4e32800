//! The gradient of a convolution's weights: itself a convolution, whose window is larger than its result. It has few positions, each
//! a sum over a whole plane. Positions and taps are exchanged, so that matrix products run over the plane.

use monosplit_graph::op::Window;
use rayon::prelude::*;

use super::chunks::for_each_chunk;
use super::gemm::{Matrix, Region, multiply};
use super::im2col::{Patches, PlaneLayout};
use super::sliding_window::SlidingWindow;
use crate::cpu::real::Real;
use crate::cpu::unwinding::filled;

/// Samples of `x` and channels of `y` that one task computes.
const SAMPLES: usize = 16;
const CHANNELS: usize = 64;

/// A weight gradient of known sizes.
pub(crate) struct WeightGradient {
    sliding: SlidingWindow,
    groups: usize,
    /// Channels of a group that are summed over.
    inputs: usize,
    /// Channels of a group that are computed.
    outputs: usize,
}

impl WeightGradient {
    /// The convolution of an input `x` with a kernel `w` to an output `y`, each given by its shape.
    pub(crate) fn new(window: &Window, groups: usize, x: &[usize], w: &[usize], y: &[usize]) -> Self {
        let swapped = Window {
            kernel: y[2..].to_vec(),
            stride: window.dilation.clone(),
            dilation: window.stride.clone(),
            pad: window.pad.clone(),
            ceil: false,
        };
        let sliding = SlidingWindow::new(&swapped, &x[2..], &w[2..]);
        WeightGradient { sliding, groups, inputs: w[1], outputs: w[0] / groups }
    }

    /// `y ← w ⋆ x`
    pub(crate) fn run<R: Real>(&self, x: &[R], w: &[R], y: &mut [R]) {
        let sample = self.groups * self.outputs * self.sliding.taps();
        for_each_chunk(y, SAMPLES * sample, &|block, y| {
            let parts: Vec<(usize, usize)> = (0..self.groups)
                .flat_map(|group| (0..self.outputs).step_by(CHANNELS).map(move |first| (group, first)))
                .collect();
            let products: Vec<Vec<R>> = parts
                .par_iter()
                .map(|&(group, first)| self.part(x, w, block * SAMPLES, y.len() / sample, (group, first)))
                .collect();
            for (&(group, first), product) in parts.iter().zip(&products) {
                self.store(product, (group, first), y);
            }
        });
    }

    /// Rows of samples and positions, columns of at most [`CHANNELS`] channels from `first` on.
    fn part<R: Real>(
        &self,
        x: &[R],
        w: &[R],
        first_sample: usize,
        samples: usize,
        (group, first): (usize, usize),
    ) -> Vec<R> {
        let (plane, positions, taps) =
            (self.sliding.input_len(), self.sliding.output_len(), self.sliding.taps());
        let width = CHANNELS.min(self.outputs - first);
        let rows = samples * taps;
        let mut product = filled(R::ZERO, rows * width);
        let copies = Patches::new(&self.sliding, &PlaneLayout::plain(&self.sliding, 1), 0..positions);
        let mut patches = filled(R::ZERO, rows * positions);
        for input in 0..self.inputs {
            for (sample, patches) in patches.chunks_exact_mut(taps * positions).enumerate() {
                let channel =
                    (first_sample + sample) * self.groups * self.inputs + group * self.inputs + input;
                copies.pack(&x[channel * plane..(channel + 1) * plane], 0..taps, positions, patches);
            }
            let start = ((group * self.outputs + first) * self.inputs + input) * positions;
            let kernels = Matrix {
                data: &w[start..],
                rows: width,
                columns: positions,
                row_stride: self.inputs * positions,
                column_stride: 1,
            };
            let mut result = Region::new(&mut product, rows, width, width);
            multiply(Matrix::dense(&patches, rows, positions), kernels.transposed(), &mut result, true);
        }
        product
    }

    /// Stores a part of the result.
    fn store<R: Real>(&self, product: &[R], (group, first): (usize, usize), y: &mut [R]) {
        let taps = self.sliding.taps();
        let width = CHANNELS.min(self.outputs - first);
        let channels = self.groups * self.outputs;
        for (row, values) in product.chunks_exact(width).enumerate() {
            let (sample, tap) = (row / taps, row % taps);
            for (channel, &value) in values.iter().enumerate() {
                y[(sample * channels + group * self.outputs + first + channel) * taps + tap] = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::gemm_convolution::tests::{definition, output_shape};
    use crate::cpu::kernels::testing::{Random, assert_close, windows};

    #[test]
    fn correlations_of_one_to_three_axes_equal_direct_sums() {
        let mut random = Random::new(41);
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
                WeightGradient::new(&window, groups, &xs, &ws, &ys).run(&x, &w, &mut y);
                assert_close(&y, &definition(&window, groups, (&x, &xs), (&w, &ws), &ys), 1e-13);
            }
        }
    }

    #[test]
    fn the_gradient_of_a_kernel_of_many_channels_equals_direct_sums() {
        let mut random = Random::new(42);
        let mut window = Window::new([7, 7]);
        window.pad = vec![(1, 1); 2];
        let (xs, ws, ys) = ([19, 3, 7, 7], [70, 3, 7, 7], [19, 70, 3, 3]);
        let x = random.reals::<f64>(xs.iter().product());
        let w = random.reals::<f64>(ws.iter().product());
        let mut y = vec![f64::NAN; ys.iter().product()];
        WeightGradient::new(&window, 1, &xs, &ws, &ys).run(&x, &w, &mut y);
        assert_close(&y, &definition(&window, 1, (&x, &xs), (&w, &ws), &ys), 1e-13);
    }
}
