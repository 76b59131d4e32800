//! Whether channels that a map adds up cancel. A norm behind a layer takes away what its channels have in common, so that
//! their gradients sum to zero: what is left of them is rounding, and a picture of it looks like any other.

use monosplit::catalogue::ConfiguredMethod;
use monosplit::explain::{Absolute, Channels, Finish, MapRequest, Normalise, Procedure, SaliencyMap};
use monosplit::graph::{Graph, Op};

/// A sum smaller than this share of what is summed up says nothing.
const NOTHING: f64 = 1e-4;

/// Beside the maps that were asked for, those of the size of their channels, where channels may cancel.
pub(super) fn sizes(
    graph: &Graph,
    chosen: &ConfiguredMethod,
    finish: Finish,
    asked: &[MapRequest],
) -> Vec<MapRequest> {
    let normed = graph.nodes().any(|(_, node)| matches!(node.op, Op::LayerNorm { .. }));
    let adds = !matches!(finish.channels, Channels::Keep | Channels::Max);
    let rewrites = matches!(chosen.method.procedure(), Procedure::Rewrite(_));
    let plain = finish.normalise == Normalise::None && finish.absolute != Absolute::Channels;
    if !normed || !adds || !rewrites || !plain {
        return Vec::new();
    }
    let size = Finish { absolute: Absolute::Channels, ..finish };
    asked.iter().map(|request| request.clone().finish(size)).collect()
}

/// What there is to say of a map at `layer` whose channels have sizes that add up to `size`.
pub(super) fn remark(layer: &str, map: &SaliencyMap, size: &SaliencyMap) -> Option<String> {
    let largest = |map: &SaliencyMap| {
        let (values, samples) = (map.values.to_f64(), map.exponents.len().max(1));
        let rows = values.chunks((values.len() / samples).max(1)).zip(&map.exponents);
        let of_row = |row: &[f64]| row.iter().fold(0f64, |most, v| most.max(v.abs()));
        rows.map(|(row, &exponent)| of_row(row) * f64::from(exponent).exp2()).fold(0f64, f64::max)
    };
    let share = largest(map) / largest(size);
    (share < NOTHING).then(|| {
        format!(
            "at {layer} channels cancel: their sum is {share:.0e} of their size, since a norm behind it takes away what they \
             have in common; the map shows what rounding and stabilisers left of it, --abs channels shows their size"
        )
    })
}
