//! What the kernels' tests share: reproducible numbers and windows.

use monosplit_graph::op::Window;

use crate::cpu::real::Real;

/// A small generator of reproducible numbers (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `low..=high`.
    pub(crate) fn within(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }

    /// Numbers in `[-1, 1)`.
    pub(crate) fn reals<R: Real>(&mut self, count: usize) -> Vec<R> {
        (0..count).map(|_| R::from_f64((self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0)).collect()
    }
}

/// Windows of every sort (strides, dilation, uneven padding, ceil mode) with an input size each fits.
pub(crate) fn windows(random: &mut Random, axes: usize, count: usize) -> Vec<(Window, Vec<usize>)> {
    let mut found = Vec::new();
    while found.len() < count {
        let mut axis = |low, high| (0..axes).map(|_| random.within(low, high)).collect::<Vec<_>>();
        let (kernel, stride, dilation, input) = (axis(1, 4), axis(1, 3), axis(1, 2), axis(1, 9));
        let (before, after) = (axis(0, 2), axis(0, 2));
        let pad = before.into_iter().zip(after).collect();
        let window = Window { kernel, stride, dilation, pad, ceil: random.within(0, 1) == 1 };
        if (0..axes).all(|axis| window.positions(axis, input[axis]).is_some()) {
            found.push((window, input));
        }
    }
    found
}

/// Asserts that two lists agree to `tolerance`, relative to the largest expected magnitude.
pub(crate) fn assert_close<R: Real>(found: &[R], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let error = (f.to_f64() - e).abs() / scale;
        assert!(error <= tolerance, "element {i}: found {f:?}, expected {e}, error {error:e}");
    }
}
