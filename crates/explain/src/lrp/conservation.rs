//! The total relevance of each layer. Rules that conserve relevance give the same total for all values that everything passes
//! through. What is missing was absorbed by biases and ε.

use std::rc::Rc;

use monosplit_engine::{Engine, Program};
use monosplit_graph::op::Reduction;
use monosplit_graph::{Graph, NodeId, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::{Class, ExplainBatch, Settings};
use crate::explanation_builder::ExplanationBuilder;
use crate::explanation_graph::ClassInput;
use crate::methods::Lrp;
use crate::network::Network;

/// The relevance of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerRelevance {
    /// The layer.
    pub layer: String,
    /// The sum of the relevance of its output, for each sample.
    pub totals: Vec<f64>,
    /// Whether all paths from the image to the class scores pass through this value. A branch has only part of the relevance.
    pub whole: bool,
}

/// The totals of all layers, compiled.
pub struct Conservation {
    graph: Graph,
    program: Box<dyn Program>,
    layers: Vec<(String, bool)>,
    classes: usize,
}

impl Conservation {
    /// Compiles the totals of every layer between the image and the class scores of `source`.
    pub fn new(source: &Graph, method: &Lrp, engine: &dyn Engine) -> Result<Self> {
        let network = Rc::new(Network::new(source)?);
        let mut builder = ExplanationBuilder::new(&network, ClassInput::GivenOrTop)?;
        let mut layers = Vec::new();
        for (at, whole) in values(&network) {
            let Some(relevance) = method.relevance(&mut builder, at)? else { continue };
            let g = builder.graph();
            let axes: Vec<usize> = (1..g.node(relevance).shape.rank()).collect();
            let total = g.reduced(Reduction::Sum, relevance, &axes, false)?;
            g.output(format!("total {}", layers.len()), total);
            layers.push((network.graph().node(at).label.display().to_owned(), whole));
        }
        let graph = builder.graph.pruned()?;
        let program = engine.compile(&graph)?;
        Ok(Conservation { graph, program, layers, classes: network.classes() })
    }

    /// The totals for images `[N, C, H, W]`, from the class scores down to the image.
    pub fn totals(&self, images: &Tensor, class: &Class) -> Result<Vec<LayerRelevance>> {
        let settings = Settings::default();
        let batch = ExplainBatch::new(images, class, &settings);
        let numbers = class.numbers(batch.samples(), self.classes)?;
        let totals = self.program.run(&bind(&self.graph, &batch, &numbers)?)?;
        let found = self.layers.iter().zip(&totals).map(|((layer, whole), total)| LayerRelevance {
            layer: layer.clone(),
            totals: total.to_f64().into_vec(),
            whole: *whole,
        });
        Ok(found.collect())
    }
}

/// The named values that have relevance, the last first, and whether all of it passes through them.
fn values(network: &Network) -> Vec<(NodeId, bool)> {
    let reached = network.output_dependencies();
    let on_the_way = |id: NodeId| reached[id.index()] && network.is_active(id);
    let mut last_read = vec![0; network.graph().len()];
    for (id, _) in network.nodes().filter(|(id, _)| on_the_way(*id)) {
        network.predecessors(id).iter().for_each(|source| last_read[source.index()] = id.index());
    }
    let mut open = 0;
    let mut found = Vec::new();
    for (id, node) in network.nodes().filter(|(id, _)| on_the_way(*id)) {
        let has_samples = node.shape.dims().first() == Some(&network.samples());
        if has_samples && !network.is_decomposition_step(id) && !node.label.display().is_empty() {
            found.push((id, open <= id.index()));
        }
        open = open.max(last_read[id.index()]);
    }
    found.reverse();
    found
}
