//! The two precisions behind one trait, so that every kernel is written once.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

use monosplit_graph::{Buffer, Data, Tensor};

use super::kernels::scratch::{FreeBuffers, ScratchBuffers};
use super::kernels::simd_level::Vectors;
use crate::Precision;

/// A number a kernel can store: it can be copied, compared and has a zero.
pub(crate) trait Element: Copy + Default + PartialOrd + Send + Sync + Debug + 'static {}

impl Element for f32 {}
impl Element for f64 {}
impl Element for i64 {}
impl Element for bool {}

/// A real number of either precision.
pub(crate) trait Real:
    Element
    + Vectors
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
{
    const PRECISION: Precision;
    const ZERO: Self;
    const ONE: Self;
    const NEG_INFINITY: Self;
    /// Limits that every number lies within.
    const UNLIMITED: [Self; 2];

    /// Whether the precision leaves room for convolutions that trade some of it for speed.
    const FAST: bool;

    /// The scratch buffers of this precision.
    fn scratch(buffers: &ScratchBuffers) -> &FreeBuffers<Self>;

    /// The numbers if they are of single precision.
    fn single(numbers: &mut [Self]) -> Option<&mut [f32]>;

    fn from_f64(v: f64) -> Self;
    fn to_f64(self) -> f64;
    fn is_nan(self) -> bool;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn exp(self) -> Self;
    fn exp_m1(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn tanh(self) -> Self;
    fn powf(self, exponent: Self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn round_ties_even(self) -> Self;

    /// The elements of a tensor in this precision, shared if they are stored so.
    fn of(tensor: &Tensor) -> Buffer<Self>;
    /// Elements as they leave the engine.
    fn into_data(elements: Buffer<Self>) -> Data;
    /// The elements of a tensor's data, if they have this precision.
    fn from_data(data: Data) -> Option<Vec<Self>>;
}

macro_rules! real {
    ($real:ident, $of:ident, $data:ident, $fast:literal, $single:expr) => {
        impl Real for $real {
            const PRECISION: Precision = Precision::$data;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = $real::NEG_INFINITY;
            const UNLIMITED: [Self; 2] = [$real::NEG_INFINITY, $real::INFINITY];
            const FAST: bool = $fast;

            fn scratch(buffers: &ScratchBuffers) -> &FreeBuffers<Self> {
                &buffers.$real
            }

            #[inline]
            fn single(numbers: &mut [Self]) -> Option<&mut [f32]> {
                let single: fn(&mut [Self]) -> Option<&mut [f32]> = $single;
                single(numbers)
            }

            #[inline]
            fn from_f64(v: f64) -> Self {
                v as $real
            }
            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline]
            fn is_nan(self) -> bool {
                $real::is_nan(self)
            }
            #[inline]
            fn abs(self) -> Self {
                $real::abs(self)
            }
            #[inline]
            fn sqrt(self) -> Self {
                $real::sqrt(self)
            }
            #[inline]
            fn exp(self) -> Self {
                $real::exp(self)
            }
            #[inline]
            fn exp_m1(self) -> Self {
                $real::exp_m1(self)
            }
            #[inline]
            fn ln(self) -> Self {
                $real::ln(self)
            }
            #[inline]
            fn ln_1p(self) -> Self {
                $real::ln_1p(self)
            }
            #[inline]
            fn tanh(self) -> Self {
                $real::tanh(self)
            }
            #[inline]
            fn powf(self, exponent: Self) -> Self {
                $real::powf(self, exponent)
            }
            #[inline]
            fn floor(self) -> Self {
                $real::floor(self)
            }
            #[inline]
            fn ceil(self) -> Self {
                $real::ceil(self)
            }
            #[inline]
            fn round_ties_even(self) -> Self {
                $real::round_ties_even(self)
            }
            fn of(tensor: &Tensor) -> Buffer<Self> {
                tensor.$of()
            }
            fn into_data(elements: Buffer<Self>) -> Data {
                Data::$data(elements)
            }
            fn from_data(data: Data) -> Option<Vec<Self>> {
                if let Data::$data(elements) = data { Some(elements.into_vec()) } else { None }
            }
        }
    };
}

real!(f32, to_f32, F32, true, |numbers| Some(numbers));
real!(f64, to_f64, F64, false, |_| None);
