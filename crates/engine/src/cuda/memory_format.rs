//! The memory format of every value. Tensor cores are fastest on channels-last images: convolutions on them read and write
//! that format, the nodes between convolutions keep it, and a copy in the contiguous format is inserted before nodes that
//! need it.

use std::collections::HashMap;

use monosplit_graph::op::Role;
use monosplit_graph::passes::{Rewrite, Step};
use monosplit_graph::{Dim, Graph, Node, NodeId, Op, Result, Shape};

use super::Math;
use super::translator::is_folded;

/// The order of the axes of a value in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MemoryFormat {
    /// The last axis is the innermost.
    #[default]
    Contiguous,
    /// The second axis, that of channels, is the innermost.
    ChannelsLast,
}

impl MemoryFormat {
    /// Reorders what belongs to each axis from the outermost axis in memory to the innermost.
    pub(super) fn permuted<T: Copy>(self, of_axes: &[T]) -> Vec<T> {
        let mut permuted = of_axes.to_vec();
        if self == MemoryFormat::ChannelsLast {
            permuted[1..].rotate_left(1);
        }
        permuted
    }

    /// The stride in elements of each axis of a value of this shape.
    pub(super) fn strides(self, shape: &[usize]) -> Vec<i64> {
        let permuted = self.permuted(shape);
        let mut strides = vec![1i64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * permuted[axis] as i64;
        }
        if self == MemoryFormat::ChannelsLast {
            strides[1..].rotate_right(1);
        }
        strides
    }

    /// The number of channels that are adjacent in memory at each position: 1 unless channels are last.
    pub(super) fn adjacent_channels(self, shape: &[usize]) -> usize {
        match self {
            MemoryFormat::Contiguous => 1,
            MemoryFormat::ChannelsLast => shape[1],
        }
    }

    fn other(self) -> Self {
        match self {
            MemoryFormat::Contiguous => MemoryFormat::ChannelsLast,
            MemoryFormat::ChannelsLast => MemoryFormat::Contiguous,
        }
    }
}

/// Rank of a batch of images.
const IMAGES: usize = 4;

/// The graph with a copy wherever a value is read in another format than it is written in, and the format of every value.
/// All formats are contiguous if a convolution does not support channels-last.
pub(super) fn with_memory_formats(graph: Graph, math: Math) -> Result<(Graph, Vec<MemoryFormat>)> {
    if !math.on_tensor_cores() || !graph.nodes().all(|(_, node)| allows_channels_last(&graph, node)) {
        let formats = vec![MemoryFormat::Contiguous; graph.len()];
        return Ok((graph, formats));
    }
    let graph = with_conversions(&graph)?;
    let formats = formats(&graph);
    Ok((graph, formats))
}

/// Whether a node supports channels-last: it is no convolution, or one with one group, of images, and with constant weights,
/// which are converted once.
fn allows_channels_last(graph: &Graph, node: &Node) -> bool {
    match node.op {
        Op::Conv { groups, .. } | Op::ConvTranspose { groups, .. } => {
            groups == 1 && node.shape.rank() == IMAGES && graph.node(node.inputs[1]).is_constant()
        }
        _ => true,
    }
}

/// The graph with a copy wherever a value is read in another format than it is written in.
fn with_conversions(graph: &Graph) -> Result<Graph> {
    let mut formats: HashMap<NodeId, MemoryFormat> = HashMap::new();
    let mut rewrite = Rewrite::new(graph);
    rewrite.walk(|rewrite, _, node| {
        let mut inputs = rewrite.inputs(node);
        let read_format = |id: &NodeId| formats.get(id).copied().unwrap_or_default();
        if is_copy(node) {
            return Ok(Step::Replace(inputs[0]));
        }
        let read: Vec<MemoryFormat> = inputs.iter().map(read_format).collect();
        let format = format(&rewrite.target, node, &inputs, &read);
        for position in 0..inputs.len() {
            let value = rewrite.target.node(inputs[position]);
            let wanted = match required_format(node, format, position) {
                Some(wanted) if wanted != read[position] && !is_format_agnostic(&value.shape) => wanted,
                _ => continue,
            };
            inputs[position] = copied(&mut rewrite.target, inputs[position])?;
            formats.insert(inputs[position], wanted);
        }
        let value = rewrite.target.add_copy(node, &inputs)?;
        formats.insert(value, format);
        Ok(Step::Replace(value))
    })?;
    // Outputs are contiguous.
    for output in graph.outputs() {
        let value = rewrite.value(output.node);
        let last = formats.get(&value) == Some(&MemoryFormat::ChannelsLast);
        if last && !is_format_agnostic(&rewrite.target.node(value).shape) {
            let contiguous = copied(&mut rewrite.target, value)?;
            rewrite.redirect(output.node, contiguous);
        }
    }
    rewrite.finish()
}

/// The format of every value of a graph with copies.
fn formats(graph: &Graph) -> Vec<MemoryFormat> {
    let mut formats: Vec<MemoryFormat> = Vec::with_capacity(graph.len());
    for (_, node) in graph.nodes() {
        let read: Vec<MemoryFormat> = node.inputs.iter().map(|input| formats[input.index()]).collect();
        formats.push(match is_copy(node) {
            true => read[0].other(),
            false => format(graph, node, &node.inputs, &read),
        });
    }
    formats
}

/// A copy of a value in the other format. In the graph it is a transpose by the identity.
fn copied(graph: &mut Graph, value: NodeId) -> Result<NodeId> {
    let axes = (0..graph.node(value).shape.rank()).collect();
    graph.add(Op::Transpose { axes }, &[value])
}

/// Whether a transpose is the identity. In a graph with copies it stands for a copy in the other format.
pub(super) fn is_identity(axes: &[usize]) -> bool {
    axes.iter().enumerate().all(|(to, &from)| to == from)
}

fn is_copy(node: &Node) -> bool {
    matches!(&node.op, Op::Transpose { axes } if is_identity(axes))
}

/// Whether both formats of a value are the same.
fn is_format_agnostic(shape: &Shape) -> bool {
    let single = |dim: &Dim| *dim == Dim::Fixed(1);
    shape.rank() != IMAGES || single(&shape.dims()[1]) || shape.dims()[2..].iter().all(single)
}

/// The format a node writes if its inputs have the formats `read`.
fn format(graph: &Graph, node: &Node, inputs: &[NodeId], read: &[MemoryFormat]) -> MemoryFormat {
    let last_if = |last: bool| if last { MemoryFormat::ChannelsLast } else { MemoryFormat::Contiguous };
    let mut values = inputs.iter().map(|&input| graph.node(input)).zip(read);
    match &node.op {
        Op::Identity | Op::Dropout { .. } => read[0],
        _ if node.shape.rank() != IMAGES => MemoryFormat::Contiguous,
        Op::Conv { .. } => MemoryFormat::ChannelsLast,
        Op::ConvTranspose { window, groups, .. } => {
            let channels = |shape: &Shape| shape.fixed_at(1).unwrap_or(usize::MAX);
            let from = channels(&graph.node(inputs[0]).shape);
            last_if(!is_folded(window, *groups, from, channels(&node.shape)))
        }
        op if op.role() == Role::Elementwise => last_if(
            values.any(|(value, format)| *format == MemoryFormat::ChannelsLast && value.shape == node.shape),
        ),
        op if preserves_format(op) => {
            last_if(values.any(|(_, format)| *format == MemoryFormat::ChannelsLast))
        }
        _ => MemoryFormat::Contiguous,
    }
}

/// Whether a node that is not elementwise writes the format it reads.
fn preserves_format(op: &Op) -> bool {
    matches!(
        op,
        Op::MaxPool(_)
            | Op::AveragePool { .. }
            | Op::AveragePoolTranspose { .. }
            | Op::WinnerGather(_)
            | Op::WinnerScatter(_)
            | Op::Concat { .. }
            | Op::Slice { .. }
            | Op::Pad { .. }
    )
}

/// The format in which a node that writes `format` must read the input at a position; `None` if it reads both.
fn required_format(node: &Node, format: MemoryFormat, position: usize) -> Option<MemoryFormat> {
    match &node.op {
        Op::Identity | Op::Dropout { .. } | Op::Reduce { .. } => None,
        // To few channels it is a matrix product with the contiguous weights.
        Op::ConvTranspose { .. } if format == MemoryFormat::Contiguous && position == 1 => {
            Some(MemoryFormat::Contiguous)
        }
        Op::Conv { .. } | Op::ConvTranspose { .. } => Some(MemoryFormat::ChannelsLast),
        // Broadcast operands could be read in any format, but more slowly.
        op if op.role() == Role::Elementwise => Some(format),
        op if preserves_format(op) => Some(format),
        _ => Some(MemoryFormat::Contiguous),
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Window;
    use monosplit_graph::{Kind, Tensor};

    use super::*;

    fn constant(graph: &mut Graph, shape: &[usize]) -> NodeId {
        graph.constant(Tensor::new(shape, vec![0.5f32; shape.iter().product()]).unwrap())
    }

    fn convolution(graph: &mut Graph, x: NodeId, channels: [usize; 2]) -> NodeId {
        let w = constant(graph, &[channels[1], channels[0], 3, 3]);
        let window = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
        graph.add(Op::Conv { window, groups: 1 }, &[x, w]).unwrap()
    }

    fn copies(graph: &Graph) -> usize {
        graph.nodes().filter(|(_, node)| is_copy(node) && !node.is_constant()).count()
    }

    #[test]
    fn strides_follow_the_format() {
        assert_eq!(MemoryFormat::Contiguous.strides(&[2, 3, 4, 5]), [60, 20, 5, 1]);
        assert_eq!(MemoryFormat::ChannelsLast.strides(&[2, 3, 4, 5]), [60, 1, 15, 3]);
        assert_eq!(MemoryFormat::ChannelsLast.permuted(&[2, 3, 4, 5]), [2, 4, 5, 3]);
    }

    #[test]
    fn a_network_is_converted_once_at_its_input_and_once_at_its_end() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[3, 8, 8]), Kind::Float);
        let bias = constant(&mut graph, &[6, 1, 1]);
        let mut y = convolution(&mut graph, x, [3, 6]);
        y = graph.plus(y, bias).unwrap();
        y = graph.rectified(y).unwrap();
        let small =
            graph.add(Op::MaxPool(Window { stride: vec![2; 2], ..Window::new([2, 2]) }), &[y]).unwrap();
        let deep = convolution(&mut graph, small, [6, 6]);
        let sum = graph.plus(deep, small).unwrap();
        let flat = graph.reshaped(sum, Shape::batched(&[96])).unwrap();
        graph.output("y", flat);
        assert_eq!(copies(&with_memory_formats(graph.clone(), Math::F32).unwrap().0), 0);
        let (converted, formats) = with_memory_formats(graph, Math::Tf32).unwrap();
        assert_eq!(copies(&converted), 2);
        for (id, node) in converted.nodes() {
            let last = formats[id.index()] == MemoryFormat::ChannelsLast;
            match node.op {
                Op::Input | Op::Reshape { .. } => assert!(!last),
                Op::Conv { .. } | Op::MaxPool(_) | Op::Binary(_) => assert!(last),
                _ => {}
            }
        }
    }

    #[test]
    fn depthwise_convolutions_keep_all_values_contiguous() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[6, 8, 8]), Kind::Float);
        let y = convolution(&mut graph, x, [6, 6]);
        let w = constant(&mut graph, &[6, 1, 3, 3]);
        let y = graph.add(Op::Conv { window: Window::new([3, 3]), groups: 6 }, &[y, w]).unwrap();
        graph.output("y", y);
        let (same, formats) = with_memory_formats(graph, Math::Tf32).unwrap();
        assert_eq!(copies(&same), 0);
        assert!(formats.iter().all(|format| *format == MemoryFormat::Contiguous));
    }

    #[test]
    fn one_channel_needs_no_copy_and_outputs_are_contiguous() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[1, 8, 8]), Kind::Float);
        let y = convolution(&mut graph, x, [1, 6]);
        let y = graph.rectified(y).unwrap();
        graph.output("y", y);
        let (converted, formats) = with_memory_formats(graph, Math::Tf32).unwrap();
        assert_eq!(copies(&converted), 1);
        assert_eq!(formats[converted.outputs()[0].node.index()], MemoryFormat::Contiguous);
    }
}
