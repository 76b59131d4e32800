//! Softmax and its logarithm along an axis, the maximum subtracted first, sums in double precision.
#![allow(unsafe_code)]

use super::broadcast::GRAIN;
use super::chunks::for_each_chunk;
use super::elementary::exp;
use super::reduce::{fold_lanes, sum};
use super::simd_lanes::Lanes;
use super::simd_level::{SimdLevel, simd_dispatch};
use crate::cpu::real::Real;

/// `out ← eˣ/Σeˣ` along `axis`, or the logarithm of it.
pub(crate) fn softmax<R: Real>(logarithm: bool, axis: usize, (x, shape): (&[R], &[usize]), out: &mut [R]) {
    let (length, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let block = length * inner;
    if inner == 1 && length > 0 {
        let rows_per_task = (GRAIN / length).max(1);
        return for_each_chunk(out, rows_per_task * length, &|task, out| {
            let x = &x[task * rows_per_task * length..];
            // SAFETY: the level is one of this machine.
            unsafe { softmax_rows_at(SimdLevel::current(), logarithm, length, x, out) }
        });
    }
    for_each_chunk(out, block, &|index, out| {
        let x = &x[index * block..][..block];
        for column in 0..inner {
            let strip = (column..block).step_by(inner);
            let largest = strip
                .clone()
                .map(|i| x[i])
                .fold(R::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b });
            let mut sum = 0.0;
            for i in strip.clone() {
                out[i] = (x[i] - largest).exp();
                sum += out[i].to_f64();
            }
            let (shift, scale) = (R::from_f64(sum.ln()), R::from_f64(1.0 / sum));
            for i in strip {
                out[i] = if logarithm { (x[i] - largest) - shift } else { out[i] * scale };
            }
        }
    });
}

/// The same for rows of `length` elements side by side.
///
/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn softmax_rows<L: Lanes>(logarithm: bool, length: usize, x: &[L::Scalar], out: &mut [L::Scalar])
where
    L::Scalar: Real,
{
    for (out, x) in out.chunks_exact_mut(length).zip(x.chunks_exact(length)) {
        let least = L::Scalar::NEG_INFINITY;
        let largest = fold_lanes(x, least, |a, b| if a > b || a.is_nan() { a } else { b });
        out.iter_mut().zip(x).for_each(|(o, &x)| *o = x - largest);
        if logarithm {
            let mut powers = out.to_vec();
            exponentials::<L>(&mut powers);
            let shift = L::Scalar::from_f64(sum(&powers).ln());
            out.iter_mut().for_each(|o| *o = *o - shift);
        } else {
            exponentials::<L>(out);
            let scale = L::Scalar::from_f64(1.0 / sum(out));
            out.iter_mut().for_each(|o| *o *= scale);
        }
    }
}

#[inline(always)]
fn exponentials<L: Lanes>(x: &mut [L::Scalar])
where
    L::Scalar: Real,
{
    match L::Scalar::single(x) {
        Some(x) => x.iter_mut().for_each(|x| *x = exp::<L>(*x)),
        None => x.iter_mut().for_each(|x| *x = x.exp()),
    }
}

simd_dispatch!(softmax_rows_at<R: Real>(logarithm: bool, length: usize, x: &[R], out: &mut [R]), softmax_rows);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::kernels::testing::{Random, assert_close};

    #[test]
    fn it_is_the_normalised_exponential_even_where_exponentials_overflow() {
        let mut random = Random::new(12);
        let shape = [2, 5, 3];
        let x: Vec<f64> = random.reals::<f64>(30).iter().map(|v| v * 3.0).collect();
        for axis in 0..3 {
            let inner: usize = shape[axis + 1..].iter().product();
            let at =
                |i: usize, k: usize| i / (inner * shape[axis]) * inner * shape[axis] + k * inner + i % inner;
            let expected: Vec<f64> = (0..30)
                .map(|i| x[i].exp() / (0..shape[axis]).map(|k| x[at(i, k)].exp()).sum::<f64>())
                .collect();
            let far: Vec<f64> = x.iter().map(|v| v + 5000.0).collect();
            let mut out = vec![0.0; 30];
            softmax(false, axis, (&x, &shape), &mut out);
            assert_close(&out, &expected, 1e-14);
            softmax(false, axis, (&far, &shape), &mut out);
            assert_close(&out, &expected, 1e-11);
            softmax(true, axis, (&far, &shape), &mut out);
            assert_close(&out, &expected.iter().map(|v| v.ln()).collect::<Vec<_>>(), 1e-11);
        }
    }
}
