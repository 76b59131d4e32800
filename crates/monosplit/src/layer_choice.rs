//! Which layer to look at when nobody says.

use monosplit_graph::{Graph, Op};

/// The last convolution that looks at more than one position of a map, or else the last convolution, or else the
/// last affine layer: the coarse end of the network, where classes are told apart but places are still known. Where
/// there is none of them, the image.
pub fn default_layer(graph: &Graph) -> Option<String> {
    let logits = graph.outputs().first()?.node;
    let mut reaches = vec![false; graph.len()];
    reaches[logits.index()] = true;
    for (id, node) in graph.nodes().rev() {
        if reaches[id.index()] {
            node.inputs.iter().for_each(|input| reaches[input.index()] = true);
        }
    }
    let named = |wanted: &dyn Fn(&Op) -> bool| {
        let found = graph.nodes().rev().find(|(id, node)| {
            reaches[id.index()] && !node.is_constant() && wanted(&node.op) && !node.label.display().is_empty()
        });
        found.map(|(_, node)| node.label.display().to_owned())
    };
    let wide = |op: &Op| matches!(op, Op::Conv { window, .. } if window.kernel.iter().any(|&n| n > 1));
    named(&wide)
        .or_else(|| named(&|op| matches!(op, Op::Conv { .. })))
        .or_else(|| named(&|op| matches!(op, Op::MatMul { .. })))
        .or_else(|| named(&|op| matches!(op, Op::Input)))
}
