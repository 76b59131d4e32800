//! Elementwise functions of two values, and casts.
#![allow(unsafe_code)]

use super::chunks::for_each_chunk;
use monosplit_graph::op::Binary;
use monosplit_graph::{Error, Result};

use super::broadcast::{GRAIN, choose, combine};
use super::fused_block::Block;
use super::simd_lanes::Lanes;
use super::simd_level::{SimdLevel, simd_dispatch};
use crate::cpu::real::{Element, Real};
use crate::cpu::value::{Slice, SliceMut, View, ViewMut};

/// A value and its shape.
type Operand<'a, T> = (&'a [T], &'a [usize]);
/// A result and its shape.
type DisjointSlice<'a, T> = (&'a mut [T], &'a [usize]);

/// Two operands and a result, however they are read and written.
trait Pairing<A, B, O> {
    fn combine(self, f: impl Fn(A, B) -> O + Sync) -> Result<()>;
}

struct Broadcasting<'a, A, B, O> {
    a: Operand<'a, A>,
    b: Operand<'a, B>,
    out: DisjointSlice<'a, O>,
}

impl<A: Element, B: Element, O: Element> Pairing<A, B, O> for Broadcasting<'_, A, B, O> {
    fn combine(self, f: impl Fn(A, B) -> O + Sync) -> Result<()> {
        combine(self.a, self.b, self.out, f)
    }
}

/// A block that is overwritten, and another operand, which comes first if `SWAPPED`.
struct Changed<'a, T, const SWAPPED: bool> {
    y: &'a mut [T],
    x: Block<'a, T>,
}

impl<T: Element, const SWAPPED: bool> Pairing<T, T, T> for Changed<'_, T, SWAPPED> {
    #[inline(always)]
    fn combine(self, f: impl Fn(T, T) -> T + Sync) -> Result<()> {
        let f = |y: T, x: T| if SWAPPED { f(x, y) } else { f(y, x) };
        match self.x {
            Block::Many(x) => self.y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(*y, x)),
            Block::One(x) => self.y.iter_mut().for_each(|y| *y = f(*y, x)),
        }
        Ok(())
    }
}

struct Blockwise<'a, A, B, O> {
    a: Block<'a, A>,
    b: Block<'a, B>,
    out: &'a mut [O],
}

impl<A: Element, B: Element, O: Element> Pairing<A, B, O> for Blockwise<'_, A, B, O> {
    #[inline(always)]
    fn combine(self, f: impl Fn(A, B) -> O + Sync) -> Result<()> {
        match (self.a, self.b) {
            (Block::Many(a), Block::Many(b)) => {
                for ((o, &a), &b) in self.out.iter_mut().zip(a).zip(b) {
                    *o = f(a, b);
                }
            }
            (Block::Many(a), Block::One(b)) => {
                for (o, &a) in self.out.iter_mut().zip(a) {
                    *o = f(a, b);
                }
            }
            (Block::One(a), Block::Many(b)) => {
                for (o, &b) in self.out.iter_mut().zip(b) {
                    *o = f(a, b);
                }
            }
            (Block::One(a), Block::One(b)) => self.out.fill(f(a, b)),
        }
        Ok(())
    }
}

/// `out ← f(a, b)` on a block.
pub(crate) fn real_block<R: Real>(
    binary: Binary,
    a: Block<'_, R>,
    b: Block<'_, R>,
    out: &mut [R],
) -> Result<()> {
    if is_arithmetic(binary) {
        // SAFETY: the level is one of this machine.
        unsafe { arithmetic_at(SimdLevel::current(), binary, a, b, out) };
        return Ok(());
    }
    real(binary, Blockwise { a, b, out })
}

/// Whether a function of real numbers is compiled for each SIMD level.
pub(crate) fn is_arithmetic(binary: Binary) -> bool {
    matches!(binary, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max | Binary::Min)
}

/// `y ← f(y, x)` on a block, or `y ← f(x, y)` if `swapped`, for a function that [`is_arithmetic`].
pub(crate) fn change_block<R: Real>(binary: Binary, y: &mut [R], x: Block<'_, R>, swapped: bool) {
    // SAFETY: the level is one of this machine.
    unsafe { change_at(SimdLevel::current(), binary, y, x, swapped) }
}

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn change<L: Lanes>(binary: Binary, y: &mut [L::Scalar], x: Block<'_, L::Scalar>, swapped: bool)
where
    L::Scalar: Real,
{
    // Of these functions none fails.
    let _ = match swapped {
        false => real(binary, Changed::<_, false> { y, x }),
        true => real(binary, Changed::<_, true> { y, x }),
    };
}

simd_dispatch!(change_at<R: Real>(binary: Binary, y: &mut [R], x: Block<'_, R>, swapped: bool), change);

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn arithmetic<L: Lanes>(
    binary: Binary,
    a: Block<'_, L::Scalar>,
    b: Block<'_, L::Scalar>,
    out: &mut [L::Scalar],
) where
    L::Scalar: Real,
{
    // Of these functions none fails.
    let _ = real(binary, Blockwise { a, b, out });
}

simd_dispatch!(arithmetic_at<R: Real>(binary: Binary, a: Block<'_, R>, b: Block<'_, R>, out: &mut [R]), arithmetic);

/// `out ← a ? b`, a comparison, on a block.
pub(crate) fn compare_block<R: Real>(
    binary: Binary,
    a: Block<'_, R>,
    b: Block<'_, R>,
    out: &mut [bool],
) -> Result<()> {
    compare(binary, Blockwise { a, b, out })
}

/// `out ← f(a, b)` of truth values on a block.
pub(crate) fn logic_block(
    binary: Binary,
    a: Block<'_, bool>,
    b: Block<'_, bool>,
    out: &mut [bool],
) -> Result<()> {
    logic(binary, Blockwise { a, b, out })
}

/// `out ← f(a, b)`, broadcast. A NaN operand makes a maximum or minimum NaN.
pub(crate) fn apply<R: Real>(
    binary: Binary,
    a: &View<'_, R>,
    b: &View<'_, R>,
    out: &mut ViewMut<'_, R>,
) -> Result<()> {
    let (sa, sb, so) = (a.shape, b.shape, out.shape);
    match (a.data, b.data, &mut out.data) {
        (Slice::Real(a), Slice::Real(b), SliceMut::Real(o)) => {
            real(binary, Broadcasting { a: (a, sa), b: (b, sb), out: (o, so) })
        }
        (Slice::Int(a), Slice::Int(b), SliceMut::Int(o)) => int(binary, (a, sa), (b, sb), (o, so)),
        (Slice::Real(a), Slice::Real(b), SliceMut::Bool(o)) => {
            compare(binary, Broadcasting { a: (a, sa), b: (b, sb), out: (o, so) })
        }
        (Slice::Int(a), Slice::Int(b), SliceMut::Bool(o)) => {
            compare(binary, Broadcasting { a: (a, sa), b: (b, sb), out: (o, so) })
        }
        (Slice::Bool(a), Slice::Bool(b), SliceMut::Bool(o)) => {
            logic(binary, Broadcasting { a: (a, sa), b: (b, sb), out: (o, so) })
        }
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

#[inline(always)]
fn real<R: Real>(binary: Binary, pair: impl Pairing<R, R, R>) -> Result<()> {
    match binary {
        Binary::Add => pair.combine(|a, b| a + b),
        Binary::Sub => pair.combine(|a, b| a - b),
        Binary::Mul => pair.combine(|a, b| a * b),
        Binary::Div => pair.combine(|a, b| a / b),
        Binary::Pow => pair.combine(power),
        Binary::Max => pair.combine(|a: R, b| if a > b || a.is_nan() { a } else { b }),
        Binary::Min => pair.combine(|a: R, b| if a < b || a.is_nan() { a } else { b }),
        Binary::PRelu => pair.combine(|x, slope| if x < R::ZERO { slope * x } else { x }),
        Binary::Equal | Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => {
            Err(undefined(binary))
        }
        Binary::And | Binary::Or | Binary::Xor => Err(undefined(binary)),
    }
}

fn int(binary: Binary, a: Operand<'_, i64>, b: Operand<'_, i64>, out: DisjointSlice<'_, i64>) -> Result<()> {
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
        Binary::Equal | Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => {
            Err(undefined(binary))
        }
        Binary::And | Binary::Or | Binary::Xor => Err(undefined(binary)),
    }
}

fn integer_power(base: i64, exponent: i64) -> i64 {
    match u32::try_from(exponent) {
        Ok(exponent) => base.wrapping_pow(exponent),
        Err(_) => (base as f64).powf(exponent as f64) as i64,
    }
}

fn compare<T: Element>(binary: Binary, pair: impl Pairing<T, T, bool>) -> Result<()> {
    match binary {
        Binary::Equal => pair.combine(|a, b| a == b),
        Binary::Less => pair.combine(|a, b| a < b),
        Binary::LessOrEqual => pair.combine(|a, b| a <= b),
        Binary::Greater => pair.combine(|a, b| a > b),
        Binary::GreaterOrEqual => pair.combine(|a, b| a >= b),
        Binary::And | Binary::Or | Binary::Xor => Err(undefined(binary)),
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div => Err(undefined(binary)),
        Binary::Pow | Binary::Max | Binary::Min | Binary::PRelu => Err(undefined(binary)),
    }
}

fn logic(binary: Binary, pair: impl Pairing<bool, bool, bool>) -> Result<()> {
    match binary {
        Binary::And => pair.combine(|a, b| a & b),
        Binary::Or => pair.combine(|a, b| a | b),
        Binary::Xor => pair.combine(|a, b| a ^ b),
        Binary::Equal | Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => {
            compare(binary, pair)
        }
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div => Err(undefined(binary)),
        Binary::Pow | Binary::Max | Binary::Min | Binary::PRelu => Err(undefined(binary)),
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
    for_each_chunk(out, GRAIN, &|i, out| {
        for (o, &x) in out.iter_mut().zip(&x[i * GRAIN..]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reals(binary: Binary, a: &[f32], b: &[f32]) -> Vec<f32> {
        let shape = [a.len()];
        let mut out = vec![0.0; a.len()];
        let view = |v| View { shape: &shape, data: Slice::Real(v) };
        let mut target = ViewMut { shape: &shape, data: SliceMut::Real(&mut out) };
        apply(binary, &view(a), &view(b), &mut target).unwrap();
        out
    }

    fn ints(binary: Binary, a: &[i64], b: &[i64]) -> Result<Vec<i64>> {
        let shape = [a.len()];
        let mut out = vec![0; a.len()];
        let view = |v| View::<f32> { shape: &shape, data: Slice::Int(v) };
        let mut target = ViewMut { shape: &shape, data: SliceMut::Int(&mut out) };
        apply(binary, &view(a), &view(b), &mut target).map(|()| out)
    }

    fn truths(binary: Binary, a: Slice<'_, f32>, b: Slice<'_, f32>) -> Vec<bool> {
        let shape = [4];
        let mut out = vec![false; 4];
        let mut target = ViewMut { shape: &shape, data: SliceMut::Bool(&mut out) };
        let view = |data| View { shape: &shape, data };
        apply(binary, &view(a), &view(b), &mut target).unwrap();
        out
    }

    #[test]
    fn real_functions_follow_their_names() {
        let (a, b) = ([-2.0, 3.0, 0.5, 4.0], [2.0, -1.0, 4.0, 0.5]);
        assert_eq!(reals(Binary::Add, &a, &b), [0.0, 2.0, 4.5, 4.5]);
        assert_eq!(reals(Binary::Sub, &a, &b), [-4.0, 4.0, -3.5, 3.5]);
        assert_eq!(reals(Binary::Mul, &a, &b), [-4.0, -3.0, 2.0, 2.0]);
        assert_eq!(reals(Binary::Div, &a, &b), [-1.0, -3.0, 0.125, 8.0]);
        assert_eq!(reals(Binary::Pow, &a, &b), [4.0, 1.0 / 3.0, 0.0625, 2.0]);
        assert_eq!(reals(Binary::Max, &a, &b), [2.0, 3.0, 4.0, 4.0]);
        assert_eq!(reals(Binary::Min, &a, &b), [-2.0, -1.0, 0.5, 0.5]);
        assert_eq!(reals(Binary::PRelu, &a, &b), [-4.0, 3.0, 0.5, 4.0]);
    }

    #[test]
    fn nan_on_either_side_wins_extremes_and_loses_comparisons() {
        let (a, b) = ([f32::NAN, 1.0, f32::NAN, 2.0], [1.0, f32::NAN, f32::NAN, 2.0]);
        for binary in [Binary::Max, Binary::Min] {
            let found = reals(binary, &a, &b);
            assert!(found[..3].iter().all(|v| v.is_nan()) && found[3] == 2.0);
        }
        let only_last = [false, false, false, true];
        for binary in [Binary::Equal, Binary::LessOrEqual, Binary::GreaterOrEqual] {
            assert_eq!(truths(binary, Slice::Real(&a), Slice::Real(&b)), only_last);
        }
        for binary in [Binary::Less, Binary::Greater] {
            assert_eq!(truths(binary, Slice::Real(&a), Slice::Real(&b)), [false; 4]);
        }
    }

    #[test]
    fn integers_truncate_wrap_and_refuse_to_divide_by_zero() {
        let (a, b) = ([-7, 7, i64::MIN, 5], [2, -2, -1, 3]);
        assert_eq!(ints(Binary::Div, &a, &b).unwrap(), [-3, -3, i64::MIN, 1]);
        assert_eq!(ints(Binary::Pow, &[-2, 3, 1, 2], &[3, 4, -1, -1]).unwrap(), [-8, 81, 1, 0]);
        assert_eq!(ints(Binary::Max, &a, &b).unwrap(), [2, 7, -1, 5]);
        assert!(ints(Binary::Div, &[1], &[0]).unwrap_err().to_string().contains("divided by zero"));
    }

    #[test]
    fn truth_tables() {
        let (a, b) = ([false, false, true, true], [false, true, false, true]);
        let of = |binary| truths(binary, Slice::Bool(&a), Slice::Bool(&b));
        assert_eq!(of(Binary::And), [false, false, false, true]);
        assert_eq!(of(Binary::Or), [false, true, true, true]);
        assert_eq!(of(Binary::Xor), [false, true, true, false]);
        assert_eq!(of(Binary::Equal), [true, false, false, true]);
    }

    #[test]
    fn casts_truncate_and_test_for_zero() {
        let shape = [5];
        let x = [2.9f32, -2.9, 0.0, f32::NAN, 1e30];
        let view = View { shape: &shape, data: Slice::Real(&x[..]) };
        let (mut ints, mut truths) = ([0; 5], [false; 5]);
        cast(&view, &mut ViewMut { shape: &shape, data: SliceMut::Int(&mut ints) });
        cast(&view, &mut ViewMut { shape: &shape, data: SliceMut::Bool(&mut truths) });
        assert_eq!(ints, [2, -2, 0, 0, i64::MAX]);
        assert_eq!(truths, [true, true, false, true, true]);
        let mut back = [9.0f32; 5];
        let view = View { shape: &shape, data: Slice::Bool(&truths) };
        cast(&view, &mut ViewMut { shape: &shape, data: SliceMut::Real(&mut back) });
        assert_eq!(back, [1.0, 1.0, 0.0, 1.0, 1.0]);
    }
}
