//! Similarities of two maps, for randomisation tests.

mod correlation;
mod hog;
mod ssim;

pub use correlation::{pearson, ranks, spearman};
pub use hog::Hog;
pub use ssim::{Ssim, SsimWindow};

use monosplit_graph::{Options, Result};

use crate::metric::Undefined;

/// A similarity of two maps; 1 for a map and itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Similarity {
    /// The structural similarity index, in windows of 7×7.
    Ssim,
    /// The structural similarity index, in windows weighted by a Gaussian.
    SsimGaussian,
    /// The structural similarity index of the rows of the maps end to end, in windows of 7: what Quantus computes.
    SsimFlat,
    /// The correlation of the histograms of oriented gradients.
    Hog,
    /// The correlation of the ranks.
    Spearman,
    /// The correlation of the ranks of the absolute values.
    SpearmanAbsolute,
    /// The correlation.
    Pearson,
}

impl Similarity {
    /// All of them.
    pub const ALL: [Similarity; 7] = [
        Similarity::Ssim,
        Similarity::SsimGaussian,
        Similarity::SsimFlat,
        Similarity::Hog,
        Similarity::Spearman,
        Similarity::SpearmanAbsolute,
        Similarity::Pearson,
    ];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Similarity::Ssim => "ssim",
            Similarity::SsimGaussian => "ssim-gaussian",
            Similarity::SsimFlat => "ssim-flat",
            Similarity::Hog => "hog",
            Similarity::Spearman => "spearman",
            Similarity::SpearmanAbsolute => "spearman-absolute",
            Similarity::Pearson => "pearson",
        }
    }

    pub(crate) fn read(self, options: &mut Options) -> Result<Self> {
        options.one_of("similarity", self, &Similarity::ALL.map(|one| (one.name(), one)))
    }

    /// The similarity of two maps of `height` rows; undefined for constant or tiny maps.
    pub fn of(self, a: &[f64], b: &[f64], height: usize) -> std::result::Result<f64, Undefined> {
        let undefined = |why: &str| Err(Undefined(why.to_owned()));
        if a.len() != b.len() || a.is_empty() || height == 0 || !a.len().is_multiple_of(height) {
            return undefined("the two maps differ in size");
        }
        if a.iter().chain(b).any(|value| !value.is_finite()) {
            return undefined("a map holds numbers that are not finite");
        }
        let width = a.len() / height;
        let sizes = |map: &[f64]| map.iter().map(|value| value.abs()).collect::<Vec<f64>>();
        let ssim = |ssim: Ssim, height| ssim.of(a, b, height, range(a, b));
        let found = match self {
            Similarity::Ssim => ssim(Ssim::default(), Some(height)),
            Similarity::SsimGaussian => {
                ssim(Ssim { window: SsimWindow::GAUSSIAN, ..Ssim::default() }, Some(height))
            }
            Similarity::SsimFlat => ssim(Ssim::default(), None),
            Similarity::Hog => {
                let hog = Hog::default();
                let features = |map| hog.features(map, height, width);
                features(a).zip(features(b)).and_then(|(a, b)| pearson(&a, &b))
            }
            Similarity::Spearman => spearman(a, b),
            Similarity::SpearmanAbsolute => spearman(&sizes(a), &sizes(b)),
            Similarity::Pearson => pearson(a, b),
        };
        match found.filter(|value| value.is_finite()) {
            Some(value) => Ok(value),
            None => undefined("a map is constant or too small to be compared"),
        }
    }
}

/// The range of the values of two maps.
fn range(a: &[f64], b: &[f64]) -> f64 {
    let all = || a.iter().chain(b).copied();
    all().fold(f64::NEG_INFINITY, f64::max) - all().fold(f64::INFINITY, f64::min)
}
