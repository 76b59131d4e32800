//! The remark on a map whose channels cancel.

use monosplit::cancelled_share;
use monosplit::explain::SaliencyMap;

/// The remark on a map at `layer` whose channels have magnitudes that add up to `magnitude`; none where they do not cancel.
pub(super) fn remark(layer: &str, map: &SaliencyMap, magnitude: &SaliencyMap) -> Option<String> {
    cancelled_share(map, magnitude).map(|share| {
        format!(
            "at {layer} channels cancel: their sum is {share:.0e} of their size, since a norm behind it takes away what they \
             have in common; the map shows what rounding and stabilisers left of it, --abs channels shows their size"
        )
    })
}
