//! Exponentials and what is made of them, in single precision: sigmoid, tanh, the error function, GELU, SiLU. Written without
//! branches, so that loops over them are vectorised. Errors are at most 2.5 units in the last place, six for GELU, and more in the
//! tail of its tanh form. Coefficients were printed by `scripts/fit_elementary.py`. Double precision uses the system's functions.
#![allow(unsafe_code)]
// Coefficients are single-precision numbers, written with all their digits.
#![allow(clippy::excessive_precision)]

use monosplit_graph::op::Unary;

use super::fused::ErfGate;
use super::simd_lanes::Lanes;
use super::simd_level::{SimdLevel, simd_dispatch};
use crate::cpu::real::Real;

/// `a·b + c`, rounded once where the machine has an instruction for it.
#[inline(always)]
fn multiply_add<L: Lanes>(a: f32, b: f32, c: f32) -> f32 {
    if L::FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// A polynomial by Horner's rule, the highest coefficient last.
#[inline(always)]
fn polynomial<L: Lanes, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        sum = multiply_add::<L>(sum, x, coefficients[i]);
    }
    sum
}

#[inline(always)]
fn limited(x: f32, least: f32, most: f32) -> f32 {
    let x = if x < least { least } else { x };
    if x > most { most } else { x }
}

/// Added to a small number, it leaves the nearest integer in the lowest bits.
const ROUND: f32 = 12_582_912.0;
const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// `(eʳ − 1 − r)/r²` for `|r| ≤ ln 2/2`.
const EXP: [f32; 6] = [
    0.5,
    0.1666666567325592,
    0.04166629537940025,
    0.008333497680723667,
    0.001394476043060422,
    0.00019790254009421915,
];

/// `e^(x + rest)` for a `rest` that is small against `x`, or below one.
#[inline(always)]
fn exp_sum<L: Lanes>(x: f32, rest: f32) -> f32 {
    // Beyond these the result is zero and infinity.
    let x = limited(x, -105.0, 89.0);
    let rounded = multiply_add::<L>(x, std::f32::consts::LOG2_E, ROUND);
    let power = rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let n = rounded - ROUND;
    // The first part of ln 2 has so few bits that its multiples are exact.
    let r = multiply_add::<L>(n, -LN_2[0], x) - n * LN_2[1] + rest;
    let e = multiply_add::<L>(polynomial::<L, 6>(r, EXP), r * r, r) + 1.0;
    // In two steps, because the power alone may not be a normal number where the result is.
    let half = power >> 1;
    let power_of_two = |power: i32| f32::from_bits(((power.wrapping_add(127)) << 23) as u32);
    e * power_of_two(half) * power_of_two(power.wrapping_sub(half))
}

#[inline(always)]
pub(super) fn exp<L: Lanes>(x: f32) -> f32 {
    exp_sum::<L>(x, 0.0)
}

/// `eˣ` where results below `e⁻⁸⁷` and above `e⁸⁸` need not be told apart.
#[inline(always)]
fn bounded_exp<L: Lanes>(x: f32) -> f32 {
    let x = limited(x, -87.0, 88.0);
    let rounded = multiply_add::<L>(x, std::f32::consts::LOG2_E, ROUND);
    let power = rounded.to_bits().wrapping_sub(ROUND.to_bits());
    let n = rounded - ROUND;
    let r = multiply_add::<L>(n, -LN_2[1], multiply_add::<L>(n, -LN_2[0], x));
    let e = multiply_add::<L>(polynomial::<L, 6>(r, EXP), r * r, r) + 1.0;
    e * f32::from_bits(power.wrapping_add(127) << 23)
}

/// Zero where it is below the smallest normal number.
#[inline(always)]
fn sigmoid<L: Lanes>(x: f32) -> f32 {
    let sigmoid = 1.0 / (1.0 + bounded_exp::<L>(-x));
    if x < -87.5 { 0.0 } else { sigmoid }
}

/// `(tanh x − x)/x³` in `x²`, for `|x| < 0.625`.
const TANH: [f32; 6] = [
    -0.3333333134651184,
    0.1333320587873459,
    -0.05394676327705383,
    0.021700698882341385,
    -0.008177390322089195,
    0.0021429548505693674,
];

#[inline(always)]
fn tanh<L: Lanes>(x: f32) -> f32 {
    let (size, square) = (x.abs(), x * x);
    let small = multiply_add::<L>(polynomial::<L, 6>(square, TANH) * square, x, x);
    let large = (1.0 - 2.0 / (exp::<L>(2.0 * size) + 1.0)).copysign(x);
    if size < 0.625 { small } else { large }
}

/// `e^(x²/2)·Φ(−x)` for `x ≥ 0`, Φ the normal distribution, as a polynomial in `1/(1 + x/4)`.
const TAIL: [f32; 10] = [
    -1.9855702703353018e-05,
    0.10019537061452866,
    0.09509873390197754,
    0.12026738375425339,
    -0.016606483608484268,
    0.29740217328071594,
    -0.3248780369758606,
    0.3884957432746887,
    -0.1933811604976654,
    0.033426132053136826,
];

/// `Φ(−x)` for `x ≥ 0`, the normal distribution, with `x²/2 = square + rest`.
#[inline(always)]
fn normal_tail<L: Lanes>(x: f32, square: f32, rest: f32) -> f32 {
    let t = 1.0 / multiply_add::<L>(limited(x, 0.0, 15.0), 0.25, 1.0);
    polynomial::<L, 10>(t, TAIL) * exp_sum::<L>(-square, -rest)
}

/// The square of a number as a sum of two: its leading bits squared, which is exact, and the rest.
#[inline(always)]
fn square(x: f32) -> (f32, f32) {
    let head = f32::from_bits(x.to_bits() & 0xFFFF_F000);
    (head * head, (x - head) * (x + head))
}

/// `(Φ(x) − ½)/x` in `x²`, for `|x| < 1`.
const CENTRE: [f32; 7] = [
    0.3989422917366028,
    -0.06649038195610046,
    0.009973540902137756,
    -0.0011872577015310526,
    0.00011526990419952199,
    -9.23425341170514e-06,
    5.250370804787963e-07,
];

#[inline(always)]
fn gelu<L: Lanes>(x: f32) -> f32 {
    let size = x.abs();
    let small = multiply_add::<L>(polynomial::<L, 7>(x * x, CENTRE), x, 0.5);
    let (head, rest) = square(limited(size, 0.0, 15.0));
    let tail = normal_tail::<L>(size, 0.5 * head, 0.5 * rest);
    let large = if x < 0.0 { tail } else { 1.0 - tail };
    x * if size < 1.0 { small } else { large }
}

/// `erf(x)/x − 1` in `x²`, for `|x| < 0.93`.
const ERF: [f32; 7] = [
    0.12837916612625122,
    -0.37612631916999817,
    0.11283687502145767,
    -0.026858940720558167,
    0.005199906416237354,
    -0.0008130011265166104,
    8.316768798977137e-05,
];
/// `ln(erfc(x))/x` for `0.92 < x < 4.1`.
const ERF_EXPONENT: [f32; 7] = [
    -1.1286485195159912,
    -0.6351513266563416,
    -0.10623691231012344,
    0.023762093856930733,
    -0.003642474068328738,
    0.00032280769664794207,
    -1.1231704775127582e-05,
];

#[inline(always)]
fn erf<L: Lanes>(x: f32) -> f32 {
    // Beyond the limit the result is one.
    let size = limited(x.abs(), 0.0, 4.1);
    let small = multiply_add::<L>(polynomial::<L, 7>(x * x, ERF), x, x);
    let exponent = polynomial::<L, 7>(size, ERF_EXPONENT) * size;
    let large = (1.0 - bounded_exp::<L>(exponent)).copysign(x);
    if size < 0.925 { small } else { large }
}

#[inline(always)]
fn gelu_tanh<L: Lanes>(x: f32) -> f32 {
    const FACTOR: f32 = 1.595_769_1;
    let inner = FACTOR * multiply_add::<L>(0.044715 * x * x, x, x);
    x / (1.0 + exp::<L>(-inner))
}

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn apply<L: Lanes>(function: Elementary, y: &mut [L::Scalar])
where
    L::Scalar: Real,
{
    let Some(y) = L::Scalar::single(y) else { return };
    match function {
        Elementary::Exp => y.iter_mut().for_each(|y| *y = exp::<L>(*y)),
        Elementary::Sigmoid => y.iter_mut().for_each(|y| *y = sigmoid::<L>(*y)),
        Elementary::Silu => y.iter_mut().for_each(|y| *y /= 1.0 + exp::<L>(-*y)),
        Elementary::Tanh => y.iter_mut().for_each(|y| *y = tanh::<L>(*y)),
        Elementary::Erf => y.iter_mut().for_each(|y| *y = erf::<L>(*y)),
        Elementary::SigmoidGate => y.iter_mut().for_each(|y| *y *= sigmoid::<L>(*y)),
        Elementary::HardSwish => y.iter_mut().for_each(|y| *y *= limited(*y * (1.0 / 6.0) + 0.5, 0.0, 1.0)),
        Elementary::Gelu => y.iter_mut().for_each(|y| *y = gelu::<L>(*y)),
        Elementary::GeluTanh => y.iter_mut().for_each(|y| *y = gelu_tanh::<L>(*y)),
    }
}

simd_dispatch!(apply_at<R: Real>(function: Elementary, y: &mut [R]), apply);

/// # Safety
/// The machine has the instructions of `L`.
#[inline(always)]
unsafe fn apply_erf_gate<L: Lanes>(gate: ErfGate, numbers: [L::Scalar; 3], y: &mut [L::Scalar])
where
    L::Scalar: Real,
{
    let [a, b, c] = numbers.map(|number| number.to_f64() as f32);
    let Some(y) = L::Scalar::single(y) else { return };
    let sum = |x: f32| erf::<L>(x) + b;
    match (gate.divides, gate.number_first) {
        (true, true) => y.iter_mut().for_each(|y| *y = *y * c * sum(*y / a)),
        (true, false) => y.iter_mut().for_each(|y| *y = *y * sum(*y / a) * c),
        (false, true) => y.iter_mut().for_each(|y| *y = *y * c * sum(*y * a)),
        (false, false) => y.iter_mut().for_each(|y| *y = *y * sum(*y * a) * c),
    }
}

simd_dispatch!(erf_gate_at<R: Real>(gate: ErfGate, numbers: [R; 3], y: &mut [R]), apply_erf_gate);

/// `y ← y·(erf(y/a) + b)·c` for single-precision numbers.
pub(crate) fn erf_gate<R: Real>(gate: ErfGate, numbers: [R; 3], y: &mut [R]) {
    // SAFETY: the level is one of this machine.
    unsafe { erf_gate_at(SimdLevel::current(), gate, numbers, y) }
}

/// The functions that are vectorised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elementary {
    Exp,
    Sigmoid,
    Silu,
    Tanh,
    Erf,
    Gelu,
    GeluTanh,
    HardSwish,
    /// The argument times its sigmoid, rounded in between.
    SigmoidGate,
}

impl Elementary {
    /// The vectorised form of a function of numbers of type `R`, if there is one.
    pub(crate) fn of<R: Real>(unary: Unary) -> Option<Self> {
        let function = match unary {
            Unary::Exp => Elementary::Exp,
            Unary::Sigmoid => Elementary::Sigmoid,
            Unary::Silu => Elementary::Silu,
            Unary::Tanh => Elementary::Tanh,
            Unary::Erf => Elementary::Erf,
            Unary::Gelu => Elementary::Gelu,
            Unary::GeluTanh => Elementary::GeluTanh,
            Unary::HardSwish => Elementary::HardSwish,
            _ => return None,
        };
        function.applies::<R>().then_some(function)
    }

    /// Whether it is of numbers of type `R`.
    pub(crate) fn applies<R: Real>(self) -> bool {
        R::single(&mut []).is_some()
    }

    /// `y ← f(y)` for single-precision numbers.
    pub(crate) fn apply<R: Real>(self, y: &mut [R]) {
        // SAFETY: the level is one of this machine.
        unsafe { apply_at(SimdLevel::current(), self, y) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::erf as double;
    use super::*;

    fn exact(function: Elementary, x: f64) -> f64 {
        match function {
            Elementary::Exp => x.exp(),
            Elementary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Elementary::Silu | Elementary::SigmoidGate => x / (1.0 + (-x).exp()),
            Elementary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
            Elementary::Tanh => x.tanh(),
            Elementary::Erf => double::erf(x),
            Elementary::Gelu => 0.5 * x * double::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            Elementary::GeluTanh => {
                x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).exp())
            }
        }
    }

    /// The distance between single-precision numbers of this size.
    fn unit(x: f64) -> f64 {
        let power = f64::from_bits(x.to_bits() & 0x7FF0_0000_0000_0000);
        power * f32::EPSILON as f64
    }

    const ALL: [Elementary; 8] = [
        Elementary::Exp,
        Elementary::Sigmoid,
        Elementary::Silu,
        Elementary::Tanh,
        Elementary::Erf,
        Elementary::Gelu,
        Elementary::GeluTanh,
        Elementary::SigmoidGate,
    ];

    /// Against the definitions in double precision, at numbers of every size.
    #[test]
    fn errors_are_a_few_units_in_the_last_place() {
        let step = if cfg!(miri) { 100_003_007 } else { 4001 };
        for level in SimdLevel::all() {
            for function in ALL {
                let x: Vec<f32> =
                    (0..u32::MAX).step_by(step).map(f32::from_bits).filter(|x| x.abs() < 80.0).collect();
                let mut found = x.clone();
                // SAFETY: the level is one of this machine.
                unsafe { apply_at(level, function, &mut found) };
                let mut worst = (0.0, 0.0);
                for (&x, &y) in x.iter().zip(&found) {
                    let exact = exact(function, x as f64);
                    // Near the smallest normal numbers, factors of the result may have fewer digits.
                    let error = (y as f64 - exact).abs() / unit(exact);
                    if error > worst.0 && exact.abs() > 64.0 * f32::MIN_POSITIVE as f64 {
                        worst = (error, x);
                    }
                }
                let bound = match function {
                    Elementary::Gelu => 6.0,
                    Elementary::GeluTanh => 250.0,
                    // Rounded once more.
                    Elementary::SigmoidGate => 3.0,
                    _ => 2.5,
                };
                assert!(worst.0 <= bound, "{level:?} {function:?}: {worst:?}");
            }
        }
    }

    #[test]
    fn extremes_and_nan_are_those_of_the_definitions() {
        let mut y = [f32::NEG_INFINITY, -200.0, 0.0, 200.0, f32::INFINITY, f32::NAN];
        Elementary::Exp.apply(&mut y);
        assert_eq!(&y[..5], &[0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY]);
        assert!(y[5].is_nan());
        for (function, expected) in [
            (Elementary::Sigmoid, [0.0, 1.0]),
            (Elementary::Tanh, [-1.0, 1.0]),
            (Elementary::Erf, [-1.0, 1.0]),
        ] {
            let mut y = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN];
            function.apply(&mut y);
            assert_eq!(&y[..2], &expected, "{function:?}");
            assert!(y[2].is_nan(), "{function:?}");
        }
        for function in [Elementary::Silu, Elementary::Gelu, Elementary::GeluTanh] {
            let mut y = [-1e30, 1e30f32, f32::NAN];
            function.apply(&mut y);
            assert!(y[0] == 0.0 && y[1] == 1e30 && y[2].is_nan(), "{function:?} {y:?}");
        }
    }
}
