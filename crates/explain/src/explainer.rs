//! A prepared explanation: compiled once, asked for many images.

use std::collections::VecDeque;
use std::sync::Mutex;

use monosplit_engine::{Engine, Profile, Program};
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
    explanation: Explanation,
    direct: Box<dyn Program>,
    invariant: Option<Invariant>,
    alphas: usize,
    classes: usize,
    samples: Dim,
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
    class: usize,
    settings: Settings,
}

/// How many classes' invariant values are remembered.
const REMEMBERED: usize = 4;

impl Explainer {
    /// Compiles the maps asked for of `network` on `engine`.
    pub fn new(network: &Graph, split: &Split, requests: &[Request], engine: &dyn Engine) -> Result<Self> {
        let explanation = Explanation::new(network, split, ClassInput::GivenOrTop, requests)?;
        let direct = engine.compile(explanation.graph())?;
        let alphas = match split.alpha {
            AlphaInput::Uniform => 1,
            AlphaInput::PerLayer => explanation.shifted_layers().len(),
        };
        let logits = explanation.graph().outputs()[0].node;
        let classes = explanation.graph().node(logits).shape.fixed_at(1).unwrap_or(0);
        let image = explanation.graph().inputs()[0];
        let samples = explanation.graph().node(image).shape.dims().first().copied().unwrap_or(Dim::Fixed(1));
        Ok(Explainer { explanation, direct, invariant: None, alphas, classes, samples })
    }

    /// Prepares the explainer to remember, per class and settings, what does not depend on the image. Worth its
    /// memory when many images are explained for few classes that are known beforehand.
    pub fn remember(
        mut self,
        network: &Graph,
        split: &Split,
        requests: &[Request],
        engine: &dyn Engine,
    ) -> Result<Self> {
        let given = Explanation::new(network, split, ClassInput::Given, requests)?;
        let numbers = [inputs::ALPHA, inputs::THETA, inputs::LIMIT];
        if let Some(cut) = cut(given.graph(), inputs::CLASS, &numbers)? {
            let prologue = engine.compile(&cut.prologue)?;
            let main = engine.compile(&cut.main)?;
            self.invariant = Some(Invariant { cut, prologue, main, cache: Mutex::new(VecDeque::new()) });
        }
        Ok(self)
    }

    /// The graph behind the maps.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// The names of the layers at which sensitivities are shifted, the class scores last.
    pub fn shifted_layers(&self) -> &[String] {
        self.explanation.shifted_layers()
    }

    /// The length of the sample axis of the network's input.
    pub fn samples(&self) -> Dim {
        self.samples
    }

    /// Explains a batch of preprocessed images `[N, C, H, W]`.
    pub fn explain(&self, images: &Tensor, class: &Class, settings: &Settings) -> Result<Explained> {
        let samples = images.shape().first().copied().unwrap_or(1);
        let classes = self.class_numbers(class, samples)?;
        match (&self.invariant, class) {
            (Some(invariant), Class::Index(_) | Class::PerSample(_)) => {
                let outputs = self.run_invariant(invariant, images, &classes, settings)?;
                self.explained(outputs, samples)
            }
            _ => {
                let given = self.inputs(images, &classes, settings)?;
                self.explained(self.direct.run(&given)?, samples)
            }
        }
    }

    /// Like [`Explainer::explain`], timing every node.
    pub fn explain_profiled(
        &self,
        images: &Tensor,
        class: &Class,
        settings: &Settings,
    ) -> Result<(Explained, Profile)> {
        let samples = images.shape().first().copied().unwrap_or(1);
        let classes = self.class_numbers(class, samples)?;
        let (outputs, profile) = self.direct.run_profiled(&self.inputs(images, &classes, settings)?)?;
        Ok((self.explained(outputs, samples)?, profile))
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

    fn inputs(&self, images: &Tensor, classes: &[i64], settings: &Settings) -> Result<Vec<Tensor>> {
        self.check(settings)?;
        let graph = self.explanation.graph();
        let mut tensors = Vec::with_capacity(graph.inputs().len());
        for (position, &id) in graph.inputs().iter().enumerate() {
            let name = graph.node(id).label.tensor.as_str();
            tensors.push(match name {
                _ if position == 0 => images.clone(),
                inputs::CLASS => Tensor::vector(classes.to_vec()),
                inputs::ALPHA if graph.node(id).shape.rank() == 0 => Tensor::scalar(settings.alpha[0]),
                inputs::ALPHA => Tensor::vector(settings.alpha.clone()),
                inputs::THETA => Tensor::scalar(settings.theta),
                inputs::LIMIT => Tensor::scalar(settings.limit),
                other => {
                    return Err(Error::argument(format!(
                        "the network also reads '{other}', which was not given"
                    )));
                }
            });
        }
        Ok(tensors)
    }

    fn check(&self, settings: &Settings) -> Result<()> {
        if settings.alpha.len() != self.alphas {
            return Err(Error::argument(format!(
                "{} values of α were given where {} are needed",
                settings.alpha.len(),
                self.alphas
            )));
        }
        if settings.alpha.iter().any(|a| !(0.0..=1.0).contains(a)) {
            return Err(Error::argument("α must lie between 0 and 1 (½ gives the ordinary gradient)"));
        }
        if !(settings.theta > 0.0 && settings.theta <= 1.0) {
            return Err(Error::argument("θ must lie between 0 and 1"));
        }
        if settings.limit.is_nan() || settings.limit <= 0.0 {
            return Err(Error::argument("the limit Θ must be positive"));
        }
        Ok(())
    }

    fn run_invariant(
        &self,
        invariant: &Invariant,
        images: &Tensor,
        classes: &[i64],
        settings: &Settings,
    ) -> Result<Vec<Tensor>> {
        let mut given = self.inputs(images, classes, settings)?;
        let mut per_sample = Vec::with_capacity(classes.len());
        for &class in classes {
            per_sample.push(invariant.values(self, class, settings, images)?);
        }
        for i in 0..invariant.cut.crossing {
            let parts: Vec<&Tensor> = per_sample.iter().map(|values| &values[i]).collect();
            let id = invariant.cut.prologue.outputs()[i].node;
            let dims = invariant.cut.prologue.node(id).shape.dims().to_vec();
            let axis = dims.iter().position(|d| matches!(d, Dim::Batch(_))).unwrap_or(0);
            given.push(stacked(&parts, axis)?);
        }
        invariant.main.run(&given)
    }

    fn explained(&self, outputs: Vec<Tensor>, samples: usize) -> Result<Explained> {
        let classes =
            outputs[1].to_i64().ok_or_else(|| Error::argument("the explained classes are not integers"))?;
        let maps =
            self.explanation.readings().iter().map(|reading| read(&outputs, *reading, samples)).collect();
        let classes = classes.iter().map(|&c| c as usize).collect();
        Ok(Explained { logits: outputs[0].clone(), classes, maps })
    }
}

impl Invariant {
    /// The values that cross the cut for one class, computed once.
    fn values(
        &self,
        explainer: &Explainer,
        class: i64,
        settings: &Settings,
        images: &Tensor,
    ) -> Result<Vec<Tensor>> {
        let key = Key { class: class as usize, settings: settings.clone() };
        if let Ok(mut cache) = self.cache.lock()
            && let Some(position) = cache.iter().position(|(k, _)| *k == key)
        {
            let entry = cache.remove(position);
            if let Some(entry) = entry {
                let values = entry.1.clone();
                cache.push_front(entry);
                return Ok(values);
            }
        }
        let all = explainer.inputs(images, &[class], settings)?;
        let given: Vec<Tensor> = self.cut.prologue_inputs.iter().map(|&i| all[i].clone()).collect();
        let values = self.prologue.run(&given)?;
        if let Ok(mut cache) = self.cache.lock() {
            cache.push_front((key, values.clone()));
            cache.truncate(REMEMBERED);
        }
        Ok(values)
    }
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
