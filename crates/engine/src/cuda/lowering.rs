//! Lowers a graph to the ops that have kernels: normalisations and softmax become primitive ops, asymmetric padding becomes a
//! node of its own, and biases of convolutions and products become additions, which are fused with the elementwise nodes that
//! follow.

use monosplit_graph::op::{Padding, Unary, Window};
use monosplit_graph::passes::{Rewrite, Step, primitive};
use monosplit_graph::{Graph, Node, NodeId, Op, Result};

/// The lowered graph.
pub(super) fn lowered(graph: &Graph) -> Result<Graph> {
    Rewrite::run(graph, |rewrite, _, node| {
        let inputs = rewrite.inputs(node);
        let (g, rank) = (&mut rewrite.target, node.shape.rank());
        let value = match &node.op {
            Op::Conv { window, .. } | Op::ConvTranspose { window, .. }
                if inputs.len() == 2 && !is_even(window) =>
            {
                Some(evenly_padded(g, node, &inputs)?)
            }
            Op::Conv { window, .. } | Op::ConvTranspose { window, .. } if inputs.len() > 2 => {
                let plain = match is_even(window) {
                    true => g.add(node.op.clone(), &inputs[..2])?,
                    false => evenly_padded(g, node, &inputs[..2])?,
                };
                let bias = g.per_channel(inputs[2], rank)?;
                Some(g.plus(plain, bias)?)
            }
            Op::MatMul { .. } if inputs.len() > 2 => {
                let plain = g.add(node.op.clone(), &inputs[..2])?;
                Some(g.plus(plain, inputs[2])?)
            }
            Op::BatchNorm { epsilon } => {
                let variance = g.offset(*epsilon, inputs[4])?;
                let deviation = g.unary(Unary::Sqrt, variance)?;
                let factor = g.over(inputs[1], deviation)?;
                let moved = g.times(inputs[3], factor)?;
                let shift = g.minus(inputs[2], moved)?;
                let (factor, shift) = (g.per_channel(factor, rank)?, g.per_channel(shift, rank)?);
                let scaled = g.times(inputs[0], factor)?;
                Some(g.plus(scaled, shift)?)
            }
            Op::LayerNorm { .. }
            | Op::GroupNorm { .. }
            | Op::LocalResponseNorm { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. } => primitive(g, &node.op, &inputs)?,
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } => None,
            Op::Input | Op::Constant(_) => None,
            Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast { .. } => None,
            Op::MaxPool(_) | Op::AveragePool { .. } | Op::AveragePoolTranspose { .. } => None,
            Op::WinnerGather(_) | Op::WinnerScatter(_) | Op::Reduce { .. } | Op::ArgMax { .. } => None,
            Op::Concat { .. } | Op::Slice { .. } | Op::Pad { .. } | Op::Reshape { .. } => None,
            Op::Transpose { .. } | Op::Expand { .. } | Op::Gather { .. } | Op::Resize { .. } => None,
            Op::Identity | Op::Dropout { .. } => None,
        };
        Ok(value.map_or(Step::Keep, Step::Replace))
    })
}

/// Whether the padding is the same before and after each axis, as cuDNN requires.
fn is_even(window: &Window) -> bool {
    window.pad.iter().all(|(before, after)| before == after)
}

/// A convolution without padding of its own: of a padded input, or, if it is transposed, with its result cropped.
fn evenly_padded(g: &mut Graph, node: &Node, inputs: &[NodeId]) -> Result<NodeId> {
    let bare = |window: &Window| Window { pad: vec![(0, 0); window.axes()], ..window.clone() };
    match &node.op {
        Op::Conv { window, groups } => {
            let pads = [(0, 0); 2].into_iter().chain(window.pad.iter().copied()).collect();
            let padded = g.add(Op::Pad { padding: Padding::Constant(0.0), pads }, &[inputs[0]])?;
            g.add(Op::Conv { window: bare(window), groups: *groups }, &[padded, inputs[1]])
        }
        Op::ConvTranspose { window, groups, output_padding } => {
            let output_padding = output_padding.clone();
            let op = Op::ConvTranspose { window: bare(window), groups: *groups, output_padding };
            let mut value = g.add(op, inputs)?;
            for (axis, &(start, _)) in window.pad.iter().enumerate() {
                let length = node.shape.fixed_at(axis + 2).unwrap_or(0);
                value = g.add(Op::Slice { axis: axis + 2, start, step: 1, length }, &[value])?;
            }
            Ok(value)
        }
        op => g.add(op.clone(), inputs),
    }
}

#[cfg(test)]
mod tests {
    use monosplit_graph::{Kind, Noise, Shape, Tensor};

    use super::*;
    use crate::{Cpu, Engine, Precision};

    fn random(shape: &[usize], seed: u64) -> Tensor {
        let noise = Noise::new(seed);
        let count: usize = shape.iter().product();
        let values = (0..count as u64).map(|i| 0.5 + noise.uniform(i)).collect::<Vec<f64>>();
        Tensor::new(shape, values).unwrap()
    }

    #[test]
    fn a_lowered_graph_computes_the_same() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[4, 6, 6]), Kind::Float);
        let constant = |graph: &mut Graph, shape: &[usize], seed| graph.constant(random(shape, seed));
        let [w, back] = [1, 2].map(|seed| constant(&mut graph, &[4, 4, 3, 3], seed));
        let [a, b, c, d] = [3, 4, 5, 6].map(|seed| constant(&mut graph, &[4], seed));
        let window = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
        let uneven = Window { pad: vec![(2, 0), (0, 2)], ..window.clone() };
        let x = graph.add(Op::Conv { window: uneven.clone(), groups: 1 }, &[x, w]).unwrap();
        let back_again = Op::ConvTranspose { window: uneven, groups: 1, output_padding: vec![0, 0] };
        let x = graph.add(back_again, &[x, back, d]).unwrap();
        let y = graph.add(Op::Conv { window: window.clone(), groups: 1 }, &[x, w, a]).unwrap();
        let y = graph.add(Op::BatchNorm { epsilon: 0.1 }, &[y, a, b, c, d]).unwrap();
        let up = Op::ConvTranspose { window, groups: 1, output_padding: vec![0, 0] };
        let y = graph.add(up, &[y, back, b]).unwrap();
        let y = graph.add(Op::GroupNorm { groups: 2, epsilon: 0.1 }, &[y, c, d]).unwrap();
        let y = graph.add(Op::Softmax { axis: 1 }, &[y]).unwrap();
        let flat = graph.reshaped(y, Shape::batched(&[144])).unwrap();
        let (matrix, shift) = (constant(&mut graph, &[5, 144], 7), constant(&mut graph, &[5], 8));
        let y = graph.add(Op::MatMul { trans_a: false, trans_b: true }, &[flat, matrix, shift]).unwrap();
        graph.output("y", y);
        let image = [random(&[2, 4, 6, 6], 9)];
        let run = |graph: &Graph| {
            let engine = Cpu::default().precision(Precision::F64);
            engine.compile(graph).unwrap().run(&image).unwrap()[0].to_f64().to_vec()
        };
        let simple = lowered(&graph).unwrap();
        let windows = simple.nodes().filter_map(|(_, node)| match &node.op {
            Op::Conv { window, .. } | Op::ConvTranspose { window, .. } => Some(is_even(window)),
            _ => None,
        });
        assert_eq!(windows.collect::<Vec<bool>>(), [true; 4]);
        let left = ["BatchNormalization", "GroupNormalization", "Softmax"];
        assert!(simple.nodes().all(|(_, node)| !left.contains(&node.op.name())));
        for (found, expected) in run(&simple).iter().zip(run(&graph)) {
            assert!((found - expected).abs() < 1e-12 * expected.abs(), "{found} {expected}");
        }
    }
}
