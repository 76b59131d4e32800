//! A graph in the ops the card has kernels for: normalisations and softmax spelled out, and what is added to convolutions
//! and products left to the elementwise kernels, which take it along with what follows.

use monosplit_graph::op::Unary;
use monosplit_graph::passes::{Rewrite, Step, primitive};
use monosplit_graph::{Dim, Graph, NodeId, Op, Result, Shape};

/// Rewrites `graph`.
pub(super) fn lowered(graph: &Graph) -> Result<Graph> {
    Rewrite::run(graph, |rewrite, _, node| {
        let inputs = rewrite.inputs(node);
        let (g, rank) = (&mut rewrite.target, node.shape.rank());
        let value = match &node.op {
            Op::Conv { .. } | Op::ConvTranspose { .. } if inputs.len() > 2 => {
                let plain = g.add(node.op.clone(), &inputs[..2])?;
                let bias = per_channel(g, inputs[2], rank)?;
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
                let (factor, shift) = (per_channel(g, factor, rank)?, per_channel(g, shift, rank)?);
                let scaled = g.times(inputs[0], factor)?;
                Some(g.plus(scaled, shift)?)
            }
            Op::LayerNorm { .. }
            | Op::GroupNorm { .. }
            | Op::LocalResponseNorm { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. } => primitive(g, &node.op, &inputs)?,
            _ => None,
        };
        Ok(value.map_or(Step::Keep, Step::Replace))
    })
}

/// A vector over channels, shaped to meet axis 1 of a value of rank `rank`.
fn per_channel(g: &mut Graph, vector: NodeId, rank: usize) -> Result<NodeId> {
    let mut dims = vec![Dim::Fixed(1); rank];
    dims[1] = g.node(vector).shape.dims()[0];
    g.reshaped(vector, Shape::new(dims))
}

#[cfg(test)]
mod tests {
    use monosplit_graph::op::Window;
    use monosplit_graph::{Kind, Noise, Tensor};

    use super::*;
    use crate::{Cpu, Engine, Precision};

    fn random(shape: &[usize], seed: u64) -> Tensor {
        let noise = Noise::new(seed);
        let count: usize = shape.iter().product();
        let values = (0..count as u64).map(|i| 0.5 + noise.uniform(i)).collect::<Vec<f64>>();
        Tensor::new(shape, values).unwrap()
    }

    #[test]
    fn what_is_spelled_out_computes_the_same() {
        let mut graph = Graph::new();
        let x = graph.input("x", Shape::batched(&[4, 6, 6]), Kind::Float);
        let constant = |graph: &mut Graph, shape: &[usize], seed| graph.constant(random(shape, seed));
        let [w, back] = [1, 2].map(|seed| constant(&mut graph, &[4, 4, 3, 3], seed));
        let [a, b, c, d] = [3, 4, 5, 6].map(|seed| constant(&mut graph, &[4], seed));
        let window = Window { pad: vec![(1, 1); 2], ..Window::new([3, 3]) };
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
        let left = ["BatchNormalization", "GroupNormalization", "Softmax"];
        assert!(simple.nodes().all(|(_, node)| !left.contains(&node.op.name())));
        for (found, expected) in run(&simple).iter().zip(run(&graph)) {
            assert!((found - expected).abs() < 1e-12 * expected.abs(), "{found} {expected}");
        }
    }
}
