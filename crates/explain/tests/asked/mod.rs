//! Maps of the split by name, for tests that go through all of them.

use monosplit_explain::methods::{Gradient, RelevanceMap, SplitCam, SplitGrad, SplitLrp};
use monosplit_explain::{Part, Request, Split, Stream};

/// A map of the split, or the gradient beside it, before the choices of the split are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Asked {
    #[allow(dead_code, reason = "not every test that shares this file asks for it")]
    Gradient,
    SplitCam(Stream, Part),
    SplitGrad(Stream, Part),
    #[allow(dead_code, reason = "not every test that shares this file asks for it")]
    SplitLrp(RelevanceMap),
}

impl Asked {
    pub(crate) fn at(self, split: Split, layer: impl Into<String>) -> Request {
        match self {
            Asked::Gradient => Request::new(Gradient, layer),
            Asked::SplitCam(stream, part) => Request::new(SplitCam { split, stream, part }, layer),
            Asked::SplitGrad(stream, part) => Request::new(SplitGrad { split, stream, part }, layer),
            Asked::SplitLrp(map) => Request::new(SplitLrp { split, map }, layer),
        }
    }
}
