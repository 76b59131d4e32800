//! The peak rate of fused multiply-adds of this machine: independent chains that stay in registers. Kernels are reported as a
//! fraction of it.
//!
//! It needs `unsafe`: the instructions are chosen at run time, and calling a function compiled for them is unsafe.

#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

/// Steps of every chain in one timing.
const STEPS: usize = 1 << 20;
/// Timings, of which the fastest counts.
const TIMINGS: usize = 15;
/// Independent chains: more than latency times units of any known processor.
const CHAINS: usize = 12;

/// A measured peak.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    /// GFLOP/s in single precision; a fused multiply-add counts as two operations.
    pub gflops: f64,
    /// The instruction set that reached it.
    pub instructions: &'static str,
}

/// A loop of `STEPS` steps, its SIMD lanes, and its instruction set.
#[derive(Clone, Copy)]
struct Chains {
    run: fn() -> f32,
    lanes: usize,
    instructions: &'static str,
}

/// The peak of `threads` threads at once.
pub fn fused_multiply_add_peak(threads: usize) -> Peak {
    let fastest = available().into_iter().map(|chains| measured(chains, threads));
    let slowest = Peak { gflops: 0.0, instructions: "none" };
    fastest.fold(slowest, |best, peak| if peak.gflops > best.gflops { peak } else { best })
}

fn measured(chains: Chains, threads: usize) -> Peak {
    let operations = 2 * STEPS * CHAINS * chains.lanes * threads;
    let seconds = (0..TIMINGS).map(|_| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| black_box((chains.run)()));
            }
        });
        start.elapsed().as_secs_f64()
    });
    let seconds = seconds.fold(f64::INFINITY, f64::min);
    Peak { gflops: operations as f64 / seconds / 1e9, instructions: chains.instructions }
}

fn available() -> Vec<Chains> {
    let mut all = vec![Chains { run: portable, lanes: 4, instructions: "portable" }];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the instructions were detected above.
            all.push(Chains { run: || unsafe { x86::avx2() }, lanes: 8, instructions: "AVX2" });
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the instructions were detected above.
            all.push(Chains { run: || unsafe { x86::avx512() }, lanes: 16, instructions: "AVX-512" });
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every 64-bit ARM processor has NEON.
    all.push(Chains { run: || unsafe { neon::neon() }, lanes: 4, instructions: "NEON" });
    all
}

fn portable() -> f32 {
    let (factor, term) = (black_box(0.999f32), black_box(0.001f32));
    let mut sums = [[1f32; 4]; CHAINS];
    for _ in 0..STEPS {
        sums.iter_mut().for_each(|chain| chain.iter_mut().for_each(|v| *v = *v * factor + term));
    }
    sums.iter().flatten().sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm256_add_ps, _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps,
        _mm512_reduce_add_ps, _mm512_set1_ps,
    };
    use std::hint::black_box;

    use super::{CHAINS, STEPS};

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2() -> f32 {
        let (factor, term) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [_mm256_set1_ps(1.0); CHAINS];
        for _ in 0..STEPS {
            sums.iter_mut().for_each(|v| *v = _mm256_fmadd_ps(*v, factor, term));
        }
        let total = sums.into_iter().fold(_mm256_set1_ps(0.0), |total, v| _mm256_add_ps(total, v));
        _mm256_cvtss_f32(black_box(total))
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512() -> f32 {
        let (factor, term) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
        let mut sums = [_mm512_set1_ps(1.0); CHAINS];
        for _ in 0..STEPS {
            sums.iter_mut().for_each(|v| *v = _mm512_fmadd_ps(*v, factor, term));
        }
        sums.iter().map(|v| _mm512_reduce_add_ps(*v)).sum()
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::{vaddvq_f32, vdupq_n_f32, vfmaq_f32};
    use std::hint::black_box;

    use super::{CHAINS, STEPS};

    #[target_feature(enable = "neon")]
    pub(super) fn neon() -> f32 {
        let (factor, term) = (vdupq_n_f32(black_box(0.999)), vdupq_n_f32(black_box(0.001)));
        let mut sums = [vdupq_n_f32(1.0); CHAINS];
        for _ in 0..STEPS {
            sums.iter_mut().for_each(|v| *v = vfmaq_f32(term, *v, factor));
        }
        sums.iter().map(|v| vaddvq_f32(*v)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_instructions_never_lower_the_peak() {
        let peak = fused_multiply_add_peak(1);
        assert!(peak.gflops > 0.1 && peak.instructions != "none");
    }
}
