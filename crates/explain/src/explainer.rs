//! A prepared explanation: compiled once, asked for many images.

use std::collections::VecDeque;
use std::sync::Mutex;

use monosplit_engine::{Engine, Precision, Profile, Program};
use monosplit_graph::{Buffer, Data, Dim, Error, ErrorKind, Graph, Result, Tensor};

use crate::explanation::{ClassInput, Explanation, Reading, Request, inputs};
use crate::invariant::{Cut, cut};
use crate::split::{AlphaInput, Split};

/// The class that is explained.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// The class with the highest score, sample by sample.
    #[default]
    Top,
    /// This class for every sample.
    Index(usize),
    /// One class for each sample.
    PerSample(Vec<usize>),
}

/// The numbers of a split that a compiled explanation takes as inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The shift α: one number, or one per shifted layer where the split was set up so. Between 0 (the true
    /// gradients of `g` and `h`) and ½ (multiples of the ordinary gradient).
    pub alpha: Vec<f64>,
    /// The factor θ by which the stabiliser `Scale` multiplies.
    pub theta: f64,
    /// The limit Θ past which it does so.
    pub limit: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { alpha: vec![0.4], theta: 0.1, limit: 10.0 }
    }
}

impl Settings {
    /// An error if a number is out of its range.
    pub fn check(&self) -> Result<()> {
        if self.alpha.iter().any(|a| !(0.0..=1.0).contains(a)) {
            return Err(Error::argument("α must lie between 0 and 1 (½ gives the ordinary gradient)"));
        }
        if !(self.theta > 0.0 && self.theta <= 1.0) {
            return Err(Error::argument("θ must be greater than 0 and at most 1"));
        }
        if self.limit.is_nan() || self.limit <= 0.0 {
            return Err(Error::argument("the limit Θ must be positive"));
        }
        Ok(())
    }

    /// Another α for all layers.
    #[must_use]
    pub fn alpha(self, alpha: f64) -> Self {
        Settings { alpha: vec![alpha], ..self }
    }
}

/// A map for every sample of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// `[N, H, W]` for layers with spatial axes, exactly as defined: no normalisation.
    pub values: Tensor,
    /// For each sample, the power of two its values are to be multiplied by: 0 unless they would overflow.
    pub exponents: Vec<i32>,
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
    /// For every request, whether its map is found in `double`, and where.
    places: Vec<(bool, usize)>,
    alphas: usize,
    classes: usize,
    samples: Dim,
}

/// What one explanation is asked about.
struct Values<'a> {
    images: &'a Tensor,
    given: &'a [(&'a str, Tensor)],
    settings: &'a Settings,
}

/// An explanation and its program.
struct Compiled {
    explanation: Explanation,
    program: Box<dyn Program>,
    invariant: Option<Invariant>,
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

impl Explainer {
    /// Compiles the maps asked for of `network` on `engine`.
    ///
    /// SplitLRP divides by numbers that single precision can lose, so its maps are computed in double precision
    /// whatever the engine's own; the class scores always come from the engine's own.
    pub fn new(network: &Graph, split: &Split, requests: &[Request], engine: &dyn Engine) -> Result<Self> {
        let needs_double = |request: &Request| {
            request.method.needs_relevance() && engine.native_precision() != Precision::F64
        };
        let (double, native): (Vec<Request>, Vec<Request>) = requests.iter().cloned().partition(needs_double);
        let mut counts = [0, 0];
        let place = |request: &Request| {
            let place = needs_double(request);
            counts[usize::from(place)] += 1;
            (place, counts[usize::from(place)] - 1)
        };
        let places = requests.iter().map(place).collect();
        let native = Explanation::new(network, split, ClassInput::GivenOrTop, &native)?;
        let native =
            Compiled { program: engine.compile(native.graph())?, explanation: native, invariant: None };
        let double = if double.is_empty() {
            None
        } else {
            let explanation = Explanation::new(network, split, ClassInput::GivenOrTop, &double)?;
            let program = engine.compile_in(explanation.graph(), Precision::F64)?;
            Some(Compiled { explanation, program, invariant: None })
        };
        let alphas = match split.alpha {
            AlphaInput::Uniform => 1,
            AlphaInput::PerLayer => native.explanation.shifted_layers().len(),
        };
        let graph = native.explanation.graph();
        let classes = graph.node(graph.outputs()[0].node).shape.fixed_at(1).unwrap_or(0);
        let samples = graph.node(graph.inputs()[0]).shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
        Ok(Explainer { native, double, places, alphas, classes, samples })
    }

    /// Like [`Explainer::new`], and remembers per class and settings what does not depend on the image: in `convex` mode
    /// the mass `σ`. Worth its memory when many images are explained for few classes that are known beforehand.
    pub fn remembering(
        network: &Graph,
        split: &Split,
        requests: &[Request],
        engine: &dyn Engine,
    ) -> Result<Self> {
        let mut explainer = Explainer::new(network, split, requests, engine)?;
        let native = requests.iter().zip(&explainer.places).filter(|(_, place)| !place.0);
        let native: Vec<Request> = native.map(|(request, _)| request.clone()).collect();
        let given = Explanation::new(network, split, ClassInput::Given, &native)?;
        let numbers = [inputs::ALPHA, inputs::THETA, inputs::LIMIT];
        if let Some(cut) = cut(given.graph(), inputs::CLASS, &numbers)? {
            let (prologue, main) = (engine.compile(&cut.prologue)?, engine.compile(&cut.main)?);
            let cache = Mutex::new(VecDeque::new());
            explainer.native.invariant = Some(Invariant { cut, prologue, main, cache });
        }
        Ok(explainer)
    }

    /// The graph behind the maps that are computed in the engine's own precision.
    pub fn explanation(&self) -> &Explanation {
        &self.native.explanation
    }

    /// The names of the layers at which sensitivities are shifted, the class scores last.
    pub fn shifted_layers(&self) -> &[String] {
        self.native.explanation.shifted_layers()
    }

    /// The length of the sample axis of the network's input.
    pub fn samples(&self) -> Dim {
        self.samples
    }

    /// Explains a batch of preprocessed images `[N, C, H, W]`.
    pub fn explain(&self, images: &Tensor, class: &Class, settings: &Settings) -> Result<Explained> {
        self.explain_given(images, &[], class, settings)
    }

    /// Explains a batch for a network that reads more than the images: dropout masks, say. What is `given`, by
    /// name, is held fixed, like a weight.
    pub fn explain_given(
        &self,
        images: &Tensor,
        given: &[(&str, Tensor)],
        class: &Class,
        settings: &Settings,
    ) -> Result<Explained> {
        self.check(settings)?;
        let samples = images.shape().first().copied().unwrap_or(1);
        let classes = self.class_numbers(class, samples)?;
        let values = Values { images, given, settings };
        let outputs = match (&self.native.invariant, class) {
            (Some(invariant), Class::Index(_) | Class::PerSample(_)) => {
                invariant.run(&self.native, &classes, &values)?
            }
            _ => self.native.program.run(&self.native.inputs(&classes, &values)?)?,
        };
        self.explained(outputs, &values)
    }

    /// Like [`Explainer::explain`], timing every node of the graph [`Explainer::explanation`] returns.
    pub fn explain_profiled(
        &self,
        images: &Tensor,
        class: &Class,
        settings: &Settings,
    ) -> Result<(Explained, Profile)> {
        self.check(settings)?;
        let samples = images.shape().first().copied().unwrap_or(1);
        let classes = self.class_numbers(class, samples)?;
        let values = Values { images, given: &[], settings };
        let inputs = self.native.inputs(&classes, &values)?;
        let (outputs, profile) = self.native.program.run_profiled(&inputs)?;
        Ok((self.explained(outputs, &values)?, profile))
    }

    fn explained(&self, outputs: Vec<Tensor>, values: &Values<'_>) -> Result<Explained> {
        let samples = values.images.shape().first().copied().unwrap_or(1);
        let classes =
            outputs[1].to_i64().ok_or_else(|| Error::argument("the explained classes are not integers"))?;
        let in_double = match &self.double {
            Some(double) => double.program.run(&double.inputs(&classes, values)?)?,
            None => Vec::new(),
        };
        let mut maps = Vec::with_capacity(self.places.len());
        for &(double, at) in &self.places {
            maps.push(match (&self.double, double) {
                (Some(compiled), true) => {
                    rounded(read(&in_double, compiled.explanation.readings()[at], samples), &outputs[0])?
                }
                _ => read(&outputs, self.native.explanation.readings()[at], samples),
            });
        }
        let classes = classes.iter().map(|&c| c as usize).collect();
        Ok(Explained { logits: outputs[0].clone(), classes, maps })
    }

    fn class_numbers(&self, class: &Class, samples: usize) -> Result<Vec<i64>> {
        let numbers = match class {
            Class::Top => return Ok(vec![-1; samples]),
            Class::Index(index) => vec![*index; samples],
            Class::PerSample(classes) if classes.len() == samples => classes.clone(),
            Class::PerSample(classes) => {
                return Err(Error::argument(format!(
                    "{} classes were given for {samples} images",
                    classes.len()
                )));
            }
        };
        match numbers.iter().find(|&&c| c >= self.classes) {
            Some(c) => Err(Error::new(
                ErrorKind::Argument,
                format!(
                    "there is no class {c}: the network has {} classes, 0 to {}",
                    self.classes,
                    self.classes - 1
                ),
            )),
            None => Ok(numbers.into_iter().map(|c| c as i64).collect()),
        }
    }

    fn check(&self, settings: &Settings) -> Result<()> {
        if settings.alpha.len() != self.alphas {
            return Err(Error::argument(format!(
                "{} values of α were given where {} are needed",
                settings.alpha.len(),
                self.alphas
            )));
        }
        settings.check()
    }
}

impl Compiled {
    fn inputs(&self, classes: &[i64], values: &Values<'_>) -> Result<Vec<Tensor>> {
        let graph = self.explanation.graph();
        let mut tensors = Vec::with_capacity(graph.inputs().len());
        for (position, &id) in graph.inputs().iter().enumerate() {
            let name = graph.node(id).label.tensor.as_str();
            tensors.push(match name {
                _ if position == 0 => values.images.clone(),
                inputs::CLASS => Tensor::vector(classes.to_vec()),
                inputs::ALPHA if graph.node(id).shape.rank() == 0 => Tensor::scalar(values.settings.alpha[0]),
                inputs::ALPHA => Tensor::vector(values.settings.alpha.clone()),
                inputs::THETA => Tensor::scalar(values.settings.theta),
                inputs::LIMIT => Tensor::scalar(values.settings.limit),
                other => {
                    let given = values.given.iter().find(|(name, _)| *name == other);
                    let message = || format!("the network also reads '{other}', which was not given");
                    given.map(|(_, tensor)| tensor.clone()).ok_or_else(|| Error::argument(message()))?
                }
            });
        }
        Ok(tensors)
    }
}

impl Invariant {
    fn run(&self, compiled: &Compiled, classes: &[i64], values: &Values<'_>) -> Result<Vec<Tensor>> {
        let mut inputs = compiled.inputs(classes, values)?;
        let mut per_sample = Vec::with_capacity(classes.len());
        for &class in classes {
            per_sample.push(self.crossing(compiled, class, values)?);
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
    fn crossing(&self, compiled: &Compiled, class: i64, values: &Values<'_>) -> Result<Vec<Tensor>> {
        let key = Key { class, settings: values.settings.clone() };
        if let Some(crossing) = self.recall(&key) {
            return Ok(crossing);
        }
        let all = compiled.inputs(&[class], values)?;
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
    Map { values: outputs[reading.map].clone(), exponents }
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
