//! Arrays made by others, and how far ours are from them.

use std::path::Path;

use monosplit::Tensor;
use monosplit::graph::npy;

pub(crate) fn array(path: &Path) -> Tensor {
    npy::read(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

/// The largest difference over the largest expected magnitude.
pub(crate) fn relative_error(found: &Tensor, expected: &Tensor) -> f64 {
    monosplit_testing::relative_error(&found.to_f64(), &expected.to_f64())
}
