//! A compiled explanation: batches of arrays in, scores, classes, attributions and maps out.

use std::sync::Arc;

use monosplit::explain::{
    Absolute, BatchPosition, ChannelReduction, Class, ExplainBatch, Explainer, Explanation, Finish,
    MapRequest, SaliencyMap, Settings, Size,
};
use monosplit::graph::batch::{rows, stack};
use monosplit::graph::{Kind, Tensor};
use monosplit::{Labels, Model, RankedClass, ScoreKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::arrays;
use crate::errors::exception;
use crate::progress::Listener;

/// The attributions and the maps are two finishes of one computation.
pub(crate) fn requests(request: &MapRequest, absolute: Absolute, size: Size) -> [MapRequest; 2] {
    let kept = Finish { channels: ChannelReduction::Keep, ..Finish::default() };
    let map = Finish { size, absolute, ..Finish::default() };
    [request.clone().finish(kept), request.clone().finish(map)]
}

/// A method at a layer, compiled for an engine. Threads may share it.
#[pyclass(frozen, module = "monosplit")]
pub(crate) struct CompiledExplainer {
    pub(crate) explainer: Explainer,
    pub(crate) settings: Settings,
    /// What is explained of each sample unless classes are given.
    pub(crate) class: Class,
    /// The map at the size of the input.
    pub(crate) request: MapRequest,
    /// The method as it is written in one word, with the options that differ from their defaults.
    #[pyo3(get)]
    pub(crate) method: String,
    /// The method's name as it stands in captions.
    #[pyo3(get)]
    pub(crate) title: String,
    /// The layer that is attributed to; none is the input.
    #[pyo3(get)]
    pub(crate) layer: Option<String>,
    /// The shift α, where the method has one.
    #[pyo3(get)]
    pub(crate) alpha: Option<f64>,
    /// All options that have an effect.
    pub(crate) options: Vec<(&'static str, String)>,
    /// The network that holds the values of further inputs, where there are any.
    pub(crate) given: Option<Model>,
    /// Names of the classes and the kind of their scores.
    pub(crate) labels: Arc<Labels>,
    pub(crate) score_kind: ScoreKind,
    /// Samples that are computed at a time.
    pub(crate) batch: usize,
    /// The shape of what is explained; none is an axis of any length.
    pub(crate) explained: Vec<Option<usize>>,
}

#[pymethods]
impl CompiledExplainer {
    /// All options that have an effect, given or default.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.options.iter().map(|(key, value)| (key, value)).into_py_dict(py)
    }

    /// Explains samples along the first axis. `classes` has one number for each sample or for all; none is the class with the
    /// highest score. `report` is called with the share that is done.
    #[pyo3(signature = (samples, classes=None, report=None))]
    fn explain(
        &self,
        py: Python<'_>,
        samples: &Bound<'_, PyAny>,
        classes: Option<Vec<Option<usize>>>,
        report: Option<Py<PyAny>>,
    ) -> PyResult<Result> {
        let samples = arrays::tensor(samples)?;
        let count = samples.shape().first().copied().unwrap_or(0);
        if count == 0 {
            return Err(PyValueError::new_err("there is nothing to explain: the batch is empty"));
        }
        let classes = for_samples(classes, count)?;
        let mut listener = Listener::new(report);
        let done = py.detach(|| self.in_batches(&samples, classes.as_deref(), &mut listener));
        match (done, listener.raised()) {
            (_, Some(raised)) => Err(raised),
            (Ok(parts), None) => {
                let (labels, score_kind) = (self.labels.clone(), self.score_kind);
                Ok(Result { parts, labels, score_kind, explained: vec![self.explained.clone()] })
            }
            (Err(error), None) => Err(exception(error)),
        }
    }
}

/// One class for each sample, where one for all was given.
pub(crate) fn for_samples(
    classes: Option<Vec<Option<usize>>>,
    count: usize,
) -> PyResult<Option<Vec<Option<usize>>>> {
    let classes = classes.map(|given| if given.len() == 1 { vec![given[0]; count] } else { given });
    match classes.as_ref().map(Vec::len) {
        Some(given) if given != count => {
            Err(PyValueError::new_err(format!("{given} targets were given for {count} samples")))
        }
        _ => Ok(classes),
    }
}

impl CompiledExplainer {
    fn in_batches(
        &self,
        samples: &Tensor,
        classes: Option<&[Option<usize>]>,
        listener: &mut Listener,
    ) -> monosplit::Result<Vec<Explanation>> {
        let count = samples.shape()[0];
        let batches = count.div_ceil(self.batch);
        let mut parts = Vec::with_capacity(batches);
        for (index, start) in (0..count).step_by(self.batch).enumerate() {
            let end = count.min(start + self.batch);
            listener.at_batch(index, batches);
            let images = if batches == 1 { samples.clone() } else { rows(samples, start..end)? };
            let others = match &self.given {
                Some(model) => model.given_inputs(start, end - start)?,
                None => Vec::new(),
            };
            let given = classes.map(|classes| Class::PerSampleOrTop(classes[start..end].to_vec()));
            let class = given.unwrap_or_else(|| self.class.clone());
            let position = Some(BatchPosition { offset: start, is_last: end == count });
            let batch = ExplainBatch {
                progress: &*listener,
                position,
                other_inputs: &others,
                ..ExplainBatch::new(&images, &class, &self.settings)
            };
            parts.push(self.explainer.explain_batch(&batch)?);
            listener.finish_batch()?;
        }
        Ok(parts)
    }
}

/// What was found, as arrays that can be taken once each.
#[pyclass(module = "monosplit")]
pub(crate) struct Result {
    /// The explanation of each batch. Its maps are the attributions of all inputs that are explained, then their maps.
    pub(crate) parts: Vec<Explanation>,
    pub(crate) labels: Arc<Labels>,
    pub(crate) score_kind: ScoreKind,
    /// The shape of each value that is explained; none is an axis of any length.
    pub(crate) explained: Vec<Vec<Option<usize>>>,
}

impl Result {
    fn check(&self, input: usize) -> PyResult<()> {
        match self.explained.get(input) {
            Some(_) => Ok(()),
            None => {
                let message = format!("{} inputs are explained, found number {input}", self.explained.len());
                Err(PyValueError::new_err(message))
            }
        }
    }

    fn joined(&self, of: impl Fn(&Explanation) -> &Tensor) -> PyResult<Tensor> {
        match &self.parts[..] {
            [only] => Ok(of(only).clone()),
            parts => {
                let parts: Vec<Tensor> = parts.iter().map(|part| of(part).clone()).collect();
                stack(&parts, Kind::Float).map_err(exception)
            }
        }
    }

    /// Takes the values of a map out, so that nothing is copied where there was one batch.
    fn take(&mut self, of: impl Fn(&mut Explanation) -> &mut SaliencyMap) -> PyResult<Tensor> {
        let empty = || Tensor::vector(Vec::<f32>::new());
        let mut parts: Vec<Tensor> =
            self.parts.iter_mut().map(|part| std::mem::replace(&mut of(part).values, empty())).collect();
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => stack(&parts, Kind::Float).map_err(exception),
        }
    }
}

/// The shape of attributions with an axis of one channel, where what is explained has a channel axis and they have none.
fn with_channel_axis(found: &[usize], explained: &[Option<usize>]) -> Vec<usize> {
    let mut shape = found.to_vec();
    if found.len() + 1 == explained.len() {
        let is_rest = |axis: &usize| {
            let rest = explained[1..*axis].iter().chain(&explained[axis + 1..]);
            rest.zip(&found[1..]).all(|(length, found)| length.is_none_or(|length| length == *found))
        };
        if let Some(axis) = (1..explained.len()).find(is_rest) {
            shape.insert(axis, 1);
        }
    }
    shape
}

#[pymethods]
impl Result {
    /// The class scores, bit for bit those of the network alone.
    fn scores<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        arrays::array(py, self.joined(|part| &part.logits)?)
    }

    /// The explained class of each sample.
    fn classes(&self) -> Vec<usize> {
        self.parts.iter().flat_map(|part| part.classes.iter().copied()).collect()
    }

    /// The name of the explained class of each sample, its number where it has none.
    fn class_names(&self) -> Vec<String> {
        let named = |class: usize| self.labels.named(class).unwrap_or_else(|| class.to_string());
        self.classes().into_iter().map(named).collect()
    }

    /// The probability of the explained class of each sample, where the scores say something about it.
    fn probabilities(&self) -> Vec<Option<f64>> {
        let mut found = Vec::new();
        for part in &self.parts {
            let scores = part.logits.to_f64();
            let classes = scores.len() / part.classes.len().max(1);
            for (row, &class) in scores.chunks(classes.max(1)).zip(&part.classes) {
                let ranked = RankedClass::of_class(row, class, self.score_kind);
                found.push(ranked.and_then(|ranked| ranked.probability));
            }
        }
        found
    }

    /// The attributions of an explained input, shaped like it; a method that does not tell channels apart has one channel.
    /// They can be taken once.
    #[pyo3(signature = (input=0))]
    fn take_attributions<'py>(&mut self, py: Python<'py>, input: usize) -> PyResult<Bound<'py, PyAny>> {
        self.check(input)?;
        let values = self.take(|part| &mut part.maps[input])?;
        let shape = with_channel_axis(values.shape(), &self.explained[input]);
        arrays::array(py, values.reshaped(shape).map_err(exception)?)
    }

    /// The maps of an explained input at its size. They can be taken once.
    #[pyo3(signature = (input=0))]
    fn take_maps<'py>(&mut self, py: Python<'py>, input: usize) -> PyResult<Bound<'py, PyAny>> {
        self.check(input)?;
        let inputs = self.explained.len();
        let values = self.take(|part| &mut part.maps[inputs + input])?;
        arrays::array(py, values)
    }

    /// For each sample the power of two that its attributions are to be multiplied by; 0 unless they would overflow.
    fn exponents(&self) -> Vec<i32> {
        self.parts.iter().flat_map(|part| part.maps[0].exponents.iter().copied()).collect()
    }

    /// What the method measured about itself, one number for each sample under each name.
    fn diagnostics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for diagnostic in self.parts.iter().flat_map(|part| &part.maps[0].diagnostics) {
            let mut values: Vec<f64> = match found.get_item(diagnostic.name)? {
                Some(known) => known.extract()?,
                None => Vec::new(),
            };
            values.extend(&diagnostic.values);
            found.set_item(diagnostic.name, values)?;
        }
        Ok(found)
    }
}
