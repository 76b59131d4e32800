//! Occlusion as a graph: a window is a product of one mask for each axis.

use monosplit_graph::op::Binary;
use monosplit_graph::{Graph, NodeId, Result, Tensor};

use super::CopiedNetwork;
use super::copies::{add_up, as_factors, explained_score, one_copy, total};
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::Occlusion;
use crate::sample_layout::Region;

impl GraphMethod for Occlusion {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layout = builder.layout(at)?;
        let windows = self.windows(&layout)?;
        let mut network = CopiedNetwork::scores(builder, at, self.batch)?;
        let replacement = builder.replacement(&self.baseline, at)?;
        let scores = builder.scores();
        let whole = explained_score(builder, scores)?;
        let channels = builder.axes(at)?.channels;
        let g = &mut builder.graph;
        let value = one_copy(g, at)?;
        let spatial = layout.spatial_dims();
        let mut sum = None;
        for chunk in network.chunks(windows.len())? {
            let g = &mut builder.graph;
            let inside = covered(g, &windows[chunk], spatial)?;
            let mask = super::copies::over_channels(g, inside, channels)?;
            let copies = g.select(mask, replacement, value)?;
            let score = network.run(builder, copies)?.score(builder)?;
            let g = &mut builder.graph;
            let falls = g.minus(whole, score)?;
            let falls = as_factors(g, falls, spatial.len() + 1)?;
            let spread = g.masked(inside, falls)?;
            sum = add_up(g, sum, spread)?;
        }
        let times = times(&windows, spatial)?;
        let times = builder.graph.constant(times);
        let value = builder.graph.over(total(sum)?, times)?;
        Ok(Attribution::per_position(value, at))
    }
}

/// Which positions windows cover, `[K, 1, …]`.
fn covered(g: &mut Graph, windows: &[Region], spatial: &[usize]) -> Result<NodeId> {
    let mut mask = None;
    for (axis, &length) in spatial.iter().enumerate() {
        let inside = windows.iter().flat_map(|window| (0..length).map(|at| window[axis].contains(&at)));
        let mut shape = vec![1; spatial.len() + 2];
        (shape[0], shape[axis + 2]) = (windows.len(), length);
        let along = g.constant(Tensor::new(shape, inside.collect::<Vec<bool>>())?);
        mask = Some(match mask {
            Some(mask) => g.binary(Binary::And, mask, along)?,
            None => along,
        });
    }
    total(mask)
}

/// How many windows cover each position.
fn times(windows: &[Region], spatial: &[usize]) -> Result<Tensor> {
    let count = |position: usize| {
        let mut rest = position;
        let mut at = vec![0; spatial.len()];
        for (axis, &length) in spatial.iter().enumerate().rev() {
            at[axis] = rest % length;
            rest /= length;
        }
        let covers = |window: &&Region| window.iter().zip(&at).all(|(range, at)| range.contains(at));
        windows.iter().filter(covers).count() as f64
    };
    Tensor::new(spatial.to_vec(), (0..spatial.iter().product()).map(count).collect::<Vec<f64>>())
}
