//! Integrated Gradients as a graph: the points of the path are the copies.

use monosplit_graph::op::Reduction;
use monosplit_graph::{NodeId, Result};

use super::CopiedNetwork;
use super::copies::{add_up, one_copy, per_copy, total};
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{Attribution, GraphMethod};
use crate::methods::IntegratedGradients;

impl GraphMethod for IntegratedGradients {
    fn write(&self, builder: &mut ExplanationBuilder<'_>, at: NodeId) -> Result<Attribution> {
        let nodes = self.quadrature.nodes(self.steps)?;
        let mut network = CopiedNetwork::gradients(builder, at, at, self.batch)?;
        let start = builder.baseline_value(&self.baseline, at)?;
        let rank = builder.graph.node(at).shape.rank();
        let way = builder.graph.minus(at, start)?;
        let (starts, ways) = (one_copy(&mut builder.graph, start)?, one_copy(&mut builder.graph, way)?);
        let mut sum = None;
        for chunk in network.chunks(nodes.len())? {
            let points = &nodes[chunk];
            let g = &mut builder.graph;
            let shares = per_copy(g, rank, points.iter().map(|point| point.0))?;
            let gone = g.times(shares, ways)?;
            let copies = g.plus(starts, gone)?;
            let gradient = network.run(builder, copies)?.gradient;
            let g = &mut builder.graph;
            let weights = per_copy(g, rank, points.iter().map(|point| point.1))?;
            let weighted = g.times(weights, gradient)?;
            sum = add_up(g, sum, weighted)?;
        }
        let value = builder.graph.times(total(sum)?, way)?;
        Ok(Attribution::per_element(value, at, Reduction::Sum))
    }
}
