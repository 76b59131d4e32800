//! Batch norm folding. Batch normalisation with known parameters is an affine map per channel and is multiplied into the
//! affine node before or after it. It is kept where that would not be exact.

use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Op, Window};
use crate::tensor::{Data, Tensor};

use super::constants::allowance;
use super::rewrite::{Rewrite, Step};

/// Folds batch norms into the preceding convolution, transposed convolution or matrix product, if nothing else reads
/// that, else into the following one, if that is exact up to rounding (a convolution that pads with zeros is not,
/// unless the batch norm has no shift), else leaves them.
///
/// The arithmetic is in double precision, the new weights are stored as `stored` says. The merged node keeps the affine
/// node's names and has the batch norm's as aliases.
pub fn fold_batch_norm(graph: &Graph, stored: Stored) -> Result<Graph> {
    let uses = graph.use_counts();
    let mut folding = Folding { left: allowance(graph), stored };
    Rewrite::run(graph, |rewrite, _, node| {
        if node.inputs.first().is_none_or(|x| uses[x.index()] != 1) {
            return Ok(Step::Keep);
        }
        let merged = match &node.op {
            Op::BatchNorm { epsilon } => into_preceding(rewrite, node, *epsilon, &mut folding)?,
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } => {
                into_following(rewrite, node, &mut folding)?
            }
            _ => None,
        };
        Ok(merged.map_or(Step::Keep, Step::Replace))
    })
}

/// The precision new weights are stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stored {
    /// That of the weights they replace. In single precision the rounding of a folded weight shows at about 1e-8 of
    /// the result when the graph is run in double precision.
    #[default]
    AsBefore,
    /// Double, for graphs that are run in it.
    Double,
}

/// How many elements of new weights may still be made, and how they are stored.
struct Folding {
    left: usize,
    stored: Stored,
}

fn into_preceding(
    rewrite: &mut Rewrite,
    node: &Node,
    epsilon: f64,
    folding: &mut Folding,
) -> Result<Option<NodeId>> {
    let inputs = rewrite.inputs(node);
    // Set aside, so that a long chain does not copy them at every step.
    let aliases = std::mem::take(&mut rewrite.target.label_mut(inputs[0]).aliases);
    let folded = folded_into_preceding(&rewrite.target, &inputs, epsilon, folding);
    let merged = match folded {
        Some((weight, bias)) => {
            let before = rewrite.target.node(inputs[0]).clone();
            Some(add_affine(&mut rewrite.target, &before, before.inputs[0], weight, bias)?)
        }
        None => None,
    };
    rewrite.target.label_mut(merged.unwrap_or(inputs[0])).aliases = aliases;
    Ok(merged)
}

/// Weight and bias of the affine node before a batch norm with the given inputs, and of the batch norm, in one.
fn folded_into_preceding(
    graph: &Graph,
    inputs: &[NodeId],
    epsilon: f64,
    folding: &mut Folding,
) -> Option<(Tensor, Tensor)> {
    let norm = ChannelMap::of(graph, inputs, epsilon)?;
    let affine = Affine::of(graph, graph.node(inputs[0]), folding)?;
    let weight = affine.scaled_weight(|from| norm.scale[from.output])?;
    let bias = affine.new_bias(|bias, output| bias * norm.scale[output] + norm.shift[output])?;
    Some((weight, bias))
}

fn into_following(rewrite: &mut Rewrite, node: &Node, folding: &mut Folding) -> Result<Option<NodeId>> {
    let inputs = rewrite.inputs(node);
    let before = rewrite.target.node(inputs[0]).clone();
    let Op::BatchNorm { epsilon } = before.op else { return Ok(None) };
    let Some(norm) = ChannelMap::of(&rewrite.target, &before.inputs, epsilon) else { return Ok(None) };
    let mut here = node.clone();
    here.inputs = inputs;
    let Some(affine) = Affine::of(&rewrite.target, &here, folding) else { return Ok(None) };
    let shifts = norm.shift.iter().any(|&t| t != 0.0);
    if matches!(node.op, Op::MatMul { trans_a: true, .. }) || (shifts && !shift_is_uniform(&node.op)) {
        return Ok(None);
    }
    let mut offsets = vec![0.0; affine.outputs()];
    affine.for_each_weight(|from, weight| offsets[from.output] += weight * norm.shift[from.input]);
    let weight = affine.scaled_weight(|from| norm.scale[from.input]);
    let bias = affine.new_bias(|bias, output| bias + offsets[output]);
    let (Some(weight), Some(bias)) = (weight, bias) else { return Ok(None) };
    let merged = add_affine(&mut rewrite.target, &here, before.inputs[0], weight, bias)?;
    rewrite.target.label_mut(merged).absorb(before.label);
    Ok(Some(merged))
}

fn add_affine(graph: &mut Graph, like: &Node, x: NodeId, weight: Tensor, bias: Tensor) -> Result<NodeId> {
    let weight = graph.named_constant(graph.node(like.inputs[1]).label.clone(), weight);
    let bias_label = like.inputs.get(2).map(|&id| graph.node(id).label.clone()).unwrap_or_default();
    let bias = graph.named_constant(bias_label, bias);
    graph.add_named(like.label.clone(), like.op.clone(), &[x, weight, bias])
}

/// Whether a constant added to every input element adds the same to every output element of a channel.
fn shift_is_uniform(op: &Op) -> bool {
    let unpadded = |window: &Window| window.pad.iter().all(|&pad| pad == (0, 0));
    let all_one = |lengths: &[usize]| lengths.iter().all(|&n| n == 1);
    match op {
        Op::Conv { window, .. } => unpadded(window) && !window.ceil,
        Op::ConvTranspose { window, output_padding, .. } => {
            let whole = output_padding.iter().all(|&n| n == 0);
            unpadded(window) && all_one(&window.kernel) && all_one(&window.stride) && whole
        }
        _ => true,
    }
}

/// A batch norm as `scale·x + shift` per channel.
struct ChannelMap {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

impl ChannelMap {
    /// `None` if the parameters are not known or do not give finite numbers.
    fn of(graph: &Graph, inputs: &[NodeId], epsilon: f64) -> Option<Self> {
        let parameter = |i: usize| graph.constant_value(inputs[i]).map(Tensor::to_f64);
        let (gamma, beta, mean, variance) = (parameter(1)?, parameter(2)?, parameter(3)?, parameter(4)?);
        let scale: Vec<f64> = gamma.iter().zip(&*variance).map(|(g, v)| g / (v + epsilon).sqrt()).collect();
        let shift: Vec<f64> = scale.iter().zip(&*mean).zip(&*beta).map(|((s, m), b)| b - m * s).collect();
        scale.iter().chain(&shift).all(|v| v.is_finite()).then_some(ChannelMap { scale, shift })
    }
}

/// Which channels a weight connects.
#[derive(Clone, Copy)]
struct Connection {
    output: usize,
    input: usize,
}

/// The constant weights of an affine node, element by element.
struct Affine<'a> {
    op: &'a Op,
    weight: &'a Tensor,
    bias: Option<&'a Tensor>,
    stored: Stored,
}

impl<'a> Affine<'a> {
    /// `None` if `node` is not affine in its first input along axis 1, its weights are not known, or there are more than
    /// may still be made.
    fn of(graph: &'a Graph, node: &'a Node, folding: &mut Folding) -> Option<Self> {
        let fits = match node.op {
            Op::Conv { .. } | Op::ConvTranspose { .. } => true,
            Op::MatMul { .. } => node.inputs[..2].iter().all(|&id| graph.node(id).shape.rank() == 2),
            _ => false,
        };
        let weight = graph.constant_value(*node.inputs.get(1)?).filter(|_| fits)?;
        let bias = match node.inputs.get(2) {
            Some(&id) => Some(graph.constant_value(id)?),
            None => None,
        };
        let one_row = bias.is_none_or(|b| b.shape().iter().rev().skip(1).all(|&n| n == 1));
        folding.left = folding.left.checked_sub(weight.len())?;
        (one_row && !weight.is_empty()).then_some(Affine {
            op: &node.op,
            weight,
            bias,
            stored: folding.stored,
        })
    }

    fn outputs(&self) -> usize {
        let shape = self.weight.shape();
        match self.op {
            Op::ConvTranspose { groups, .. } => shape[1] * groups,
            Op::MatMul { trans_b: false, .. } => shape[1],
            _ => shape[0],
        }
    }

    /// What the weight at `[row, column, …]` connects.
    fn connection(&self, row: usize, column: usize) -> Connection {
        let (rows, columns) = (self.weight.shape()[0], self.weight.shape()[1]);
        match self.op {
            Op::Conv { groups, .. } => {
                Connection { output: row, input: row / (rows / groups) * columns + column }
            }
            Op::ConvTranspose { groups, .. } => {
                Connection { output: row / (rows / groups) * columns + column, input: row }
            }
            Op::MatMul { trans_b: false, .. } => Connection { output: column, input: row },
            _ => Connection { output: row, input: column },
        }
    }

    fn for_each_weight(&self, mut act: impl FnMut(Connection, f64)) {
        let columns = self.weight.shape()[1];
        let taps: usize = self.weight.shape()[2..].iter().product();
        for (i, chunk) in self.weight.to_f64().chunks(taps.max(1)).enumerate() {
            let connection = self.connection(i / columns, i % columns);
            chunk.iter().for_each(|&w| act(connection, w));
        }
    }

    fn scaled_weight(&self, factor: impl Fn(Connection) -> f64) -> Option<Tensor> {
        let mut scaled = Vec::with_capacity(self.weight.len());
        self.for_each_weight(|from, weight| scaled.push(weight * factor(from)));
        self.stored(self.weight.shape().to_vec(), scaled)
    }

    /// The bias broadcast to all output channels, each element changed by `change(bias, channel)`.
    fn new_bias(&self, change: impl Fn(f64, usize) -> f64) -> Option<Tensor> {
        let outputs = self.outputs();
        let zero = Tensor::vector(vec![0.0f64]);
        let old = self.bias.unwrap_or(&zero);
        let elements = old.to_f64();
        let element = |channel: usize| elements.get(if elements.len() == 1 { 0 } else { channel });
        let changed: Option<Vec<f64>> =
            (0..outputs).map(|channel| element(channel).map(|&bias| change(bias, channel))).collect();
        self.stored(vec![outputs], changed?)
    }

    /// `None` if a number does not fit the weight's precision.
    fn stored(&self, shape: Vec<usize>, values: Vec<f64>) -> Option<Tensor> {
        let data: Data = match self.weight.data() {
            Data::F32(_) if self.stored == Stored::AsBefore => {
                values.iter().map(|&v| v as f32).collect::<Vec<_>>().into()
            }
            _ => values.into(),
        };
        let finite = match &data {
            Data::F32(values) => values.iter().all(|v| v.is_finite()),
            Data::F64(values) => values.iter().all(|v| v.is_finite()),
            _ => true,
        };
        Tensor::new(shape, data).ok().filter(|_| finite)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{Noise, agree, count};
    use super::*;
    use crate::graph::Label;
    use crate::shape::Shape;
    use crate::tensor::Kind;

    type Shapes<'a> = &'a [&'a [usize]];

    struct Builder {
        graph: Graph,
        noise: Noise,
    }

    impl Builder {
        fn new(shape: &[usize]) -> (Self, NodeId) {
            let mut graph = Graph::new();
            let x = graph.input("x", Shape::batched(shape), Kind::Float);
            (Builder { graph, noise: Noise::new(7) }, x)
        }

        fn weight(&mut self, shape: &[usize]) -> NodeId {
            let tensor = self.noise.tensor(shape);
            self.graph.constant(tensor)
        }

        fn add(&mut self, name: &str, op: Op, x: NodeId, weights: &[&[usize]]) -> NodeId {
            let mut inputs = vec![x];
            weights.iter().for_each(|shape| inputs.push(self.weight(shape)));
            self.graph.add_named(Label::named(name), op, &inputs).unwrap()
        }

        fn norm(&mut self, x: NodeId, shift: bool) -> NodeId {
            let channels = self.graph.node(x).shape.fixed_at(1).unwrap();
            let mut inputs = vec![x, self.weight(&[channels])];
            for _ in 0..2 {
                let tensor =
                    if shift { self.noise.tensor(&[channels]) } else { Tensor::vector(vec![0.0; channels]) };
                inputs.push(self.graph.constant(tensor));
            }
            let variance: Vec<f64> = (0..channels).map(|c| 0.5 + c as f64).collect();
            inputs.push(self.graph.constant(Tensor::vector(variance)));
            self.graph.add_named(Label::named("bn"), Op::BatchNorm { epsilon: 1e-5 }, &inputs).unwrap()
        }

        fn folded(mut self, output: NodeId) -> Graph {
            self.graph.output("y", output);
            let folded = fold_batch_norm(&self.graph, Stored::AsBefore).unwrap();
            agree(&self.graph, &folded, 1e-12);
            folded
        }
    }

    fn conv(pad: usize) -> Op {
        let mut window = Window::new([3, 2]);
        window.stride = vec![2, 1];
        window.pad = vec![(pad, pad), (pad, 0)];
        Op::Conv { window, groups: 2 }
    }

    fn transposed(kernel: usize) -> Op {
        Op::ConvTranspose { window: Window::new([kernel]), groups: 2, output_padding: vec![0] }
    }

    #[test]
    fn a_batch_norm_vanishes_into_what_precedes_it() {
        let cases: [(&[usize], Op, Shapes); 5] = [
            (&[4, 5, 6], conv(1), &[&[6, 2, 3, 2]]),
            (&[4, 5, 6], conv(0), &[&[6, 2, 3, 2], &[6]]),
            (&[4, 5], transposed(3), &[&[4, 3, 3], &[6]]),
            (&[5], Op::MatMul { trans_a: false, trans_b: true }, &[&[3, 5], &[1, 1]]),
            (&[5], Op::MatMul { trans_a: false, trans_b: false }, &[&[5, 3], &[3]]),
        ];
        for (shape, op, weights) in cases {
            let (mut b, x) = Builder::new(shape);
            let y = b.add("affine", op, x, weights);
            let first = b.norm(y, true);
            let second = b.norm(first, true);
            let folded = b.folded(second);
            assert_eq!(count(&folded, "BatchNormalization"), 0);
            let label = &folded.node(folded.outputs()[0].node).label;
            assert_eq!((label.node.as_str(), label.aliases[0].as_str()), ("affine", "bn"));
        }
    }

    #[test]
    fn a_batch_norm_vanishes_into_what_follows_only_where_that_is_exact() {
        let linear = Op::MatMul { trans_a: false, trans_b: true };
        let cases: [(&[usize], Op, Shapes, bool, bool); 6] = [
            (&[4, 5, 6], conv(0), &[&[6, 2, 3, 2], &[6]], true, true),
            (&[4, 5, 6], conv(1), &[&[6, 2, 3, 2]], true, false),
            (&[4, 5, 6], conv(1), &[&[6, 2, 3, 2]], false, true),
            (&[4, 5], transposed(3), &[&[4, 3, 3]], true, false),
            (&[4, 5], transposed(1), &[&[4, 3, 1]], true, true),
            (&[5], linear, &[&[3, 5]], true, true),
        ];
        for (shape, op, weights, shift, expected) in cases {
            let (mut b, x) = Builder::new(shape);
            let norm = b.norm(x, shift);
            let y = b.add("affine", op, norm, weights);
            let folded = b.folded(y);
            assert_eq!(count(&folded, "BatchNormalization") == 0, expected);
        }
    }

    #[test]
    fn a_convolution_read_elsewhere_keeps_its_weights() {
        let (mut b, x) = Builder::new(&[4, 5, 6]);
        let y = b.add("conv", conv(1), x, &[&[6, 2, 3, 2]]);
        let norm = b.norm(y, true);
        b.graph.output("before", y);
        assert_eq!(count(&b.folded(norm), "BatchNormalization"), 1);
    }

    #[test]
    fn a_weight_shared_by_very_many_is_not_multiplied() {
        let (mut b, x) = Builder::new(&[1024]);
        let w = b.weight(&[1024, 1024]);
        let (op, mut y) = (Op::MatMul { trans_a: false, trans_b: true }, x);
        let parameters: Vec<NodeId> =
            (0..4).map(|_| b.graph.constant(Tensor::vector(vec![1f64; 1024]))).collect();
        for _ in 0..40 {
            y = b.graph.add(op.clone(), &[y, w]).unwrap();
            y = b.graph.add(Op::BatchNorm { epsilon: 0.0 }, &[&[y], &parameters[..]].concat()).unwrap();
        }
        b.graph.output("y", y);
        let left = count(&fold_batch_norm(&b.graph, Stored::AsBefore).unwrap(), "BatchNormalization");
        assert!((30..40).contains(&left), "{left}");
    }

    #[test]
    fn a_negative_variance_is_left_to_the_engine() {
        let (mut b, x) = Builder::new(&[4, 5, 6]);
        let y = b.add("conv", conv(1), x, &[&[6, 2, 3, 2]]);
        let negative: Vec<NodeId> =
            (0..4).map(|_| b.graph.constant(Tensor::vector(vec![-1f32; 6]))).collect();
        let norm = b.graph.add(Op::BatchNorm { epsilon: 0.0 }, &[&[y], &negative[..]].concat()).unwrap();
        b.graph.output("y", norm);
        assert_eq!(count(&fold_batch_norm(&b.graph, Stored::AsBefore).unwrap(), "BatchNormalization"), 1);
    }

    #[test]
    fn weights_stay_in_their_precision_unless_more_is_asked_for() {
        let mut g = Graph::new();
        let x = g.input("x", Shape::batched(&[1]), Kind::Float);
        let w = g.constant(Tensor::new([1, 1], vec![1f32]).unwrap());
        let y = g.add(Op::MatMul { trans_a: false, trans_b: false }, &[x, w]).unwrap();
        let ones: Vec<NodeId> = (0..4).map(|_| g.constant(Tensor::vector(vec![1f64]))).collect();
        let norm = g.add(Op::BatchNorm { epsilon: 0.0 }, &[&[y], &ones[..]].concat()).unwrap();
        g.output("y", norm);
        let is_single = |stored: Stored| {
            let folded = fold_batch_norm(&g, stored).unwrap();
            let weights = &folded.node(folded.outputs()[0].node).inputs[1..];
            let single = |id: &NodeId| matches!(folded.constant_value(*id).unwrap().data(), Data::F32(_));
            weights.iter().map(single).collect::<Vec<bool>>()
        };
        assert_eq!(is_single(Stored::AsBefore), [true, true]);
        assert_eq!(is_single(Stored::Double), [false, false]);
    }
}
