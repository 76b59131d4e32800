//! The gradient of a 3×3 kernel of stride 1 by Winograd's transforms: the adjoint of the convolution in its kernel. What
//! the convolution read and the gradient of what it computed are transformed tile by tile, a matrix product over tiles is
//! taken at every position of a tile, and the sums are transformed back once.
#![allow(unsafe_code)]

use std::ops::Range;

use monosplit_graph::op::Window;

use super::chunks::{for_each_chunk, for_each_index};
use super::gemm::{Matrix, Region, multiply};
use super::scratch::Scratch;
use super::simd_level::SimdLevel;
use super::winograd::{DisjointSlice, Winograd};
use super::winograd_tiles::{Strips, TileRun};
use super::winograd_transform::{TileSize, spread_output, transform_input};
use crate::cpu::real::Real;

/// Elements of transformed tiles in memory at a time.
const ELEMENTS: usize = 1 << 22;

/// The gradient of a kernel, of known sizes.
#[derive(Debug)]
pub(crate) struct WinogradWeightGradient {
    images: usize,
    inputs: usize,
    outputs: usize,
    /// How tiles of what the convolution read lie, and tiles of the gradient of what it computed.
    read: Winograd,
    computed: Winograd,
    size: TileSize,
}

/// One operand of the product over tiles: its channels, transformed tile by tile.
struct TransformedOperand<'a, R> {
    tiles: &'a Winograd,
    /// Channel by channel, the planes of all images.
    planes: &'a [R],
    channels: usize,
    /// Whether these are gradients of outputs.
    spread: bool,
}

impl WinogradWeightGradient {
    /// The gradient from `x` of shape `[inputs, images, …]` and `w` of shape `[outputs, images, …]` to
    /// `[inputs, outputs, 3, 3]`.
    pub(crate) fn new(size: TileSize, window: &Window, x: &[usize], w: &[usize]) -> Self {
        let (images, inputs, outputs) = (x[1], x[0], w[0]);
        let output = [images, outputs, w[2], w[3]];
        let pad = [window.pad[0].0, window.pad[1].0];
        let read = Winograd::new(size, false, pad, &[images, inputs, x[2], x[3]], &output);
        let computed = Winograd::new(size, false, [0, 0], &output, &output);
        WinogradWeightGradient { images, inputs, outputs, read, computed, size }
    }

    /// `y ← w ⋆ x`
    pub(crate) fn run<R: Real>(&self, x: &[R], w: &[R], y: &mut [R]) {
        let (vector, positions) = (SimdLevel::current().width::<R>(), self.size.positions());
        let vectors = self.read.tiles().div_ceil(vector);
        let held = vectors * vector * positions * (self.inputs + self.outputs);
        let blocks = held.div_ceil(ELEMENTS).clamp(1, vectors.max(1));
        let pairs = self.inputs * self.outputs;
        let mut sums = Scratch::new(positions * pairs);
        for block in 0..blocks {
            let tiles = block * vectors / blocks * vector..(block + 1) * vectors / blocks * vector;
            let mut left = Scratch::new(positions * self.inputs * tiles.len());
            let mut right = Scratch::new(positions * self.outputs * tiles.len());
            let (read, computed) = (&self.read, &self.computed);
            let operand = TransformedOperand { tiles: read, planes: x, channels: self.inputs, spread: false };
            self.transform(&operand, &tiles, &mut left);
            let operand =
                TransformedOperand { tiles: computed, planes: w, channels: self.outputs, spread: true };
            self.transform(&operand, &tiles, &mut right);
            for_each_chunk(&mut sums, pairs, &|position, sums| {
                let at = |values: &[R], channels: usize| position * channels * tiles.len()..values.len();
                let seen = &left[at(&left, self.inputs)];
                let slopes = &right[at(&right, self.outputs)];
                let seen = Matrix::dense(seen, self.inputs, tiles.len());
                let slopes = Matrix::dense(slopes, self.outputs, tiles.len());
                let mut result = Region::new(sums, self.inputs, self.outputs, self.outputs);
                multiply(seen, slopes.transposed(), &mut result, block > 0);
            });
        }
        for_each_chunk(y, 9, &|pair, y| {
            let mut positions = [0.0; 36];
            let sums = sums[pair..].iter().step_by(pairs);
            positions.iter_mut().zip(sums).for_each(|(position, sum)| *position = sum.to_f64());
            y.iter_mut().zip(self.size.kernel_gradient(&positions)).for_each(|(y, v)| *y = R::from_f64(v));
        });
    }

    /// Transforms `tiles` of all channels: position by position, channel by channel. Of tiles past the last the outputs are zero.
    fn transform<R: Real>(&self, operand: &TransformedOperand<'_, R>, tiles: &Range<usize>, to: &mut [R]) {
        let (level, positions) = (SimdLevel::current(), self.size.positions());
        let vector = level.width::<R>();
        let stride = operand.channels * tiles.len();
        assert!(positions * stride <= to.len() && tiles.len().is_multiple_of(vector), "transformed tiles");
        let target = DisjointSlice::new(to);
        let plane = operand.planes.len() / (operand.channels * self.images).max(1);
        for_each_index(operand.channels, &|channel| {
            let mut strips = Strips::new();
            for first in tiles.clone().step_by(vector) {
                let segments: Vec<TileRun> = operand.tiles.segments(first, vector).collect();
                let read = operand.tiles.read(&segments, plane);
                let at = channel * tiles.len() + first - tiles.start;
                let planes = &operand.planes[channel * self.images * plane..];
                assert!(read.extent() <= planes.len(), "planes of a channel");
                // SAFETY: the assertions bound what is read, and the positions by the target; no other task writes this vector of
                // this channel. The level is one of this machine.
                unsafe {
                    let (planes, to) = (planes.as_ptr(), target.pointer_to(at));
                    match operand.spread {
                        true => spread_output(level, &read, planes, &mut strips, to, stride),
                        false => transform_input(level, false, &read, planes, &mut strips, to, stride),
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::gemm_convolution::tests::definition;
    use crate::cpu::kernels::testing::{Random, assert_close};
    use crate::cpu::kernels::weight_gradient::WeightGradient;

    #[test]
    fn gradients_of_both_sizes_equal_direct_sums() {
        let mut random = Random::new(43);
        for size in [TileSize::Two, TileSize::Four] {
            for _ in 0..15 {
                let (images, inputs, outputs) =
                    (random.within(1, 4), random.within(1, 20), random.within(1, 20));
                let plane = [random.within(3, 19), random.within(3, 30)];
                let mut pad = || (random.within(0, 2), random.within(0, 2));
                let pad = vec![pad(), pad()];
                let output: Vec<usize> = (0..2).map(|i| plane[i] + pad[i].0 + pad[i].1 - 2).collect();
                let mut window = Window::new([output[0], output[1]]);
                window.pad = pad;
                let xs = [inputs, images, plane[0], plane[1]];
                let ws = [outputs, images, output[0], output[1]];
                let ys = [inputs, outputs, 3, 3];
                let x = random.reals::<f64>(xs.iter().product());
                let w = random.reals::<f64>(ws.iter().product());
                let mut y = vec![f64::NAN; ys.iter().product()];
                WinogradWeightGradient::new(size, &window, &xs, &ws).run(&x, &w, &mut y);
                assert_close(&y, &definition(&window, 1, (&x, &xs), (&w, &ws), &ys), 1e-11);
            }
        }
    }

    #[test]
    fn a_gradient_over_many_blocks_is_close_in_single_precision() {
        let mut random = Random::new(44);
        let mut window = Window::new([14, 14]);
        window.pad = vec![(1, 1); 2];
        let (xs, ws, ys) = ([64, 40, 14, 14], [130, 40, 14, 14], [64, 130, 3, 3]);
        let x = random.reals::<f32>(xs.iter().product());
        let w = random.reals::<f32>(ws.iter().product());
        let double = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
        let (mut y, mut direct) = (vec![f32::NAN; ys.iter().product()], vec![0.0; ys.iter().product()]);
        WinogradWeightGradient::new(TileSize::Four, &window, &xs, &ws).run(&x, &w, &mut y);
        WeightGradient::new(&window, 1, &xs, &ws, &ys).run(&double(&x), &double(&w), &mut direct);
        assert_close(&y, &direct, 1e-5);
    }
}
