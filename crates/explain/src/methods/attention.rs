//! Attention maps of vision transformers. Attention is recognised by its structure, a softmax over one axis of a square
//! matrix of tokens, and not by its name.

use monosplit_graph::op::Reduction;
use monosplit_graph::{Dim, Error, Hint, NodeId, Op, Result, Shape, Tensor};

use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod, Method, Procedure};
use crate::patch_grid::Grid;

/// Attention from the class token to the patches; the mean over all tokens if there is no class token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attention {
    /// How the attention of several layers is combined.
    pub over: AttentionLayers,
}

/// How the attention of several layers is combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttentionLayers {
    /// The last layer only, averaged over heads.
    #[default]
    Last,
    /// `∏ (½A + ½I)`, heads averaged: attention rollout.
    Rollout,
    /// `R ← R + mean_h(max(A ⊙ ∂y/∂A, 0))·R` from `R = I`: attention times gradient.
    TimesGradient,
}

impl Method for Attention {
    fn name(&self) -> String {
        match self.over {
            AttentionLayers::Last => "attention",
            AttentionLayers::Rollout => "attention-rollout",
            AttentionLayers::TimesGradient => "attention-x-gradient",
        }
        .into()
    }

    fn procedure(&self) -> Procedure<'_> {
        Procedure::GraphMethod(self)
    }
}

impl GraphMethod for Attention {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        if at != builder.image() {
            return Err(Error::argument("attention maps are computed for the image; name no layer"));
        }
        let (layers, tokens) = attentions(builder)?;
        let mut rolled = None;
        for &layer in
            layers.iter().skip(if self.over == AttentionLayers::Last { layers.len() - 1 } else { 0 })
        {
            let step = self.step(builder, layer, tokens)?;
            rolled = Some(match rolled {
                None => step,
                Some(before) => {
                    let op = Op::MatMul { trans_a: false, trans_b: false };
                    builder.graph.add(op, &[step, before])?
                }
            });
        }
        let rolled = rolled.ok_or_else(no_attention)?;
        let value = to_patches(builder, rolled, tokens)?;
        Ok(Attribution::per_position(value, at))
    }
}

impl Attention {
    /// The factor of one layer, `[N, T, T]`.
    fn step(&self, builder: &mut ExplanationBuilder<'_>, layer: NodeId, tokens: usize) -> Result<NodeId> {
        let mut weights = layer;
        if self.over == AttentionLayers::TimesGradient {
            let gradient = builder.gradient(layer)?;
            let both = builder.graph.times(layer, gradient)?;
            weights = builder.graph.rectified(both)?;
        }
        let g = &mut builder.graph;
        let mean = g.reduced(Reduction::Mean, weights, &[1], false)?;
        let share = match self.over {
            AttentionLayers::Last => return Ok(mean),
            AttentionLayers::Rollout => 0.5,
            AttentionLayers::TimesGradient => 1.0,
        };
        let diagonal = (0..tokens * tokens).map(|i| if i % (tokens + 1) == 0 { share } else { 0.0 });
        let identity = g.constant(Tensor::new([tokens, tokens], diagonal.collect::<Vec<f64>>())?);
        let mean = g.scaled(share, mean)?;
        g.plus(mean, identity)
    }
}

/// The attention of every layer, `[N, heads, T, T]`, in the order of the network, and the number of tokens.
fn attentions(builder: &ExplanationBuilder<'_>) -> Result<(Vec<NodeId>, usize)> {
    let reached = builder.network.output_dependencies();
    let square = |id: NodeId| {
        let node = builder.network.graph().node(id);
        let (from, to) = (node.shape.fixed_at(2)?, node.shape.fixed_at(3)?);
        let whole = node.shape.rank() == 4 && node.shape.dims()[0] == builder.network.samples();
        (node.op == Op::Softmax { axis: 3 } && from == to && whole && to > 1).then_some(to)
    };
    let nodes =
        builder.network.nodes().filter(|(id, _)| builder.network.is_active(*id) && reached[id.index()]);
    let found: Vec<(NodeId, usize)> = nodes.filter_map(|(id, _)| Some((id, square(id)?))).collect();
    let &(_, tokens) = found.last().ok_or_else(no_attention)?;
    if found.iter().any(|&(_, other)| other != tokens) {
        return Err(Error::unsupported(
            "attention layers have different numbers of tokens and cannot be combined",
        ));
    }
    Ok((found.into_iter().map(|(id, _)| id).collect(), tokens))
}

/// The row of the class token (the first) at the patch tokens; the mean of all rows if there are only patch tokens.
fn to_patches(builder: &mut ExplanationBuilder<'_>, rolled: NodeId, tokens: usize) -> Result<NodeId> {
    let input = builder.network.input();
    let channels = builder.network.axes(input)?.image_channels;
    let image = &builder.network.graph().node(input).shape;
    let dropped = Grid::of(image, channels, tokens).map_or(0, |grid| grid.dropped);
    let g = &mut builder.graph;
    if dropped == 0 {
        return g.reduced(Reduction::Mean, rolled, &[1], false);
    }
    let row = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[rolled])?;
    let patches = g.add(Op::Slice { axis: 2, start: dropped, step: 1, length: tokens - dropped }, &[row])?;
    let samples = g.node(patches).shape.dims()[0];
    g.reshaped(patches, Shape::new(vec![samples, Dim::Fixed(tokens - dropped)]))
}

fn no_attention() -> Error {
    Error::unsupported(
        "the network has no attention: no softmax over one axis of a square of tokens (its piecewise-linear form has no \
         softmax)",
    )
    .hint(Hint::new("not-piecewise", "explain the network in its own form"))
}

#[cfg(test)]
mod tests {
    use monosplit_engine::{Cpu, Precision};
    use monosplit_graph::op::Window;
    use monosplit_graph::{Graph, Kind, Noise};

    use super::*;
    use crate::{Class, ExplainBatch, Explainer, MapRequest, SaliencyMap, Settings};

    const TOKENS: usize = 7;

    /// Two layers of attention with two heads over a class token and six patches; none without `attentive`.
    fn network(attentive: bool) -> Graph {
        let noise = Noise::new(4);
        let weight = |g: &mut Graph, shape: &[usize], seed: u64| {
            let noise = noise.numbered(seed);
            let count = shape.iter().product::<usize>() as u64;
            let values: Vec<f64> = (0..count).map(|i| noise.gaussian(i)).collect();
            g.constant(Tensor::new(shape, values).unwrap())
        };
        let times = |g: &mut Graph, a: NodeId, b: NodeId, trans_b: bool| {
            g.add(Op::MatMul { trans_a: false, trans_b }, &[a, b]).unwrap()
        };
        let mut g = Graph::new();
        let x = g.input("image", Shape::batched(&[1, 4, 6]), Kind::Float);
        let kernel = weight(&mut g, &[4, 1, 2, 2], 0);
        let mut window = Window::new([2, 2]);
        window.stride = vec![2, 2];
        let patches = g.add(Op::Conv { window, groups: 1 }, &[x, kernel]).unwrap();
        let flat = g.reshaped(patches, Shape::batched(&[4, 6])).unwrap();
        let flat = g.add(Op::Transpose { axes: vec![0, 2, 1] }, &[flat]).unwrap();
        let first = g.add(Op::Slice { axis: 1, start: 0, step: 1, length: 1 }, &[flat]).unwrap();
        let class = g.scaled(0.0, first).unwrap();
        let mut tokens = g.add(Op::Concat { axis: 1 }, &[class, flat]).unwrap();
        for layer in 0..if attentive { 2 } else { 0 } {
            let heads = [1, 2, 3].map(|seed| {
                let w = weight(&mut g, &[4, 4], 10 * layer + seed);
                let mapped = times(&mut g, tokens, w, false);
                let split = g.reshaped(mapped, Shape::batched(&[TOKENS, 2, 2])).unwrap();
                g.add(Op::Transpose { axes: vec![0, 2, 1, 3] }, &[split]).unwrap()
            });
            let scores = times(&mut g, heads[0], heads[1], true);
            let weights = g.add(Op::Softmax { axis: 3 }, &[scores]).unwrap();
            let mixed = times(&mut g, weights, heads[2], false);
            let mixed = g.add(Op::Transpose { axes: vec![0, 2, 1, 3] }, &[mixed]).unwrap();
            let mixed = g.reshaped(mixed, Shape::batched(&[TOKENS, 4])).unwrap();
            tokens = g.plus(tokens, mixed).unwrap();
        }
        let pooled = g.reduced(Reduction::Mean, tokens, &[1], false).unwrap();
        let head = weight(&mut g, &[4, 3], 99);
        let scores = times(&mut g, pooled, head, false);
        g.output("scores", scores);
        g
    }

    fn map(graph: &Graph, over: AttentionLayers) -> Result<SaliencyMap> {
        let engine = Cpu::default().precision(Precision::F64);
        let explainer = Explainer::new(graph, &[MapRequest::at_input(Attention { over })], &engine)?;
        let noise = Noise::new(8);
        let image = Tensor::new([2, 1, 4, 6], (0..48).map(|i| noise.gaussian(i)).collect::<Vec<f64>>())?;
        let settings = Settings::default();
        Ok(explainer.explain_batch(&ExplainBatch::new(&image, &Class::Index(1), &settings))?.maps.remove(0))
    }

    #[test]
    fn attention_lies_on_the_grid_of_patches_and_is_a_distribution_at_most() {
        for over in [AttentionLayers::Last, AttentionLayers::Rollout] {
            let map = map(&network(true), over).unwrap();
            assert_eq!(map.values.shape(), [2, 2, 3]);
            for sample in map.values.to_f64().chunks(6) {
                let sum: f64 = sample.iter().sum();
                assert!(sample.iter().all(|&v| v > 0.0) && sum < 1.0, "{sample:?}");
            }
        }
        let map = map(&network(true), AttentionLayers::TimesGradient).unwrap();
        assert_eq!(map.values.shape(), [2, 2, 3]);
        assert!(map.values.to_f64().iter().all(|&v| v >= 0.0));
        assert!(map.values.to_f64().iter().any(|&v| v > 0.0));
    }

    #[test]
    fn a_network_without_attention_says_so() {
        let error = map(&network(false), AttentionLayers::Rollout).unwrap_err().to_string();
        assert!(error.contains("no attention"), "{error}");
    }
}
