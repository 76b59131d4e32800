//! Ablation-CAM as a graph: a copy for each channel that is ablated.

use monosplit_graph::op::{Binary, Reduction};
use monosplit_graph::{NodeId, Op, Result, Tensor};

use super::CopiedNetwork;
use super::copies::{explained_score, one_copy};
use super::score_cam::{channels_first, weighted};
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::{Ablated, AblationCam, BELOW};

impl GraphMethod for AblationCam {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layout = builder.layout(at)?;
        let axes = builder.axes(at)?;
        let mut network = CopiedNetwork::scores(builder, at, self.batch)?;
        let scores = builder.scores();
        let whole = explained_score(builder, scores)?;
        let level = self.level(builder, at)?;
        let value = one_copy(&mut builder.graph, at)?;
        let mut weights = Vec::new();
        for chunk in network.chunks(layout.channels())? {
            let g = &mut builder.graph;
            let mut shape = vec![1; layout.dims().len() + 2];
            shape[0] = chunk.len();
            if let Some(axis) = axes.channels {
                shape[axis + 1] = layout.channels();
            }
            let is_own = |own: usize| (0..layout.channels()).map(move |channel| channel == own);
            let ablated = g.constant(Tensor::new(shape, chunk.flat_map(is_own).collect::<Vec<bool>>())?);
            let copies = g.select(ablated, level, value)?;
            let score = network.run(builder, copies)?.score(builder)?;
            let g = &mut builder.graph;
            let fall = g.minus(whole, score)?;
            weights.push(g.over(fall, whole)?);
        }
        let g = &mut builder.graph;
        let weights = g.add(Op::Concat { axis: 0 }, &weights)?;
        let channels = channels_first(g, at, axes.channels)?;
        let value = weighted(g, channels, weights, self.rectified)?;
        Ok(Attribution::per_position(value, at))
    }
}

impl AblationCam {
    /// The value of an ablated channel, which copies `[K, N, …]` are broadcast with.
    fn level(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<NodeId> {
        let g = &mut builder.graph;
        let zero = g.number(0.0);
        if self.ablated == Ablated::Zero {
            return Ok(zero);
        }
        let axes: Vec<usize> = (1..g.node(at).shape.rank()).collect();
        let least = g.reduced(Reduction::Min, at, &axes, true)?;
        let is_zero = g.binary(Binary::Equal, least, zero)?;
        let below = g.offset(-BELOW, least)?;
        let level = g.select(is_zero, zero, below)?;
        one_copy(g, level)
    }
}
