//! A network cut in two at a value. What lies below is computed once for each sample; what lies above reads the value,
//! which may then be changed, and whatever else reaches the class scores past it.

use monosplit_engine::{Engine, Program, run_in_fixed_batches};
use monosplit_graph::batch::{sample_axis, select_samples};
use monosplit_graph::{Cut, Dim, Error, Graph, NodeId, Op, Output, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::ExplainBatch;
use crate::explanation_graph::value;
use crate::layout::Layout;
use crate::method::NetworkLayer;
use crate::network::Network;

/// A network cut in two.
pub(crate) struct Section {
    /// Computes the value, then what else crosses the cut.
    pub(crate) below: Below,
    /// Reads the value, then what else crosses; its first output holds the class scores.
    pub(crate) above: Graph,
    /// How the value is arranged.
    pub(crate) layout: Layout,
    /// How the image is arranged.
    pub(crate) image: Layout,
    /// Names, among the inputs of the part above, of what else crosses.
    pub(crate) names: Vec<String>,
}

impl Section {
    /// Cuts the network at the layer, or at the image.
    pub(crate) fn new(target: &NetworkLayer<'_>, engine: &dyn Engine) -> Result<Self> {
        let network = Network::new(target.network)?;
        Section::at(&network, value(&network, target.layer)?, engine)
    }

    /// Cuts the network at a value.
    pub(crate) fn at(network: &Network, at: NodeId, engine: &dyn Engine) -> Result<Self> {
        let graph = network.graph();
        let layout = Layout::new(&graph.node(at).shape, network.axes(at)?)?;
        let input = network.input();
        let image = Layout::new(&graph.node(input).shape, network.axes(input)?)?;
        let scores = Output { name: "scores".to_owned(), node: network.logits() };
        let cut = Cut::new(graph, at, &[scores]).ok_or_else(|| {
            let message = "the class scores do not depend on the layer; name one they are made from";
            Error::argument(message).at(graph.node(at).label.display())
        })?;
        let above = cut.above(graph)?;
        let names = above.inputs().iter().skip(1).map(|&id| above.node(id).label.tensor.clone()).collect();
        let handed_out = [&[at], cut.crossing()].concat();
        let below = Below::new(network, &handed_out, engine)?;
        Ok(Section { below, above, layout, image, names })
    }
}

/// The network of a target, the value meant and how it is arranged.
pub(crate) fn located(target: &NetworkLayer<'_>) -> Result<(Network, NodeId, Layout)> {
    let network = Network::new(target.network)?;
    let at = value(&network, target.layer)?;
    let layout = Layout::new(&network.graph().node(at).shape, network.axes(at)?)?;
    Ok((network, at, layout))
}

/// The part of a network that computes some of its values, for as many samples as are asked about.
pub(crate) struct Below {
    graph: Graph,
    /// None where the only value wanted is the image itself.
    program: Option<Box<dyn Program>>,
    samples: Dim,
    /// For each value, the axis that runs over samples, and how many of its elements belong to one.
    axes: Vec<Option<(usize, usize)>>,
}

impl Below {
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
        Ok(Below { graph, program, samples: network.samples(), axes })
    }

    /// The length of the sample axis of the network's input.
    pub(crate) fn samples(&self) -> Dim {
        self.samples
    }

    /// The values for all samples in question.
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

    /// Value number `index` for a batch made of these samples.
    pub(crate) fn picked(&self, index: usize, value: &Tensor, samples: &[usize]) -> Result<Tensor> {
        select_samples(value, self.axes[index], samples)
    }
}

/// The shape of a batch of samples.
pub(crate) fn batch_of(samples: usize, dims: &[usize]) -> Vec<usize> {
    std::iter::once(samples).chain(dims.iter().copied()).collect()
}
