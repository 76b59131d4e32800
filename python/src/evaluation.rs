//! Metrics of maps, of our methods and of functions written in Python.

use monosplit::eval::{Case, CaseShape, CompiledMethod, EvaluatedModel, MapFunction, Metric, metrics};
use monosplit::explain::Progress;
use monosplit::graph::batch::rows;
use monosplit::graph::{Data, Noise};
use monosplit::{Error, Result, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays;
use crate::errors::exception;
use crate::explainer::CompiledExplainer;
use crate::model::Network;
use crate::progress::Listener;

/// All metrics, each a dictionary with name, family, summary, citation and the keys of its options.
#[pyfunction]
pub(crate) fn metric_catalogue(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    metrics::all()
        .iter()
        .map(|entry| {
            let found = PyDict::new(py);
            found.set_item("name", entry.name)?;
            found.set_item("family", entry.family.title())?;
            found.set_item("summary", entry.summary)?;
            found.set_item("citation", entry.citation)?;
            found.set_item("options", entry.options.to_vec())?;
            Ok(found)
        })
        .collect()
}

/// A function of images and a class.
struct Function<'a>(&'a Py<PyAny>);

impl MapFunction for Function<'_> {
    fn maps(&self, images: &Tensor, class: usize) -> Result<Tensor> {
        called(self.0, images, class)
    }
}

/// The maps that a function of Python returns.
fn called(function: &Py<PyAny>, images: &Tensor, class: usize) -> Result<Tensor> {
    let made = Python::attach(|py| -> PyResult<Tensor> {
        let images = arrays::array(py, images.clone())?;
        arrays::tensor(function.call1(py, (images, class))?.bind(py))
    });
    made.map_err(|raised| Error::argument(format!("the function that explains: {raised}")))
}

/// A value for each metric and sample, or the reason why there is none.
type Measured = Vec<Vec<(Option<f64>, Option<String>)>>;

/// Measures the maps `[N, H, W]` of samples, each explained for its class. `method` or `function` explain other images for
/// metrics that ask for them.
#[pyfunction]
#[pyo3(signature = (network, metrics, samples, classes, maps, *, method=None, function=None, masks=None, seed=0, report=None))]
#[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub(crate) fn measure(
    py: Python<'_>,
    network: &Network,
    metrics: Vec<String>,
    samples: &Bound<'_, PyAny>,
    classes: Vec<usize>,
    maps: &Bound<'_, PyAny>,
    method: Option<&CompiledExplainer>,
    function: Option<Py<PyAny>>,
    masks: Option<&Bound<'_, PyAny>>,
    seed: u64,
    report: Option<Py<PyAny>>,
) -> PyResult<Measured> {
    let metrics: Vec<Box<dyn Metric>> =
        metrics.iter().map(|text| metrics::parse(text).map_err(exception)).collect::<PyResult<_>>()?;
    let (samples, maps) = (arrays::tensor(samples)?, arrays::tensor(maps)?);
    let masks = masks.map(arrays::tensor).transpose()?;
    let &[count, channels, height, width] = samples.shape() else {
        let shape = samples.shape();
        let message = format!("metrics are of images [N, C, H, W], found samples of shape {shape:?}");
        return Err(PyValueError::new_err(message));
    };
    if maps.shape() != [count, height, width] || classes.len() != count {
        let shape = maps.shape();
        let message = format!(
            "expected a map [{height}, {width}] and a class for each of {count} images, found {shape:?}"
        );
        return Err(PyValueError::new_err(message));
    }
    if masks.as_ref().is_some_and(|masks| masks.shape() != [count, height, width]) {
        let message = format!("expected a mask [{height}, {width}] for each of {count} images");
        return Err(PyValueError::new_err(message));
    }
    let function = function.as_ref().map(Function);
    let method = method.map(|method| CompiledMethod {
        explainer: &method.explainer,
        request: &method.request,
        settings: &method.settings,
    });
    let source: &dyn MapFunction = match (&method, &function) {
        (Some(method), _) => method,
        (None, Some(function)) => function,
        (None, None) => return Err(PyValueError::new_err("name a method or a function that explains")),
    };
    let listener = Listener::new(report);
    let done = py.detach(|| {
        let (graph, engine) = network.parts();
        let model = EvaluatedModel::new(graph, engine)?;
        let shape = CaseShape { channels, height, width, classes: network.class_count()? };
        metrics.iter().try_for_each(|metric| metric.check(&shape))?;
        let masks: Option<&[bool]> = match masks.as_ref().map(Tensor::data) {
            Some(Data::Bool(values)) => Some(values),
            Some(_) => return Err(Error::argument("masks are arrays of truth values")),
            None => None,
        };
        let pixels = height * width;
        let mut found: Measured = vec![Vec::with_capacity(count); metrics.len()];
        for index in 0..count {
            let map = rows(&maps, index..index + 1)?.reshaped([height, width])?;
            let image = rows(&samples, index..index + 1)?;
            let case = Case {
                image: &image,
                class: classes[index],
                map: &map,
                mask: masks.map(|all| &all[index * pixels..(index + 1) * pixels]),
                network: &model.measured(&image, source),
                seed: Noise::new(seed).stream(&index.to_string()).bits(0),
            };
            for (at, metric) in metrics.iter().enumerate() {
                let needs_mask = metric.needs_mask() && case.mask.is_none();
                found[at].push(match needs_mask {
                    true => (None, Some("the image has no mask".to_owned())),
                    false => match metric.measure(&case)? {
                        Ok(value) => (Some(value), None),
                        Err(why) => (None, Some(why.0)),
                    },
                });
                listener.advance(index * metrics.len() + at + 1, count * metrics.len())?;
            }
        }
        Ok(found)
    });
    match (done, listener.raised()) {
        (_, Some(raised)) => Err(raised),
        (found, None) => found.map_err(exception),
    }
}
