//! Explanations as graphs: the network, untouched, and the nodes that compute maps. The class, α, θ and Θ are inputs of the
//! graph, so it is compiled once for all of them.

use std::collections::HashSet;
use std::rc::Rc;

use monosplit_graph::address::LayerName;
use monosplit_graph::op::Reduction;
use monosplit_graph::passes::share_constants;
use monosplit_graph::{Dim, Error, Graph, Kind, Node, NodeId, Output, Result, Shape};

use crate::channels::Axes;
use crate::explanation_builder::ExplanationBuilder;
use crate::method::{MapRequest, Procedure};
use crate::network::Network;
use crate::scaled::{Scale, Scaled};
use crate::target::{TARGET_IN_RANGE, is_target_score};

/// Where the explained class comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClassInput {
    /// The input `class` names it; −2 asks for the second highest score, another negative number for the highest.
    #[default]
    GivenOrTop,
    /// The input `class` names it. What depends on the class and α alone can then be computed once.
    Given,
    /// It is the one with the highest score.
    Top,
    /// It is the one with the second highest score.
    Second,
    /// The input `class` names one for all samples, or one for each; a negative number asks for the highest score. The graph
    /// declares it with length 1, for exported files whose runtime broadcasts. A number above the last class asks for the
    /// last, and the output [`CLASS_IN_RANGE`] says so.
    Broadcast,
}

/// The name of the output that says for each sample whether the class exists that was given for it. It is the last one.
pub const CLASS_IN_RANGE: &str = "class_in_range";

/// The graph that computes class scores and maps.
#[derive(Clone, Debug)]
pub struct ExplanationGraph {
    graph: Graph,
    map_outputs: Vec<MapOutput>,
    baseline: Option<f64>,
}

/// Which outputs of the graph hold a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapOutput {
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
    /// The ratio of the hidden to the ordinary gradient.
    pub const SHARE: &str = "share";
    /// The factor θ of the scaling stabiliser.
    pub const THETA: &str = "theta";
    /// The limit Θ of the scaling stabiliser.
    pub const LIMIT: &str = "limit";
    /// The baseline image: one for all samples or one for each, with axes of the image's length or of length one.
    pub const BASELINE: &str = "baseline";

    /// All of them.
    pub const ALL: [&str; 6] = [CLASS, ALPHA, SHARE, THETA, LIMIT, BASELINE];
}

impl ExplanationGraph {
    /// The graph of `requests` for `source`, whose first input is the image and whose first output holds the class scores. Its
    /// outputs are the class scores, the explained classes, and the maps; with [`ClassInput::Broadcast`] also
    /// [`CLASS_IN_RANGE`], and where a target reads a class or a cell from an input, [`TARGET_IN_RANGE`].
    ///
    /// Methods that run the network many times are written pass after pass; those for which that is not possible are an error.
    pub fn new(source: &Graph, class: ClassInput, requests: &[MapRequest]) -> Result<Self> {
        ExplanationGraph::with_copies(source, class, requests, None)
    }

    /// The same, where methods of many passes make at most so many copies of a sample at a time; by default as many as their
    /// batch size. The file has fewer nodes with more copies, and takes more memory.
    pub fn with_copies(
        source: &Graph,
        class: ClassInput,
        requests: &[MapRequest],
        copies: Option<usize>,
    ) -> Result<Self> {
        let network = Rc::new(Network::new(source)?);
        let mut builder = ExplanationBuilder::new(&network, class)?;
        builder.copies = copies;
        builder.has_probabilities = !is_target_score(source);
        let scores = network.graph().outputs()[0].name.clone();
        builder.graph.output(scores, network.logits());
        let class = builder.class();
        builder.graph.output("class", class);
        let mut map_outputs = Vec::with_capacity(requests.len());
        for request in requests {
            let map = map(&mut builder, request)?;
            map_outputs.push(output(&mut builder.graph, request, map));
        }
        if let Some(in_range) = builder.class_in_range {
            builder.graph.output(CLASS_IN_RANGE, in_range);
        }
        let is_check = |(_, node): &(NodeId, &Node)| node.label.tensor == TARGET_IN_RANGE;
        if let Some((in_range, _)) = network.graph().nodes().find(is_check) {
            builder.graph.output(TARGET_IN_RANGE, in_range);
        }
        let baseline = builder.baseline;
        let graph = share_constants(&builder.graph.pruned()?)?;
        Ok(ExplanationGraph { graph, map_outputs, baseline })
    }

    /// An explanation that exists as a graph already, such as one read from a file: its first output holds the class scores, its
    /// second the explained classes, and `maps` are the names of the outputs that are maps.
    pub fn of_graph(graph: Graph, maps: &[&str]) -> Result<Self> {
        let outputs = graph.outputs();
        let shape = |at: usize| outputs.get(at).map(|output| graph.node(output.node).shape.dims());
        let samples = graph.inputs().first().and_then(|&id| graph.node(id).shape.dims().first());
        let scored = matches!((shape(0), samples), (Some([first, Dim::Fixed(_), ..]), Some(n)) if first == n);
        let is_int = |output: &Output| graph.node(output.node).kind == Kind::Int;
        let classed = matches!((shape(1), samples), (Some([only]), Some(n)) if only == n);
        if !scored || !classed || !outputs.get(1).is_some_and(is_int) {
            return Err(Error::argument(
                "expected the scores of each sample at the first output and its explained class at the second",
            ));
        }
        let find = |name: &str| outputs.iter().position(|output| output.name == name);
        let output = |name: &&str| {
            let map = find(name).filter(|&at| shape(at).is_some_and(|dims| dims.first() == samples));
            let map = map.ok_or_else(|| {
                Error::argument(format!("expected a map of each sample at the output '{name}', found none"))
            })?;
            Ok(MapOutput { map, exponent: find(&exponent_name(name)) })
        };
        let map_outputs = maps.iter().map(output).collect::<Result<_>>()?;
        Ok(ExplanationGraph { graph, map_outputs, baseline: None })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The number that the input [`inputs::BASELINE`] stands for in the methods that read it; none where no method does.
    pub fn baseline(&self) -> Option<f64> {
        self.baseline
    }

    /// The outputs that hold the maps, in the order of the requests.
    pub fn map_outputs(&self) -> &[MapOutput] {
        &self.map_outputs
    }
}

fn map(builder: &mut ExplanationBuilder<'_>, request: &MapRequest) -> Result<Scaled> {
    let at = value(builder.network, request.layer.as_deref())?;
    let attribution = match request.method.procedure() {
        Procedure::GraphMethod(method) => method.write(builder, at)?,
        Procedure::MultiPass(repeated) => {
            let name = request.method.name();
            let method = repeated.unrolled().ok_or_else(|| {
                Error::argument(format!(
                    "{name} {} and cannot be written as one graph; explain with it as it is, or write another method, such as \
                     occlusion or rise",
                    repeated.obstacle()
                ))
            })?;
            method.write(builder, at).map_err(|error| error.context(name))?
        }
    };
    let axes = builder.axes(attribution.of)?;
    let image = builder.graph.node(builder.image()).shape.clone();
    let scale = builder.scale;
    finished(&mut builder.graph, request, &scale, attribution.value, attribution.channels, axes, &image)
}

/// The map of an attribution, or of the part of it that belongs to one explained input.
pub(crate) fn finished(
    g: &mut Graph,
    request: &MapRequest,
    scale: &Scale,
    value: Scaled,
    channels: Option<Reduction>,
    axes: Axes,
    image: &Shape,
) -> Result<Scaled> {
    let Some(part) = request.attributed_part() else {
        return request.finish.write(g, scale, value, channels, axes, image);
    };
    let shape = part.shape(image.dims()[0]);
    // Of several inputs the attribution is a vector, which has a number for each element of each of them.
    let channels = if part.is_one_of_several() { channels.or(Some(Reduction::Sum)) } else { channels };
    let own = value.map(g, |g, value| part.of(g, value))?;
    request.finish.write(g, scale, own, channels, part.axes, &shape)
}

/// The value that a layer name stands for; none is the image.
pub(crate) fn value(network: &Network, layer: Option<&str>) -> Result<NodeId> {
    match layer {
        Some(name) => LayerName::parse(name).value(network.graph()),
        None => Ok(network.input()),
    }
}

/// The name of the output that holds the exponents of a map.
fn exponent_name(map: &str) -> String {
    format!("{map}/exponent")
}

fn output(graph: &mut Graph, request: &MapRequest, map: Scaled) -> MapOutput {
    let taken: HashSet<&str> = graph.outputs().iter().map(|output| output.name.as_str()).collect();
    let plain = request.output_name();
    let mut name = plain.clone();
    let mut number = 2;
    while taken.contains(name.as_str()) {
        name = format!("{plain}/{number}");
        number += 1;
    }
    let position = graph.outputs().len();
    graph.output(name.clone(), map.value);
    let exponent = map.exponent.map(|exponent| {
        graph.output(exponent_name(&name), exponent);
        position + 1
    });
    MapOutput { map: position, exponent }
}
