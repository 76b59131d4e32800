//! Whether the channels that a map adds up cancel. A norm behind a layer removes what its channels have in common, so that
//! their gradients sum to zero. What is left of the sum is rounding, and a picture of it looks like any other map.

use monosplit_explain::{Absolute, ChannelReduction, Finish, MapRequest, Normalise, Procedure, SaliencyMap};
use monosplit_graph::{Graph, Op};

use crate::catalogue::ConfiguredMethod;

/// The share of the summed magnitudes below which a sum is rounding.
const NEGLIGIBLE: f64 = 1e-4;

/// For each of `requests` of one method, a request for the sum of the magnitudes of its channels; none where channels cannot
/// cancel.
pub fn channel_magnitudes(
    graph: &Graph,
    method: &ConfiguredMethod,
    finish: Finish,
    requests: &[MapRequest],
) -> Vec<MapRequest> {
    let normed = graph.nodes().any(|(_, node)| matches!(node.op, Op::LayerNorm { .. }));
    let adds = !matches!(finish.channels, ChannelReduction::Keep | ChannelReduction::Max);
    let rewrites = matches!(method.method.procedure(), Procedure::GraphMethod(_));
    let plain = finish.normalise == Normalise::None && finish.absolute != Absolute::Channels;
    if !normed || !adds || !rewrites || !plain {
        return Vec::new();
    }
    let magnitude = Finish { absolute: Absolute::Channels, ..finish };
    requests.iter().map(|request| request.clone().finish(magnitude)).collect()
}

/// The largest value of a map as a share of the largest sum of channel magnitudes, if it is so small that the map shows
/// rounding.
pub fn cancelled_share(map: &SaliencyMap, magnitude: &SaliencyMap) -> Option<f64> {
    let largest = |map: &SaliencyMap| {
        let (values, samples) = (map.values.to_f64(), map.exponents.len().max(1));
        let rows = values.chunks((values.len() / samples).max(1)).zip(&map.exponents);
        let of_row = |row: &[f64]| row.iter().fold(0f64, |most, v| most.max(v.abs()));
        rows.map(|(row, &exponent)| of_row(row) * f64::from(exponent).exp2()).fold(0f64, f64::max)
    };
    let share = largest(map) / largest(magnitude);
    (share < NEGLIGIBLE).then_some(share)
}
