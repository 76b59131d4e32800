//! Explanations of inputs by name: several at once, and token ids at their embedding.

use std::sync::Arc;

use monosplit::engine::Engine;
use monosplit::explain::{BatchPosition, ChannelReduction, Class, Explanation, Finish};
use monosplit::graph::Tensor;
use monosplit::graph::batch::rows;
use monosplit::{InputsExplainer, Labels, Model, ScoreKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

use crate::arrays;
use crate::errors::exception;
use crate::explainer::{Result, for_samples};
use crate::progress::Listener;

/// A method for some of the inputs of a network, compiled. Threads may share it.
#[pyclass(frozen, module = "monosplit")]
pub(crate) struct CompiledInputs {
    explainer: InputsExplainer,
    /// What is explained of each sample unless classes are given.
    class: Class,
    /// The method as it is written in one word, with the options that differ from their defaults.
    #[pyo3(get)]
    method: String,
    /// The method's name as it stands in captions.
    #[pyo3(get)]
    title: String,
    /// The shift α, where the method has one.
    #[pyo3(get)]
    alpha: Option<f64>,
    options: Vec<(&'static str, String)>,
    labels: Arc<Labels>,
    score_kind: ScoreKind,
    batch: usize,
}

/// A method, configured, and what is known of the network's scores.
pub(crate) struct Chosen {
    pub(crate) method: monosplit::catalogue::ConfiguredMethod,
    pub(crate) labels: Arc<Labels>,
    pub(crate) batch: usize,
}

impl CompiledInputs {
    pub(crate) fn new(
        model: &Model,
        chosen: Chosen,
        of: &[&str],
        engine: &dyn Engine,
    ) -> monosplit::Result<Self> {
        model.expect_classes()?;
        let Chosen { method: chosen, labels, batch } = chosen;
        let (method, title, alpha) = (chosen.canonical(), chosen.title.clone(), chosen.alpha);
        let options = chosen.options.clone();
        // The attributions and the maps are two finishes of one computation.
        let finishes = [Finish { channels: ChannelReduction::Keep, ..Finish::default() }, Finish::default()];
        let explainer = model.finished_inputs_explainer(chosen, of, &finishes, engine)?;
        let (class, score_kind) = (model.explained_class(), model.score_kind());
        Ok(CompiledInputs { explainer, class, method, title, alpha, options, labels, score_kind, batch })
    }

    fn in_batches(
        &self,
        values: &[(String, Tensor)],
        count: usize,
        classes: Option<&[Option<usize>]>,
        listener: &mut Listener,
    ) -> monosplit::Result<Vec<Explanation>> {
        let batches = count.div_ceil(self.batch);
        let mut parts = Vec::with_capacity(batches);
        for (index, start) in (0..count).step_by(self.batch).enumerate() {
            let end = count.min(start + self.batch);
            listener.at_batch(index, batches);
            let of_batch = |(name, value): &'_ (String, Tensor)| -> monosplit::Result<(String, Tensor)> {
                let each = batches > 1 && value.shape().first() == Some(&count);
                Ok((name.clone(), if each { rows(value, start..end)? } else { value.clone() }))
            };
            let batch = values.iter().map(of_batch).collect::<monosplit::Result<Vec<_>>>()?;
            let batch: Vec<(&str, Tensor)> =
                batch.iter().map(|(name, v)| (name.as_str(), v.clone())).collect();
            let given = classes.map(|classes| Class::PerSampleOrTop(classes[start..end].to_vec()));
            let class = given.unwrap_or_else(|| self.class.clone());
            let position = BatchPosition { offset: start, is_last: end == count };
            let found = self.explainer.explain_at(&batch, &class, position, &*listener)?;
            let maps = found.maps.into_iter().map(|map| map.map).collect();
            parts.push(Explanation { logits: found.logits, classes: found.classes, maps });
            listener.finish_batch()?;
        }
        Ok(parts)
    }
}

#[pymethods]
impl CompiledInputs {
    /// All options that have an effect, given or default.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.options.iter().map(|(key, value)| (key, value)).into_py_dict(py)
    }

    /// The explained inputs: name, and whether it holds token ids, whose embedding is explained.
    fn explained(&self) -> Vec<(String, bool)> {
        let parts = self.explainer.parts().iter();
        parts.map(|part| (part.name().to_owned(), part.tokens().is_some())).collect()
    }

    /// Explains samples: the values of all inputs by name, each with samples along its first axis, one for all or one for
    /// each. `classes` and `report` are as for a method at a layer.
    #[pyo3(signature = (values, classes=None, report=None))]
    fn explain(
        &self,
        py: Python<'_>,
        values: Vec<(String, Bound<'_, PyAny>)>,
        classes: Option<Vec<Option<usize>>>,
        report: Option<Py<PyAny>>,
    ) -> PyResult<Result> {
        let values = values.into_iter().map(|(name, value)| Ok((name, arrays::tensor(&value)?)));
        let values = values.collect::<PyResult<Vec<_>>>()?;
        let counts = || values.iter().filter_map(|(_, value)| value.shape().first().copied());
        let count = counts().max().unwrap_or(0);
        if counts().min().unwrap_or(0) == 0 {
            return Err(PyValueError::new_err("there is nothing to explain: an input is empty"));
        }
        let classes = for_samples(classes, count)?;
        let mut listener = Listener::new(report);
        let done = py.detach(|| self.in_batches(&values, count, classes.as_deref(), &mut listener));
        match (done, listener.raised()) {
            (_, Some(raised)) => Err(raised),
            (Ok(parts), None) => {
                let shape =
                    |dims: &[usize]| [None].into_iter().chain(dims.iter().copied().map(Some)).collect();
                let explained = self.explainer.parts().iter().map(|part| shape(part.dims())).collect();
                let (labels, score_kind) = (self.labels.clone(), self.score_kind);
                Ok(Result { parts, labels, score_kind, explained })
            }
            (Err(error), None) => Err(exception(error)),
        }
    }
}
