//! The transpose of a convolution: a matrix product gives every tap's contribution, folding adds them where
//! the convolution would have read. Work is cut by output channels, so no sum is split.

use monosplit_graph::op::Window;
use rayon::prelude::*;

use super::columns::fold;
use super::conv::is_pointwise;
use super::gemm::{Matrix, Region, multiply};
use super::window::Walk;
use crate::cpu::real::Real;

/// Rows of the product one task computes, so that unpacking its operands pays.
const ROWS: usize = 96;
/// Elements of the product kept at a time.
const ELEMENTS: usize = 1 << 17;

/// A transposed convolution of known sizes.
pub(crate) struct TransposedConvolution {
    walk: Walk,
    groups: usize,
    group_inputs: usize,
    group_outputs: usize,
    pointwise: bool,
}

impl TransposedConvolution {
    /// The transpose, applied to `x`, of the convolution with kernel `w` that takes `y` to `x`.
    pub(crate) fn new(window: &Window, groups: usize, x: &[usize], w: &[usize], y: &[usize]) -> Self {
        TransposedConvolution {
            walk: Walk::new(window, &y[2..], &x[2..]),
            groups,
            group_inputs: w[0] / groups,
            group_outputs: w[1],
            pointwise: is_pointwise(window) && x[2..] == y[2..],
        }
    }

    /// `y ← wᵀ ⋆ x + bias`.
    pub(crate) fn run<R: Real>(&self, x: &[R], w: &[R], bias: Option<&[R]>, y: &mut [R]) {
        let (taps, plane, positions) = (self.walk.taps(), self.walk.input_len(), self.walk.output_len());
        let (inputs, outputs) = (self.group_inputs, self.group_outputs);
        let block = ROWS.div_ceil(taps).min(outputs);
        y.par_chunks_mut(outputs * plane).enumerate().for_each(|(part, y)| {
            let group = part % self.groups;
            let x = Matrix::dense(&x[part * inputs * positions..], inputs, positions);
            let w = Matrix::dense(&w[group * inputs * outputs * taps..], inputs, outputs * taps);
            y.par_chunks_mut(block * plane).enumerate().for_each(|(index, y)| {
                let first = index * block;
                let channels = y.len() / plane;
                for (channel, y) in y.chunks_mut(plane).enumerate() {
                    y.fill(bias.map_or(R::ZERO, |b| b[group * outputs + first + channel]));
                }
                let w = w.columns(first * taps, channels * taps).transposed();
                if self.pointwise {
                    multiply(w, x, &mut Region::new(y, channels, plane, plane), true);
                } else {
                    self.scatter(w, x, y);
                }
            });
        });
    }

    /// Adds `w·x`, folded, to the planes `y`.
    fn scatter<R: Real>(&self, w: Matrix<'_, R>, x: Matrix<'_, R>, y: &mut [R]) {
        let (taps, positions) = (self.walk.taps(), self.walk.output_len());
        let tile = (ELEMENTS / w.rows).max(1).min(positions);
        let mut product = Vec::new();
        for first in (0..positions).step_by(tile) {
            let range = first..(first + tile).min(positions);
            let width = range.len();
            product.resize(w.rows * width, R::ZERO);
            let mut result = Region::new(&mut product, w.rows, width, width);
            multiply(w, x.columns(first, width), &mut result, false);
            let planes = y.chunks_mut(self.walk.input_len());
            for (plane, rows) in planes.zip(product.chunks(taps * width)) {
                fold(&self.walk, rows, range.clone(), plane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::conv::tests::output_shape;
    use crate::cpu::kernels::conv::{Convolution, PackedKernel};
    use crate::cpu::kernels::level::Level;
    use crate::cpu::kernels::testing::{Random, windows};

    fn inner(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn it_is_the_adjoint_of_the_convolution() {
        let mut random = Random::new(7);
        for axes in 1..=3 {
            for (mut window, input) in windows(&mut random, axes, 40) {
                window.ceil = false;
                let groups = random.within(1, 3);
                let (cin, cout) = (random.within(1, 4), random.within(1, 40));
                let xs = [&[2, cin * groups], input.as_slice()].concat();
                let ws = [&[cout * groups, cin], window.kernel.as_slice()].concat();
                let ys = output_shape(&window, 2, cout * groups, &input);
                let x = random.reals::<f64>(xs.iter().product());
                let w = random.reals::<f64>(ws.iter().product());
                let dual = random.reals::<f64>(ys.iter().product());
                let mut y = vec![0.0; dual.len()];
                let packed = PackedKernel::new(Level::best(), groups, &w, &ws);
                Convolution::new(&window, groups, &xs, &ws, &ys).run(&x, &packed, None, None, &mut y);
                let mut back = vec![f64::NAN; x.len()];
                TransposedConvolution::new(&window, groups, &ys, &ws, &xs).run(&dual, &w, None, &mut back);
                let (left, right) = (inner(&y, &dual), inner(&x, &back));
                assert!((left - right).abs() < 1e-11 * (1.0 + left.abs()), "{left} {right} {window:?}");
            }
        }
    }

    #[test]
    fn the_bias_is_added_once() {
        let mut window = Window::new([2]);
        window.stride = vec![2];
        let (x, w, bias) = ([1.0f64, 2.0], [1.0, 10.0], [100.0]);
        let mut y = [0.0; 4];
        TransposedConvolution::new(&window, 1, &[1, 1, 2], &[1, 1, 2], &[1, 1, 4]).run(
            &x,
            &w,
            Some(&bias),
            &mut y,
        );
        assert_eq!(y, [101.0, 110.0, 102.0, 120.0]);
    }
}
