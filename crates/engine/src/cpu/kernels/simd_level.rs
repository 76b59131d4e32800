//! The SIMD instruction sets that kernels are compiled for, which of them this machine has, and which one a thread uses.

use std::cell::Cell;
use std::str::FromStr;
use std::sync::OnceLock;

use monosplit_graph::{Error, Result};

use super::simd_lanes::Lanes;

/// Vectors side by side in a tile of a matrix product.
pub(crate) const VECTORS: usize = 2;

/// The instruction sets that the CPU engine has kernels for, on one machine or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstructionSet {
    /// What every processor of the kind has.
    Portable,
    /// NEON, on 64-bit ARM.
    Neon,
    /// AVX2 and fused multiply-add.
    Avx2,
    /// AVX-512.
    Avx512,
    /// The 128-bit vectors of WebAssembly, in builds with `-C target-feature=+simd128`.
    Simd128,
}

impl InstructionSet {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            InstructionSet::Portable => "portable",
            InstructionSet::Neon => "NEON",
            InstructionSet::Avx2 => "AVX2",
            InstructionSet::Avx512 => "AVX-512",
            InstructionSet::Simd128 => "SIMD128",
        }
    }

    /// How options and stored results write it.
    pub fn key(self) -> &'static str {
        match self {
            InstructionSet::Portable => "portable",
            InstructionSet::Neon => "neon",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512 => "avx512",
            InstructionSet::Simd128 => "simd128",
        }
    }
}

impl FromStr for InstructionSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [
            InstructionSet::Portable,
            InstructionSet::Neon,
            InstructionSet::Avx2,
            InstructionSet::Avx512,
            InstructionSet::Simd128,
        ];
        all.into_iter().find(|set| set.key() == text).ok_or_else(|| {
            Error::argument(format!(
                "expected vector instructions portable, neon, avx2, avx512 or simd128, found '{text}'"
            ))
        })
    }
}

thread_local! {
    /// Set when a thread begins to belong to an engine.
    static LEVEL: Cell<Option<SimdLevel>> = const { Cell::new(None) };
}

/// The instructions a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimdLevel {
    /// The baseline of the target.
    Portable,
    /// NEON.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// AVX2 and fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The vectors of WebAssembly.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128,
}

/// The vectors of one precision.
pub(crate) trait Vectors: Copy {
    type Portable: Lanes<Scalar = Self>;
    #[cfg(target_arch = "aarch64")]
    type Neon: Lanes<Scalar = Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx2: Lanes<Scalar = Self>;
    #[cfg(target_arch = "x86_64")]
    type Avx512: Lanes<Scalar = Self>;
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    type Simd128: Lanes<Scalar = Self>;
}

impl Vectors for f32 {
    type Portable = [f32; 4];
    #[cfg(target_arch = "aarch64")]
    type Neon = std::arch::aarch64::float32x4_t;
    #[cfg(target_arch = "x86_64")]
    type Avx2 = std::arch::x86_64::__m256;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = std::arch::x86_64::__m512;
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    type Simd128 = super::simd_lanes::F32x4;
}

impl Vectors for f64 {
    type Portable = [f64; 2];
    #[cfg(target_arch = "aarch64")]
    type Neon = std::arch::aarch64::float64x2_t;
    #[cfg(target_arch = "x86_64")]
    type Avx2 = std::arch::x86_64::__m256d;
    #[cfg(target_arch = "x86_64")]
    type Avx512 = std::arch::x86_64::__m512d;
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    type Simd128 = super::simd_lanes::F64x2;
}

/// The value of a constant of the vector type of a level.
macro_rules! of_level {
    ($level:expr, $real:ident, $constant:ident) => {
        match $level {
            SimdLevel::Portable => $real::Portable::$constant,
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => $real::Neon::$constant,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => $real::Avx2::$constant,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => $real::Avx512::$constant,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            SimdLevel::Simd128 => $real::Simd128::$constant,
        }
    };
}

impl SimdLevel {
    /// Every level this machine has, the best last.
    pub(crate) fn all() -> Vec<SimdLevel> {
        #[allow(unused_mut)]
        let mut levels = vec![SimdLevel::Portable];
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            levels.push(SimdLevel::Neon);
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            levels.push(SimdLevel::Avx2);
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                levels.push(SimdLevel::Avx512);
            }
        }
        // An engine that does not know the instructions refuses the whole module, so that there is nothing to ask here.
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        levels.push(SimdLevel::Simd128);
        levels
    }

    /// The one that the calling thread computes with: that of the engine it belongs to, or the best this machine has.
    pub(crate) fn current() -> SimdLevel {
        static BEST: OnceLock<SimdLevel> = OnceLock::new();
        let best = || *BEST.get_or_init(|| SimdLevel::all().pop().unwrap_or(SimdLevel::Portable));
        LEVEL.get().unwrap_or_else(best)
    }

    /// The one that the calling thread was told to compute with, if it was.
    #[cfg(target_arch = "wasm32")]
    pub(crate) fn of_this_thread() -> Option<SimdLevel> {
        LEVEL.get()
    }

    /// Makes this the one that the calling thread computes with.
    pub(crate) fn set_in_this_thread(level: Option<SimdLevel>) {
        LEVEL.set(level);
    }

    /// The level of an instruction set, if this machine has it.
    pub(crate) fn of(set: InstructionSet) -> Result<SimdLevel> {
        let levels = SimdLevel::all();
        let found = levels.iter().copied().find(|level| level.set() == set);
        found.ok_or_else(|| {
            let names: Vec<&str> = levels.iter().map(|level| level.name()).collect();
            Error::argument(format!(
                "this machine has no {} instructions; choose one of these: {}",
                set.name(),
                names.join(", ")
            ))
        })
    }

    pub(crate) fn set(self) -> InstructionSet {
        match self {
            SimdLevel::Portable => InstructionSet::Portable,
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => InstructionSet::Neon,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => InstructionSet::Avx2,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => InstructionSet::Avx512,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            SimdLevel::Simd128 => InstructionSet::Simd128,
        }
    }

    /// The name of the instruction set.
    pub(crate) fn name(self) -> &'static str {
        self.set().name()
    }

    /// Numbers of type `R` in a vector.
    pub(crate) fn width<R: Vectors>(self) -> usize {
        of_level!(self, R, WIDTH)
    }

    /// Numbers of type `R` in the narrowest vector of a tile.
    pub(crate) fn half<R: Vectors>(self) -> usize {
        match self {
            SimdLevel::Portable => <R::Portable as Lanes>::Half::WIDTH,
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => <R::Neon as Lanes>::Half::WIDTH,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => <R::Avx2 as Lanes>::Half::WIDTH,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => <R::Avx512 as Lanes>::Half::WIDTH,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            SimdLevel::Simd128 => <R::Simd128 as Lanes>::Half::WIDTH,
        }
    }

    /// Rows of a tile of a product of matrices of `R`.
    pub(crate) fn rows<R: Vectors>(self) -> usize {
        of_level!(self, R, ROWS)
    }
}

/// Writes `unsafe fn name(level, arguments)`, which runs `body::<vector type>(arguments)` compiled for `level`.
///
/// `body` is an `#[inline(always)]` unsafe function, generic in its vector type; the caller of `name` guarantees
/// what `body` asks for, and that the machine has `level`.
macro_rules! simd_dispatch {
    ($name:ident<$real:ident: $bound:ident>($($argument:ident: $type:ty),* $(,)?), $body:ident) => {
        #[allow(clippy::too_many_arguments)]
        pub(crate) unsafe fn $name<$real: $bound>(
            level: $crate::cpu::kernels::simd_level::SimdLevel,
            $($argument: $type),*
        ) {
            use $crate::cpu::kernels::simd_level::SimdLevel;
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            unsafe fn neon<$real: $bound>($($argument: $type),*) {
                // SAFETY: vouched for by the caller.
                unsafe { $body::<$real::Neon>($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
            unsafe fn avx512<$real: $bound>($($argument: $type),*) {
                // SAFETY: vouched for by the caller.
                unsafe { $body::<$real::Avx512>($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2<$real: $bound>($($argument: $type),*) {
                // SAFETY: vouched for by the caller.
                unsafe { $body::<$real::Avx2>($($argument),*) }
            }
            // SAFETY: vouched for by the caller.
            unsafe {
                match level {
                    SimdLevel::Portable => $body::<$real::Portable>($($argument),*),
                    #[cfg(target_arch = "aarch64")]
                    SimdLevel::Neon => neon::<$real>($($argument),*),
                    #[cfg(target_arch = "x86_64")]
                    SimdLevel::Avx2 => avx2::<$real>($($argument),*),
                    #[cfg(target_arch = "x86_64")]
                    SimdLevel::Avx512 => avx512::<$real>($($argument),*),
                    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
                    SimdLevel::Simd128 => $body::<$real::Simd128>($($argument),*),
                }
            }
        }
    };
}
pub(crate) use simd_dispatch;
