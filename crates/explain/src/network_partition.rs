//! A network cut in two at a value. The prefix computes the value once for each sample. The suffix reads the value, which may
//! be perturbed in between, and all other values that the class scores depend on.

use monosplit_engine::{Engine, Program, run_in_fixed_batches};
use monosplit_graph::batch::{places_differ, sample_axis, select_samples};
use monosplit_graph::{Cut, Dim, Error, Graph, NodeId, Op, Output, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::ExplainBatch;
use crate::explanation_graph::value;
use crate::method::NetworkLayer;
use crate::network::Network;
use crate::sample_layout::SampleLayout;

/// A network cut into a prefix and a suffix.
pub(crate) struct NetworkPartition {
    /// Computes the value at the cut, then the other values that cross the cut.
    pub(crate) prefix: PrefixProgram,
    /// Reads the value at the cut, then the other values that cross it. Its first output holds the class scores.
    pub(crate) suffix: Graph,
    /// The layout of the value at the cut.
    pub(crate) layout: SampleLayout,
    /// The layout of the image.
    pub(crate) image: SampleLayout,
    /// Names, among the inputs of the suffix, of the other values that cross the cut.
    pub(crate) names: Vec<String>,
    /// Whether it matters at which place of a fixed batch a sample stands.
    pub(crate) places_differ: bool,
}

impl NetworkPartition {
    /// Cuts the network at the layer, or at the image.
    pub(crate) fn new(target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Self> {
        let network = Network::new(target.network)?;
        NetworkPartition::at(&network, value(&network, target.layer)?, engine)
    }

    /// Cuts the network at a value.
    pub(crate) fn at(network: &Network, at: NodeId, engine: &dyn Engine) -> Result<Self> {
        let graph = network.graph();
        let layout = SampleLayout::new(&graph.node(at).shape, network.axes(at)?)?;
        let input = network.input();
        let image = SampleLayout::new(&graph.node(input).shape, network.axes(input)?)?;
        let scores = Output { name: "scores".to_owned(), node: network.logits() };
        let cut = Cut::new(graph, at, &[scores]).ok_or_else(|| {
            let message = "the class scores do not depend on the layer; name one that they depend on";
            Error::argument(message).at(graph.node(at).label.display())
        })?;
        let suffix = cut.above(graph)?;
        let names = suffix.inputs().iter().skip(1).map(|&id| suffix.node(id).label.tensor.clone()).collect();
        let values = [&[at], cut.crossing()].concat();
        let prefix = PrefixProgram::new(network, &values, engine)?;
        Ok(NetworkPartition { prefix, suffix, layout, image, names, places_differ: places_differ(graph) })
    }
}

/// The prepared network, the value that the layer's name stands for, and its layout.
pub(crate) fn resolve_layer(target: &NetworkLayer<'_>) -> Result<(Network, NodeId, SampleLayout)> {
    let network = Network::new(target.network)?;
    let at = value(&network, target.layer)?;
    let layout = SampleLayout::new(&network.graph().node(at).shape, network.axes(at)?)?;
    Ok((network, at, layout))
}

/// The part of a network that computes some of its values, for batches of any size.
pub(crate) struct PrefixProgram {
    graph: Graph,
    /// None if the only value is the image itself.
    program: Option<Box<dyn Program>>,
    samples: Dim,
    /// For each value, the axis that runs over samples, and the number of its elements for each sample.
    axes: Vec<Option<(usize, usize)>>,
}

impl PrefixProgram {
    /// Computes the values `wanted`.
    pub(crate) fn new(network: &Network, wanted: &[NodeId], engine: &dyn Engine) -> Result<Self> {
        let mut graph = network.graph().clone();
        graph.set_outputs(Vec::new());
        let shape = |id: &NodeId| network.graph().node(*id).shape.clone();
        let axes = wanted.iter().map(|id| sample_axis(shape(id).dims(), network.samples())).collect();
        for (i, &id) in wanted.iter().enumerate() {
            let id = match graph.node(id).op {
                Op::Input => graph.add(Op::Identity, &[id])?,
                _ => id,
            };
            graph.output(format!("value {i}"), id);
        }
        let graph = graph.pruned()?;
        let is_image = wanted == [network.input()];
        let program = if is_image { None } else { Some(engine.compile(&graph)?) };
        Ok(PrefixProgram { graph, program, samples: network.samples(), axes })
    }

    /// The length of the sample axis of the network's input.
    pub(crate) fn samples(&self) -> Dim {
        self.samples
    }

    /// The values for all samples of a batch.
    pub(crate) fn values(&self, batch: &ExplainBatch<'_>) -> Result<Vec<Tensor>> {
        let Some(program) = &self.program else {
            return Ok(vec![batch.images.clone()]);
        };
        let inputs = bind(&self.graph, batch, &[])?;
        match self.samples {
            Dim::Fixed(size) if size > 0 => run_in_fixed_batches(&**program, &inputs, size, &self.axes),
            _ => program.run(&inputs),
        }
    }

    /// Value number `index` for a batch of these samples.
    pub(crate) fn picked(&self, index: usize, value: &Tensor, samples: &[usize]) -> Result<Tensor> {
        select_samples(value, self.axes[index], samples)
    }
}

/// The shape of a batch of samples.
pub(crate) fn batch_of(samples: usize, dims: &[usize]) -> Vec<usize> {
    std::iter::once(samples).chain(dims.iter().copied()).collect()
}
