//! Depthwise convolution, where every output channel reads one input channel, and its transpose. Taps are summed directly, because
//! a matrix product would have a depth of the taps alone.
//!
//! Windows of three by three read planes in place, see [`super::depthwise_3x3`]. Other windows read padded planes, see
//! [`super::padded_planes`].
#![allow(unsafe_code)]

use monosplit_graph::op::Window;

use super::chunks::for_each_chunk;
use super::conv_plan::DepthwisePlan;
use super::depthwise_3x3::Depthwise3x3;
use super::depthwise_rows::{TapColumn, sum_plane};
use super::epilogue::Epilogue;
use super::gemm::Region;
use super::padded_planes::{PaddedPlanes, PlanarWindow, Sums, planar};
use super::row_loops::clamp;
use super::scratch::Scratch;
use super::simd_lanes::{Lanes, WIDEST};
use super::simd_level::{SimdLevel, simd_dispatch};
use super::sliding_window::{SlidingWindow, pair};
use crate::cpu::real::Real;
use crate::cpu::thread_pool::parallel_for_chunks;

/// Vectors of sums computed at a time.
const ABREAST: usize = 4;
/// Elements that may be read and written after the last sum.
const SLACK: usize = ABREAST * WIDEST;
/// About how many outputs one task computes.
const GRAIN: usize = 1 << 12;

/// `to[i] ← start + Σ weight·from[distance + i]` over the taps, for `i` up to `length` and a vector beyond.
///
/// # Safety
/// The machine has the instructions of `L`; `length` and [`SLACK`] numbers can be read at every distance from `from`
/// and written at `to`.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn sum_taps<L: Lanes>(
    length: usize,
    taps: &[(usize, L::Scalar)],
    from: *const L::Scalar,
    start: L::Scalar,
    to: *mut L::Scalar,
) {
    let mut at = 0;
    // SAFETY: the caller vouches for the extents.
    unsafe {
        while at < length {
            if length - at > (ABREAST - 1) * L::WIDTH {
                let mut sums = [L::splat(start); ABREAST];
                for &(distance, weight) in taps {
                    let weight = L::splat(weight);
                    for i in 0..ABREAST {
                        let x = L::load(from.add(distance + at + i * L::WIDTH));
                        sums[i] = weight.multiply_add(x, sums[i]);
                    }
                }
                for i in 0..ABREAST {
                    sums[i].store(to.add(at + i * L::WIDTH));
                }
                at += ABREAST * L::WIDTH;
            } else {
                let mut sum = L::splat(start);
                for &(distance, weight) in taps {
                    sum = L::splat(weight).multiply_add(L::load(from.add(distance + at)), sum);
                }
                sum.store(to.add(at));
                at += L::WIDTH;
            }
        }
    }
}

simd_dispatch!(add_taps<R: Real>(length: usize, taps: &[(usize, R)], from: *const R, start: R, to: *mut R), sum_taps);

/// A depthwise convolution, or the transpose of one, of known sizes.
#[derive(Debug)]
pub(crate) struct Depthwise {
    level: SimdLevel,
    channels: usize,
    multiplier: usize,
    input: [usize; 2],
    output: [usize; 2],
    kernel_taps: usize,
    algorithm: Algorithm,
    /// For every sum over padded planes, the columns of its taps.
    tap_columns: Vec<Vec<TapColumn>>,
}

/// How planes are summed.
#[derive(Debug)]
enum Algorithm {
    /// In place.
    Depthwise3x3(Depthwise3x3),
    PaddedPlanes(PaddedPlanes),
}

impl Algorithm {
    fn tap_columns(&self) -> Vec<Vec<TapColumn>> {
        match self {
            Algorithm::Depthwise3x3(_) => Vec::new(),
            Algorithm::PaddedPlanes(padded) => {
                padded.sums.iter().map(|sums| TapColumn::all(sums, padded.pitch)).collect()
            }
        }
    }
}

/// The scratch memory of one task.
struct PlaneScratch<R: Real> {
    /// The padded planes, or a row of zeros.
    padded: Scratch<R>,
    sums: Scratch<R>,
    /// A row of a plane, filled up to whole strides.
    apart: Vec<R>,
    /// The offsets and weights of the taps of a sum.
    taps: Vec<(usize, R)>,
    /// The weights of the taps of a sum, column by column.
    weights: Vec<R>,
}

impl Depthwise {
    /// The convolution of an input `x` with a kernel `w: [channels·multiplier, 1, …]` to an output `y`, for small
    /// windows over one or two axes.
    pub(crate) fn new(
        plan: DepthwisePlan,
        whole: &Window,
        x: &[usize],
        w: &[usize],
        y: &[usize],
    ) -> Option<Self> {
        let window = PlanarWindow::new(whole)?;
        let (input, output) = (planar(&x[2..], 1)?, planar(&y[2..], 1)?);
        let algorithm = match plan {
            DepthwisePlan::ThreeByThree => Algorithm::Depthwise3x3(Depthwise3x3::new(whole, input, output)?),
            DepthwisePlan::PaddedPlanes => Algorithm::PaddedPlanes(PaddedPlanes::new(&window, output)),
            DepthwisePlan::Direct => return None,
        };
        let multiplier = w[0] / x[1].max(1);
        let (level, kernel_taps, tap_columns) =
            (SimdLevel::current(), window.taps(), algorithm.tap_columns());
        Some(Depthwise {
            level,
            channels: x[1],
            multiplier,
            input,
            output,
            kernel_taps,
            algorithm,
            tap_columns,
        })
    }

    /// The transpose, applied to `x`, of the convolution with a kernel `[channels, 1, …]` that takes `y` to `x`, for
    /// small windows over one or two axes.
    pub(crate) fn transposed(window: &Window, x: &[usize], y: &[usize]) -> Option<Self> {
        let window = PlanarWindow::new(window)?;
        let (input, output) = (planar(&x[2..], 1)?, planar(&y[2..], 1)?);
        let algorithm = Algorithm::PaddedPlanes(PaddedPlanes::transposed(&window, input, output));
        let (level, kernel_taps, tap_columns) =
            (SimdLevel::current(), window.taps(), algorithm.tap_columns());
        let (channels, multiplier) = (x[1], 1);
        Some(Depthwise { level, channels, multiplier, input, output, kernel_taps, algorithm, tap_columns })
    }

    /// `y ← w ⋆ x + bias`, then the epilogue, channel by channel.
    pub(crate) fn run<R: Real>(
        &self,
        x: &[R],
        w: &[R],
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        y: &mut [R],
    ) {
        let (inputs, plane) = (self.input[0] * self.input[1], self.output[0] * self.output[1]);
        let outputs = self.channels * self.multiplier;
        let planes = GRAIN.div_ceil(plane.max(1));
        parallel_for_chunks(y, planes * plane, |task, y| {
            let mut scratch = self.scratch();
            let mut first = task * planes;
            let mut rest = y;
            while !rest.is_empty() {
                let (image, channel) = (first / outputs, first % outputs);
                let count = self.abreast(rest.len() / plane, channel);
                let y;
                (y, rest) = rest.split_at_mut(count * plane);
                let from = image * self.channels + channel / self.multiplier;
                let x = &x[from * inputs..(from + count) * inputs];
                let w = &w[channel * self.kernel_taps..(channel + count) * self.kernel_taps];
                let bias = bias.map(|bias| &bias[channel..channel + count]);
                self.planes(x, w, bias, epilogue.and_then(Epilogue::clamp), y, &mut scratch);
                if let Some(Epilogue::Map(epilogue)) = epilogue {
                    y.chunks_mut(plane)
                        .enumerate()
                        .for_each(|(local, y)| epilogue((first + local) * plane, y));
                }
                first += count;
            }
        });
    }

    /// The columns of the taps of a sum over padded planes, if the outputs are a whole plane.
    fn whole_plane(&self, padded: &PaddedPlanes, index: usize) -> Option<&[TapColumn]> {
        let part = &padded.sums[index];
        let whole = part.step == [1, 1] && part.first == [0, 0] && [part.rows, part.columns] == self.output;
        whole.then(|| &self.tap_columns[index][..])
    }

    /// How many of this many output planes, from a channel on, are computed together: those whose inputs and kernels are
    /// contiguous and fit the first cache, if the algorithm can do that.
    fn abreast(&self, planes: usize, channel: usize) -> usize {
        let near = GRAIN / (self.input[0] * self.input[1]).max(1);
        match self.algorithm {
            Algorithm::Depthwise3x3(_) if self.multiplier == 1 => {
                planes.min(self.channels - channel).min(near.max(1))
            }
            _ => 1,
        }
    }

    fn scratch<R: Real>(&self) -> PlaneScratch<R> {
        let (padded_length, summed, apart) = match &self.algorithm {
            Algorithm::Depthwise3x3(_) => (self.input[1], 0, Vec::new()),
            Algorithm::PaddedPlanes(padded) => (
                padded.length() + padded.beyond(),
                padded.sums.iter().map(|sums| sums.rows * padded.pitch).max().unwrap_or(0),
                padded.row(self.input[1]),
            ),
        };
        let mut padded = Scratch::new(padded_length + SLACK);
        padded.fill(R::ZERO);
        PlaneScratch {
            padded,
            sums: Scratch::new(summed + SLACK),
            apart,
            taps: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// `y ← w ⋆ x + bias` for planes computed together, clamped to limits.
    fn planes<R: Real>(
        &self,
        x: &[R],
        w: &[R],
        bias: Option<&[R]>,
        limits: Option<[R; 2]>,
        y: &mut [R],
        scratch: &mut PlaneScratch<R>,
    ) {
        match &self.algorithm {
            Algorithm::Depthwise3x3(planes) => {
                let plane = self.output[0] * self.output[1];
                let mut y = Region::new(y, y.len() / plane.max(1), plane, plane);
                planes.convolve(self.level, (x, &scratch.padded), w, bias, limits, &mut y);
            }
            Algorithm::PaddedPlanes(padded) => {
                padded.fill(x, self.input, &mut scratch.padded, &mut scratch.apart);
                let start = bias.map_or(R::ZERO, |bias| bias[0]);
                for (index, part) in padded.sums.iter().enumerate() {
                    if part.rows == 0 || part.columns == 0 {
                        continue;
                    }
                    if let Some(columns) = self.whole_plane(padded, index) {
                        TapColumn::weights(columns, w, &mut scratch.weights);
                        let (taps, from) =
                            ((columns, &scratch.weights[..]), (&scratch.padded[..], padded.pitch));
                        sum_plane(self.level, taps, from, start, (&mut *y, self.output));
                        continue;
                    }
                    scratch.taps.clear();
                    scratch.taps.extend(part.taps.iter().map(|&(tap, distance)| (distance, w[tap])));
                    add_up(self.level, padded.pitch, part, start, scratch);
                    padded.place(part, part.rows, &scratch.sums, y, self.output[1]);
                }
                if let Some([least, most]) = limits {
                    clamp(y, least, most);
                }
            }
        }
    }
}

/// Computes the sums of a phase in `scratch`.
fn add_up<R: Real>(level: SimdLevel, pitch: usize, part: &Sums, start: R, scratch: &mut PlaneScratch<R>) {
    let PlaneScratch { padded, sums, taps, .. } = scratch;
    let length = (part.rows - 1) * pitch + part.columns;
    let furthest = taps.iter().map(|&(distance, _)| distance).max().unwrap_or(0);
    assert!(furthest + length + SLACK <= padded.len() && length + SLACK <= sums.len(), "padded");
    // SAFETY: the assertions bound what is read at every distance, and what is written, with the slack that
    // whole vectors need. The level is one of this machine.
    unsafe { add_taps(level, length, taps, padded.as_ptr(), start, sums.as_mut_ptr()) };
}

/// A depthwise convolution over any number of axes, tap by tap.
pub(crate) struct DepthwiseDirect {
    sliding: SlidingWindow,
    channels: usize,
    multiplier: usize,
}

impl DepthwiseDirect {
    /// The convolution of an input `x` with a kernel `w: [channels·multiplier, 1, …]` to an output `y`.
    pub(crate) fn new(window: &Window, x: &[usize], w: &[usize], y: &[usize]) -> Self {
        DepthwiseDirect {
            sliding: SlidingWindow::new(window, &x[2..], &y[2..]),
            channels: x[1],
            multiplier: w[0] / x[1].max(1),
        }
    }

    /// `y ← w ⋆ x + bias`, then the epilogue, channel by channel.
    pub(crate) fn run<R: Real>(
        &self,
        x: &[R],
        w: &[R],
        bias: Option<&[R]>,
        epilogue: Option<&Epilogue<'_, R>>,
        y: &mut [R],
    ) {
        let (inputs, taps, step) = (self.sliding.input_len(), self.sliding.taps(), self.sliding.step());
        let outputs = self.channels * self.multiplier;
        for_each_chunk(y, self.sliding.output_len(), &|plane, y| {
            let (image, channel) = (plane / outputs, plane % outputs);
            let from = image * self.channels + channel / self.multiplier;
            let x = &x[from * inputs..(from + 1) * inputs];
            let w = &w[channel * taps..(channel + 1) * taps];
            y.fill(bias.map_or(R::ZERO, |b| b[channel]));
            for (row, y) in y.chunks_mut(self.sliding.width()).enumerate() {
                self.sliding.visit(row, |tap, start, run| {
                    let weight = w[tap];
                    let y = &mut y[run.first..run.end];
                    pair(y, &x[start + run.input..], step, |y, &x| *y += weight * x);
                });
            }
            if let Some(epilogue) = epilogue {
                epilogue.apply(plane * y.len(), y);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::gemm_convolution::tests::{definition, output_shape};
    use crate::cpu::kernels::testing::{Random, assert_close, windows};

    #[test]
    fn depthwise_convolutions_equal_direct_sums() {
        let mut random = Random::new(6);
        for axes in 1..=3 {
            for (mut window, input) in windows(&mut random, axes, 40) {
                window.ceil = false;
                let (channels, multiplier) = (random.within(1, 4), random.within(1, 3));
                let xs = [&[2, channels], input.as_slice()].concat();
                let ws = [&[channels * multiplier, 1], window.kernel.as_slice()].concat();
                let ys = output_shape(&window, 2, channels * multiplier, &input);
                let x = random.reals::<f64>(xs.iter().product());
                let w = random.reals::<f64>(ws.iter().product());
                let expected = definition(&window, channels, (&x, &xs), (&w, &ws), &ys);
                let mut y = vec![f64::NAN; expected.len()];
                DepthwiseDirect::new(&window, &xs, &ws, &ys).run(&x, &w, None, None, &mut y);
                assert_close(&y, &expected, 1e-13);
                let Some(mut direct) = Depthwise::new(DepthwisePlan::new(&window), &window, &xs, &ws, &ys)
                else {
                    assert_eq!(axes, 3);
                    continue;
                };
                for level in SimdLevel::all() {
                    direct.level = level;
                    y.fill(f64::NAN);
                    direct.run(&x, &w, None, None, &mut y);
                    assert_close(&y, &expected, 1e-13);
                }
            }
        }
    }

    #[test]
    fn windows_of_three_by_three_equal_direct_sums() {
        let mut random = Random::new(9);
        for case in 0..120 {
            let stride = 1 + case % 2;
            let pad = [0, 1].map(|_| (random.within(0, 3), random.within(0, 3)));
            let window = Window { stride: vec![stride; 2], pad: pad.to_vec(), ..Window::new([3, 3]) };
            let input =
                pad.map(|(before, after)| random.within(3usize.saturating_sub(before + after).max(1), 50));
            let (xs, ws) = ([2, 3, input[0], input[1]], [3, 1, 3, 3]);
            let ys = output_shape(&window, 2, 3, &input);
            let x = random.reals::<f64>(xs.iter().product());
            let w = random.reals::<f64>(ws.iter().product());
            let expected = definition(&window, 3, (&x, &xs), (&w, &ws), &ys);
            let single = |values: &[f64]| values.iter().map(|&v| v as f32).collect::<Vec<f32>>();
            let mut direct = Depthwise::new(DepthwisePlan::new(&window), &window, &xs, &ws, &ys).unwrap();
            assert!(matches!(direct.algorithm, Algorithm::Depthwise3x3(_)));
            let (bias, limits) = (random.reals::<f64>(3), Epilogue::Clamp([-0.3, 0.4]));
            let channels = expected.chunks(expected.len() / 6).zip(bias.iter().cycle());
            let limited: Vec<f64> =
                channels.flat_map(|(y, b)| y.iter().map(move |y| (y + b).clamp(-0.3, 0.4))).collect();
            for level in SimdLevel::all() {
                direct.level = level;
                let mut y = vec![f64::NAN; expected.len()];
                direct.run(&x, &w, None, None, &mut y);
                assert_close(&y, &expected, 1e-13);
                direct.run(&x, &w, Some(&bias), Some(&limits), &mut y);
                assert_close(&y, &limited, 1e-13);
                let mut y = vec![f32::NAN; expected.len()];
                direct.run(&single(&x), &single(&w), None, None, &mut y);
                assert_close(&y, &expected, 1e-5);
            }
        }
    }

    #[test]
    fn the_transpose_is_the_adjoint() {
        let mut random = Random::new(14);
        for axes in 1..=2 {
            for (mut window, input) in windows(&mut random, axes, 60) {
                window.ceil = false;
                let channels = random.within(1, 4);
                let xs = [&[2, channels], input.as_slice()].concat();
                let ws = [&[channels, 1], window.kernel.as_slice()].concat();
                let ys = output_shape(&window, 2, channels, &input);
                let x = random.reals::<f64>(xs.iter().product());
                let w = random.reals::<f64>(ws.iter().product());
                let dual = random.reals::<f64>(ys.iter().product());
                let y = definition(&window, channels, (&x, &xs), (&w, &ws), &ys);
                let mut back = vec![f64::NAN; x.len()];
                Depthwise::transposed(&window, &ys, &xs).unwrap().run(&dual, &w, None, None, &mut back);
                let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                assert!((inner(&y, &dual) - inner(&x, &back)).abs() < 1e-11, "{window:?} {input:?}");
            }
        }
    }
}
