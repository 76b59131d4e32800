//! Vectors of the machine behind one trait, so that a micro-kernel is written once and compiled for every
//! instruction set. Everything here is inlined into functions that enable the instructions they need.
#![allow(unsafe_code)]

/// A vector of real numbers.
pub(crate) trait Lanes: Copy {
    type Scalar: Copy;
    /// Numbers in a vector.
    const WIDTH: usize;
    /// Rows of a tile of a matrix product whose sums fit the registers.
    const ROWS: usize;

    /// # Safety
    /// The machine has the instructions of this type; `WIDTH` numbers can be read at `from`.
    unsafe fn load(from: *const Self::Scalar) -> Self;

    /// # Safety
    /// The machine has the instructions of this type; `WIDTH` numbers can be written at `to`.
    unsafe fn store(self, to: *mut Self::Scalar);

    /// # Safety
    /// The machine has the instructions of this type.
    unsafe fn splat(value: Self::Scalar) -> Self;

    /// # Safety
    /// The machine has the instructions of this type.
    unsafe fn plus(self, other: Self) -> Self;

    /// # Safety
    /// The machine has the instructions of this type.
    unsafe fn minus(self, other: Self) -> Self;

    /// `self·factor + sum`, rounded once where the machine can.
    ///
    /// # Safety
    /// The machine has the instructions of this type.
    unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self;
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! lanes {
    ($vector:ident of $real:ty, width $width:literal, rows $rows:literal, $load:ident, $store:ident,
     $splat:ident, $add:ident, $sub:ident, |$a:ident, $b:ident, $c:ident| $fma:expr) => {
        impl Lanes for $vector {
            type Scalar = $real;
            const WIDTH: usize = $width;
            const ROWS: usize = $rows;

            #[inline(always)]
            unsafe fn load(from: *const $real) -> Self {
                // SAFETY: the caller vouches for the instructions and the extent.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $real) {
                // SAFETY: the caller vouches for the instructions and the extent.
                unsafe { $store(to, self) }
            }

            #[inline(always)]
            unsafe fn splat(value: $real) -> Self {
                // SAFETY: the caller vouches for the instructions.
                unsafe { $splat(value) }
            }

            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                // SAFETY: the caller vouches for the instructions.
                unsafe { $add(self, other) }
            }

            #[inline(always)]
            unsafe fn minus(self, other: Self) -> Self {
                // SAFETY: the caller vouches for the instructions.
                unsafe { $sub(self, other) }
            }

            #[inline(always)]
            unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self {
                let ($a, $b, $c) = (self, factor, sum);
                // SAFETY: the caller vouches for the instructions.
                unsafe { $fma }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    lanes!(__m256 of f32, width 8, rows 6, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps,
        _mm256_add_ps, _mm256_sub_ps, |a, b, c| _mm256_fmadd_ps(a, b, c));
    lanes!(__m256d of f64, width 4, rows 6, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd,
        _mm256_add_pd, _mm256_sub_pd, |a, b, c| _mm256_fmadd_pd(a, b, c));
    lanes!(__m512 of f32, width 16, rows 14, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps,
        _mm512_add_ps, _mm512_sub_ps, |a, b, c| _mm512_fmadd_ps(a, b, c));
    lanes!(__m512d of f64, width 8, rows 14, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd,
        _mm512_add_pd, _mm512_sub_pd, |a, b, c| _mm512_fmadd_pd(a, b, c));
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::*;

    use super::Lanes;

    lanes!(float32x4_t of f32, width 4, rows 12, vld1q_f32, vst1q_f32, vdupq_n_f32, vaddq_f32, vsubq_f32,
        |a, b, c| vfmaq_f32(c, a, b));
    lanes!(float64x2_t of f64, width 2, rows 12, vld1q_f64, vst1q_f64, vdupq_n_f64, vaddq_f64, vsubq_f64,
        |a, b, c| vfmaq_f64(c, a, b));
}

/// Plain arithmetic on a few numbers at a time, which the compiler makes vectors of.
macro_rules! portable {
    ($real:ty, $width:literal) => {
        impl Lanes for [$real; $width] {
            type Scalar = $real;
            const WIDTH: usize = $width;
            const ROWS: usize = 4;

            #[inline(always)]
            unsafe fn load(from: *const $real) -> Self {
                // SAFETY: the caller vouches for the extent.
                unsafe { from.cast::<Self>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $real) {
                // SAFETY: the caller vouches for the extent.
                unsafe { to.cast::<Self>().write_unaligned(self) }
            }

            #[inline(always)]
            unsafe fn splat(value: $real) -> Self {
                [value; $width]
            }

            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                std::array::from_fn(|i| self[i] + other[i])
            }

            #[inline(always)]
            unsafe fn minus(self, other: Self) -> Self {
                std::array::from_fn(|i| self[i] - other[i])
            }

            #[inline(always)]
            unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self {
                std::array::from_fn(|i| self[i] * factor[i] + sum[i])
            }
        }
    };
}

portable!(f32, 4);
portable!(f64, 2);
