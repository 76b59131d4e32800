//! A prepared explanation: compiled once, asked for many images.

use std::collections::VecDeque;
use std::sync::Mutex;

use monosplit_engine::{CompileOptions, Engine, Precision, Profile, Program};
use monosplit_graph::batch::{check_whole_batches, rows, samples_interact, stack};
use monosplit_graph::{Buffer, Data, Dim, Error, Graph, Kind, Result, Tensor};

use crate::bindings::bind;
use crate::explanation::{ClassInput, Explanation, Reading, inputs, value};
use crate::invariant::{Cut, cut};
use crate::method::{Fact, Prepared, Procedure, Request, Target};
use crate::network::Network;
use crate::question::{Class, Question, Settings};
use crate::scaled::{Scale, Scaled};

/// A map for every sample of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// `[N, H, W]` for layers with spatial axes, exactly as defined unless the finish asks for a scale.
    pub values: Tensor,
    /// For each sample, the power of two its values are to be multiplied by: 0 unless they would overflow.
    pub exponents: Vec<i32>,
    /// What the method measured about itself.
    pub facts: Vec<Fact>,
}

/// What the network and its explanation say of a batch.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The class scores `[N, classes]`, bit for bit those of the network alone.
    pub logits: Tensor,
    /// The explained class of each sample.
    pub classes: Vec<usize>,
    /// The maps, in the order they were asked for.
    pub maps: Vec<Map>,
}

/// A compiled explanation.
pub struct Explainer {
    /// The class scores, and all maps that are computed in the engine's own precision.
    native: Compiled,
    /// The maps that need double precision.
    double: Option<Compiled>,
    /// The methods that ask many times.
    repeated: Vec<Asking>,
    /// For every request, where its map is found.
    places: Vec<Place>,
    classes: usize,
    samples: Dim,
    /// Whether what is found of a sample depends on the others of its batch.
    interacting: bool,
}

#[derive(Clone, Copy)]
enum Place {
    Native(usize),
    Double(usize),
    Repeated(usize),
}

/// An explanation and its program.
struct Compiled {
    explanation: Explanation,
    program: Box<dyn Program>,
    invariant: Option<Invariant>,
}

/// A method that asks many times, and the program that makes a map of what it found.
struct Asking {
    prepared: Box<dyn Prepared>,
    finish: Box<dyn Program>,
}

/// The programs of a cut explanation and what the prologue gave for the classes seen last.
struct Invariant {
    cut: Cut,
    prologue: Box<dyn Program>,
    main: Box<dyn Program>,
    cache: Mutex<VecDeque<(Key, Vec<Tensor>)>>,
}

#[derive(Clone, PartialEq)]
struct Key {
    class: i64,
    settings: Settings,
}

/// How many classes' invariant values are remembered.
const REMEMBERED: usize = 4;

/// Requests by the way they are answered.
#[derive(Default)]
struct Sorted {
    native: Vec<Request>,
    double: Vec<Request>,
    repeated: Vec<Request>,
    places: Vec<Place>,
}

impl Sorted {
    fn new(requests: &[Request], engine: &dyn Engine) -> Self {
        let mut sorted = Sorted::default();
        for request in requests {
            let (list, place): (_, fn(usize) -> Place) = match request.method.procedure() {
                Procedure::Repeated(_) => (&mut sorted.repeated, Place::Repeated),
                Procedure::Rewrite(rewrite)
                    if rewrite.needs_double_precision() && engine.native_precision() != Precision::F64 =>
                {
                    (&mut sorted.double, Place::Double)
                }
                Procedure::Rewrite(_) => (&mut sorted.native, Place::Native),
            };
            sorted.places.push(place(list.len()));
            list.push(request.clone());
        }
        sorted
    }
}

impl Explainer {
    /// Compiles the maps asked for of `network` on `engine`.
    ///
    /// Methods that divide by numbers which single precision can lose are computed in double precision whatever the
    /// engine's own; the class scores always come from the engine's own.
    pub fn new(network: &Graph, requests: &[Request], engine: &dyn Engine) -> Result<Self> {
        let sorted = Sorted::new(requests, engine);
        let compile = |requests: &[Request], precision: Precision| -> Result<Compiled> {
            let explanation = Explanation::new(network, ClassInput::GivenOrTop, requests)?;
            let program =
                engine.compile_with(explanation.graph(), &CompileOptions::default().precision(precision))?;
            Ok(Compiled { explanation, program, invariant: None })
        };
        let native = compile(&sorted.native, engine.native_precision())?;
        let double = match &*sorted.double {
            [] => None,
            requests => Some(compile(requests, Precision::F64)?),
        };
        let repeated = sorted.repeated.iter().map(|request| Asking::new(network, request, engine));
        let repeated = repeated.collect::<Result<Vec<_>>>()?;
        let (classes, samples) = extents(native.explanation.graph());
        let interacting = samples_interact(network);
        Ok(Explainer { native, double, repeated, places: sorted.places, classes, samples, interacting })
    }

    /// Compiles an explanation that is written already, all of it in one precision.
    pub fn of(explanation: Explanation, engine: &dyn Engine, precision: Precision) -> Result<Self> {
        let program =
            engine.compile_with(explanation.graph(), &CompileOptions::default().precision(precision))?;
        let places = (0..explanation.readings().len()).map(Place::Native).collect();
        let (classes, samples) = extents(explanation.graph());
        let interacting = samples_interact(explanation.graph());
        let native = Compiled { explanation, program, invariant: None };
        Ok(Explainer { native, double: None, repeated: Vec::new(), places, classes, samples, interacting })
    }

    /// Like [`Explainer::new`], and remembers per class and settings what does not depend on the image: in `convex` mode
    /// the mass `σ`. Worth its memory when many images are explained for few classes that are known beforehand.
    pub fn remembering(network: &Graph, requests: &[Request], engine: &dyn Engine) -> Result<Self> {
        let mut explainer = Explainer::new(network, requests, engine)?;
        if explainer.interacting {
            return Ok(explainer);
        }
        let native = Sorted::new(requests, engine).native;
        let given = Explanation::new(network, ClassInput::Given, &native)?;
        let numbers = [inputs::ALPHA, inputs::THETA, inputs::LIMIT];
        if let Some(cut) = cut(given.graph(), inputs::CLASS, &numbers)? {
            let (prologue, main) = (engine.compile(&cut.prologue)?, engine.compile(&cut.main)?);
            let cache = Mutex::new(VecDeque::new());
            explainer.native.invariant = Some(Invariant { cut, prologue, main, cache });
        }
        Ok(explainer)
    }

    /// The graph behind the maps that are computed in the engine's own precision, then the one behind those that need
    /// more, if there are any.
    pub fn explanations(&self) -> Vec<&Explanation> {
        [Some(&self.native), self.double.as_ref()].into_iter().flatten().map(|c| &c.explanation).collect()
    }

    /// The length of the sample axis of the network's input.
    pub fn samples(&self) -> Dim {
        self.samples
    }

    /// Explains a batch of preprocessed images `[N, C, H, W]`. A network of fixed batch size is run as often as it takes.
    pub fn explain(&self, images: &Tensor, class: &Class, settings: &Settings) -> Result<Explained> {
        self.answer(&Question::new(images, class, settings))
    }

    /// Answers a question.
    pub fn answer(&self, question: &Question<'_>) -> Result<Explained> {
        self.answered(question, None)
    }

    /// Like [`Explainer::answer`], timing every node of the graphs [`Explainer::explanations`] returns.
    pub fn answer_profiled(&self, question: &Question<'_>) -> Result<(Explained, Profile)> {
        let mut profile = Profile::default();
        let explained = self.answered(question, Some(&mut profile))?;
        Ok((explained, profile))
    }

    fn answered(&self, question: &Question<'_>, mut profile: Option<&mut Profile>) -> Result<Explained> {
        question.settings.check()?;
        let samples = question.samples();
        let numbers = question.class.numbers(samples, self.classes)?;
        let mut explained = match self.samples {
            Dim::Fixed(size) if size != samples && size > 0 => {
                if self.interacting {
                    check_whole_batches(samples, size)?;
                }
                let mut parts = Vec::with_capacity(samples.div_ceil(size));
                for start in (0..samples).step_by(size) {
                    let picked = || (start..start + size).map(|row| row.min(samples - 1));
                    let images = rows(question.images, picked())?;
                    let numbers: Vec<i64> = picked().map(|row| numbers[row]).collect();
                    let part = Question { images: &images, ..*question };
                    let part = self.batch(&part, &numbers, profile.as_deref_mut())?;
                    parts.push(part.cut_to(size.min(samples - start))?);
                }
                Explained::joined(&parts)?
            }
            _ => self.batch(question, &numbers, profile)?,
        };
        for (asking, &place) in self.places.iter().enumerate() {
            if let Place::Repeated(at) = place {
                explained.maps.insert(asking, self.repeated[at].map(question, &explained.classes)?);
            }
        }
        Ok(explained)
    }

    /// The scores, classes and rewritten maps of a batch of a size the network accepts.
    fn batch(
        &self,
        question: &Question<'_>,
        numbers: &[i64],
        mut profile: Option<&mut Profile>,
    ) -> Result<Explained> {
        let samples = question.samples();
        let outputs = match (&self.native.invariant, &profile) {
            (Some(invariant), None) if numbers.iter().all(|&class| class >= 0) => {
                invariant.run(&self.native, numbers, question)?
            }
            _ => self.native.run(question, numbers, profile.as_deref_mut())?,
        };
        let classes =
            outputs[1].to_i64().ok_or_else(|| Error::argument("the explained classes are not integers"))?;
        let in_double = match &self.double {
            Some(double) => double.run(question, &classes, profile)?,
            None => Vec::new(),
        };
        let mut maps = Vec::with_capacity(self.places.len());
        for &place in &self.places {
            match (place, &self.double) {
                (Place::Native(at), _) => {
                    maps.push(read(&outputs, self.native.explanation.readings()[at], samples));
                }
                (Place::Double(at), Some(double)) => {
                    let map = read(&in_double, double.explanation.readings()[at], samples);
                    maps.push(rounded(map, &outputs[0])?);
                }
                _ => {}
            }
        }
        let classes = classes.iter().map(|&c| c as usize).collect();
        Ok(Explained { logits: outputs[0].clone(), classes, maps })
    }
}

impl Explained {
    /// The first samples alone.
    fn cut_to(self, count: usize) -> Result<Self> {
        let cut = |map: Map| -> Result<Map> {
            let exponents = map.exponents[..count].to_vec();
            Ok(Map { values: rows(&map.values, 0..count)?, exponents, ..map })
        };
        Ok(Explained {
            logits: rows(&self.logits, 0..count)?,
            classes: self.classes[..count].to_vec(),
            maps: self.maps.into_iter().map(cut).collect::<Result<_>>()?,
        })
    }

    /// The samples of several batches.
    fn joined(parts: &[Explained]) -> Result<Self> {
        let all =
            |of: &dyn Fn(&Explained) -> Tensor| stack(&parts.iter().map(of).collect::<Vec<_>>(), Kind::Float);
        let maps = (0..parts.first().map_or(0, |part| part.maps.len())).map(|i| {
            Ok(Map {
                values: all(&|part| part.maps[i].values.clone())?,
                exponents: parts.iter().flat_map(|part| part.maps[i].exponents.iter().copied()).collect(),
                facts: Vec::new(),
            })
        });
        Ok(Explained {
            logits: all(&|part| part.logits.clone())?,
            classes: parts.iter().flat_map(|part| part.classes.iter().copied()).collect(),
            maps: maps.collect::<Result<_>>()?,
        })
    }
}

impl Compiled {
    fn run(
        &self,
        question: &Question<'_>,
        classes: &[i64],
        profile: Option<&mut Profile>,
    ) -> Result<Vec<Tensor>> {
        let inputs = bind(self.explanation.graph(), question, classes)?;
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

impl Asking {
    fn new(network: &Graph, request: &Request, engine: &dyn Engine) -> Result<Self> {
        let Procedure::Repeated(repeated) = request.method.procedure() else {
            return Err(Error::argument("a rewrite is not asked many times"));
        };
        let prepared = repeated.prepare(&Target { network, layer: request.layer.as_deref() }, engine)?;
        let finish = engine.compile(&finishing(network, prepared.as_ref(), request)?)?;
        Ok(Asking { prepared, finish })
    }

    fn map(&self, question: &Question<'_>, classes: &[usize]) -> Result<Map> {
        let found = self.prepared.attribute(question, classes)?;
        let mut outputs = self.finish.run(&[found.values])?;
        let values = outputs.pop().ok_or_else(|| Error::argument("the method found nothing"))?;
        Ok(Map { values, exponents: vec![0; question.samples()], facts: found.facts })
    }
}

/// The graph that makes maps of what a repeated method finds.
fn finishing(source: &Graph, prepared: &dyn Prepared, request: &Request) -> Result<Graph> {
    let network = Network::new(source)?;
    let site = prepared.site();
    let at = value(&network, site.layer.as_deref())?;
    let axes = network.axes(at)?;
    let shape = network.graph().node(at).shape.dims().iter().enumerate();
    let kept = shape.filter(|(axis, _)| site.channels.is_some() || Some(*axis) != axes.channels);
    let dims: Vec<Dim> = kept.map(|(axis, &dim)| if axis == 0 { Dim::Batch(1) } else { dim }).collect();
    let mut g = Graph::new();
    let attribution = g.input("attribution", monosplit_graph::Shape::new(dims), Kind::Float);
    let image = network.graph().node(network.input()).shape.clone();
    let value = Scaled::plain(attribution, 0.0);
    let scale = Scale::per_sample_of(Dim::Batch(1));
    let map = request.finish.write(&mut g, &scale, value, site.channels, axes, &image)?;
    g.output(request.output_name(), map.value);
    g.pruned()
}

impl Invariant {
    fn run(&self, compiled: &Compiled, classes: &[i64], question: &Question<'_>) -> Result<Vec<Tensor>> {
        let mut inputs = bind(compiled.explanation.graph(), question, classes)?;
        let mut per_sample = Vec::with_capacity(classes.len());
        for &class in classes {
            per_sample.push(self.crossing(compiled, class, question)?);
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
    fn crossing(&self, compiled: &Compiled, class: i64, question: &Question<'_>) -> Result<Vec<Tensor>> {
        let key = Key { class, settings: question.settings.clone() };
        if let Some(crossing) = self.recall(&key) {
            return Ok(crossing);
        }
        let all = bind(compiled.explanation.graph(), question, &[class])?;
        let given: Vec<Tensor> = self.cut.prologue_inputs.iter().map(|&i| all[i].clone()).collect();
        let crossing = self.prologue.run(&given)?;
        if let Ok(mut cache) = self.cache.lock() {
            cache.push_front((key, crossing.clone()));
            cache.truncate(REMEMBERED);
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
fn rounded(map: Map, logits: &Tensor) -> Result<Map> {
    let values = match logits.data() {
        Data::F32(_) => Tensor::new(map.values.shape().to_vec(), map.values.to_f32().into_vec())?,
        _ => map.values,
    };
    Ok(Map { values, ..map })
}

fn read(outputs: &[Tensor], reading: Reading, samples: usize) -> Map {
    let exponents = match reading.exponent {
        None => vec![0; samples],
        Some(at) => {
            let found = outputs[at].to_f64();
            (0..samples).map(|i| *found.get(i).or(found.first()).unwrap_or(&0.0) as i32).collect()
        }
    };
    Map { values: outputs[reading.map].clone(), exponents, facts: Vec::new() }
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
