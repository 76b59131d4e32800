//! A network cut in two at a value. What lies below is computed once for each sample; what lies above reads the value,
//! which may then be changed, and whatever else reaches the class scores past it.

use std::collections::HashMap;

use monosplit_engine::{Engine, Program};
use monosplit_graph::batch::{rows, stack};
use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Op, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::ExplainBatch;
use crate::explanation_graph::value;
use crate::layout::Layout;
use crate::method::NetworkLayer;
use crate::network::{Network, sample_axis};

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
        let cut = Cut::new(graph, at, network.logits())?;
        let names: Vec<String> = (0..cut.crossing.len()).map(|i| format!("crossing {i}")).collect();
        let above = cut.above(graph, network.logits(), &names)?;
        let handed_out = [&[at], &cut.crossing[..]].concat();
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

/// Where a graph is cut.
pub(crate) struct Cut {
    at: NodeId,
    /// Which values are made from `at`, itself included.
    made_from: Vec<bool>,
    /// Which values the class scores need once `at` is given.
    needed: Vec<bool>,
    /// What else the class scores are made from.
    pub(crate) crossing: Vec<NodeId>,
}

impl Cut {
    pub(crate) fn new(graph: &Graph, at: NodeId, scores: NodeId) -> Result<Self> {
        let mut made_from = vec![false; graph.len()];
        for (id, node) in graph.nodes() {
            made_from[id.index()] = id == at || node.inputs.iter().any(|input| made_from[input.index()]);
        }
        if !made_from[scores.index()] {
            let message = "the class scores do not depend on the layer; name one they are made from";
            return Err(Error::argument(message).at(graph.node(at).label.display()));
        }
        let mut needed = vec![false; graph.len()];
        needed[scores.index()] = true;
        let mut crossing = Vec::new();
        for (id, node) in graph.nodes().rev().filter(|(id, _)| *id != at) {
            if needed[id.index()] && !made_from[id.index()] && !node.is_constant() {
                crossing.push(id);
            } else if needed[id.index()] {
                node.inputs.iter().for_each(|input| needed[input.index()] = true);
            }
        }
        crossing.reverse();
        Ok(Cut { at, made_from, needed, crossing })
    }

    /// Whether the value lies between the cut and the class scores, the value at the cut included.
    pub(crate) fn is_above(&self, id: NodeId) -> bool {
        self.needed[id.index()] && self.made_from[id.index()]
    }

    /// The part above: reads the value, and by these names what else crosses.
    pub(crate) fn above(&self, graph: &Graph, scores: NodeId, names: &[String]) -> Result<Graph> {
        let mut above = Graph::new();
        let mut copies: HashMap<NodeId, NodeId> = HashMap::new();
        let at = graph.node(self.at);
        let value = above.input("value", at.shape.clone(), at.kind);
        if at.op == Op::Input {
            // The image goes by its own name above the cut too: a method may be asked for it as for any layer.
            above.label_mut(value).absorb(at.label.clone());
        }
        copies.insert(self.at, value);
        for (id, name) in self.crossing.iter().zip(names) {
            let node = graph.node(*id);
            copies.insert(*id, above.input(name.as_str(), node.shape.clone(), node.kind));
        }
        for (id, node) in graph.nodes().filter(|(id, _)| self.needed[id.index()]) {
            if !copies.contains_key(&id) && (self.made_from[id.index()] || node.is_constant()) {
                let inputs: Vec<NodeId> =
                    node.inputs.iter().filter_map(|input| copies.get(input).copied()).collect();
                copies.insert(id, above.add_copy(node, &inputs)?);
            }
        }
        let scores = copies.get(&scores).copied();
        above.output("scores", scores.ok_or_else(|| Error::argument("the network has no class scores"))?);
        Ok(above)
    }
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
        let samples = batch.samples();
        let size = match self.samples {
            Dim::Fixed(size) if size > 0 => size,
            _ => return program.run(&bind(&self.graph, batch, &[])?),
        };
        let mut parts: Vec<Vec<Tensor>> = vec![Vec::new(); self.axes.len()];
        for start in (0..samples).step_by(size) {
            let images = rows(batch.images, (start..start + size).map(|row| row.min(samples - 1)))?;
            let part = ExplainBatch { images: &images, ..*batch };
            let found = program.run(&bind(&self.graph, &part, &[])?)?;
            for ((parts, axis), tensor) in parts.iter_mut().zip(&self.axes).zip(found) {
                match axis {
                    Some((_, per_sample)) => {
                        parts.push(rows(&tensor, 0..size.min(samples - start) * per_sample)?);
                    }
                    None if parts.is_empty() => parts.push(tensor),
                    None => {}
                }
            }
        }
        let joined = |parts: &Vec<Tensor>| stack(parts, parts.first().map_or(Kind::Float, Tensor::kind));
        parts.iter().map(joined).collect()
    }

    /// Value number `index` for a batch made of these samples.
    pub(crate) fn picked(&self, index: usize, value: &Tensor, samples: &[usize]) -> Result<Tensor> {
        let Some((axis, per_sample)) = self.axes[index] else { return Ok(value.clone()) };
        let shape = value.shape().to_vec();
        let (before, after) = (&shape[..axis], &shape[axis + 1..]);
        let (outer, all) = (before.iter().product::<usize>(), shape[axis] / per_sample.max(1));
        let flat = value.clone().reshaped([&[outer * all, per_sample], after].concat())?;
        let wanted: Vec<usize> =
            (0..outer).flat_map(|block| samples.iter().map(move |sample| block * all + sample)).collect();
        let length = samples.len() * per_sample;
        rows(&flat, wanted.into_iter())?.reshaped([before, &[length], after].concat())
    }
}

/// The shape of a batch of samples.
pub(crate) fn batch_of(samples: usize, dims: &[usize]) -> Vec<usize> {
    std::iter::once(samples).chain(dims.iter().copied()).collect()
}
