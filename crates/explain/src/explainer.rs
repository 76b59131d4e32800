//! Explainers: the maps asked for of a network, compiled once and run for any number of batches.

use std::sync::Arc;

use monosplit_engine::{CompileOptions, Engine, Precision, Program};
use monosplit_graph::batch::{check_whole_batches, filled_rows, rows, samples_interact};
use monosplit_graph::{Dim, Error, Graph, Hint, Kind, LogTimer, Result, Tensor};

use crate::bindings::bind;
use crate::cached_prologue::CachedPrologue;
use crate::explain_batch::{Class, ExplainBatch, Settings};
use crate::explanation::{Explanation, SaliencyMap};
use crate::explanation_graph::{ClassInput, ExplanationGraph, MapOutput, finished, value};
use crate::method::{MapRequest, NetworkLayer, PreparedMethod, Procedure};
use crate::network::Network;
use crate::scaled::{Scale, Scaled};
use crate::target::held::{HeldNetwork, HeldValues};

/// A network and the maps asked for of it, compiled and ready to run.
pub struct Explainer {
    /// The class scores, and all maps that are computed in the engine's own precision.
    native: Compiled,
    /// The maps that need double precision.
    double: Option<Compiled>,
    /// The maps of methods that run the network many times.
    multi_pass: Vec<MultiPassMaps>,
    /// The values that those hold at the unperturbed samples.
    held: Option<HeldValues>,
    /// Which program computes the map of each request.
    sources: Vec<MapSource>,
    /// The name of each map among the outputs of a graph.
    names: Vec<String>,
    classes: usize,
    samples: Dim,
    /// Whether the values of a sample depend on the other samples of its batch.
    interacting: bool,
}

/// The program that computes a map, and the index of the map among those it computes.
#[derive(Clone, Copy)]
enum MapSource {
    Native(usize),
    Double(usize),
    /// The method among those that run the network many times, and the map among its maps.
    MultiPass(usize, usize),
}

/// An explanation graph and its program.
struct Compiled {
    explanation: ExplanationGraph,
    program: Box<dyn Program>,
    prologue: Option<CachedPrologue>,
}

/// A method that runs the network many times, and the programs that turn its attributions into maps.
struct MultiPassMaps {
    prepared: Box<dyn PreparedMethod>,
    finishes: Vec<Box<dyn Program>>,
}

/// Requests sorted by the program that computes them.
#[derive(Default)]
struct Sorted {
    native: Vec<MapRequest>,
    double: Vec<MapRequest>,
    /// Requests that differ in their finish alone stand together: they share the passes.
    multi_pass: Vec<Vec<MapRequest>>,
    sources: Vec<MapSource>,
}

impl Sorted {
    fn new(network: &Graph, requests: &[MapRequest], engine: &dyn Engine) -> Self {
        let mut sorted = Sorted::default();
        for request in requests {
            let (list, source): (_, fn(usize) -> MapSource) = match request.method.procedure() {
                Procedure::MultiPass(_) => {
                    let source = sorted.add_multi_pass(request);
                    sorted.sources.push(source);
                    continue;
                }
                Procedure::GraphMethod(_)
                    if request.needs_double_precision(network)
                        && engine.native_precision() != Precision::F64 =>
                {
                    (&mut sorted.double, MapSource::Double)
                }
                Procedure::GraphMethod(_) => (&mut sorted.native, MapSource::Native),
            };
            sorted.sources.push(source(list.len()));
            list.push(request.clone());
        }
        sorted
    }

    fn add_multi_pass(&mut self, request: &MapRequest) -> MapSource {
        let is_same =
            |known: &MapRequest| Arc::ptr_eq(&known.method, &request.method) && known.layer == request.layer;
        let method = match self.multi_pass.iter().position(|group| group.iter().any(is_same)) {
            Some(found) => found,
            None => {
                self.multi_pass.push(Vec::new());
                self.multi_pass.len() - 1
            }
        };
        self.multi_pass[method].push(request.clone());
        MapSource::MultiPass(method, self.multi_pass[method].len() - 1)
    }
}

impl Explainer {
    /// Compiles `requests` for `network` on `engine`.
    ///
    /// Methods that divide by numbers which single precision can lose are computed in double precision. The class scores are
    /// always computed in the engine's native precision.
    pub fn new(network: &Graph, requests: &[MapRequest], engine: &dyn Engine) -> Result<Self> {
        let sorted = Sorted::new(network, requests, engine);
        let compile = |requests: &[MapRequest], precision: Precision| -> Result<Compiled> {
            let explanation = ExplanationGraph::new(network, ClassInput::GivenOrTop, requests)?;
            let program =
                engine.compile_with(explanation.graph(), &CompileOptions::default().precision(precision))?;
            Ok(Compiled { explanation, program, prologue: None })
        };
        let native = compile(&sorted.native, engine.native_precision())?;
        let double = match &*sorted.double {
            [] => None,
            requests => Some(compile(requests, Precision::F64)?),
        };
        let (multi_pass, held) = MultiPassMaps::all(network, &sorted.multi_pass, engine)?;
        let (classes, samples) = extents(native.explanation.graph());
        let interacting = samples_interact(network);
        let names = requests.iter().map(MapRequest::output_name).collect();
        let sources = sorted.sources;
        Ok(Explainer { native, double, multi_pass, held, sources, names, classes, samples, interacting })
    }

    /// Compiles an explanation graph that exists already, all of it in one precision.
    pub fn from_graph(
        explanation: ExplanationGraph,
        engine: &dyn Engine,
        precision: Precision,
    ) -> Result<Self> {
        let program =
            engine.compile_with(explanation.graph(), &CompileOptions::default().precision(precision))?;
        let sources = (0..explanation.map_outputs().len()).map(MapSource::Native).collect();
        let name = |output: &MapOutput| explanation.graph().outputs()[output.map].name.clone();
        let names = explanation.map_outputs().iter().map(name).collect();
        let (classes, samples) = extents(explanation.graph());
        let interacting = samples_interact(explanation.graph());
        let native = Compiled { explanation, program, prologue: None };
        let (double, multi_pass, held) = (None, Vec::new(), None);
        Ok(Explainer { native, double, multi_pass, held, sources, names, classes, samples, interacting })
    }

    /// Like [`Explainer::new`], and caches the values that depend on the class and the settings but not on the image: in
    /// `convex` mode the mass `σ`. Worth its memory where many images are explained for few classes that are given.
    pub fn with_class_cache(network: &Graph, requests: &[MapRequest], engine: &dyn Engine) -> Result<Self> {
        let mut explainer = Explainer::new(network, requests, engine)?;
        if explainer.interacting {
            return Ok(explainer);
        }
        let native = Sorted::new(network, requests, engine).native;
        let given = ExplanationGraph::new(network, ClassInput::Given, &native)?;
        explainer.native.prologue = CachedPrologue::new(given.graph(), engine)?;
        Ok(explainer)
    }

    /// The graph of the maps computed in the engine's native precision, then the graph of those computed in double
    /// precision, if there are any.
    pub fn graphs(&self) -> Vec<&ExplanationGraph> {
        [Some(&self.native), self.double.as_ref()].into_iter().flatten().map(|c| &c.explanation).collect()
    }

    /// The length of the sample axis of the network's input.
    pub fn samples(&self) -> Dim {
        self.samples
    }

    /// Explains preprocessed images `[N, C, H, W]`. A network of fixed batch size is run as often as it takes.
    pub fn explain(&self, images: &Tensor, class: &Class, settings: &Settings) -> Result<Explanation> {
        self.explain_batch(&ExplainBatch::new(images, class, settings))
    }

    /// Explains a batch; an error if a map holds numbers that are not finite although the class scores of its sample are.
    pub fn explain_batch(&self, batch: &ExplainBatch<'_>) -> Result<Explanation> {
        let explained = self.explain_unchecked(batch)?;
        let offset = batch.position.map_or(0, |position| position.offset);
        for (name, map) in self.names.iter().zip(&explained.maps) {
            explained.check_finite(map).map_err(|row| not_finite(name, offset + row))?;
        }
        Ok(explained)
    }

    /// Explains a batch and leaves it to the caller what becomes of maps that are not finite.
    pub fn explain_unchecked(&self, batch: &ExplainBatch<'_>) -> Result<Explanation> {
        let time = LogTimer::start(log::Level::Debug);
        batch.settings.check()?;
        let samples = batch.samples();
        let numbers = batch.class.numbers(samples, self.classes)?;
        let mut explained = match self.samples {
            Dim::Fixed(size) if size != samples && size > 0 => {
                if self.interacting {
                    check_whole_batches(samples, size)?;
                }
                let mut parts = Vec::with_capacity(samples.div_ceil(size));
                for start in (0..samples).step_by(size) {
                    let picked = filled_rows(samples, start, size)?;
                    let numbers: Vec<i64> = picked.iter().map(|&row| numbers[row]).collect();
                    let images = rows(batch.images, picked.iter().copied())?;
                    let mut others = Vec::with_capacity(batch.other_inputs.len());
                    for (name, value) in batch.other_inputs {
                        let each = value.shape().first() == Some(&samples);
                        let value = if each { rows(value, picked.iter().copied())? } else { value.clone() };
                        others.push((*name, value));
                    }
                    let part = ExplainBatch { images: &images, other_inputs: &others, ..*batch };
                    let part = self.run_accepted_batch(&part, &numbers)?;
                    parts.push(part.cut_to(size.min(samples - start))?);
                }
                Explanation::joined(&parts)?
            }
            _ => self.run_accepted_batch(batch, &numbers)?,
        };
        let held = self.held.as_ref().map_or_else(|| Ok(Vec::new()), |held| held.of(batch))?;
        let other_inputs = [batch.other_inputs, &held].concat();
        let unperturbed = ExplainBatch { other_inputs: &other_inputs, ..*batch };
        let multi_pass = self.multi_pass.iter().map(|method| method.maps(&unperturbed, &explained.classes));
        let multi_pass = multi_pass.collect::<Result<Vec<_>>>()?;
        for (index, &source) in self.sources.iter().enumerate() {
            if let MapSource::MultiPass(method, at) = source {
                explained.maps.insert(index, multi_pass[method][at].clone());
            }
        }
        log::debug!("explained {samples} samples, {} maps, in {time}", explained.maps.len());
        Ok(explained)
    }

    /// The scores, classes and rewritten maps of a batch of a size the network accepts.
    fn run_accepted_batch(&self, batch: &ExplainBatch<'_>, numbers: &[i64]) -> Result<Explanation> {
        let samples = batch.samples();
        let outputs = match &self.native.prologue {
            Some(prologue) if numbers.iter().all(|&class| class >= 0) => {
                prologue.run(self.native.explanation.graph(), numbers, batch)?
            }
            _ => self.native.run(batch, numbers)?,
        };
        let classes =
            outputs[1].to_i64().ok_or_else(|| Error::argument("the explained classes are not integers"))?;
        let in_double = match &self.double {
            Some(double) => double.run(batch, &classes)?,
            None => Vec::new(),
        };
        let mut maps = Vec::with_capacity(self.sources.len());
        for &source in &self.sources {
            match (source, &self.double) {
                (MapSource::Native(at), _) => {
                    let output = self.native.explanation.map_outputs()[at];
                    maps.push(SaliencyMap::from_outputs(&outputs, output, samples).within_single_range()?);
                }
                (MapSource::Double(at), Some(double)) => {
                    let output = double.explanation.map_outputs()[at];
                    let map = SaliencyMap::from_outputs(&in_double, output, samples);
                    maps.push(map.within_single_range()?.in_precision_of(&outputs[0])?);
                }
                _ => {}
            }
        }
        let classes = classes.iter().map(|&c| c as usize).collect();
        Ok(Explanation { logits: outputs[0].clone(), classes, maps })
    }
}

impl Compiled {
    fn run(&self, batch: &ExplainBatch<'_>, classes: &[i64]) -> Result<Vec<Tensor>> {
        self.program.run(&bind(self.explanation.graph(), batch, classes)?)
    }
}

impl MultiPassMaps {
    /// The maps of several methods, and what computes the values that they hold at the unperturbed samples.
    fn all(
        network: &Graph,
        methods: &[Vec<MapRequest>],
        engine: &dyn Engine,
    ) -> Result<(Vec<Self>, Option<HeldValues>)> {
        let held = if methods.is_empty() { None } else { HeldNetwork::new(network, engine)? };
        let graph = held.as_ref().map_or(network, |held| &held.graph);
        let maps = methods.iter().map(|requests| MultiPassMaps::new(graph, requests, engine));
        Ok((maps.collect::<Result<_>>()?, held.map(|held| held.values)))
    }

    fn new(network: &Graph, requests: &[MapRequest], engine: &dyn Engine) -> Result<Self> {
        let Some((method, layer)) =
            requests.first().map(|request| (&request.method, request.layer.as_deref()))
        else {
            return Err(Error::argument("no map was asked for"));
        };
        let Procedure::MultiPass(method) = method.procedure() else {
            return Err(Error::argument("the method is a graph rewrite and has no passes"));
        };
        let prepared = method.prepare(&NetworkLayer { network, layer }, engine)?;
        let finish = |request| engine.compile(&finishing(network, prepared.as_ref(), request)?);
        let finishes = requests.iter().map(finish).collect::<Result<_>>()?;
        Ok(MultiPassMaps { prepared, finishes })
    }

    fn maps(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<Vec<SaliencyMap>> {
        let found = self.prepared.attribute(batch, classes)?;
        let map = |finish: &dyn Program| {
            let mut outputs = finish.run(std::slice::from_ref(&found.values))?;
            let values = outputs.pop().ok_or_else(|| Error::argument("the method found nothing"))?;
            let diagnostics = found.diagnostics.clone();
            Ok(SaliencyMap { values, exponents: vec![0; batch.samples()], diagnostics })
        };
        self.finishes.iter().map(|finish| map(&**finish)).collect()
    }
}

/// The graph that turns the attributions of a multi-pass method into a map.
fn finishing(source: &Graph, prepared: &dyn PreparedMethod, request: &MapRequest) -> Result<Graph> {
    let network = Network::new(source)?;
    let attributed = prepared.attributed_layer();
    let at = value(&network, attributed.layer.as_deref())?;
    let axes = network.axes(at)?;
    let shape = network.graph().node(at).shape.dims().iter().enumerate();
    let kept = shape.filter(|(axis, _)| attributed.channels.is_some() || Some(*axis) != axes.channels);
    let dims: Vec<Dim> = kept.map(|(axis, &dim)| if axis == 0 { Dim::Batch(1) } else { dim }).collect();
    let mut g = Graph::new();
    let attribution = g.input("attribution", monosplit_graph::Shape::new(dims), Kind::Float);
    let image = network.graph().node(network.input()).shape.clone();
    let value = Scaled::plain(attribution, 0.0);
    let scale = Scale::per_sample_of(Dim::Batch(1));
    let map = finished(&mut g, request, &scale, value, attributed.channels, axes, &image)?;
    g.output(request.output_name(), map.value);
    g.pruned()
}

fn not_finite(output: &str, row: usize) -> Error {
    let words = output.trim_start_matches("saliency/").replacen('/', " at ", 1);
    let message =
        format!("the map by {words} holds numbers that are not finite, first in sample {}", row + 1);
    Error::argument(message).hint(Hint::PRECISION)
}

/// The number of classes, and the length of the sample axis.
fn extents(graph: &Graph) -> (usize, Dim) {
    let classes = graph.node(graph.outputs()[0].node).shape.fixed_at(1).unwrap_or(0);
    let samples = graph.node(graph.inputs()[0]).shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
    (classes, samples)
}
