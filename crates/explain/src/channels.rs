//! The channel axis of each value. Graphs do not declare it: convolutions read channels from the axis after the samples, dense
//! layers of tokens from the last, and some transpositions move them from one to the other. The axes known at those layers are
//! propagated to the values in between. The default is the axis after the samples.

// A new op must be decided here, so no match has a default.
#![deny(clippy::wildcard_enum_match_arm)]

use monosplit_graph::op::ChannelAxis;
use monosplit_graph::{Graph, Node, NodeId, Op, Shape};

/// The largest number of sweeps over the graph; each runs once forwards and once backwards.
const SWEEPS: usize = 8;

/// The channel axes of a value and of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axes {
    /// The channel axis of the value; none if it has no axes other than samples and channels.
    pub(crate) channels: Option<usize>,
    /// The same axis of the image.
    pub(crate) image_channels: usize,
}

impl Axes {
    /// The axes of the value `at` of a network that reads its images from `image`.
    pub(crate) fn of(graph: &Graph, at: NodeId, image: NodeId) -> Self {
        ChannelAxes::new(graph, image).at(graph, at)
    }
}

/// The channel axes of all values of a network.
pub(crate) struct ChannelAxes {
    known: Vec<Option<usize>>,
    image: NodeId,
    /// The channel axis of the image.
    pub(crate) image_channels: usize,
}

impl ChannelAxes {
    /// The axes of a network that reads its images from `image`.
    pub(crate) fn new(graph: &Graph, image: NodeId) -> Self {
        let known = channel_axes(graph);
        let shape = &graph.node(image).shape;
        let told = known[image.index()].filter(|&axis| axis == 1 || axis + 1 == shape.rank());
        let image_channels = told.unwrap_or(if is_channels_last(shape) { 3 } else { 1 });
        ChannelAxes { known, image, image_channels }
    }

    /// The axes of one value.
    pub(crate) fn at(&self, graph: &Graph, at: NodeId) -> Axes {
        let rank = graph.node(at).shape.rank();
        let known = self.known[at.index()].filter(|&axis| axis + 1 == rank);
        let axis = if at == self.image { self.image_channels } else { known.unwrap_or(1) };
        Axes { channels: (rank >= 3).then_some(axis), image_channels: self.image_channels }
    }
}

/// Whether an image without other evidence is `[N, H, W, C]`: only its last axis has length 1 or 3.
fn is_channels_last(image: &Shape) -> bool {
    let colours = |axis: usize| matches!(image.fixed_at(axis), Some(1 | 3));
    image.rank() == 4 && colours(3) && !colours(1)
}

/// The channel axis of every value for which it is known.
fn channel_axes(graph: &Graph) -> Vec<Option<usize>> {
    let mut axes = vec![None; graph.len()];
    for (id, node) in graph.nodes() {
        if let Some(axis) = own_axis(graph, node) {
            for value in [node.inputs[0], id] {
                axes[value.index()].get_or_insert(axis);
            }
        }
    }
    for _ in 0..SWEEPS {
        let before = axes.clone();
        for (id, node) in graph.nodes() {
            for &input in carriers(node) {
                let from = axes[input.index()].and_then(|axis| carried(graph, node, input, axis));
                axes[id.index()] = axes[id.index()].or(from);
            }
        }
        for (id, node) in graph.nodes().rev() {
            for &input in carriers(node) {
                let from = axes[id.index()].and_then(|axis| {
                    let rank = graph.node(input).shape.rank();
                    (0..rank).find(|&origin| carried(graph, node, input, origin) == Some(axis))
                });
                axes[input.index()] = axes[input.index()].or(from);
            }
        }
        if axes == before {
            break;
        }
    }
    axes
}

/// The channel axis of the input and the output of a layer, if its op determines it.
fn own_axis(graph: &Graph, node: &Node) -> Option<usize> {
    let rank = graph.node(*node.inputs.first()?).shape.rank();
    match node.op.properties().channels {
        ChannelAxis::Second => Some(1),
        ChannelAxis::Normalised(axis) => (rank >= 3 && axis + 1 == rank).then_some(axis),
        ChannelAxis::Last => {
            let weight = graph.node(*node.inputs.get(1)?);
            (weight.is_constant() && weight.shape.rank() == 2 && rank >= 3).then(|| rank - 1)
        }
        ChannelAxis::Kept(_) | ChannelAxis::Moved | ChannelAxis::Unknown => None,
    }
}

/// The inputs of a node whose channels are also channels of its value.
fn carriers(node: &Node) -> &[NodeId] {
    match node.op.properties().channels {
        ChannelAxis::Kept(operands) => &node.inputs[operands.start..operands.end.min(node.inputs.len())],
        ChannelAxis::Moved => &node.inputs[..1],
        ChannelAxis::Second | ChannelAxis::Normalised(_) | ChannelAxis::Last | ChannelAxis::Unknown => &[],
    }
}

/// The axis of the value that an axis of an input becomes, for nodes that at most move elements.
fn carried(graph: &Graph, node: &Node, input: NodeId, axis: usize) -> Option<usize> {
    let (from, to) = (graph.node(input).shape.dims(), node.shape.dims());
    match (node.op.properties().channels, &node.op) {
        (ChannelAxis::Moved, Op::Transpose { axes }) => {
            between_layouts(axes).then(|| axes.iter().position(|&origin| origin == axis))?
        }
        (ChannelAxis::Moved, Op::Reshape { .. }) => {
            let behind = from.len() - axis;
            if to.len() > axis && from[..=axis] == to[..=axis] {
                return Some(axis);
            }
            (to.len() >= behind && from[axis..] == to[to.len() - behind..]).then(|| to.len() - behind)
        }
        (ChannelAxis::Kept(_), _) => (from.len() == to.len()).then_some(axis),
        (ChannelAxis::Moved | ChannelAxis::Second | ChannelAxis::Normalised(_), _) => None,
        (ChannelAxis::Last | ChannelAxis::Unknown, _) => None,
    }
}

/// Whether a transposition converts between channels-first and channels-last. After any other the channel axis is unknown.
fn between_layouts(axes: &[usize]) -> bool {
    let rank = axes.len();
    let is = |order: &mut dyn Iterator<Item = usize>| axes.iter().copied().eq(order);
    rank >= 3
        && (is(&mut [0].into_iter().chain(2..rank).chain([1]))
            || is(&mut [0, rank - 1].into_iter().chain(1..rank - 1)))
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::{Unary, Window};
    use monosplit_graph::{Dim, Kind, Tensor};

    use super::*;

    fn shape(rest: &[usize]) -> Shape {
        let rest = rest.iter().map(|&n| Dim::Fixed(n));
        Shape::new(std::iter::once(Dim::Batch(1)).chain(rest).collect::<Vec<_>>())
    }

    fn weights(g: &mut Graph, shape: &[usize]) -> NodeId {
        g.constant(Tensor::new(shape.to_vec(), vec![0f32; shape.iter().product()]).unwrap())
    }

    #[test]
    fn a_transposed_image_has_its_channels_last() {
        let mut g = Graph::new();
        let x = g.input("x", shape(&[8, 9, 4]), Kind::Float);
        let scaled = g.unary(Unary::Relu, x).unwrap();
        let turned = g.add(Op::Transpose { axes: vec![0, 3, 1, 2] }, &[scaled]).unwrap();
        let w = weights(&mut g, &[5, 4, 3, 3]);
        let z = g.add(Op::Conv { window: Window::new([3, 3]), groups: 1 }, &[turned, w]).unwrap();
        let back = g.add(Op::Transpose { axes: vec![0, 2, 3, 1] }, &[z]).unwrap();
        let axes = |at| Axes::of(&g, at, x);
        assert_eq!(axes(x), Axes { channels: Some(3), image_channels: 3 });
        assert_eq!([turned, z, back].map(|at| axes(at).channels), [Some(1), Some(1), Some(3)]);
    }

    #[test]
    fn tokens_have_their_channels_last_and_sequences_first() {
        let mut g = Graph::new();
        let x = g.input("x", shape(&[4, 6, 6]), Kind::Float);
        let w = weights(&mut g, &[5, 4, 2, 2]);
        let patches = g.add(Op::Conv { window: Window::new([2, 2]), groups: 1 }, &[x, w]).unwrap();
        let flat = g.reshaped(patches, shape(&[5, 25])).unwrap();
        let tokens = g.add(Op::Transpose { axes: vec![0, 2, 1] }, &[flat]).unwrap();
        let w = weights(&mut g, &[5, 7]);
        let dense = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[tokens, w]).unwrap();
        let found = [x, patches, flat, tokens, dense].map(|at| Axes::of(&g, at, x).channels);
        assert_eq!(found, [Some(1), Some(1), Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn a_grid_of_tokens_has_its_channels_last() {
        let mut g = Graph::new();
        let x = g.input("x", shape(&[4, 6, 6]), Kind::Float);
        let w = weights(&mut g, &[5, 4, 2, 2]);
        let patches = g.add(Op::Conv { window: Window::new([2, 2]), groups: 1 }, &[x, w]).unwrap();
        let grid = g.add(Op::Transpose { axes: vec![0, 2, 3, 1] }, &[patches]).unwrap();
        let scale = weights(&mut g, &[5]);
        let normal = g.add(Op::LayerNorm { axis: 3, epsilon: 1e-5 }, &[grid, scale]).unwrap();
        let w = weights(&mut g, &[5, 7]);
        let dense = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[normal, w]).unwrap();
        let active = g.unary(Unary::Gelu, dense).unwrap();
        let found = [patches, grid, normal, dense, active].map(|at| Axes::of(&g, at, x).channels);
        assert_eq!(found, [Some(1), Some(3), Some(3), Some(3), Some(3)]);
    }
}
