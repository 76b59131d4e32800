//! In which order the axes of values lie in memory. Tensor cores read images fastest whose channels lie side by side at
//! every place: convolutions on them want that order, what stands between convolutions keeps it, and the few that cannot
//! are given a copy in the other.

use std::collections::HashMap;

use monosplit_graph::op::Role;
use monosplit_graph::passes::{Rewrite, Step};
use monosplit_graph::{Dim, Graph, Node, NodeId, Op, Result, Shape};

use super::Math;
use super::translator::is_folded;

/// The order in which axes lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// As they are counted: neighbours along the last axis lie side by side.
    #[default]
    Counted,
    /// The second axis, that of channels, behind all others.
    ChannelsLast,
}

impl Order {
    /// What belongs to each axis, from the outermost in memory to the innermost.
    pub(super) fn arranged<T: Copy>(self, of_axes: &[T]) -> Vec<T> {
        let mut arranged = of_axes.to_vec();
        if self == Order::ChannelsLast {
            arranged[1..].rotate_left(1);
        }
        arranged
    }

    /// How many elements lie between neighbours along each axis of a value of this shape.
    pub(super) fn strides(self, shape: &[usize]) -> Vec<i64> {
        let arranged = self.arranged(shape);
        let mut strides = vec![1i64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * arranged[axis] as i64;
        }
        if self == Order::ChannelsLast {
            strides[1..].rotate_right(1);
        }
        strides
    }

    /// How many values of a place lie side by side.
    pub(super) fn beside(self, shape: &[usize]) -> usize {
        match self {
            Order::Counted => 1,
            Order::ChannelsLast => shape[1],
        }
    }

    fn other(self) -> Self {
        match self {
            Order::Counted => Order::ChannelsLast,
            Order::ChannelsLast => Order::Counted,
        }
    }
}

/// Rank of a batch of images.
const IMAGES: usize = 4;

/// The graph with copies where values are read in another order than they are written in, and the order of every value. All
/// is as it is counted if a convolution would not profit from another.
pub(super) fn ordered(graph: Graph, math: Math) -> Result<(Graph, Vec<Order>)> {
    if !math.on_tensor_cores() || !graph.nodes().all(|(_, node)| can_turn(&graph, node)) {
        let orders = vec![Order::Counted; graph.len()];
        return Ok((graph, orders));
    }
    let graph = turned(&graph)?;
    let orders = orders(&graph);
    Ok((graph, orders))
}

/// Whether a node is no convolution that needs its channels apart. Kernels are turned once, if they are known.
fn can_turn(graph: &Graph, node: &Node) -> bool {
    match node.op {
        Op::Conv { groups, .. } | Op::ConvTranspose { groups, .. } => {
            groups == 1 && node.shape.rank() == IMAGES && graph.node(node.inputs[1]).is_constant()
        }
        _ => true,
    }
}

/// The graph with copies where values are read in another order than they are written in.
fn turned(graph: &Graph) -> Result<Graph> {
    let mut orders: HashMap<NodeId, Order> = HashMap::new();
    let mut rewrite = Rewrite::new(graph);
    rewrite.walk(|rewrite, _, node| {
        let mut inputs = rewrite.inputs(node);
        let order_of = |id: &NodeId| orders.get(id).copied().unwrap_or_default();
        if is_copy(node) {
            return Ok(Step::Replace(inputs[0]));
        }
        let read: Vec<Order> = inputs.iter().map(order_of).collect();
        let order = order(&rewrite.target, node, &inputs, &read);
        for position in 0..inputs.len() {
            let value = rewrite.target.node(inputs[position]);
            let wanted = match wants(node, order, position) {
                Some(wanted) if wanted != read[position] && !is_either(&value.shape) => wanted,
                _ => continue,
            };
            inputs[position] = copied(&mut rewrite.target, inputs[position])?;
            orders.insert(inputs[position], wanted);
        }
        let value = rewrite.target.add_copy(node, &inputs)?;
        orders.insert(value, order);
        Ok(Step::Replace(value))
    })?;
    // What leaves is as the caller counts.
    for output in graph.outputs() {
        let value = rewrite.value(output.node);
        let last = orders.get(&value) == Some(&Order::ChannelsLast);
        if last && !is_either(&rewrite.target.node(value).shape) {
            let counted = copied(&mut rewrite.target, value)?;
            rewrite.redirect(output.node, counted);
        }
    }
    rewrite.finish()
}

/// The order of every value of a graph that was [`turned`].
fn orders(graph: &Graph) -> Vec<Order> {
    let mut orders: Vec<Order> = Vec::with_capacity(graph.len());
    for (_, node) in graph.nodes() {
        let read: Vec<Order> = node.inputs.iter().map(|input| orders[input.index()]).collect();
        orders.push(match is_copy(node) {
            true => read[0].other(),
            false => order(graph, node, &node.inputs, &read),
        });
    }
    orders
}

/// A copy of a value in the other order: to the graph, the value itself.
fn copied(graph: &mut Graph, value: NodeId) -> Result<NodeId> {
    let axes = (0..graph.node(value).shape.rank()).collect();
    graph.add(Op::Transpose { axes }, &[value])
}

/// Whether a transposed value is the value itself: in a graph that was [`turned`], a copy in the other order.
pub(super) fn is_identity(axes: &[usize]) -> bool {
    axes.iter().enumerate().all(|(to, &from)| to == from)
}

fn is_copy(node: &Node) -> bool {
    matches!(&node.op, Op::Transpose { axes } if is_identity(axes))
}

/// Whether a value lies the same way in both orders.
fn is_either(shape: &Shape) -> bool {
    let single = |dim: &Dim| *dim == Dim::Fixed(1);
    shape.rank() != IMAGES || single(&shape.dims()[1]) || shape.dims()[2..].iter().all(single)
}

/// The order a node's value is written in if what it reads lies in these.
fn order(graph: &Graph, node: &Node, inputs: &[NodeId], read: &[Order]) -> Order {
    let last_if = |last: bool| if last { Order::ChannelsLast } else { Order::Counted };
    let mut values = inputs.iter().map(|&input| graph.node(input)).zip(read);
    match &node.op {
        Op::Identity | Op::Dropout { .. } => read[0],
        _ if node.shape.rank() != IMAGES => Order::Counted,
        Op::Conv { .. } => Order::ChannelsLast,
        Op::ConvTranspose { window, groups, .. } => {
            let channels = |shape: &Shape| shape.fixed_at(1).unwrap_or(usize::MAX);
            let from = channels(&graph.node(inputs[0]).shape);
            last_if(!is_folded(window, *groups, from, channels(&node.shape)))
        }
        op if op.role() == Role::Elementwise => {
            last_if(values.any(|(value, order)| *order == Order::ChannelsLast && value.shape == node.shape))
        }
        op if keeps_order(op) => last_if(values.any(|(_, order)| *order == Order::ChannelsLast)),
        _ => Order::Counted,
    }
}

/// Nodes that are not elementwise whose values lie in the order of those they read.
fn keeps_order(op: &Op) -> bool {
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

/// The order in which a node that writes in `order` wants to read the value at a position, if it matters to it.
fn wants(node: &Node, order: Order, position: usize) -> Option<Order> {
    match &node.op {
        Op::Identity | Op::Dropout { .. } | Op::Reduce { .. } => None,
        // To few channels it is a matrix product with the kernel as it is counted.
        Op::ConvTranspose { .. } if order == Order::Counted && position == 1 => Some(Order::Counted),
        Op::Conv { .. } | Op::ConvTranspose { .. } => Some(Order::ChannelsLast),
        // What is repeated could be read in any order, at a price.
        op if op.role() == Role::Elementwise => Some(order),
        op if keeps_order(op) => Some(order),
        _ => Some(Order::Counted),
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
    fn strides_follow_the_order() {
        assert_eq!(Order::Counted.strides(&[2, 3, 4, 5]), [60, 20, 5, 1]);
        assert_eq!(Order::ChannelsLast.strides(&[2, 3, 4, 5]), [60, 1, 15, 3]);
        assert_eq!(Order::ChannelsLast.arranged(&[2, 3, 4, 5]), [2, 4, 5, 3]);
    }

    #[test]
    fn a_network_is_turned_once_at_its_picture_and_once_at_its_end() {
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
        assert_eq!(copies(&ordered(graph.clone(), Math::F32).unwrap().0), 0);
        let (turned, orders) = ordered(graph, Math::Tf32).unwrap();
        assert_eq!(copies(&turned), 2);
        for (id, node) in turned.nodes() {
            let last = orders[id.index()] == Order::ChannelsLast;
            match node.op {
                Op::Input | Op::Reshape { .. } => assert!(!last),
                Op::Conv { .. } | Op::MaxPool(_) | Op::Binary(_) => assert!(last),
                _ => {}
            }
        }
    }

    #[test]
    fn nothing_is_turned_where_channels_keep_to_themselves() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[6, 8, 8]), Kind::Float);
        let y = convolution(&mut graph, x, [6, 6]);
        let w = constant(&mut graph, &[6, 1, 3, 3]);
        let y = graph.add(Op::Conv { window: Window::new([3, 3]), groups: 6 }, &[y, w]).unwrap();
        graph.output("y", y);
        let (same, orders) = ordered(graph, Math::Tf32).unwrap();
        assert_eq!(copies(&same), 0);
        assert!(orders.iter().all(|order| *order == Order::Counted));
    }

    #[test]
    fn one_channel_needs_no_copy_and_an_output_is_counted() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[1, 8, 8]), Kind::Float);
        let y = convolution(&mut graph, x, [1, 6]);
        let y = graph.rectified(y).unwrap();
        graph.output("y", y);
        let (turned, orders) = ordered(graph, Math::Tf32).unwrap();
        assert_eq!(copies(&turned), 1);
        assert_eq!(orders[turned.outputs()[0].node.index()], Order::Counted);
    }
}
