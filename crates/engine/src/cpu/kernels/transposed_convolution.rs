//! Transposed convolution with a stride. The outputs of one phase of the stride are a convolution of stride 1, computed as an
//! implicit GEMM. For windows that are too large or have too many axes, a matrix product gives every tap's contribution, and col2im
//! adds them up. No sum is split among tasks.

use monosplit_graph::op::Window;

use super::chunks::for_each_chunk;
use super::epilogue::Epilogue;
use super::gemm::{COLUMNS, InitialSums, LhsPanels, Matrix, Region};
use super::gemm_rhs::RhsPanels;
use super::im2col::col2im;
use super::implicit_gemm::PackedPhases;
use super::padded_planes::PlanarWindow;
use super::scratch::Scratch;
use super::simd_level::SimdLevel;
use super::sliding_window::SlidingWindow;
use crate::cpu::real::Real;

/// About how many rows of the product one task computes at a time.
const ROWS: usize = 112;

/// The weights of a transposed convolution, packed.
#[derive(Debug)]
pub(crate) enum PackedTranspose<R> {
    Phases(PackedPhases<R>),
    Col2im(TapContributions<R>),
}

impl<R: Real> PackedTranspose<R> {
    /// Packs a kernel of shape `[inputs, outputs of a group, …]` phase by phase; a window that is too large for that, for col2im.
    pub(crate) fn phases(
        level: SimdLevel,
        window: &Window,
        groups: usize,
        (w, shape): (&[R], &[usize]),
    ) -> Self {
        match PlanarWindow::new(window) {
            Some(window) => PackedTranspose::Phases(PackedPhases::new(level, window, groups, w, shape)),
            None => PackedTranspose::col2im(level, groups, (w, shape)),
        }
    }

    /// Packs a kernel of shape `[inputs, outputs of a group, …]` for col2im.
    pub(crate) fn col2im(level: SimdLevel, groups: usize, (w, shape): (&[R], &[usize])) -> Self {
        PackedTranspose::Col2im(TapContributions::new(level, groups, w, shape))
    }

    /// `y ← wᵀ ⋆ x + bias`, then the epilogue, for the transpose of the convolution that takes `y` to `x`.
    pub(crate) fn run(
        &self,
        window: &Window,
        (x, xs): (&[R], &[usize]),
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        (y, ys): (&mut [R], &[usize]),
    ) {
        match self {
            PackedTranspose::Phases(w) => w.run((x, xs), bias, epilogue, (y, ys)),
            PackedTranspose::Col2im(w) => {
                Col2imConvolution::new(window, w.groups.len(), xs, ys).run(x, w, bias, epilogue, y);
            }
        }
    }
}

/// For every group, left operands that give the contributions to a few output channels each.
#[derive(Debug)]
pub(crate) struct TapContributions<R> {
    level: SimdLevel,
    outputs: usize,
    /// Output channels of a block.
    block: usize,
    groups: Vec<Vec<LhsPanels<R>>>,
}

impl<R: Real> TapContributions<R> {
    /// Packs a kernel of shape `[inputs, outputs of a group, …]`.
    fn new(level: SimdLevel, groups: usize, w: &[R], shape: &[usize]) -> Self {
        let taps: usize = shape[2..].iter().product();
        let (inputs, outputs) = (shape[0] / groups, shape[1]);
        let block = ROWS.div_ceil(taps.max(1)).clamp(1, outputs.max(1));
        let pack = |group: usize| {
            let w = Matrix::dense(&w[group * inputs * outputs * taps..], inputs, outputs * taps);
            let block = |first: usize| {
                let channels = block.min(outputs - first);
                LhsPanels::pack(level, w.columns(first * taps, channels * taps).transposed())
            };
            (0..outputs).step_by(ROWS.div_ceil(taps.max(1)).clamp(1, outputs.max(1))).map(block).collect()
        };
        TapContributions { level, outputs, block, groups: (0..groups).map(pack).collect() }
    }
}

/// A transposed convolution by GEMM and col2im, of known sizes.
struct Col2imConvolution {
    sliding: SlidingWindow,
    inputs: usize,
}

impl Col2imConvolution {
    /// The transpose, applied to `x`, of the convolution that takes `y` to `x`, each given by its shape.
    fn new(window: &Window, groups: usize, x: &[usize], y: &[usize]) -> Self {
        Col2imConvolution { sliding: SlidingWindow::new(window, &y[2..], &x[2..]), inputs: x[1] / groups }
    }

    /// `y ← wᵀ ⋆ x + bias`, then the epilogue, channel by channel.
    fn run<R: Real>(
        &self,
        x: &[R],
        w: &TapContributions<R>,
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        y: &mut [R],
    ) {
        let (plane, positions) = (self.sliding.input_len(), self.sliding.output_len());
        let size = w.outputs * plane;
        for_each_chunk(y, size, &|part, y| {
            let group = part % w.groups.len();
            let x = &x[part * self.inputs * positions..][..self.inputs * positions];
            let packed = self.pack(w.level, x);
            for_each_chunk(y, w.block * plane, &|index, y| {
                let first = index * w.block;
                for (channel, y) in y.chunks_mut(plane).enumerate() {
                    y.fill(bias.map_or(R::ZERO, |b| b[group * w.outputs + first + channel]));
                }
                self.scatter(w.level, &w.groups[group][index], &packed, y);
                if let Some(epilogue) = epilogue {
                    epilogue.apply(part * size + first * plane, y);
                }
            });
        });
    }

    /// The inputs as right operands of [`COLUMNS`] positions each, one after the other.
    fn pack<R: Real>(&self, level: SimdLevel, x: &[R]) -> Scratch<R> {
        let positions = self.sliding.output_len();
        let mut packed = Scratch::new(self.inputs * level.padded::<R>(positions));
        for_each_chunk(&mut packed, self.inputs * COLUMNS, &|block, panels| {
            let first = block * COLUMNS;
            let end = (first + COLUMNS).min(positions);
            for (k, row) in x.chunks(positions).enumerate() {
                level.pack_rhs_row(self.inputs, k, &row[first..end], panels);
            }
        });
        packed
    }

    /// Adds the product of `w` and the packed inputs to the planes `y` by col2im.
    fn scatter<R: Real>(&self, level: SimdLevel, w: &LhsPanels<R>, packed: &[R], y: &mut [R]) {
        let (taps, positions, plane) =
            (self.sliding.taps(), self.sliding.output_len(), self.sliding.input_len());
        let rows = y.len() / plane * taps;
        let mut product = Scratch::new(rows * COLUMNS);
        for first in (0..positions).step_by(COLUMNS) {
            let columns = (positions - first).min(COLUMNS);
            let data = &packed[first * self.inputs..][..level.padded::<R>(columns) * self.inputs];
            let right = RhsPanels::packed(data, self.inputs, columns);
            let product = &mut product[..rows * columns];
            let mut result = Region::new(product, rows, columns, columns);
            w.multiply(0..w.panels(), 0, right, InitialSums::Zero, &mut result);
            for (plane, rows) in y.chunks_mut(plane).zip(product.chunks(taps * columns)) {
                col2im(&self.sliding, rows, first..first + columns, plane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::conv_plan::{ConvolutionShapes, GemmAlgorithm, TransposePlan};
    use crate::cpu::kernels::gemm_convolution::tests::output_shape;
    use crate::cpu::kernels::gemm_convolution::{GemmConvolution, PackedKernel};
    use crate::cpu::kernels::packed_convolution::{PackedConvolution, Weights};
    use crate::cpu::kernels::testing::{Random, assert_close, windows};

    fn inner(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn it_is_the_adjoint_of_the_convolution() {
        let mut random = Random::new(7);
        let mut phases = 0;
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
                let packed = PackedKernel::new(SimdLevel::current(), groups, &w, &ws);
                let algorithm = GemmAlgorithm::new(&window, groups, &ws, &xs, &ys);
                let convolution = GemmConvolution::new(&window, groups, &xs, &ws, &ys);
                convolution.run(algorithm, &x, &packed, None, None, &mut y);
                let mut back = vec![f64::NAN; x.len()];
                let folded =
                    PackedTranspose::Col2im(TapContributions::new(SimdLevel::current(), groups, &w, &ws));
                folded.run(&window, (&dual, &ys), None, None, (&mut back, &xs));
                let (left, right) = (inner(&y, &dual), inner(&x, &back));
                assert!((left - right).abs() < 1e-11 * (1.0 + left.abs()), "{left} {right} {window:?}");
                for level in SimdLevel::all() {
                    let packed = match TransposePlan::packed(&window, true) {
                        TransposePlan::Phases => PackedTranspose::phases(level, &window, groups, (&w, &ws)),
                        _ => PackedTranspose::col2im(level, groups, (&w, &ws)),
                    };
                    phases += usize::from(matches!(packed, PackedTranspose::Phases(_)));
                    let mut again = vec![f64::NAN; x.len()];
                    packed.run(&window, (&dual, &ys), None, None, (&mut again, &xs));
                    assert_close(&again, &back, 1e-12);
                }
                let shapes =
                    ConvolutionShapes { window: &window, groups, kernel: &ws, input: None, output: None };
                if let Some(TransposePlan::Rotated(window, plan)) =
                    TransposePlan::rotated::<f64>(&shapes, None)
                {
                    let mut again = vec![f64::NAN; x.len()];
                    let w = Weights { elements: &w, shape: &ws, cached: None };
                    let rotated = PackedConvolution::rotated(plan, &window, groups, &w);
                    rotated.run((&dual, &ys), None, None, (&mut again, &xs));
                    assert_close(&again, &back, 1e-12);
                }
            }
        }
        assert!(phases > 20, "too few windows are small: {phases}");
    }

    #[test]
    fn the_bias_is_added_once() {
        let mut window = Window::new([1, 2]);
        window.stride = vec![1, 2];
        let (x, w, bias) = ([1.0f64, 2.0], [1.0, 10.0], [100.0]);
        let mut y = [0.0; 4];
        let shape = [1, 1, 1, 2];
        assert!(matches!(TransposePlan::packed(&window, true), TransposePlan::Phases));
        let phases = PackedTranspose::phases(SimdLevel::current(), &window, 1, (&w, &shape));
        let folded = PackedTranspose::Col2im(TapContributions::new(SimdLevel::current(), 1, &w, &shape));
        for packed in [phases, folded] {
            packed.run(&window, (&x, &shape), Some(&bias), None, (&mut y, &[1, 1, 1, 4]));
            assert_eq!(y, [101.0, 110.0, 102.0, 120.0]);
        }
    }
}
