//! Feature Ablation as a graph, for features that do not depend on the image.

use monosplit_graph::op::{Binary, Reduction};
use monosplit_graph::{Dim, Error, NodeId, Op, Result, Shape, Tensor};

use super::CopiedNetwork;
use super::copies::{explained_score, one_copy};
use crate::explanation_builder::ExplanationBuilder;
use crate::features::Features;
use crate::method::{Attribution, GraphMethod};
use crate::methods::FeatureAblation;

impl GraphMethod for FeatureAblation {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let layout = builder.layout(at)?;
        self.features.check(&layout)?;
        if matches!(self.features, Features::Superpixels { .. }) {
            return Err(Error::argument(
                "superpixels follow the image, and a graph has the same features for every image; take a grid or a mask",
            ));
        }
        let groups = self.features.groups(&[], &layout)?;
        let mut network = CopiedNetwork::scores(builder, at, self.batch)?;
        let replacement = builder.replacement(&self.baseline, at)?;
        let scores = builder.scores();
        let whole = explained_score(builder, scores)?;
        let g = &mut builder.graph;
        let value = one_copy(g, at)?;
        let numbers: Vec<i64> = groups.of_element.iter().map(|&group| group as i64).collect();
        let of_element = g.constant(Tensor::new([&[1, 1], layout.dims()].concat(), numbers)?);
        let mut falls = Vec::new();
        for chunk in network.chunks(groups.count)? {
            let g = &mut builder.graph;
            let shape = [vec![chunk.len()], vec![1; layout.dims().len() + 1]].concat();
            let own = g.constant(Tensor::new(shape, chunk.map(|group| group as i64).collect::<Vec<i64>>())?);
            let removed = g.binary(Binary::Equal, of_element, own)?;
            let copies = g.select(removed, replacement, value)?;
            let score = network.run(builder, copies)?.score(builder)?;
            falls.push(builder.graph.minus(whole, score)?);
        }
        let g = &mut builder.graph;
        let falls = g.add(Op::Concat { axis: 0 }, &falls)?;
        let falls = g.add(Op::Transpose { axes: vec![1, 0] }, &[falls])?;
        let is_whole = self.features.holds_all_channels(&layout);
        let (dims, indices): (&[usize], Vec<usize>) = match is_whole {
            true => {
                let positions = 0..layout.position_count();
                let of = positions.map(|position| groups.of_element[layout.element(0, position)]);
                (layout.spatial_dims(), of.collect())
            }
            false => (layout.dims(), groups.of_element.clone()),
        };
        let indices = g.constant(Tensor::vector(indices.iter().map(|&i| i as i64).collect::<Vec<i64>>()));
        let spread = g.add(Op::Gather { axis: 1 }, &[falls, indices])?;
        let samples = g.node(spread).shape.dims()[0];
        let dims: Vec<Dim> = dims.iter().map(|&length| Dim::Fixed(length)).collect();
        let value = g.reshaped(spread, Shape::new([&[samples], &*dims].concat()))?;
        Ok(match is_whole {
            true => Attribution::per_position(value, at),
            false => Attribution::per_element(value, at, Reduction::Sum),
        })
    }
}
