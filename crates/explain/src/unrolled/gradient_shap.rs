//! GradientSHAP as a graph: points, noise and the choice of baselines are constants, drawn from the seed.

use monosplit_graph::batch::rows;
use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Noise, Result, Tensor};

use super::CopiedNetwork;
use super::copies::{add_up, one_copy, per_copy, total};
use super::smooth_grad::noisy;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::GradientShap;

impl GraphMethod for GradientShap {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        self.check(at != builder.image())?;
        let mut network = CopiedNetwork::gradients(builder, at, at, self.batch)?;
        let noise = Noise::new(self.seed).stream("gradient shap");
        let given = self.baseline.given(&builder.layout(at)?)?;
        let own = match given {
            Some(_) => None,
            None => Some(builder.baseline_image(&self.baseline)?),
        };
        let rank = builder.graph.node(at).shape.rank();
        let mut sum = None;
        for chunk in network.chunks(self.samples)? {
            let start = match (&given, own) {
                (Some(given), _) => builder.graph.constant(self.drawn(given, noise, chunk.clone())?),
                (None, Some(own)) => one_copy(&mut builder.graph, own)?,
                (None, None) => builder.graph.number(0.0),
            };
            let ends = noisy(builder, self.strength, noise, chunk.clone())?;
            let g = &mut builder.graph;
            let shares = per_copy(g, rank, chunk.map(|number| self.share(noise, number)))?;
            let ways = g.minus(ends, start)?;
            let gone = g.times(shares, ways)?;
            let copies = g.plus(start, gone)?;
            let gradient = network.run(builder, copies)?.gradient;
            let g = &mut builder.graph;
            let product = g.times(ways, gradient)?;
            sum = add_up(g, sum, product)?;
        }
        let mean = builder.graph.scaled(1.0 / self.samples as f64, total(sum)?)?;
        Ok(Attribution::per_element(mean, at, Reduction::Sum))
    }
}

impl GradientShap {
    /// The baselines of these points, `[K, 1, …]`.
    fn drawn(&self, given: &Tensor, noise: Noise, chunk: std::ops::Range<usize>) -> Result<Tensor> {
        let count = chunk.len();
        let picked = rows(given, chunk.map(|number| self.pick(noise, number, given.shape()[0])))?;
        let shape = [&[count, 1], &given.shape()[1..]].concat();
        picked.reshaped(shape)
    }
}
