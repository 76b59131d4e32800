//! Batch norm folding. Batch normalisation with known parameters is an affine map per channel and is multiplied into the
//! affine node before or after it. It is kept where that would not be exact. Constants that are multiplied with the result of
//! an affine node or added to it are such maps too: exporters write batch norms so, and quantisation the scale of a product.

use crate::error::Result;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Op, Window};
use crate::tensor::Tensor;

use super::affine_weights::{AffineWeights, Folding, Stored};
use super::channel_map::{ChannelMap, channel_axis};
use super::constants::allowance;
use super::rewrite::{Rewrite, Step};

/// Folds batch norms into the preceding convolution, transposed convolution or matrix product, if nothing else reads
/// that, else into the following one, if that is exact up to rounding (a convolution that pads with zeros is not,
/// unless the batch norm has no shift), else leaves them. Constants per channel that are multiplied or added right after
/// such a node are folded into it in the same way; a bias added to a product of more than two axes stays a node.
/// A batch norm of flattened tokens is folded through the reshape.
///
/// The arithmetic is in double precision, the new weights are stored as `stored` says. The merged node keeps the affine
/// node's names and has the other's as aliases.
pub fn fold_batch_norm(graph: &Graph, stored: Stored) -> Result<Graph> {
    let uses = graph.use_counts();
    let mut folding = Folding { left: allowance(graph), stored };
    Rewrite::run(graph, |rewrite, _, node| {
        let read_once = |i: usize| node.inputs.get(i).is_some_and(|x| uses[x.index()] == 1);
        let merged = match &node.op {
            Op::BatchNorm { epsilon } if read_once(0) => {
                let map = ChannelMap::of_batch_norm(&rewrite.target, &rewrite.inputs(node), *epsilon);
                let flattened = graph.node(node.inputs[0]).inputs.first();
                match flattened.filter(|x| uses[x.index()] == 1 && map.is_some()) {
                    Some(_) if is_flattened_product(&rewrite.target, &map) => {
                        into_flattened_product(rewrite, map, &mut folding)?
                    }
                    _ => into_preceding(rewrite, map, &mut folding)?,
                }
            }
            Op::Binary(_) => {
                let inputs = rewrite.inputs(node);
                let map = ChannelMap::of_constant(&rewrite.target, node, &inputs);
                let alone =
                    |map: &ChannelMap| inputs.iter().position(|&id| id == map.x).is_some_and(read_once);
                into_preceding(rewrite, map.filter(alone), &mut folding)?
            }
            Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul { .. } if read_once(0) => {
                into_following(rewrite, node, &mut folding)?
            }
            _ => None,
        };
        Ok(merged.map_or(Step::Keep, Step::Replace))
    })
}

fn into_preceding(
    rewrite: &mut Rewrite,
    map: Option<ChannelMap>,
    folding: &mut Folding,
) -> Result<Option<NodeId>> {
    let Some(map) = map else { return Ok(None) };
    // Set aside, so that a long chain does not copy them at every step.
    let aliases = std::mem::take(&mut rewrite.target.label_mut(map.x).aliases);
    let merged = match folded_into_preceding(&rewrite.target, &map, folding) {
        Some(folded) => {
            let before = rewrite.target.node(map.x).clone();
            Some(add_affine(&mut rewrite.target, &before, before.inputs[0], folded)?)
        }
        None => None,
    };
    rewrite.target.label_mut(merged.unwrap_or(map.x)).aliases = aliases;
    Ok(merged)
}

/// Whether a batch norm reads the tokens of a product in one row, as it must over tokens: `[N, T, C]` as `[N·T, C]`.
fn is_flattened_product(graph: &Graph, map: &Option<ChannelMap>) -> bool {
    let Some(flat) = map.as_ref().map(|map| graph.node(map.x)) else { return false };
    let (Op::Reshape { .. }, Some(&product)) = (&flat.op, flat.inputs.first()) else { return false };
    let product = graph.node(product);
    let channels = product.shape.dims().last();
    let bare = matches!(product.op, Op::MatMul { .. }) && product.inputs.len() == 2;
    bare && product.shape.rank() > 2 && flat.shape.rank() == 2 && flat.shape.dims().last() == channels
}

/// The batch norm of flattened tokens as weights of the product and a bias behind it.
fn into_flattened_product(
    rewrite: &mut Rewrite,
    map: Option<ChannelMap>,
    folding: &mut Folding,
) -> Result<Option<NodeId>> {
    let Some(map) = map else { return Ok(None) };
    let flat = rewrite.target.node(map.x).clone();
    let product = rewrite.target.node(flat.inputs[0]).clone();
    let Some(affine) = AffineWeights::of(&rewrite.target, &product, folding) else { return Ok(None) };
    let weight = affine.scaled_weight(|from| map.scale[from.output]);
    let bias = affine.new_bias(|_, output| map.shift[output]);
    let (Some(weight), Some(bias)) = (weight, bias) else { return Ok(None) };
    let graph = &mut rewrite.target;
    let parameters = Parameters { weight: Some(weight), bias: None };
    let scaled = add_affine(graph, &product, product.inputs[0], parameters)?;
    let bias = graph.constant(bias);
    let sum = graph.add(Op::Binary(Binary::Add), &[scaled, bias])?;
    graph.add(flat.op.clone(), &[sum]).map(Some)
}

/// New parameters of an affine node; none where the old ones stay.
struct Parameters {
    weight: Option<Tensor>,
    bias: Option<Tensor>,
}

/// The parameters of the affine node before a map, and of the map, in one.
fn folded_into_preceding(graph: &Graph, map: &ChannelMap, folding: &mut Folding) -> Option<Parameters> {
    let node = graph.node(map.x);
    let bare_scale = map.is_scale() && node.inputs.len() == 2;
    let of_tokens = matches!(node.op, Op::MatMul { .. }) && node.shape.rank() > 2;
    if map.axis != channel_axis(node) || (of_tokens && !bare_scale) {
        return None;
    }
    let affine = AffineWeights::of(graph, node, folding)?;
    let weight = match map.is_shift() {
        true => None,
        false => Some(affine.scaled_weight(|from| map.scale[from.output])?),
    };
    let bias = match bare_scale {
        true => None,
        false => Some(affine.new_bias(|bias, output| bias * map.scale[output] + map.shift[output])?),
    };
    Some(Parameters { weight, bias })
}

fn into_following(rewrite: &mut Rewrite, node: &Node, folding: &mut Folding) -> Result<Option<NodeId>> {
    let inputs = rewrite.inputs(node);
    let before = rewrite.target.node(inputs[0]).clone();
    let Op::BatchNorm { epsilon } = before.op else { return Ok(None) };
    let Some(norm) = ChannelMap::of_batch_norm(&rewrite.target, &before.inputs, epsilon) else {
        return Ok(None);
    };
    let mut here = node.clone();
    here.inputs = inputs;
    let Some(affine) = AffineWeights::of(&rewrite.target, &here, folding) else { return Ok(None) };
    let shifts = !norm.is_scale();
    let is_matrix_product = matches!(node.op, Op::MatMul { .. });
    let transposed = matches!(node.op, Op::MatMul { trans_a: true, .. });
    let along_channels = !is_matrix_product || (node.shape.rank() == 2 && !transposed);
    if !along_channels || (shifts && !shift_is_uniform(&node.op)) {
        return Ok(None);
    }
    let mut offsets = vec![0.0; affine.outputs()];
    affine.for_each_weight(|from, weight| offsets[from.output] += weight * norm.shift[from.input]);
    let weight = affine.scaled_weight(|from| norm.scale[from.input]);
    let bias = affine.new_bias(|bias, output| bias + offsets[output]);
    if weight.is_none() || bias.is_none() {
        return Ok(None);
    }
    let merged = add_affine(&mut rewrite.target, &here, before.inputs[0], Parameters { weight, bias })?;
    rewrite.target.label_mut(merged).absorb(before.label);
    Ok(Some(merged))
}

fn add_affine(graph: &mut Graph, like: &Node, x: NodeId, parameters: Parameters) -> Result<NodeId> {
    let mut inputs = vec![x];
    for (at, new) in [(1, parameters.weight), (2, parameters.bias)] {
        let old = like.inputs.get(at).copied();
        inputs.extend(match new {
            Some(tensor) => {
                let label = old.map(|id| graph.node(id).label.clone()).unwrap_or_default();
                Some(graph.named_constant(label, tensor))
            }
            None => old,
        });
    }
    graph.add_named(like.label.clone(), like.op.clone(), &inputs)
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
        Op::MatMul { .. } => true,
        // Not affine along channels, so nothing is merged into them.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{SampleNumbers, agree, count};
    use super::*;
    use crate::graph::Label;
    use crate::shape::Shape;
    use crate::tensor::{Data, Kind};

    type Shapes<'a> = &'a [&'a [usize]];

    struct Builder {
        graph: Graph,
        noise: SampleNumbers,
    }

    impl Builder {
        fn new(shape: &[usize]) -> (Self, NodeId) {
            let mut graph = Graph::new();
            let x = graph.input("x", Shape::batched(shape), Kind::Float);
            (Builder { graph, noise: SampleNumbers::new(7) }, x)
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
        let parameters = [1f64, 1.0, 1.0, 2.0].map(|value| g.constant(Tensor::vector(vec![value])));
        let norm = g.add(Op::BatchNorm { epsilon: 0.0 }, &[&[y], &parameters[..]].concat()).unwrap();
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

    /// What dynamic quantisation and older converters write instead of one layer with a bias.
    #[test]
    fn issue_27_constants_per_channel_after_an_affine_node_vanish_into_it() {
        type Case<'a> = (&'a [usize], Op, Shapes<'a>, &'a [usize], usize);
        let cases: [Case; 5] = [
            (&[4, 5, 6], conv(1), &[&[6, 2, 3, 2]], &[6, 1, 1], 0),
            (&[4, 5, 6], conv(0), &[&[6, 2, 3, 2], &[6]], &[1, 6, 1, 1], 0),
            (&[4, 5], transposed(3), &[&[4, 3, 3], &[6]], &[6, 1], 0),
            (&[5], Op::MatMul { trans_a: false, trans_b: true }, &[&[3, 5]], &[3], 0),
            // The bias of a product over tokens stays a node, and what follows it too.
            (&[7, 5], Op::MatMul { trans_a: false, trans_b: false }, &[&[5, 3]], &[3], 3),
        ];
        for (shape, op, weights, constant, left) in cases {
            let (mut b, x) = Builder::new(shape);
            let mut y = b.add("affine", op, x, weights);
            for function in [Binary::Mul, Binary::Div, Binary::Add, Binary::Sub, Binary::Mul] {
                y = b.add("constant", Op::Binary(function), y, &[constant]);
            }
            let folded = b.folded(y);
            let kept = folded.nodes().filter(|(_, node)| matches!(node.op, Op::Binary(_))).count();
            assert_eq!(kept, left, "{shape:?}");
        }
    }

    #[test]
    fn constants_that_vary_within_a_channel_or_enlarge_a_value_stay() {
        let linear = Op::MatMul { trans_a: false, trans_b: true };
        for (shape, op, weight, constant) in [
            (&[4, 5, 6][..], conv(1), &[6, 2, 3, 2][..], &[1, 1, 6][..]),
            (&[4, 5, 6], conv(1), &[6, 2, 3, 2], &[2, 1, 6, 1, 1]),
            (&[7, 5], linear, &[3, 5], &[7, 1]),
        ] {
            let (mut b, x) = Builder::new(shape);
            let y = b.add("affine", op, x, &[weight]);
            let y = b.add("constant", Op::Binary(Binary::Mul), y, &[constant]);
            assert_eq!(count(&b.folded(y), "Mul"), 1, "{constant:?}");
        }
    }

    /// LeViT's dense layers: the batch norm reads the tokens of all samples in one row.
    #[test]
    fn issue_27_a_batch_norm_of_flattened_tokens_vanishes_into_their_product() {
        for shared in [false, true] {
            let (mut b, x) = Builder::new(&[7, 5]);
            let y = b.add("affine", Op::MatMul { trans_a: false, trans_b: false }, x, &[&[5, 3]]);
            let rows = Shape::new([crate::Dim::Batch(7), crate::Dim::Fixed(3)]);
            let flat = b.graph.reshaped(y, rows).unwrap();
            let norm = b.norm(flat, true);
            let tokens = b.graph.reshaped(norm, Shape::batched(&[7, 3])).unwrap();
            if shared {
                b.graph.output("product", y);
            }
            assert_eq!(count(&b.folded(tokens), "BatchNormalization"), usize::from(shared));
        }
    }

    /// A batch norm of tokens has its channels along axis 1, the product along the last.
    #[test]
    fn a_batch_norm_along_another_axis_than_the_channels_of_a_product_stays() {
        let (mut b, x) = Builder::new(&[3, 5]);
        let y = b.add("affine", Op::MatMul { trans_a: false, trans_b: false }, x, &[&[5, 3]]);
        let norm = b.norm(y, false);
        assert_eq!(count(&b.folded(norm), "BatchNormalization"), 1);
    }
}
