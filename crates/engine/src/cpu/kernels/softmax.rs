//! Softmax and its logarithm along an axis, the maximum subtracted first, sums in double precision.

use monosplit_graph::op::Unary;
use rayon::prelude::*;

use super::broadcast::GRAIN;
use super::chunks::for_each_chunk;
use super::elementary::Elementary;
use super::reduce::{fold_lanes, sum};
use crate::cpu::real::Real;

/// `out ← eˣ/Σeˣ` along `axis`, or the logarithm of it.
pub(crate) fn softmax<R: Real>(logarithm: bool, axis: usize, (x, shape): (&[R], &[usize]), out: &mut [R]) {
    let (length, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let block = length * inner;
    if inner == 1 && length > 0 {
        let rows_per_task = (GRAIN / length).max(1);
        return for_each_chunk(out, rows_per_task * length, &|task, out| {
            let x = &x[task * rows_per_task * length..];
            for (out, x) in out.chunks_exact_mut(length).zip(x.chunks_exact(length)) {
                softmax_row(logarithm, x, out);
            }
        });
    }
    out.par_chunks_mut(block).zip(x.par_chunks(block)).for_each(|(out, x)| {
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

/// The same for one row of elements side by side.
fn softmax_row<R: Real>(logarithm: bool, x: &[R], out: &mut [R]) {
    let largest = fold_lanes(x, R::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b });
    out.iter_mut().zip(x).for_each(|(o, &x)| *o = x - largest);
    let exponentials = |out: &mut [R]| match Elementary::of::<R>(Unary::Exp) {
        Some(exp) => exp.apply(out),
        None => out.iter_mut().for_each(|o| *o = o.exp()),
    };
    if logarithm {
        let mut powers = out.to_vec();
        exponentials(&mut powers);
        let shift = R::from_f64(sum(&powers).ln());
        out.iter_mut().for_each(|o| *o = *o - shift);
    } else {
        exponentials(out);
        let scale = R::from_f64(1.0 / sum(out));
        out.iter_mut().for_each(|o| *o *= scale);
    }
}

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
