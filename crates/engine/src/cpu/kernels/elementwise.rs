//! Elementwise functions of two values, and casts.

use monosplit_graph::op::Binary;
use monosplit_graph::{Error, Result};
use rayon::prelude::*;

use super::broadcast::{GRAIN, choose, combine};
use crate::cpu::real::{Element, Real};
use crate::cpu::value::{Slice, SliceMut, View, ViewMut};

/// A value and its shape.
type Operand<'a, T> = (&'a [T], &'a [usize]);
/// A result and its shape.
type Target<'a, T> = (&'a mut [T], &'a [usize]);

/// `out ← f(a, b)`, broadcast. A NaN operand makes a maximum or minimum NaN.
pub(crate) fn apply<R: Real>(
    binary: Binary,
    a: &View<'_, R>,
    b: &View<'_, R>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    let (sa, sb, so) = (a.shape, b.shape, out.shape);
    match (a.data, b.data, &mut out.data) {
        (Slice::Real(a), Slice::Real(b), SliceMut::Real(o)) => real(binary, (a, sa), (b, sb), (o, so)),
        (Slice::Int(a), Slice::Int(b), SliceMut::Int(o)) => int(binary, (a, sa), (b, sb), (o, so)),
        (Slice::Real(a), Slice::Real(b), SliceMut::Bool(o)) => compare(binary, (a, sa), (b, sb), (o, so)),
        (Slice::Int(a), Slice::Int(b), SliceMut::Bool(o)) => compare(binary, (a, sa), (b, sb), (o, so)),
        (Slice::Bool(a), Slice::Bool(b), SliceMut::Bool(o)) => logic(binary, (a, sa), (b, sb), (o, so)),
        (Slice::Real(a), Slice::Int(b), SliceMut::Real(o)) if binary == Binary::Pow => {
            combine((a, sa), (b, sb), (o, so), |a: R, b| power(a, R::from_f64(b as f64)))
        }
        (Slice::Int(a), Slice::Real(b), SliceMut::Int(o)) if binary == Binary::Pow => {
            combine((a, sa), (b, sb), (o, so), |a, b: R| (a as f64).powf(b.to_f64()) as i64)
        }
        _ => Err(undefined(binary)),
    }
}

fn undefined(binary: Binary) -> Error {
    Error::unsupported(format!("{} is not defined for these kinds of number; cast them first", binary.name()))
}

/// Squares are exact products: they are what most networks raise to.
fn power<R: Real>(a: R, b: R) -> R {
    if b == R::ONE + R::ONE { a * a } else { a.powf(b) }
}

fn real<R: Real>(binary: Binary, a: Operand<'_, R>, b: Operand<'_, R>, out: Target<'_, R>) -> Result<()> {
    match binary {
        Binary::Add => combine(a, b, out, |a, b| a + b),
        Binary::Sub => combine(a, b, out, |a, b| a - b),
        Binary::Mul => combine(a, b, out, |a, b| a * b),
        Binary::Div => combine(a, b, out, |a, b| a / b),
        Binary::Pow => combine(a, b, out, power),
        Binary::Max => combine(a, b, out, |a: R, b| if a > b || a.is_nan() { a } else { b }),
        Binary::Min => combine(a, b, out, |a: R, b| if a < b || a.is_nan() { a } else { b }),
        Binary::PRelu => combine(a, b, out, |x, slope| if x < R::ZERO { slope * x } else { x }),
        _ => Err(undefined(binary)),
    }
}

fn int(binary: Binary, a: Operand<'_, i64>, b: Operand<'_, i64>, out: Target<'_, i64>) -> Result<()> {
    match binary {
        Binary::Add => combine(a, b, out, i64::wrapping_add),
        Binary::Sub => combine(a, b, out, i64::wrapping_sub),
        Binary::Mul => combine(a, b, out, i64::wrapping_mul),
        Binary::Div if b.0.contains(&0) => {
            Err(Error::argument("an integer is divided by zero; check the shape arithmetic before this node"))
        }
        Binary::Div => combine(a, b, out, i64::wrapping_div),
        Binary::Pow => combine(a, b, out, integer_power),
        Binary::Max => combine(a, b, out, i64::max),
        Binary::Min => combine(a, b, out, i64::min),
        Binary::PRelu => combine(a, b, out, |x: i64, slope| if x < 0 { slope.wrapping_mul(x) } else { x }),
        _ => Err(undefined(binary)),
    }
}

fn integer_power(base: i64, exponent: i64) -> i64 {
    match u32::try_from(exponent) {
        Ok(exponent) => base.wrapping_pow(exponent),
        Err(_) => (base as f64).powf(exponent as f64) as i64,
    }
}

fn compare<T: Element>(
    binary: Binary,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    out: Target<'_, bool>,
) -> Result<()> {
    match binary {
        Binary::Equal => combine(a, b, out, |a, b| a == b),
        Binary::Less => combine(a, b, out, |a, b| a < b),
        Binary::LessOrEqual => combine(a, b, out, |a, b| a <= b),
        Binary::Greater => combine(a, b, out, |a, b| a > b),
        Binary::GreaterOrEqual => combine(a, b, out, |a, b| a >= b),
        _ => Err(undefined(binary)),
    }
}

fn logic(binary: Binary, a: Operand<'_, bool>, b: Operand<'_, bool>, out: Target<'_, bool>) -> Result<()> {
    match binary {
        Binary::And => combine(a, b, out, |a, b| a & b),
        Binary::Or => combine(a, b, out, |a, b| a | b),
        Binary::Xor => combine(a, b, out, |a, b| a ^ b),
        _ => compare(binary, a, b, out),
    }
}

/// `out ← condition ? a : b`, broadcast.
pub(crate) fn select<R: Real>(
    condition: &View<'_, R>,
    a: &View<'_, R>,
    b: &View<'_, R>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    let (condition, sa, sb, so) = ((condition.bool()?, condition.shape), a.shape, b.shape, out.shape);
    match (a.data, b.data, &mut out.data) {
        (Slice::Real(a), Slice::Real(b), SliceMut::Real(o)) => choose(condition, (a, sa), (b, sb), (o, so)),
        (Slice::Int(a), Slice::Int(b), SliceMut::Int(o)) => choose(condition, (a, sa), (b, sb), (o, so)),
        (Slice::Bool(a), Slice::Bool(b), SliceMut::Bool(o)) => choose(condition, (a, sa), (b, sb), (o, so)),
        _ => Err(Error::shape("both sides of a choice must be of one kind")),
    }
}

fn convert<A: Element, B: Element>(x: &[A], out: &mut [B], f: impl Fn(A) -> B + Sync) {
    out.par_chunks_mut(GRAIN).zip(x.par_chunks(GRAIN)).for_each(|(out, x)| {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = f(x);
        }
    });
}

/// `out ← x` as another kind: reals are truncated towards zero (NaN to 0, what is too large to the largest).
pub(crate) fn cast<R: Real>(x: &View<'_, R>, out: &mut ViewMut<'_, R>) {
    match (x.data, &mut out.data) {
        (Slice::Real(x), SliceMut::Real(out)) => out.copy_from_slice(x),
        (Slice::Int(x), SliceMut::Int(out)) => out.copy_from_slice(x),
        (Slice::Bool(x), SliceMut::Bool(out)) => out.copy_from_slice(x),
        (Slice::Real(x), SliceMut::Int(out)) => convert(x, out, |x| x.to_f64() as i64),
        (Slice::Real(x), SliceMut::Bool(out)) => convert(x, out, |x| x != R::ZERO),
        (Slice::Int(x), SliceMut::Real(out)) => convert(x, out, |x| R::from_f64(x as f64)),
        (Slice::Int(x), SliceMut::Bool(out)) => convert(x, out, |x| x != 0),
        (Slice::Bool(x), SliceMut::Real(out)) => convert(x, out, |x| if x { R::ONE } else { R::ZERO }),
        (Slice::Bool(x), SliceMut::Int(out)) => convert(x, out, i64::from),
    }
}
