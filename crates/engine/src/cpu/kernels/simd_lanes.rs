//! SIMD vectors behind one trait, so that a microkernel is written once and compiled for every instruction set.
//! Everything here is inlined into functions that enable the instructions they need.
#![allow(unsafe_code)]

/// A vector of real numbers.
pub(crate) trait Lanes: Copy {
    type Scalar: Copy + Default;
    /// Numbers in a vector.
    const WIDTH: usize;
    /// Rows of a tile of a matrix product whose sums fit the registers: an even number.
    const ROWS: usize;
    /// Whether the machine multiplies and adds with one rounding.
    const FUSED: bool;
    /// A vector half as wide, or the same where there is none.
    type Half: Lanes<Scalar = Self::Scalar>;

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

    /// Prefetches the memory at `at`, which need not be valid.
    #[inline(always)]
    fn prefetch(at: *const Self::Scalar) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: every machine has the instruction, and it reads nothing the program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
        let _ = at;
    }

    /// `self·factor + sum`, rounded once where the machine can.
    ///
    /// # Safety
    /// The machine has the instructions of this type.
    unsafe fn multiply_add(self, factor: Self, sum: Self) -> Self;

    /// Clamped between `least` and `most`; NaN stays.
    ///
    /// # Safety
    /// The machine has the instructions of this type.
    unsafe fn limited(self, least: Self, most: Self) -> Self;

    /// The elementwise maximum: the element of `held` where they are equal, NaN where either is.
    ///
    /// # Safety
    /// The machine has the instructions of this type.
    unsafe fn larger(self, held: Self) -> Self;

    /// The elements `first..end` from `from` on, and those of `otherwise` elsewhere, where memory need not be valid.
    ///
    /// # Safety
    /// The machine has the instructions of this type; `first ≤ end ≤ WIDTH`; those numbers can be read.
    #[inline(always)]
    unsafe fn load_within(from: *const Self::Scalar, first: usize, end: usize, otherwise: Self) -> Self {
        let mut row = [Self::Scalar::default(); WIDEST];
        // SAFETY: the staging row holds a vector.
        unsafe { otherwise.store(row.as_mut_ptr()) };
        for (i, value) in row[..end].iter_mut().enumerate().skip(first) {
            // SAFETY: the caller vouches for the numbers from `first` to `end`.
            *value = unsafe { *from.wrapping_add(i) };
        }
        // SAFETY: the staging row holds a vector.
        unsafe { Self::load(row.as_ptr()) }
    }

    /// Writes the first `count` numbers.
    ///
    /// # Safety
    /// The machine has the instructions of this type; `count ≤ WIDTH` numbers can be written at `to`.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut Self::Scalar, count: usize) {
        let mut row = [Self::Scalar::default(); WIDEST];
        // SAFETY: the staging row holds a vector; the caller vouches for `count` numbers at `to`.
        unsafe {
            self.store(row.as_mut_ptr());
            std::ptr::copy_nonoverlapping(row.as_ptr(), to, count);
        }
    }

    /// The even elements of this vector followed by another, and the odd ones.
    ///
    /// # Safety
    /// The machine has the instructions of this type.
    #[inline(always)]
    unsafe fn unzipped(self, other: Self) -> [Self; 2] {
        let mut row = [Self::Scalar::default(); 2 * WIDEST];
        // SAFETY: the staging row holds two vectors.
        unsafe {
            self.store(row.as_mut_ptr());
            other.store(row.as_mut_ptr().add(Self::WIDTH));
            Self::deinterleave::<2>(row.as_ptr())
        }
    }

    /// Every `N`-th number from `from` on, from the one after it on, and so forth.
    ///
    /// # Safety
    /// The machine has the instructions of this type; `N·WIDTH` numbers can be read at `from`.
    #[inline(always)]
    unsafe fn deinterleave<const N: usize>(from: *const Self::Scalar) -> [Self; N] {
        // SAFETY: the numbers read are those that the caller vouches for; the staging row holds a vector.
        unsafe {
            std::array::from_fn(|phase| {
                let mut row = [Self::Scalar::default(); WIDEST];
                for (i, value) in row[..Self::WIDTH].iter_mut().enumerate() {
                    *value = *from.add(i * N + phase);
                }
                Self::load(row.as_ptr())
            })
        }
    }

    /// The inverse of [`Lanes::deinterleave`].
    ///
    /// # Safety
    /// The machine has the instructions of this type; `N·WIDTH` numbers can be written at `to`.
    #[inline(always)]
    unsafe fn interleave<const N: usize>(vectors: [Self; N], to: *mut Self::Scalar) {
        // SAFETY: the numbers written are those that the caller vouches for; the staging row holds a vector.
        unsafe {
            for (phase, vector) in vectors.into_iter().enumerate() {
                let mut row = [Self::Scalar::default(); WIDEST];
                vector.store(row.as_mut_ptr());
                for (i, value) in row[..Self::WIDTH].iter().enumerate() {
                    *to.add(i * N + phase) = *value;
                }
            }
        }
    }
}

/// Numbers in the widest vector there is.
pub(crate) const WIDEST: usize = 16;
/// Rows of the highest tile of a matrix product.
pub(crate) const MAX_ROWS: usize = 14;

/// Checks what kernels rely on of a vector type. Evaluated at compile time for each.
const fn check<L: Lanes>() {
    assert!(L::WIDTH <= WIDEST && L::WIDTH.is_power_of_two(), "staging rows have room for a vector");
    assert!(L::ROWS <= MAX_ROWS && L::ROWS.is_multiple_of(2), "tiles have an even number of rows");
    assert!(L::Half::WIDTH == L::WIDTH || 2 * L::Half::WIDTH == L::WIDTH, "half a vector");
    assert!(L::Half::ROWS <= MAX_ROWS, "rows of half vectors");
}

#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_arch = "wasm32", target_feature = "simd128")
))]
macro_rules! lanes {
    ($vector:ident of $real:ty, half $half:ident, width $width:literal, rows $rows:literal, fused $fused:literal, $load:ident, $store:ident,
     $splat:ident, $add:ident, $sub:ident, |$a:ident, $b:ident, $c:ident| $fma:expr,
     |$x:ident, $least:ident, $most:ident| $limited:expr, |$new:ident, $held:ident| $larger:expr
     $(, $($shuffles:item)*)?) => {
        impl Lanes for $vector {
            type Scalar = $real;
            const WIDTH: usize = $width;
            const ROWS: usize = $rows;
            const FUSED: bool = $fused;
            type Half = $half;

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

            #[inline(always)]
            unsafe fn limited(self, least: Self, most: Self) -> Self {
                let ($x, $least, $most) = (self, least, most);
                // SAFETY: the caller vouches for the instructions.
                unsafe { $limited }
            }

            #[inline(always)]
            unsafe fn larger(self, held: Self) -> Self {
                let ($new, $held) = (self, held);
                // SAFETY: the caller vouches for the instructions.
                unsafe { $larger }
            }

            $($($shuffles)*)?
        }

        const _: () = $crate::cpu::kernels::simd_lanes::check::<$vector>();
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    // Of two numbers of which one is NaN, or both are zero, minima and maxima are the second.
    lanes!(__m256 of f32, half __m256, width 8, rows 6, fused true, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps,
        _mm256_add_ps, _mm256_sub_ps, |a, b, c| _mm256_fmadd_ps(a, b, c),
        |x, least, most| _mm256_min_ps(most, _mm256_max_ps(least, x)),
        |new, held| _mm256_blendv_ps(_mm256_max_ps(new, held), new, _mm256_cmp_ps(new, new, _CMP_UNORD_Q)),
    #[inline(always)]
    unsafe fn load_within(from: *const f32, first: usize, end: usize, otherwise: Self) -> Self {
        // SAFETY: the caller vouches for the instructions and for what is read.
        unsafe {
            let places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let early = _mm256_cmpgt_epi32(_mm256_set1_epi32(first as i32), places);
            let within = _mm256_cmpgt_epi32(_mm256_set1_epi32(end as i32), places);
            let within = _mm256_andnot_si256(early, within);
            _mm256_blendv_ps(otherwise, _mm256_maskload_ps(from, within), _mm256_castsi256_ps(within))
        }
    }
    #[inline(always)]
    unsafe fn unzipped(self, other: Self) -> [Self; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let in_order = |halves: __m256| _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(halves), 0xD8));
            [in_order(_mm256_shuffle_ps(self, other, 0x88)), in_order(_mm256_shuffle_ps(self, other, 0xDD))]
        }
    });
    lanes!(__m256d of f64, half __m256d, width 4, rows 6, fused true, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd,
        _mm256_add_pd, _mm256_sub_pd, |a, b, c| _mm256_fmadd_pd(a, b, c),
        |x, least, most| _mm256_min_pd(most, _mm256_max_pd(least, x)),
        |new, held| _mm256_blendv_pd(_mm256_max_pd(new, held), new, _mm256_cmp_pd(new, new, _CMP_UNORD_Q)));
    lanes!(__m512 of f32, half __m256, width 16, rows 14, fused true, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps,
    _mm512_add_ps, _mm512_sub_ps, |a, b, c| _mm512_fmadd_ps(a, b, c),
        |x, least, most| _mm512_min_ps(most, _mm512_max_ps(least, x)),
        |new, held| {
            let unordered = _mm512_cmp_ps_mask(new, new, _CMP_UNORD_Q);
            _mm512_mask_mov_ps(_mm512_max_ps(new, held), unordered, new)
        },
    #[inline(always)]
    unsafe fn load_within(from: *const f32, first: usize, end: usize, otherwise: Self) -> Self {
        let within = ((1u32 << end) - (1u32 << first)) as u16;
        // SAFETY: the caller vouches for the instructions and for what is read.
        unsafe { _mm512_mask_loadu_ps(otherwise, within, from) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: the caller vouches for the instructions and for what is written.
        unsafe { _mm512_mask_storeu_ps(to, ((1u32 << count) - 1) as u16, self) }
    }
    #[inline(always)]
    unsafe fn unzipped(self, other: Self) -> [Self; 2] {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            [_mm512_permutex2var_ps(self, even, other), _mm512_permutex2var_ps(self, odd, other)]
        }
    }
    #[inline(always)]
    unsafe fn deinterleave<const N: usize>(from: *const f32) -> [Self; N] {
        const { assert!(N == 2 || N == 4) };
        // SAFETY: the caller vouches for the instructions and the extent of `N` vectors.
        unsafe {
            let v: [Self; N] = std::array::from_fn(|i| _mm512_loadu_ps(from.add(16 * i)));
            let mut out = v;
            if N == 2 {
                [out[0], out[1]] = v[0].unzipped(v[1]);
            } else {
                let low = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
                let high = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
                let (a, b) = (_mm512_permutex2var_ps(v[0], low, v[1]), _mm512_permutex2var_ps(v[2], low, v[3]));
                let (c, d) = (_mm512_permutex2var_ps(v[0], high, v[1]), _mm512_permutex2var_ps(v[2], high, v[3]));
                out[0] = _mm512_shuffle_f32x4(a, b, 0x44);
                out[1] = _mm512_shuffle_f32x4(a, b, 0xEE);
                out[2] = _mm512_shuffle_f32x4(c, d, 0x44);
                out[3] = _mm512_shuffle_f32x4(c, d, 0xEE);
            }
            out
        }
    }
    #[inline(always)]
    unsafe fn interleave<const N: usize>(v: [Self; N], to: *mut f32) {
        const { assert!(N == 2 || N == 4) };
        // SAFETY: the caller vouches for the instructions and the extent of `N` vectors.
        unsafe {
            if N == 2 {
                let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
                _mm512_storeu_ps(to, _mm512_permutex2var_ps(v[0], low, v[1]));
                _mm512_storeu_ps(to.add(16), _mm512_permutex2var_ps(v[0], high, v[1]));
            } else {
                let first = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
                let second = _mm512_setr_epi32(4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
                for half in 0..2 {
                    let (a, b) = match half {
                        0 => (_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0x44)),
                        _ => (_mm512_shuffle_f32x4(v[0], v[1], 0xEE), _mm512_shuffle_f32x4(v[2], v[3], 0xEE)),
                    };
                    let to = to.add(32 * half);
                    _mm512_storeu_ps(to, _mm512_permutex2var_ps(a, first, b));
                    _mm512_storeu_ps(to.add(16), _mm512_permutex2var_ps(a, second, b));
                }
            }
        }
    });
    lanes!(__m512d of f64, half __m256d, width 8, rows 14, fused true, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd,
    _mm512_add_pd, _mm512_sub_pd, |a, b, c| _mm512_fmadd_pd(a, b, c),
    |x, least, most| _mm512_min_pd(most, _mm512_max_pd(least, x)),
    |new, held| {
        let unordered = _mm512_cmp_pd_mask(new, new, _CMP_UNORD_Q);
        _mm512_mask_mov_pd(_mm512_max_pd(new, held), unordered, new)
    });
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::*;

    use super::Lanes;

    lanes!(float32x4_t of f32, half float32x4_t, width 4, rows 12, fused true, vld1q_f32, vst1q_f32, vdupq_n_f32, vaddq_f32, vsubq_f32,
    |a, b, c| vfmaq_f32(c, a, b),
    |x, least, most| {
        let x = vbslq_f32(vcltq_f32(x, least), least, x);
        vbslq_f32(vcgtq_f32(x, most), most, x)
    },
    |new, held| {
        let kept = vbslq_f32(vcgtq_f32(new, held), new, held);
        vbslq_f32(vceqq_f32(new, new), kept, new)
    });
    lanes!(float64x2_t of f64, half float64x2_t, width 2, rows 12, fused true, vld1q_f64, vst1q_f64, vdupq_n_f64, vaddq_f64, vsubq_f64,
    |a, b, c| vfmaq_f64(c, a, b),
    |x, least, most| {
        let x = vbslq_f64(vcltq_f64(x, least), least, x);
        vbslq_f64(vcgtq_f64(x, most), most, x)
    },
    |new, held| {
        let kept = vbslq_f64(vcgtq_f64(new, held), new, held);
        vbslq_f64(vceqq_f64(new, new), kept, new)
    });
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) use wasm32::{double::F64x2, single::F32x4};

/// WebAssembly has one type for vectors of anything and functions that are safe: here each kind of number has its own, with
/// functions as other machines have them.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm32 {
    macro_rules! vector {
        ($name:ident of $real:ty, $splat:ident, $add:ident, $sub:ident, $mul:ident, $pmin:ident, $pmax:ident, $ne:ident) => {
            #[derive(Clone, Copy)]
            pub(crate) struct $name(v128);

            #[inline(always)]
            unsafe fn load(from: *const $real) -> $name {
                // SAFETY: the caller vouches for the extent.
                $name(unsafe { v128_load(from.cast()) })
            }

            #[inline(always)]
            unsafe fn store(to: *mut $real, vector: $name) {
                // SAFETY: the caller vouches for the extent.
                unsafe { v128_store(to.cast(), vector.0) };
            }

            #[inline(always)]
            unsafe fn splat(value: $real) -> $name {
                $name($splat(value))
            }

            #[inline(always)]
            unsafe fn add(a: $name, b: $name) -> $name {
                $name($add(a.0, b.0))
            }

            #[inline(always)]
            unsafe fn subtract(a: $name, b: $name) -> $name {
                $name($sub(a.0, b.0))
            }

            #[inline(always)]
            unsafe fn multiply_add(a: $name, b: $name, c: $name) -> $name {
                $name($add($mul(a.0, b.0), c.0))
            }

            /// A pseudo-minimum or -maximum is its first operand unless the second is less, or greater.
            #[inline(always)]
            unsafe fn limited(x: $name, least: $name, most: $name) -> $name {
                $name($pmin($pmax(x.0, least.0), most.0))
            }

            #[inline(always)]
            unsafe fn larger(new: $name, held: $name) -> $name {
                $name(v128_bitselect(new.0, $pmax(held.0, new.0), $ne(new.0, new.0)))
            }
        };
    }

    pub(super) mod single {
        use std::arch::wasm32::*;

        use super::super::Lanes;

        vector!(F32x4 of f32, f32x4_splat, f32x4_add, f32x4_sub, f32x4_mul, f32x4_pmin, f32x4_pmax, f32x4_ne);
        lanes!(F32x4 of f32, half F32x4, width 4, rows 6, fused false, load, store, splat, add, subtract,
            |a, b, c| multiply_add(a, b, c), |x, least, most| limited(x, least, most), |new, held| larger(new, held),
        #[inline(always)]
        unsafe fn unzipped(self, other: Self) -> [Self; 2] {
            [
                F32x4(i32x4_shuffle::<0, 2, 4, 6>(self.0, other.0)),
                F32x4(i32x4_shuffle::<1, 3, 5, 7>(self.0, other.0)),
            ]
        }
        #[inline(always)]
        unsafe fn deinterleave<const N: usize>(from: *const f32) -> [Self; N] {
            const { assert!(N == 2 || N == 4) };
            // SAFETY: the caller vouches for the extent of `N` vectors.
            unsafe {
                let v: [Self; N] = std::array::from_fn(|i| load(from.add(4 * i)));
                let mut out = v;
                if N == 2 {
                    [out[0], out[1]] = v[0].unzipped(v[1]);
                } else {
                    let transposed = transposed([v[0], v[1], v[2], v[3]]);
                    out.copy_from_slice(&transposed);
                }
                out
            }
        }
        #[inline(always)]
        unsafe fn interleave<const N: usize>(v: [Self; N], to: *mut f32) {
            const { assert!(N == 2 || N == 4) };
            // SAFETY: the caller vouches for the extent of `N` vectors.
            unsafe {
                if N == 2 {
                    store(to, F32x4(i32x4_shuffle::<0, 4, 1, 5>(v[0].0, v[1].0)));
                    store(to.add(4), F32x4(i32x4_shuffle::<2, 6, 3, 7>(v[0].0, v[1].0)));
                } else {
                    let rows = transposed([v[0], v[1], v[2], v[3]]);
                    rows.into_iter().enumerate().for_each(|(i, row)| store(to.add(4 * i), row));
                }
            }
        });

        /// The columns of four rows.
        #[inline(always)]
        fn transposed([a, b, c, d]: [F32x4; 4]) -> [F32x4; 4] {
            let (low, high) = (i32x4_shuffle::<0, 4, 1, 5>(a.0, b.0), i32x4_shuffle::<2, 6, 3, 7>(a.0, b.0));
            let (below, above) =
                (i32x4_shuffle::<0, 4, 1, 5>(c.0, d.0), i32x4_shuffle::<2, 6, 3, 7>(c.0, d.0));
            [
                F32x4(i32x4_shuffle::<0, 1, 4, 5>(low, below)),
                F32x4(i32x4_shuffle::<2, 3, 6, 7>(low, below)),
                F32x4(i32x4_shuffle::<0, 1, 4, 5>(high, above)),
                F32x4(i32x4_shuffle::<2, 3, 6, 7>(high, above)),
            ]
        }
    }

    pub(super) mod double {
        use std::arch::wasm32::*;

        use super::super::Lanes;

        vector!(F64x2 of f64, f64x2_splat, f64x2_add, f64x2_sub, f64x2_mul, f64x2_pmin, f64x2_pmax, f64x2_ne);
        lanes!(F64x2 of f64, half F64x2, width 2, rows 6, fused false, load, store, splat, add, subtract,
            |a, b, c| multiply_add(a, b, c), |x, least, most| limited(x, least, most), |new, held| larger(new, held));
    }
}

/// Plain arithmetic on a few numbers at a time, which the compiler makes vectors of.
macro_rules! portable {
    ($real:ty, $width:literal) => {
        impl Lanes for [$real; $width] {
            type Scalar = $real;
            const WIDTH: usize = $width;
            const ROWS: usize = 4;
            const FUSED: bool = false;
            type Half = Self;

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

            #[inline(always)]
            unsafe fn limited(self, least: Self, most: Self) -> Self {
                std::array::from_fn(|i| {
                    let x = if self[i] < least[i] { least[i] } else { self[i] };
                    if x > most[i] { most[i] } else { x }
                })
            }

            #[inline(always)]
            unsafe fn larger(self, held: Self) -> Self {
                std::array::from_fn(|i| if self[i] > held[i] || self[i].is_nan() { self[i] } else { held[i] })
            }
        }

        const _: () = check::<[$real; $width]>();
    };
}

portable!(f32, 4);
portable!(f64, 2);
