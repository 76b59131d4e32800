//! Normalisations: by stored statistics, over trailing axes, over groups of channels, over neighbouring
//! channels. Means and variances are taken in double precision, in two passes.
#![allow(unsafe_code)]

use super::broadcast::GRAIN;
use super::chunks::{for_each_chunk, for_each_plane};
use super::simd_lanes::Lanes;
use super::simd_level::{SimdLevel, simd_dispatch};
use crate::cpu::real::Real;
use crate::cpu::unwinding::filled;

/// Per-channel factor and summand of a batch normalisation.
#[derive(Clone, Debug)]
pub(crate) struct ScaleShift<R> {
    scale: Vec<R>,
    shift: Vec<R>,
}

impl<R: Real> ScaleShift<R> {
    /// `(x − mean)/√(variance + ε)·scale + bias` as `x·factor + summand`.
    pub(crate) fn new(epsilon: f64, scale: &[R], bias: &[R], mean: &[R], variance: &[R]) -> Self {
        let factor = |c: usize| scale[c].to_f64() / (variance[c].to_f64() + epsilon).sqrt();
        let channels = 0..scale.len();
        ScaleShift {
            scale: channels.clone().map(|c| R::from_f64(factor(c))).collect(),
            shift: channels.map(|c| R::from_f64(bias[c].to_f64() - mean[c].to_f64() * factor(c))).collect(),
        }
    }

    /// Applied along axis 1.
    pub(crate) fn run(&self, (x, shape): (&[R], &[usize]), out: &mut [R]) {
        let plane: usize = shape[2..].iter().product();
        let channels = self.scale.len();
        if plane == 1 {
            for_each_chunk(out, channels, &|index, out| {
                let x = &x[index * channels..][..channels];
                for (((o, &x), &scale), &shift) in out.iter_mut().zip(x).zip(&self.scale).zip(&self.shift) {
                    *o = x * scale + shift;
                }
            });
            return;
        }
        for_each_chunk(out, plane, &|index, out| {
            let x = &x[index * plane..][..plane];
            let (scale, shift) = (self.scale[index % channels], self.shift[index % channels]);
            for (o, &x) in out.iter_mut().zip(x) {
                *o = x * scale + shift;
            }
        });
    }
}

/// Sum of `f` of all elements, in lanes.
#[inline(always)]
fn sum_of<R: Real>(x: &[R], f: impl Fn(f64) -> f64) -> f64 {
    const LANES: usize = 32;
    let mut lanes = [0.0; LANES];
    let blocks = x.chunks_exact(LANES);
    let tail: f64 = blocks.remainder().iter().map(|v| f(v.to_f64())).sum();
    for block in blocks {
        for (lane, v) in lanes.iter_mut().zip(block) {
            *lane += f(v.to_f64());
        }
    }
    lanes.iter().sum::<f64>() + tail
}

/// Mean and `1/√(variance + ε)`.
#[inline(always)]
fn moments<R: Real>(x: &[R], epsilon: f64) -> (f64, f64) {
    let count = x.len() as f64;
    let mean = sum_of(x, |v| v) / count;
    let variance = sum_of(x, |v| (v - mean) * (v - mean)) / count;
    (mean, 1.0 / (variance + epsilon).sqrt())
}

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn normalise_rows<L: Lanes>(
    epsilon: f64,
    x: &[L::Scalar],
    scale: &[L::Scalar],
    bias: &[L::Scalar],
    out: &mut [L::Scalar],
) where
    L::Scalar: Real,
{
    for (out, x) in out.chunks_mut(scale.len()).zip(x.chunks(scale.len())) {
        let (mean, factor) = moments(x, epsilon);
        for (((o, x), scale), shift) in out.iter_mut().zip(x).zip(scale).zip(bias) {
            let normalised = (x.to_f64() - mean) * factor * scale.to_f64() + shift.to_f64();
            *o = L::Scalar::from_f64(normalised);
        }
    }
}

simd_dispatch!(
    normalise_rows_at<R: Real>(epsilon: f64, x: &[R], scale: &[R], bias: &[R], out: &mut [R]),
    normalise_rows
);

/// Normalises every run of `scale.len()` elements; scale and bias are per element of a run.
pub(crate) fn layer_norm<R: Real>(epsilon: f64, x: &[R], scale: &[R], bias: Option<&[R]>, out: &mut [R]) {
    if scale.is_empty() {
        return;
    }
    let zeros = if bias.is_none() { filled(R::ZERO, scale.len()) } else { Vec::new() };
    let bias = bias.unwrap_or(&zeros);
    let per_task = (GRAIN / scale.len()).max(1) * scale.len();
    for_each_chunk(out, per_task, &|task, out| {
        let x = &x[task * per_task..][..out.len()];
        // SAFETY: the level is one of this machine.
        unsafe { normalise_rows_at(SimdLevel::current(), epsilon, x, scale, bias, out) }
    });
}

/// Normalises every group of channels; scale and bias are per channel.
pub(crate) fn group_norm<R: Real>(
    groups: usize,
    epsilon: f64,
    (x, shape): (&[R], &[usize]),
    scale: &[R],
    bias: &[R],
    out: &mut [R],
) {
    let plane: usize = shape[2..].iter().product();
    let per_group = shape[1] / groups;
    let block = per_group * plane;
    for_each_chunk(out, block, &|index, out| {
        let x = &x[index * block..][..block];
        let (mean, factor) = moments(x, epsilon);
        let first = index % groups * per_group;
        for (channel, (out, x)) in out.chunks_mut(plane).zip(x.chunks(plane)).enumerate() {
            let (scale, shift) = (scale[first + channel].to_f64(), bias[first + channel].to_f64());
            for (o, x) in out.iter_mut().zip(x) {
                *o = R::from_f64((x.to_f64() - mean) * factor * scale + shift);
            }
        }
    });
}

/// Constants of a local response normalisation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalResponse {
    pub(crate) size: usize,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) bias: f64,
}

impl LocalResponse {
    /// `x/(bias + alpha/size·Σ x²)^beta`, the sum over `size` channels around each, the longer side after it.
    pub(crate) fn run<R: Real>(&self, (x, shape): (&[R], &[usize]), out: &mut [R]) {
        let plane: usize = shape[2..].iter().product();
        let channels = shape[1];
        let (before, after) = ((self.size - 1) / 2, self.size / 2);
        for_each_plane(
            out,
            plane,
            || filled(0.0f64, plane),
            |sums, index, out| {
                let (image, channel) = (index / channels * channels, index % channels);
                sums.fill(0.0);
                let last = channel.saturating_add(after).min(channels - 1);
                for neighbour in channel.saturating_sub(before)..=last {
                    for (sum, x) in sums.iter_mut().zip(&x[(image + neighbour) * plane..]) {
                        *sum += x.to_f64() * x.to_f64();
                    }
                }
                for ((o, x), sum) in out.iter_mut().zip(&x[index * plane..]).zip(sums.iter()) {
                    let base = self.bias + self.alpha / self.size as f64 * sum;
                    *o = R::from_f64(x.to_f64() / base.powf(self.beta));
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::{Random, assert_close};

    #[test]
    fn normalised_groups_have_the_asked_mean_and_variance() {
        let mut random = Random::new(13);
        let shape = [2, 6, 4, 5];
        let x: Vec<f64> = random.reals::<f64>(240).iter().map(|v| v * 3.0 + 100.0).collect();
        let mut out = vec![0.0; 240];
        let check = |group: &[f64]| {
            let mean = group.iter().sum::<f64>() / group.len() as f64;
            let variance = group.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / group.len() as f64;
            assert!((mean - 2.0).abs() < 1e-12 && (variance - 9.0).abs() < 1e-10);
        };
        group_norm(3, 0.0, (&x, &shape), &[3.0; 6], &[2.0; 6], &mut out);
        out.chunks(40).for_each(check);
        layer_norm(0.0, &x, &[3.0; 20], Some(&[2.0; 20]), &mut out);
        layer_norm::<f64>(0.0, &[], &[], None, &mut []);
        out.chunks(20).for_each(check);
    }

    #[test]
    fn local_response_and_batch_norm_follow_their_formulas() {
        let mut random = Random::new(14);
        let x = random.reals::<f64>(14);
        let shape = [1, 7, 2];
        for size in 1..=9 {
            let lrn = LocalResponse { size, alpha: 0.5, beta: 0.75, bias: 1.5 };
            let expected: Vec<f64> = (0..14)
                .map(|i| {
                    let (c, p) = ((i / 2) as isize, i % 2);
                    let (low, high) = (c - (size as isize - 1) / 2, c + size as isize / 2);
                    let channels = (low.max(0)..=high.min(6)).map(|k| x[k as usize * 2 + p].powi(2));
                    x[i] / (1.5 + 0.5 / size as f64 * channels.sum::<f64>()).powf(0.75)
                })
                .collect();
            let mut out = vec![0.0; 14];
            lrn.run((&x, &shape), &mut out);
            assert_close(&out, &expected, 1e-14);
        }
        // Squares far apart in size: a running sum over channels, as ONNX Runtime has it, is 2.4 % off here.
        let (small, mut out) = ([0.001_506_561_5f32, 1.6, -0.8], [0f32; 3]);
        let lrn = LocalResponse { size: 1, alpha: 1e-4, beta: 0.75, bias: 0.0 };
        lrn.run((&small, &[1, 3, 1]), &mut out);
        for (x, found) in small.iter().zip(out) {
            let expected = f64::from(*x) / (1e-4 * f64::from(*x).powi(2)).powf(0.75);
            assert!((f64::from(found) / expected - 1.0).abs() < 1e-6, "{found} instead of {expected}");
        }
        let [scale, bias, mean, mut variance] = [(); 4].map(|_| random.reals::<f64>(7));
        variance.iter_mut().for_each(|v| *v = v.abs());
        let expected: Vec<f64> = (0..14)
            .map(|i| (x[i] - mean[i / 2]) / (variance[i / 2] + 0.1).sqrt() * scale[i / 2] + bias[i / 2])
            .collect();
        let mut out = vec![0.0; 14];
        ScaleShift::new(0.1, &scale, &bias, &mean, &variance).run((&x, &shape), &mut out);
        assert_close(&out, &expected, 1e-13);
    }
}
