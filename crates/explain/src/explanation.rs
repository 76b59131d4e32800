//! An explanation as a graph: the network, untouched, and beside it everything a set of maps needs. The class,
//! α, θ and Θ are inputs of the graph, so one compilation serves them all.

use std::collections::HashMap;

use monosplit_graph::address::LayerName;
use monosplit_graph::op::{Binary, Reduction};
use monosplit_graph::passes::share_constants;
use monosplit_graph::{Dim, Error, Graph, Kind, NodeId, Op, Result, Shape, Tensor};

use crate::gradient::Gradient;
use crate::maps::{self, Finish, Method};
use crate::network::Network;
use crate::relevance::{EPSILON, Relevance, Relevances};
use crate::scaled::{Scale, Scaled};
use crate::sensitivity::{Sensitivities, Sensitivity};
use crate::shift::{Shifts, shifted_nodes};
use crate::split::{Split, Stabiliser};
use crate::sum_stream::{SumStream, Thresholds};
use crate::walk::walk;

/// A map that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What it shows.
    pub method: Method,
    /// Where: a layer name, its input unless it ends in `:out`.
    pub layer: String,
    /// How channels become a map.
    pub finish: Finish,
}

impl Request {
    /// A signed map at the layer's own resolution.
    pub fn new(method: Method, layer: impl Into<String>) -> Self {
        Request { method, layer: layer.into(), finish: Finish::default() }
    }

    /// Another finish.
    #[must_use]
    pub fn finish(self, finish: Finish) -> Self {
        Request { finish, ..self }
    }
}

/// Where the explained class comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClassInput {
    /// The input `class` names it; a negative number asks for the highest score.
    #[default]
    GivenOrTop,
    /// The input `class` names it. What depends on the class and α alone can then be computed once.
    Given,
}

/// The graph that computes class scores and maps.
#[derive(Clone, Debug)]
pub struct Explanation {
    graph: Graph,
    readings: Vec<Reading>,
    shifted: Vec<String>,
}

/// Which outputs of the graph hold a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Position of the map among the graph's outputs.
    pub map: usize,
    /// Position of its exponents (one per sample; the map is to be multiplied by two to their power), if the
    /// map could overflow.
    pub exponent: Option<usize>,
}

/// Names of the inputs an explanation adds to those of the network.
pub mod inputs {
    /// The explained class of every sample, an integer.
    pub const CLASS: &str = "class";
    /// The shift α.
    pub const ALPHA: &str = "alpha";
    /// The factor θ of the scaling stabiliser.
    pub const THETA: &str = "theta";
    /// The limit Θ of the scaling stabiliser.
    pub const LIMIT: &str = "limit";
}

impl Explanation {
    /// Writes the graph that answers `requests` for `source`, whose first input is the image and whose first
    /// output holds the class scores. The graph's outputs are the class scores, the explained classes, and
    /// the maps.
    pub fn new(source: &Graph, split: &Split, class: ClassInput, requests: &[Request]) -> Result<Self> {
        let network = Network::new(source)?;
        Writer::new(&network, split, class)?.write(requests)
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Where the answers to the requests are, in their order.
    pub fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// The names of the nodes at which sensitivities are shifted, the class scores last.
    pub fn shifted_layers(&self) -> &[String] {
        &self.shifted
    }
}

struct Writer<'a> {
    network: &'a Network,
    split: &'a Split,
    graph: Graph,
    scale: Scale,
    one_hot: NodeId,
    class: NodeId,
}

/// The messages of all values, for each rule set that is needed.
struct Messages {
    stream: Option<SumStream>,
    gradients: Option<HashMap<NodeId, NodeId>>,
    sensitivities: Option<HashMap<NodeId, Sensitivity>>,
    relevances: Option<(HashMap<NodeId, Relevance>, Option<NodeId>)>,
}

impl<'a> Writer<'a> {
    fn new(network: &'a Network, split: &'a Split, class: ClassInput) -> Result<Self> {
        let mut graph = network.graph().clone();
        let given = class_input(&mut graph, network.samples());
        let class = match class {
            ClassInput::Given => given,
            ClassInput::GivenOrTop => {
                let top = graph.add(Op::ArgMax { axis: 1, keep: false }, &[network.logits()])?;
                let zero = graph.constant(Tensor::scalar(0i64));
                let unset = graph.binary(Binary::Less, given, zero)?;
                graph.select(unset, top, given)?
            }
        };
        let one_hot = one_hot(&mut graph, class, network.classes())?;
        let scale = Scale { samples: network.samples() };
        Ok(Writer { network, split, graph, scale, one_hot, class })
    }

    fn write(mut self, requests: &[Request]) -> Result<Explanation> {
        let wanted =
            requests.iter().map(|request| LayerName::parse(&request.layer).value(self.network.graph()));
        let wanted = wanted.collect::<Result<Vec<_>>>()?;
        let messages = self.messages(requests, &wanted)?;
        let logits = self.network.graph().outputs()[0].clone();
        self.graph.set_outputs(vec![logits]);
        self.graph.output("class", self.class);
        let mut readings = Vec::with_capacity(requests.len());
        for request in requests {
            let map = self.map(request, &messages)?;
            readings.push(self.output(request, map));
        }
        let shifted =
            shifted_nodes(self.network, self.split.shift_at).into_iter().chain([self.network.logits()]);
        let shifted = shifted.map(|id| self.graph.node(id).label.display().to_owned()).collect();
        let graph = share_constants(&self.graph.pruned()?)?;
        Ok(Explanation { graph, readings, shifted })
    }

    fn output(&mut self, request: &Request, map: Scaled) -> Reading {
        let name = format!("saliency/{}/{}", request.method, request.layer);
        let position = self.graph.outputs().len();
        self.graph.output(name.clone(), map.value);
        let exponent = map.exponent.map(|exponent| {
            self.graph.output(format!("{name}/exponent"), exponent);
            position + 1
        });
        Reading { map: position, exponent }
    }

    fn messages(&mut self, requests: &[Request], wanted: &[NodeId]) -> Result<Messages> {
        let sensitivities = requests.iter().any(|r| r.method.needs_sensitivities());
        let relevances = requests.iter().any(|r| r.method.needs_relevance());
        let gradients = requests.iter().any(|r| r.method == Method::Gradient);
        let mut messages = Messages { stream: None, gradients: None, sensitivities: None, relevances: None };
        if sensitivities || relevances {
            let thresholds = self.thresholds();
            let stream = SumStream::build(&mut self.graph, self.network, self.split, thresholds, relevances)?;
            if sensitivities {
                messages.sensitivities = Some(self.sensitivities(&stream, wanted)?);
            }
            if relevances {
                messages.relevances = Some(self.relevances(&stream, wanted)?);
            }
            messages.stream = Some(stream);
        }
        if gradients {
            let seed = self.one_hot;
            let mut rules = Gradient { open_at_zero: false };
            let start = self.network.logits();
            messages.gradients = Some(walk(&mut self.graph, self.network, &mut rules, start, seed, wanted)?);
        }
        Ok(messages)
    }

    fn thresholds(&mut self) -> Option<Thresholds> {
        (self.split.stabiliser == Stabiliser::Scale).then(|| Thresholds {
            theta: self.graph.input(inputs::THETA, Shape::default(), Kind::Float),
            limit: self.graph.input(inputs::LIMIT, Shape::default(), Kind::Float),
        })
    }

    fn sensitivities(
        &mut self,
        stream: &SumStream,
        wanted: &[NodeId],
    ) -> Result<HashMap<NodeId, Sensitivity>> {
        let g = &mut self.graph;
        let shifts = Shifts::new(g, self.network, self.split)?;
        let mass = Scaled::plain(g.times(self.one_hot, shifts.seed())?, 0.0);
        let seed = Sensitivity { gradient: self.one_hot, hidden: None, mass };
        let mut rules = Sensitivities {
            network: self.network,
            split: self.split,
            scale: self.scale,
            stream,
            shifts: &shifts,
        };
        walk(g, self.network, &mut rules, self.network.logits(), seed, wanted)
    }

    fn relevances(
        &mut self,
        stream: &SumStream,
        wanted: &[NodeId],
    ) -> Result<(HashMap<NodeId, Relevance>, Option<NodeId>)> {
        let g = &mut self.graph;
        let logits = self.network.logits();
        let output = maps::activation(g, &self.scale, logits, stream.at(logits), maps::Part::Plus)?;
        let plus = g.times(self.one_hot, output.value)?;
        let minus = g.scaled(0.0, plus)?;
        let mut rules = Relevances { epsilon: EPSILON, network: self.network, scale: self.scale, stream };
        let relevances = walk(g, self.network, &mut rules, logits, Relevance { plus, minus }, wanted)?;
        Ok((relevances, output.exponent))
    }

    fn map(&mut self, request: &Request, messages: &Messages) -> Result<Scaled> {
        let at = LayerName::parse(&request.layer).value(self.network.graph())?;
        let unreached = || {
            Error::argument(format!(
                "layer '{}' does not lie between the image and the class scores; name one the scores depend on",
                request.layer
            ))
        };
        let g = &mut self.graph;
        let (value, channels) = match request.method {
            Method::Gradient => {
                let d = messages.gradients.as_ref().and_then(|m| m.get(&at)).ok_or_else(unreached)?;
                (Scaled::plain(*d, 0.0), Reduction::Mean)
            }
            Method::SplitCam(stream, part) | Method::SplitGrad(stream, part) => {
                let m = *messages.sensitivities.as_ref().and_then(|m| m.get(&at)).ok_or_else(unreached)?;
                let delta = maps::sensitivity(g, &self.scale, m, stream, part)?;
                match (request.method, &messages.stream) {
                    (Method::SplitCam(..), Some(s)) => {
                        let a = maps::activation(g, &self.scale, at, s.at(at), part)?;
                        (self.scale.product(g, delta, a)?, Reduction::Sum)
                    }
                    _ => (delta, Reduction::Mean),
                }
            }
            Method::SplitLrp(map) => {
                let (relevances, exponent) = messages.relevances.as_ref().ok_or_else(unreached)?;
                let r = *relevances.get(&at).ok_or_else(unreached)?;
                let value = maps::relevance(g, r, map)?;
                (Scaled { value, exponent: *exponent, bound: 0.0 }, Reduction::Sum)
            }
        };
        let axes = self.network.axes(at)?;
        let image = g.node(self.network.input()).shape.clone();
        let map = maps::finish(g, value.value, channels, request.finish, axes, &image)?;
        self.scale.settled(g, Scaled { value: map, ..value })
    }
}

/// A graph that starts as the network without its outputs, and in it one at the given class of each sample, zero
/// elsewhere: where every backward walk begins.
pub(crate) fn seeded(network: &Network) -> Result<(Graph, NodeId)> {
    let mut g = network.graph().clone();
    g.set_outputs(Vec::new());
    let class = class_input(&mut g, network.samples());
    let seed = one_hot(&mut g, class, network.classes())?;
    Ok((g, seed))
}

/// The input that names the class of each sample.
fn class_input(g: &mut Graph, samples: Dim) -> NodeId {
    g.input(inputs::CLASS, Shape::new([samples]), Kind::Int)
}

/// One at the class of each sample, zero elsewhere.
fn one_hot(g: &mut Graph, class: NodeId, classes: usize) -> Result<NodeId> {
    let samples: Vec<Dim> = g.node(class).shape.dims().to_vec();
    let column = g.reshaped(class, Shape::new([samples[0], Dim::Fixed(1)]))?;
    let indices = g.constant(Tensor::new([1, classes], (0..classes as i64).collect::<Vec<_>>())?);
    let is_class = g.binary(Binary::Equal, column, indices)?;
    g.add(Op::Cast { to: Kind::Float }, &[is_class])
}
