//! The layer of a map where none is named.

use monosplit_explain::DefaultLayer;
use monosplit_graph::{Graph, NodeId, Op};

/// The default layer of a method in `graph`; none is the image.
pub fn chosen_layer(graph: &Graph, place: DefaultLayer) -> Option<String> {
    let chosen = match place {
        DefaultLayer::Input => None,
        DefaultLayer::LastConvolutionInput => default_layer(graph),
        DefaultLayer::LastFeatures => last_features(graph).or_else(|| default_layer(graph)),
    };
    log::debug!("layer chosen for {place:?}: {}", chosen.as_deref().unwrap_or("the image"));
    chosen
}

/// The last feature map: the last value with the spatial size of the last convolution that reaches the class scores. It lies
/// behind the activation and residual additions, and before pooling.
fn last_features(graph: &Graph) -> Option<String> {
    let reaches = reaching(graph);
    let places = |id: NodeId| graph.node(id).shape.dims().get(2..).map(<[_]>::to_vec);
    let (last, _) = graph.nodes().rev().find(|(id, node)| {
        reaches[id.index()] && matches!(node.op, Op::Conv { .. }) && has_places(graph, *id)
    })?;
    let same = |id: NodeId, node: &monosplit_graph::Node| {
        let keeps = matches!(
            node.op,
            Op::Unary(_) | Op::Binary(_) | Op::Concat { .. } | Op::Conv { .. } | Op::BatchNorm { .. }
        );
        reaches[id.index()] && keeps && places(id) == places(last) && !node.label.display().is_empty()
    };
    let found = graph.nodes().rev().find(|(id, node)| same(*id, node))?;
    Some(format!("{}:out", found.1.label.display()))
}

/// The last convolution of each spatial size, from fine to coarse. Convolutions with kernels larger than 1×1 are preferred:
/// others count only if there are none.
pub fn layers_by_size(graph: &Graph) -> Vec<String> {
    let reaches = reaching(graph);
    let of = |wanted: &dyn Fn(&Op) -> bool| {
        let mut found: Vec<(Vec<_>, String)> = Vec::new();
        for (id, node) in graph.nodes() {
            let named = !node.label.display().is_empty();
            if !reaches[id.index()] || !named || !wanted(&node.op) || !has_places(graph, id) {
                continue;
            }
            let places = node.shape.dims().get(2..).map(<[_]>::to_vec).unwrap_or_default();
            found.retain(|(known, _)| *known != places);
            found.push((places, node.label.display().to_owned()));
        }
        found.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
    };
    let wide = of(&is_wide);
    if wide.is_empty() { of(&|op| matches!(op, Op::Conv { .. })) } else { wide }
}

/// Whether an op is a convolution with a kernel larger than 1×1.
fn is_wide(op: &Op) -> bool {
    matches!(op, Op::Conv { window, .. } if window.kernel.iter().any(|&n| n > 1))
}

/// Whether a value has a spatial size larger than one.
fn has_places(graph: &Graph, id: NodeId) -> bool {
    let dims = graph.node(id).shape.dims();
    dims.len() > 2 && dims[2..].iter().any(|dim| dim.fixed() != Some(1))
}

/// Which nodes the class scores depend on.
fn reaching(graph: &Graph) -> Vec<bool> {
    graph.ancestors(graph.outputs().first().map(|scores| scores.node))
}

/// The layer that class activation maps usually take: the last convolution with a kernel larger than 1×1, or else the last
/// convolution, or else the input if it has spatial axes, or else the last matrix product. None of them is `None`, the image.
pub fn default_layer(graph: &Graph) -> Option<String> {
    let reaches = reaching(graph);
    let named = |wanted: &dyn Fn(&Op) -> bool| {
        let found = graph.nodes().rev().find(|(id, node)| {
            reaches[id.index()] && !node.is_constant() && wanted(&node.op) && !node.label.display().is_empty()
        });
        found.map(|(_, node)| node.label.display().to_owned())
    };
    let image = graph.inputs().first().copied().filter(|&image| has_places(graph, image));
    let picture = image.map(|image| graph.node(image).label.display().to_owned());
    named(&is_wide)
        .or_else(|| named(&|op| matches!(op, Op::Conv { .. })))
        .or(picture)
        .or_else(|| named(&|op| matches!(op, Op::MatMul { .. })))
        .or_else(|| named(&|op| matches!(op, Op::Input)))
}
