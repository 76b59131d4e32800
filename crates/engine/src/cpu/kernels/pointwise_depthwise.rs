//! A 1×1 convolution and the depthwise convolution that alone reads its result, as one step. Some channels of a band of rows are
//! computed at a time, so that the value between the two stays in cache and is never stored.
#![allow(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

use super::depthwise_3x3::Depthwise3x3;
use super::epilogue::Epilogue;
use super::gemm::Region;
use super::gemm_convolution::{GemmConvolution, PackedKernel};
use super::scratch::Scratch;
use crate::cpu::real::Real;
use crate::cpu::thread_pool::parallel_for;

/// About how many elements between the two convolutions are computed at a time, so that they stay in the second cache.
const BETWEEN: usize = 3 << 14;
/// The least number of tasks for every thread.
const PIECES: usize = 6;
/// The least number of output rows in a band. Some rows between the convolutions are computed for two bands.
const ROWS: usize = 7;

/// The bias of a convolution and what is done to the result.
#[derive(Clone, Copy)]
pub(crate) struct BiasAndEpilogue<'a, R> {
    pub(crate) bias: Option<&'a [R]>,
    pub(crate) epilogue: Option<&'a Epilogue<'a, R>>,
}

impl<R: Real> BiasAndEpilogue<'_, R> {
    fn limits(&self) -> Option<[R; 2]> {
        self.epilogue.and_then(Epilogue::clamp)
    }

    /// Applies the epilogue to rows that lie `apart` in a value, the first from index `first` on, unless it was clamped before.
    fn apply_epilogue(&self, first: usize, apart: usize, y: &mut Region<'_, R>) {
        let Some(Epilogue::Map(epilogue)) = self.epilogue else { return };
        let whole = y.columns == apart;
        match y.contiguous().filter(|_| whole) {
            Some(all) => epilogue(first, all),
            None => (0..y.rows).for_each(|row| epilogue(first + row * apart, y.row(row))),
        }
    }
}

/// A 1×1 convolution and the depthwise one that reads it.
pub(crate) struct PointwiseDepthwise {
    pub(crate) pointwise: GemmConvolution,
    pub(crate) planes: Depthwise3x3,
    pub(crate) images: usize,
    /// Elements of an input image, of a plane between the two, and of an output plane.
    pub(crate) image: usize,
    pub(crate) between: usize,
    pub(crate) output: usize,
}

/// Output rows, the rows between the convolutions that they read, and the planes made of both.
struct Band {
    rows: Range<usize>,
    between: Range<usize>,
    planes: Depthwise3x3,
}

impl PointwiseDepthwise {
    /// `y ← v ⋆ (w ⋆ x)`, each with its bias and epilogue.
    pub(crate) fn run<R: Real>(
        &self,
        x: &[R],
        (w, v): (&PackedKernel<R>, &[R]),
        [first, then]: [BiasAndEpilogue<'_, R>; 2],
        y: &mut [R],
    ) {
        let (panels, taps) = (w.panels(), self.planes.taps());
        let (channels, [width, columns]) = (w.channels_of(&(0..panels)).len(), self.planes.widths());
        let bands = self.bands(w);
        let rest = |index: usize| {
            let band = &bands[index % bands.len()];
            let x = &x[index / bands.len() * self.image..][..self.image];
            self.pointwise.rest(w.level, x, &scaled(&band.between, width))
        };
        let rests = (0..self.images * bands.len()).into_par_iter().with_min_len(bands.len());
        let rests: Vec<Vec<R>> = rests.map(rest).collect();
        let outside = vec![R::ZERO; width + 1];
        let y = Region::new(y, self.images * channels, self.output, self.output);
        parallel_for(rests.len() * panels, |task| {
            let (index, panel) = (task / panels, task % panels..task % panels + 1);
            let (image, band) = (index / bands.len(), &bands[index % bands.len()]);
            let own = w.channels_of(&panel);
            let positions = scaled(&band.between, width);
            let mut between = Scratch::new(own.len() * positions.len());
            let mut middle = Region::new(&mut between, own.len(), positions.len(), positions.len());
            let x = &x[image * self.image..][..self.image];
            let (start, limits) = (positions.start, first.limits());
            self.pointwise.channels(
                (x, &rests[index]),
                (w, panel),
                (first.bias, limits),
                positions,
                &mut middle,
            );
            let row = image * channels + own.start;
            first.apply_epilogue(row * self.between + start, self.between, &mut middle);
            let outputs = scaled(&band.rows, columns);
            // SAFETY: tasks have disjoint channels and rows.
            let mut y = unsafe { y.part(row..row + own.len(), outputs.clone()) };
            let bias = then.bias.map(|bias| &bias[own.clone()]);
            let v = &v[scaled(&own, taps)];
            band.planes.convolve(w.level, (&between, &outside), v, bias, then.limits(), &mut y);
            then.apply_epilogue(row * self.output + outputs.start, self.output, &mut y);
        });
    }

    /// Bands small enough for the cache, and enough for all threads. Bits do not depend on them.
    fn bands<R: Real>(&self, w: &PackedKernel<R>) -> Vec<Band> {
        let rows = self.output / self.planes.widths()[1].max(1);
        let largest = w.channels_of(&(0..1)).len() * self.between;
        let wanted = (PIECES * rayon::current_num_threads()).div_ceil((self.images * w.panels()).max(1));
        let count = largest.div_ceil(BETWEEN).max(wanted).clamp(1, (rows / ROWS).max(1));
        let band = |index: usize| {
            let rows = index * rows / count..(index + 1) * rows / count;
            let (between, planes) = self.planes.band(rows.clone());
            Band { rows, between, planes }
        };
        (0..count).map(band).collect()
    }
}

fn scaled(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start * by..range.end * by
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Window;

    use super::*;
    use crate::cpu::kernels::conv_plan::{ConvolutionPlan, ConvolutionShapes};
    use crate::cpu::kernels::packed_convolution::{PackedConvolution, Weights};
    use crate::cpu::kernels::testing::Random;
    use crate::cpu::thread_pool::ThreadPool;

    #[test]
    fn together_two_convolutions_have_the_bits_of_one_after_the_other() {
        let mut random = Random::new(31);
        for case in 0..80 {
            let (images, inputs, channels) =
                (random.within(1, 3), random.within(1, 40), random.within(2, 40));
            let (height, width) = (random.within(2, 70), random.within(2, 40));
            let stride = 1 + case % 2;
            let pad = [0, 1].map(|_| (random.within(1, 9), random.within(0, 30)));
            let narrow = Window::new([1, 1]);
            let deep = Window { stride: vec![stride; 2], pad: pad.to_vec(), ..Window::new([3, 3]) };
            let output = [deep.positions(0, height), deep.positions(1, width)].map(Option::unwrap);
            let (xs, between) = ([images, inputs, height, width], [images, channels, height, width]);
            let ys = [images, channels, output[0], output[1]];
            let mut reals = |count: usize| random.reals::<f32>(count);
            let (x, w, v) = (reals(xs.iter().product()), reals(channels * inputs), reals(channels * 9));
            let (bias, then_bias) = (reals(channels), reals(channels));
            let other = reals(ys.iter().product());
            let packed = |window: &Window, groups: usize, elements: &[f32], kernel: &[usize]| {
                let shapes = ConvolutionShapes { window, groups, kernel, input: None, output: None };
                let plan = ConvolutionPlan::new::<f32>(&shapes, None);
                let weights = Weights { elements, shape: kernel, cached: None };
                PackedConvolution::new(plan, window, groups, &weights)
            };
            let first = packed(&narrow, 1, &w, &[channels, inputs, 1, 1]);
            let then = packed(&deep, channels, &v, &[channels, 1, 3, 3]);
            let add = |at: usize, piece: &mut [f32]| {
                piece.iter_mut().zip(&other[at..]).for_each(|(y, other)| *y += other);
            };
            let halve = |_: usize, piece: &mut [f32]| piece.iter_mut().for_each(|y| *y *= 0.5);
            let choices = [Epilogue::Clamp([-0.1, 0.8]), Epilogue::Map(&halve)];
            let epilogues = [
                BiasAndEpilogue { bias: Some(&bias), epilogue: choices.get(case % 3) },
                BiasAndEpilogue { bias: Some(&then_bias), epilogue: Some(&Epilogue::Map(&add)) },
            ];
            let mut whole = vec![f32::NAN; between.iter().product()];
            let mut expected = vec![f32::NAN; other.len()];
            first.run((&x, &xs), epilogues[0].bias, epilogues[0].epilogue, (&mut whole, &between));
            then.run((&whole, &between), epilogues[1].bias, epilogues[1].epilogue, (&mut expected, &ys));
            for threads in [1, 3, 16] {
                let pool = ThreadPool::start(threads, false).unwrap();
                let mut y = vec![f32::NAN; other.len()];
                let run = || first.run_both(&then, (&x, &xs), &between, epilogues, (&mut y, &ys));
                assert!(pool.install(run));
                assert!(y.iter().zip(&expected).all(|(y, e)| y.to_bits() == e.to_bits()), "{case}");
            }
        }
    }
}
