//! Maps of the split by name, for tests that go through all of them.

use monosplit_explain::methods::{Gradient, RelevanceMap, SplitCam, SplitGrad, SplitLrp};
use monosplit_explain::{MapRequest, Split, Stream, StreamPart};

/// A map of the split, or the gradient beside it, before the choices of the split are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SplitMap {
    Gradient,
    SplitCam(Stream, StreamPart),
    SplitGrad(Stream, StreamPart),
    SplitLrp(RelevanceMap),
}

impl SplitMap {
    pub(crate) fn at(self, split: Split, layer: impl Into<String>) -> MapRequest {
        match self {
            SplitMap::Gradient => MapRequest::new(Gradient, layer),
            SplitMap::SplitCam(stream, part) => MapRequest::new(SplitCam { split, stream, part }, layer),
            SplitMap::SplitGrad(stream, part) => MapRequest::new(SplitGrad { split, stream, part }, layer),
            SplitMap::SplitLrp(map) => MapRequest::new(SplitLrp { split, map }, layer),
        }
    }
}
