//! Numbers made by others, and how far ours are from them.

#![allow(dead_code)]

use std::path::Path;

use monosplit::Tensor;
use monosplit::graph::npy;

pub(crate) fn array(path: &Path) -> Tensor {
    npy::read(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

/// The largest difference over the largest expected magnitude; infinite where one is not a number and the other is, or
/// infinities differ.
pub(crate) fn relative_error(found: &Tensor, expected: &Tensor) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let (found, expected) = (found.to_f64(), expected.to_f64());
    let finite = expected.iter().filter(|v| v.is_finite());
    let scale = finite.fold(0f64, |most, v| most.max(v.abs())).max(f64::MIN_POSITIVE);
    let differences = found.iter().zip(expected.iter()).map(|(f, e)| match (f.is_finite(), e.is_finite()) {
        (true, true) => (f - e).abs() / scale,
        _ if f == e || (f.is_nan() && e.is_nan()) => 0.0,
        _ => f64::INFINITY,
    });
    differences.fold(0.0, f64::max)
}
