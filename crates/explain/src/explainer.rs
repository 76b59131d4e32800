//! Explainers: the maps asked for of a network, compiled once and run for any number of batches.

use std::collections::VecDeque;
use std::sync::Mutex;

use monosplit_engine::{CompileOptions, Engine, Precision, Profile, Program};
use monosplit_graph::batch::{check_whole_batches, rows, samples_interact, stack};
use monosplit_graph::{Buffer, Data, Dim, Error, Graph, Kind, Result, Tensor};

use crate::bindings::bind;
use crate::explain_batch::{Class, ExplainBatch, Settings};
use crate::explanation_graph::{ClassInput, ExplanationGraph, MapOutput, inputs, value};
use crate::method::{Diagnostic, MapRequest, NetworkLayer, PreparedMethod, Procedure};
use crate::network::Network;
use crate::prologue::{PrologueSplit, cut};
use crate::scaled::{Scale, Scaled};

/// A map for every sample of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct SaliencyMap {
    /// `[N, H, W]` for layers with spatial axes, exactly as defined unless the finish asks for a scale.
    pub values: Tensor,
    /// For each sample, the power of two its values are to be multiplied by: 0 unless they would overflow.
    pub exponents: Vec<i32>,
    /// What the method measured about itself.
    pub diagnostics: Vec<Diagnostic>,
}

/// The result of explaining a batch: class scores, explained classes, maps.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The class scores `[N, classes]`, bit for bit those of the network alone.
    pub logits: Tensor,
    /// The explained class of each sample.
    pub classes: Vec<usize>,
    /// The maps, in the order they were asked for.
    pub maps: Vec<SaliencyMap>,
}

/// A network and the maps asked for of it, compiled and ready to run.
pub struct Explainer {
    /// The class scores, and all maps that are computed in the engine's own precision.
    native: Compiled,
    /// The maps that need double precision.
    double: Option<Compiled>,
    /// The maps of methods that run the network many times.
    multi_pass: Vec<MultiPassMap>,
    /// Which program computes the map of each request.
    sources: Vec<MapSource>,
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
    MultiPass(usize),
}

/// An explanation graph and its program.
struct Compiled {
    explanation: ExplanationGraph,
    program: Box<dyn Program>,
    invariant: Option<CachedPrologue>,
}

/// A method that runs the network many times, and the program that turns its attributions into a map.
struct MultiPassMap {
    prepared: Box<dyn PreparedMethod>,
    finish: Box<dyn Program>,
}

/// The two programs of an explanation that is cut into a part that does not depend on the image (the prologue) and the
/// rest, and the values the prologue computed for the last few classes.
struct CachedPrologue {
    cut: PrologueSplit,
    prologue: Box<dyn Program>,
    main: Box<dyn Program>,
    cache: Mutex<VecDeque<(Key, Vec<Tensor>)>>,
}

#[derive(Clone, PartialEq)]
struct Key {
    class: i64,
    settings: Settings,
}

/// The number of classes whose prologue values are kept.
const CACHED_CLASSES: usize = 4;

/// Requests sorted by the program that computes them.
#[derive(Default)]
struct Sorted {
    native: Vec<MapRequest>,
    double: Vec<MapRequest>,
    multi_pass: Vec<MapRequest>,
    sources: Vec<MapSource>,
}

impl Sorted {
    fn new(requests: &[MapRequest], engine: &dyn Engine) -> Self {
        let mut sorted = Sorted::default();
        for request in requests {
            let (list, source): (_, fn(usize) -> MapSource) = match request.method.procedure() {
                Procedure::MultiPass(_) => (&mut sorted.multi_pass, MapSource::MultiPass),
                Procedure::Rewrite(rewrite)
                    if rewrite.needs_double_precision() && engine.native_precision() != Precision::F64 =>
                {
                    (&mut sorted.double, MapSource::Double)
                }
                Procedure::Rewrite(_) => (&mut sorted.native, MapSource::Native),
            };
            sorted.sources.push(source(list.len()));
            list.push(request.clone());
        }
        sorted
    }
}

impl Explainer {
    /// Compiles `requests` for `network` on `engine`.
    ///
    /// Methods that divide by numbers which single precision can lose are computed in double precision. The class scores are
    /// always computed in the engine's native precision.
    pub fn new(network: &Graph, requests: &[MapRequest], engine: &dyn Engine) -> Result<Self> {
        let sorted = Sorted::new(requests, engine);
        let compile = |requests: &[MapRequest], precision: Precision| -> Result<Compiled> {
            let explanation = ExplanationGraph::new(network, ClassInput::GivenOrTop, requests)?;
            let program =
                engine.compile_with(explanation.graph(), &CompileOptions::default().precision(precision))?;
            Ok(Compiled { explanation, program, invariant: None })
        };
        let native = compile(&sorted.native, engine.native_precision())?;
        let double = match &*sorted.double {
            [] => None,
            requests => Some(compile(requests, Precision::F64)?),
        };
        let multi_pass = sorted.multi_pass.iter().map(|request| MultiPassMap::new(network, request, engine));
        let multi_pass = multi_pass.collect::<Result<Vec<_>>>()?;
        let (classes, samples) = extents(native.explanation.graph());
        let interacting = samples_interact(network);
        Ok(Explainer { native, double, multi_pass, sources: sorted.sources, classes, samples, interacting })
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
        let (classes, samples) = extents(explanation.graph());
        let interacting = samples_interact(explanation.graph());
        let native = Compiled { explanation, program, invariant: None };
        Ok(Explainer { native, double: None, multi_pass: Vec::new(), sources, classes, samples, interacting })
    }

    /// Like [`Explainer::new`], and caches the values that depend on the class and the settings but not on the image: in
    /// `convex` mode the mass `σ`. Worth its memory where many images are explained for few classes that are given.
    pub fn with_class_cache(network: &Graph, requests: &[MapRequest], engine: &dyn Engine) -> Result<Self> {
        let mut explainer = Explainer::new(network, requests, engine)?;
        if explainer.interacting {
            return Ok(explainer);
        }
        let native = Sorted::new(requests, engine).native;
        let given = ExplanationGraph::new(network, ClassInput::Given, &native)?;
        let numbers = [inputs::ALPHA, inputs::THETA, inputs::LIMIT];
        if let Some(cut) = cut(given.graph(), inputs::CLASS, &numbers)? {
            let (prologue, main) = (engine.compile(&cut.prologue)?, engine.compile(&cut.main)?);
            let cache = Mutex::new(VecDeque::new());
            explainer.native.invariant = Some(CachedPrologue { cut, prologue, main, cache });
        }
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

    /// Explains a batch.
    pub fn explain_batch(&self, batch: &ExplainBatch<'_>) -> Result<Explanation> {
        self.run(batch, None)
    }

    /// Like [`Explainer::explain_batch`], timing every node of the graphs [`Explainer::graphs`] returns.
    pub fn explain_batch_profiled(&self, batch: &ExplainBatch<'_>) -> Result<(Explanation, Profile)> {
        let mut profile = Profile::default();
        let explained = self.run(batch, Some(&mut profile))?;
        Ok((explained, profile))
    }

    fn run(&self, batch: &ExplainBatch<'_>, mut profile: Option<&mut Profile>) -> Result<Explanation> {
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
                    let picked = || (start..start + size).map(|row| row.min(samples - 1));
                    let images = rows(batch.images, picked())?;
                    let numbers: Vec<i64> = picked().map(|row| numbers[row]).collect();
                    let part = ExplainBatch { images: &images, ..*batch };
                    let part = self.run_accepted_batch(&part, &numbers, profile.as_deref_mut())?;
                    parts.push(part.cut_to(size.min(samples - start))?);
                }
                Explanation::joined(&parts)?
            }
            _ => self.run_accepted_batch(batch, &numbers, profile)?,
        };
        for (index, &source) in self.sources.iter().enumerate() {
            if let MapSource::MultiPass(at) = source {
                explained.maps.insert(index, self.multi_pass[at].map(batch, &explained.classes)?);
            }
        }
        Ok(explained)
    }

    /// The scores, classes and rewritten maps of a batch of a size the network accepts.
    fn run_accepted_batch(
        &self,
        batch: &ExplainBatch<'_>,
        numbers: &[i64],
        mut profile: Option<&mut Profile>,
    ) -> Result<Explanation> {
        let samples = batch.samples();
        let outputs = match (&self.native.invariant, &profile) {
            (Some(invariant), None) if numbers.iter().all(|&class| class >= 0) => {
                invariant.run(&self.native, numbers, batch)?
            }
            _ => self.native.run(batch, numbers, profile.as_deref_mut())?,
        };
        let classes =
            outputs[1].to_i64().ok_or_else(|| Error::argument("the explained classes are not integers"))?;
        let in_double = match &self.double {
            Some(double) => double.run(batch, &classes, profile)?,
            None => Vec::new(),
        };
        let mut maps = Vec::with_capacity(self.sources.len());
        for &source in &self.sources {
            match (source, &self.double) {
                (MapSource::Native(at), _) => {
                    maps.push(read(&outputs, self.native.explanation.map_outputs()[at], samples));
                }
                (MapSource::Double(at), Some(double)) => {
                    let map = read(&in_double, double.explanation.map_outputs()[at], samples);
                    maps.push(rounded(map, &outputs[0])?);
                }
                _ => {}
            }
        }
        let classes = classes.iter().map(|&c| c as usize).collect();
        Ok(Explanation { logits: outputs[0].clone(), classes, maps })
    }
}

impl Explanation {
    /// The first samples alone.
    fn cut_to(self, count: usize) -> Result<Self> {
        let cut = |map: SaliencyMap| -> Result<SaliencyMap> {
            let exponents = map.exponents[..count].to_vec();
            Ok(SaliencyMap { values: rows(&map.values, 0..count)?, exponents, ..map })
        };
        Ok(Explanation {
            logits: rows(&self.logits, 0..count)?,
            classes: self.classes[..count].to_vec(),
            maps: self.maps.into_iter().map(cut).collect::<Result<_>>()?,
        })
    }

    /// The samples of several batches.
    fn joined(parts: &[Explanation]) -> Result<Self> {
        let all = |of: &dyn Fn(&Explanation) -> Tensor| {
            stack(&parts.iter().map(of).collect::<Vec<_>>(), Kind::Float)
        };
        let maps = (0..parts.first().map_or(0, |part| part.maps.len())).map(|i| {
            Ok(SaliencyMap {
                values: all(&|part| part.maps[i].values.clone())?,
                exponents: parts.iter().flat_map(|part| part.maps[i].exponents.iter().copied()).collect(),
                diagnostics: Vec::new(),
            })
        });
        Ok(Explanation {
            logits: all(&|part| part.logits.clone())?,
            classes: parts.iter().flat_map(|part| part.classes.iter().copied()).collect(),
            maps: maps.collect::<Result<_>>()?,
        })
    }
}

impl Compiled {
    fn run(
        &self,
        batch: &ExplainBatch<'_>,
        classes: &[i64],
        profile: Option<&mut Profile>,
    ) -> Result<Vec<Tensor>> {
        let inputs = bind(self.explanation.graph(), batch, classes)?;
        match profile {
            None => self.program.run(&inputs),
            Some(profile) => {
                let (outputs, times) = self.program.run_profiled(&inputs)?;
                profile.append(times);
                Ok(outputs)
            }
        }
    }
}

impl MultiPassMap {
    fn new(network: &Graph, request: &MapRequest, engine: &dyn Engine) -> Result<Self> {
        let Procedure::MultiPass(method) = request.method.procedure() else {
            return Err(Error::argument("the method is a graph rewrite and has no passes"));
        };
        let prepared = method.prepare(&NetworkLayer { network, layer: request.layer.as_deref() }, engine)?;
        let finish = engine.compile(&finishing(network, prepared.as_ref(), request)?)?;
        Ok(MultiPassMap { prepared, finish })
    }

    fn map(&self, batch: &ExplainBatch<'_>, classes: &[usize]) -> Result<SaliencyMap> {
        let found = self.prepared.attribute(batch, classes)?;
        let mut outputs = self.finish.run(&[found.values])?;
        let values = outputs.pop().ok_or_else(|| Error::argument("the method found nothing"))?;
        Ok(SaliencyMap { values, exponents: vec![0; batch.samples()], diagnostics: found.diagnostics })
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
    let map = request.finish.write(&mut g, &scale, value, attributed.channels, axes, &image)?;
    g.output(request.output_name(), map.value);
    g.pruned()
}

impl CachedPrologue {
    fn run(&self, compiled: &Compiled, classes: &[i64], batch: &ExplainBatch<'_>) -> Result<Vec<Tensor>> {
        let mut inputs = bind(compiled.explanation.graph(), batch, classes)?;
        let mut per_sample = Vec::with_capacity(classes.len());
        for &class in classes {
            per_sample.push(self.crossing(compiled, class, batch)?);
        }
        for i in 0..self.cut.crossing {
            let parts: Vec<&Tensor> = per_sample.iter().map(|crossing| &crossing[i]).collect();
            let shape = &self.cut.prologue.node(self.cut.prologue.outputs()[i].node).shape;
            let axis = shape.dims().iter().position(|d| matches!(d, Dim::Batch(_))).unwrap_or(0);
            inputs.push(stacked(&parts, axis)?);
        }
        self.main.run(&inputs)
    }

    /// The values that cross the cut for one class, computed once.
    fn crossing(&self, compiled: &Compiled, class: i64, batch: &ExplainBatch<'_>) -> Result<Vec<Tensor>> {
        let key = Key { class, settings: batch.settings.clone() };
        if let Some(crossing) = self.recall(&key) {
            return Ok(crossing);
        }
        let all = bind(compiled.explanation.graph(), batch, &[class])?;
        let given: Vec<Tensor> = self.cut.prologue_inputs.iter().map(|&i| all[i].clone()).collect();
        let crossing = self.prologue.run(&given)?;
        if let Ok(mut cache) = self.cache.lock() {
            cache.push_front((key, crossing.clone()));
            cache.truncate(CACHED_CLASSES);
        }
        Ok(crossing)
    }

    fn recall(&self, key: &Key) -> Option<Vec<Tensor>> {
        let mut cache = self.cache.lock().ok()?;
        let position = cache.iter().position(|(k, _)| k == key)?;
        let entry = cache.remove(position)?;
        let values = entry.1.clone();
        cache.push_front(entry);
        Some(values)
    }
}

/// The number of classes, and the length of the sample axis.
fn extents(graph: &Graph) -> (usize, Dim) {
    let classes = graph.node(graph.outputs()[0].node).shape.fixed_at(1).unwrap_or(0);
    let samples = graph.node(graph.inputs()[0]).shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
    (classes, samples)
}

/// A map in the precision of the class scores.
fn rounded(map: SaliencyMap, logits: &Tensor) -> Result<SaliencyMap> {
    let values = match logits.data() {
        Data::F32(_) => Tensor::new(map.values.shape().to_vec(), map.values.to_f32().into_vec())?,
        _ => map.values,
    };
    Ok(SaliencyMap { values, ..map })
}

fn read(outputs: &[Tensor], output: MapOutput, samples: usize) -> SaliencyMap {
    let exponents = match output.exponent {
        None => vec![0; samples],
        Some(at) => {
            let found = outputs[at].to_f64();
            (0..samples).map(|i| *found.get(i).or(found.first()).unwrap_or(&0.0) as i32).collect()
        }
    };
    SaliencyMap { values: outputs[output.map].clone(), exponents, diagnostics: Vec::new() }
}

/// Tensors of equal shape joined along an axis.
fn stacked(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    if let [only] = parts {
        return Ok((*only).clone());
    }
    let first = parts.first().ok_or_else(|| Error::argument("a batch needs at least one sample"))?;
    let mut shape = first.shape().to_vec();
    let block: usize = shape[axis..].iter().product();
    let blocks: usize = shape[..axis].iter().product();
    shape[axis] *= parts.len();
    if let Data::F32(_) = first.data() {
        let buffers: Vec<_> = parts.iter().map(|t| t.to_f32()).collect();
        return Tensor::new(shape, interleaved(&buffers, blocks, block));
    }
    let buffers: Vec<_> = parts.iter().map(|t| t.to_f64()).collect();
    Tensor::new(shape, interleaved(&buffers, blocks, block))
}

fn interleaved<T: Copy>(parts: &[Buffer<T>], blocks: usize, block: usize) -> Vec<T> {
    let at = |part: &Buffer<T>, b: usize| part[b * block..(b + 1) * block].to_vec();
    (0..blocks).flat_map(|b| parts.iter().flat_map(move |part| at(part, b))).collect()
}
