//! Elementwise functions of one value. NaN goes through every one of them.

use monosplit_graph::op::Unary;
use monosplit_graph::{Error, Result};
use rayon::prelude::*;

use super::broadcast::GRAIN;
use super::erf::{erf, erfc};
use crate::cpu::real::{Element, Real};
use crate::cpu::value::{Slice, SliceMut, View, ViewMut};

/// Where a function reads: another value, or the one it writes.
trait Source<T>: Sync {
    fn apply(&self, out: &mut [T], f: impl Fn(T) -> T + Sync);
}

struct From<'a, T>(&'a [T]);
struct InPlace;

impl<T: Element> Source<T> for From<'_, T> {
    fn apply(&self, out: &mut [T], f: impl Fn(T) -> T + Sync) {
        out.par_chunks_mut(GRAIN).zip(self.0.par_chunks(GRAIN)).for_each(|(out, x)| {
            for (o, &x) in out.iter_mut().zip(x) {
                *o = f(x);
            }
        });
    }
}

impl<T: Element> Source<T> for InPlace {
    fn apply(&self, out: &mut [T], f: impl Fn(T) -> T + Sync) {
        out.par_chunks_mut(GRAIN).for_each(|out| {
            for o in out {
                *o = f(*o);
            }
        });
    }
}

/// `out ← f(x)`.
pub(crate) fn apply<R: Real>(unary: Unary, x: &View<'_, R>, out: &mut ViewMut<'_, R>) -> Result<()> {
    match (x.data, &mut out.data) {
        (Slice::Real(x), SliceMut::Real(out)) => real(unary, From(x), out),
        (Slice::Int(x), SliceMut::Int(out)) => int(unary, From(x), out)?,
        (Slice::Bool(x), SliceMut::Bool(out)) if unary == Unary::Not => From(x).apply(out, |x| !x),
        _ => return Err(undefined(unary)),
    }
    Ok(())
}

/// `out ← f(out)`.
pub(crate) fn apply_in_place<R: Real>(unary: Unary, out: &mut ViewMut<'_, R>) -> Result<()> {
    match &mut out.data {
        SliceMut::Real(out) => real(unary, InPlace, out),
        SliceMut::Int(out) => int(unary, InPlace, out)?,
        SliceMut::Bool(out) if unary == Unary::Not => InPlace.apply(out, |x| !x),
        SliceMut::Bool(_) => return Err(undefined(unary)),
    }
    Ok(())
}

fn undefined(unary: Unary) -> Error {
    Error::unsupported(format!("{} is not defined for this kind of number; cast it first", unary.name()))
}

fn int(unary: Unary, x: impl Source<i64>, out: &mut [i64]) -> Result<()> {
    match unary {
        Unary::Neg => x.apply(out, i64::wrapping_neg),
        Unary::Abs => x.apply(out, i64::wrapping_abs),
        Unary::Sign => x.apply(out, i64::signum),
        Unary::Relu => x.apply(out, |x| x.max(0)),
        Unary::Clip { min, max } => x.apply(out, |x| x.max(min as i64).min(max as i64)),
        _ => return Err(undefined(unary)),
    }
    Ok(())
}

fn below_zero<R: Real>(x: R, otherwise: impl Fn(R) -> R) -> R {
    if x < R::ZERO { otherwise(x) } else { x }
}

fn limit<R: Real>(x: R, min: R, max: R) -> R {
    let raised = if x < min { min } else { x };
    if raised > max { max } else { raised }
}

fn sigmoid<R: Real>(x: R) -> R {
    R::ONE / (R::ONE + (-x).exp())
}

fn softplus<R: Real>(x: R) -> R {
    let positive = if x < R::ZERO { R::ZERO } else { x };
    positive + (-x.abs()).exp().ln_1p()
}

fn sign<R: Real>(x: R) -> R {
    if x > R::ZERO {
        R::ONE
    } else if x < R::ZERO {
        -R::ONE
    } else {
        x
    }
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

fn real<R: Real>(unary: Unary, x: impl Source<R>, out: &mut [R]) {
    let c = R::from_f64;
    let (zero, one) = (R::ZERO, R::ONE);
    match unary {
        Unary::Relu => x.apply(out, |x| if x < zero { zero } else { x }),
        Unary::LeakyRelu { slope } => {
            let slope = c(slope);
            x.apply(out, |x| below_zero(x, |x| slope * x));
        }
        Unary::Elu { alpha } => x.apply(out, |x| below_zero(x, |x| c(alpha) * x.exp_m1())),
        Unary::Selu { alpha, gamma } => {
            x.apply(out, |x| c(gamma) * below_zero(x, |x| c(alpha) * x.exp_m1()));
        }
        Unary::Celu { alpha } => x.apply(out, |x| below_zero(x, |x| c(alpha) * (x / c(alpha)).exp_m1())),
        Unary::Sigmoid => x.apply(out, sigmoid),
        Unary::Tanh => x.apply(out, R::tanh),
        Unary::Softplus => x.apply(out, softplus),
        Unary::HardSigmoid { alpha, beta } => x.apply(out, |x| limit(c(alpha) * x + c(beta), zero, one)),
        Unary::HardSwish => x.apply(out, |x| x * limit(x * c(1.0 / 6.0) + c(0.5), zero, one)),
        Unary::Silu => x.apply(out, |x| x / (one + (-x).exp())),
        Unary::Gelu => x.apply(out, |x| {
            let x = x.to_f64();
            c(0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2))
        }),
        Unary::GeluTanh => x.apply(out, |x| c(gelu_tanh(x.to_f64()))),
        Unary::Erf => x.apply(out, |x| c(erf(x.to_f64()))),
        Unary::Mish => x.apply(out, |x| x * softplus(x).tanh()),
        Unary::Neg => x.apply(out, |x| -x),
        Unary::Abs => x.apply(out, R::abs),
        Unary::Sqrt => x.apply(out, R::sqrt),
        Unary::Exp => x.apply(out, R::exp),
        Unary::Log => x.apply(out, R::ln),
        Unary::Reciprocal => x.apply(out, |x| one / x),
        Unary::Sign => x.apply(out, sign),
        Unary::Floor => x.apply(out, R::floor),
        Unary::Ceil => x.apply(out, R::ceil),
        Unary::Round => x.apply(out, R::round_ties_even),
        Unary::Clip { min, max } => {
            let (min, max) = (c(min), c(max));
            x.apply(out, |x| limit(x, min, max));
        }
        // The graph admits this one for truth values only.
        Unary::Not => x.apply(out, |x| if x == zero { one } else { zero }),
    }
}
