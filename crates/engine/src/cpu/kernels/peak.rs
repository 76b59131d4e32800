//! How many additions and multiplications this machine can do in a second: a loop that touches no memory.
#![allow(unsafe_code)]

use std::time::Duration;

use rayon::prelude::*;
use web_time::Instant;

use super::simd_lanes::Lanes;
use super::simd_level::{SimdLevel, simd_dispatch};
use crate::cpu::real::Real;

/// Sums that do not wait for each other.
const CHAINS: usize = 16;
/// Rounds of one measurement.
const ROUNDS: usize = 1 << 16;
/// How long the measurement is repeated.
const TIME: Duration = Duration::from_millis(20);

/// # Safety
/// The machine has the instructions of `V`; `V::WIDTH` numbers can be written at `sink`.
#[inline(always)]
unsafe fn chains<V: Lanes>(factor: V::Scalar, sink: *mut V::Scalar) {
    // SAFETY: the caller vouches for the instructions and the extent.
    unsafe {
        let factor = V::splat(factor);
        let mut sums = [factor; CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = sum.multiply_add(factor, factor);
            }
        }
        let total = sums.into_iter().fold(factor, |a, b| a.plus(b));
        total.store(sink);
    }
}

simd_dispatch!(run_chains<R: Real>(factor: R, sink: *mut R), chains);

/// Operations in a second, on as many threads as the pool it is called in has.
pub(crate) fn peak<R: Real>() -> f64 {
    let level = SimdLevel::current();
    let width = level.width::<R>();
    let one = |_: usize| {
        let mut sink = vec![R::ZERO; width];
        let factor = std::hint::black_box(R::from_f64(0.5));
        // SAFETY: the level is one this machine has, and the sink is as long as its vector.
        unsafe { run_chains::<R>(level, factor, sink.as_mut_ptr()) };
        std::hint::black_box(sink);
    };
    let (threads, began) = (rayon::current_num_threads(), Instant::now());
    let mut fastest = Duration::MAX;
    while began.elapsed() < TIME {
        let round = Instant::now();
        (0..threads).into_par_iter().with_max_len(1).for_each(one);
        fastest = fastest.min(round.elapsed());
    }
    let operations = 2 * threads * width * CHAINS * ROUNDS;
    operations as f64 / fastest.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_does_more_than_a_million_and_fewer_than_a_million_million_operations() {
        for peak in [peak::<f32>(), peak::<f64>()] {
            assert!((1e6..1e15).contains(&peak), "{peak}");
        }
    }
}
