//! A network: opened from a file or from bytes, run, explained, verified, compiled.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use monosplit::Inference;
use monosplit::catalogue::{MethodChoice, ValueBounds};
use monosplit::engine::{Cpu, Engine, Precision};
use monosplit::explain::{Absolute, DefaultLayer, Explainer, MapRequest, Method, Size, chosen_layer};
use monosplit::graph::{Graph, LayerName, onnx};
use monosplit::{
    ClassSource, Compilation, InputKind, Labels, Model, ModelOptions, Origin, OutputChoice, TargetChoice,
    TargetContext, Verification,
};
use numpy::PyReadonlyArrayDyn;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrays;
use crate::errors::exception;
use crate::explainer::{CompiledExplainer, requests};
use crate::inputs::{Chosen, CompiledInputs};
use crate::pictures;
use crate::progress::Listener;

/// A network and the engine that runs it. Threads may share it.
#[pyclass(frozen, module = "monosplit")]
pub(crate) struct Network {
    model: Model,
    engine: Arc<dyn Engine>,
    processor: Cpu,
    precision: Precision,
    /// The network compiled to be run, while nobody runs it.
    inference: Mutex<Option<Inference>>,
    labels: OnceLock<Arc<Labels>>,
}

/// How a network is opened, as Python has it.
struct Opening {
    options: ModelOptions,
    precision: Precision,
    threads: usize,
    device: String,
}

impl Opening {
    fn new(
        input_shape: Option<Vec<usize>>,
        output: Option<&str>,
        precision: &str,
        threads: usize,
        device: &str,
        preset: Option<&str>,
    ) -> PyResult<Self> {
        let precision = match precision {
            "float32" => Precision::F32,
            "float64" => Precision::F64,
            other => {
                let message = format!("dtype must be float32 or float64, found {other}");
                return Err(PyValueError::new_err(message));
            }
        };
        let mut options = Model::options().precision(precision);
        if let Some(shape) = input_shape {
            options = options.input_shape(shape);
        }
        if let Some(output) = output {
            let Ok(choice) = output.parse::<OutputChoice>();
            options = options.output(choice);
        }
        if let Some(preset) = preset {
            options = options.preset(preset.parse().map_err(exception)?);
        }
        Ok(Opening { options, precision, threads, device: device.to_owned() })
    }

    fn network(self, model: monosplit::Result<Model>) -> PyResult<Network> {
        let processor = Cpu::default().threads(self.threads).precision(self.precision);
        let engine: Arc<dyn Engine> = match self.device.as_str() {
            "cpu" => Arc::new(processor.clone()),
            device => gpu(device, self.precision)?,
        };
        Ok(Network::new(model.map_err(exception)?, engine, processor, self.precision))
    }
}

#[cfg(feature = "cuda")]
pub(crate) fn gpu(device: &str, precision: Precision) -> PyResult<Arc<dyn Engine>> {
    use monosplit::engine::Cuda;
    let number = match device.strip_prefix("cuda") {
        Some("") => 0,
        Some(rest) => rest.trim_start_matches(':').parse().map_err(|_| unknown_device(device))?,
        None => return Err(unknown_device(device)),
    };
    let engine = Cuda::open(number).map_err(exception)?;
    Ok(Arc::new(engine.precision(precision)))
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn gpu(device: &str, _precision: Precision) -> PyResult<Arc<dyn Engine>> {
    if device.starts_with("cuda") {
        let message = "this build of monosplit computes on the processor only; build the package with the feature \
                       'cuda' (pip install . --config-settings=build-args=\"--features cuda\")";
        return Err(PyValueError::new_err(message));
    }
    Err(unknown_device(device))
}

fn unknown_device(device: &str) -> PyErr {
    PyValueError::new_err(format!("device must be 'cpu', 'cuda' or 'cuda:N', found '{device}'"))
}

#[pymethods]
impl Network {
    /// Opens an ONNX file.
    #[staticmethod]
    #[pyo3(signature = (path, *, input_shape=None, output=None, precision="float32", threads=0, device="cpu", preset=None, arch=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        input_shape: Option<Vec<usize>>,
        output: Option<&str>,
        precision: &str,
        threads: usize,
        device: &str,
        preset: Option<&str>,
        arch: Option<&str>,
    ) -> PyResult<Self> {
        let opening = Opening::new(input_shape, output, precision, threads, device, preset)?;
        let origin = match arch {
            Some(name) => Origin::architecture(name, path),
            None => Origin::onnx(path),
        };
        let model = py.detach(|| opening.options.open(origin));
        opening.network(model)
    }

    /// Reads the bytes of an ONNX file.
    #[staticmethod]
    #[pyo3(signature = (data, *, name="the network", input_shape=None, output=None, precision="float32", threads=0, device="cpu", preset=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn read(
        py: Python<'_>,
        data: &[u8],
        name: &str,
        input_shape: Option<Vec<usize>>,
        output: Option<&str>,
        precision: &str,
        threads: usize,
        device: &str,
        preset: Option<&str>,
    ) -> PyResult<Self> {
        let opening = Opening::new(input_shape, output, precision, threads, device, preset)?;
        let model = py.detach(|| opening.options.read(name, data));
        opening.network(model)
    }

    /// The network whose scores are those of a target, as the command line writes it.
    fn with_target(&self, py: Python<'_>, target: &str) -> PyResult<Self> {
        let model = py.detach(|| {
            let choice: TargetChoice = target.parse()?;
            let preprocess = self.model.preprocess().ok();
            let context =
                TargetContext { preprocess: preprocess.as_ref(), ..TargetContext::new(self.engine.as_ref()) };
            self.model.reopened_for(&choice)?.with_target(&choice, &context)
        });
        let model = model.map_err(exception)?;
        let (engine, processor) = (self.engine.clone(), self.processor.clone());
        Ok(Network::new(model, engine, processor, self.precision))
    }

    /// The network with values for some of its inputs, held fixed like weights: for each one sample for all, or one for
    /// each sample that is explained. The input that is left is explained.
    fn with_inputs(&self, py: Python<'_>, given: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let given = given.into_iter().map(|(name, value)| Ok((name, arrays::tensor(&value)?)));
        let given = given.collect::<PyResult<Vec<_>>>()?;
        let model = py.detach(|| self.model.clone().with_inputs(given)).map_err(exception)?;
        Ok(Network::new(model, self.engine.clone(), self.processor.clone(), self.precision))
    }

    /// Name and kind (`float`, `int` or `bool`) of each input that must be given.
    fn inputs(&self) -> Vec<(String, String)> {
        let graph = self.model.original();
        let inputs = graph.inputs().iter().map(|&id| graph.node(id));
        inputs.map(|node| (node.label.tensor.clone(), node.kind.to_string())).collect()
    }

    /// The network as its input of this name sees it: shape, kind and pictures are those of that input.
    fn reading(&self, name: &str) -> PyResult<Self> {
        let model = self.model.reading_input(name).map_err(exception)?;
        Ok(Network::new(model, self.engine.clone(), self.processor.clone(), self.precision))
    }

    /// The inputs that a person gives: name, what it holds (`real`, `integers` or `tokens`), and whether it is explained
    /// unless others are named.
    fn input_facts(&self, py: Python<'_>) -> Vec<(String, &'static str, bool)> {
        let facts = py.detach(|| self.model.input_facts()).into_iter();
        let word = |holds| match holds {
            InputKind::Tokens { .. } => "tokens",
            InputKind::Real => "real",
            _ => "integers",
        };
        facts.map(|input| (input.name, word(input.holds), input.is_default)).collect()
    }

    /// The names of the inputs that are explained unless others are named.
    fn default_inputs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.model.default_inputs()).map_err(exception)
    }

    /// Compiles a method for inputs by name; the others are held as they are given with each call.
    #[pyo3(signature = (method, options, of, *, batch=16))]
    fn inputs_explainer(
        &self,
        py: Python<'_>,
        method: &str,
        options: Vec<(String, String)>,
        of: Vec<String>,
        batch: usize,
    ) -> PyResult<CompiledInputs> {
        py.detach(|| {
            let method = self.configured(method, &options, false)?;
            let chosen = Chosen { method, labels: self.labels()?, batch: batch.max(1) };
            let of: Vec<&str> = of.iter().map(String::as_str).collect();
            CompiledInputs::new(&self.model, chosen, &of, self.engine.as_ref())
        })
        .map_err(exception)
    }

    /// The target that is explained where it is no class, as the command line writes it.
    #[getter]
    fn target(&self) -> Option<String> {
        self.model.target().filter(|target| !target.is_class()).map(ToString::to_string)
    }

    /// Targets that suit each output.
    fn suggested_targets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for output in self.model.suggested_targets() {
            found.set_item(output.output, output.targets)?;
        }
        Ok(found)
    }

    /// The shape of one sample, without the batch axis.
    #[getter]
    fn sample_shape(&self) -> PyResult<Vec<usize>> {
        self.model.sample_shape().map_err(exception)
    }

    /// The name of the input.
    #[getter]
    fn input_name(&self) -> PyResult<String> {
        Ok(self.model.input().map_err(exception)?.label.tensor.clone())
    }

    /// The kind of number that the input reads: `float`, `int` or `bool`.
    #[getter]
    fn input_kind(&self) -> PyResult<String> {
        Ok(self.model.input().map_err(exception)?.kind.to_string())
    }

    /// The number of classes; none where the first output holds no class scores.
    #[getter]
    fn classes(&self) -> Option<usize> {
        self.model.classes()
    }

    /// The name of a class, none where it has none.
    fn class_name(&self, class: usize) -> PyResult<Option<String>> {
        Ok(self.labels().map_err(exception)?.named(class))
    }

    /// The class of a name, whatever its case.
    fn find_class(&self, name: &str) -> PyResult<usize> {
        let classes = self.model.expect_classes().map_err(exception)?;
        let labels = self.labels().map_err(exception)?;
        labels.find(name, classes).map_err(exception)
    }

    /// The layers: name, operator, shape of the value (none for the batch axis), parameters.
    fn layers(&self) -> Vec<(String, &'static str, Vec<Option<usize>>, usize)> {
        let summary = self.model.graph().layers();
        let shape = |layer: &monosplit::graph::LayerSummary| {
            layer.shape.dims().iter().map(|dim| dim.fixed()).collect()
        };
        summary.into_iter().map(|l| (l.name.clone(), l.op, shape(&l), l.parameters)).collect()
    }

    /// The names of all graph inputs and outputs.
    fn ends(&self) -> (Vec<String>, Vec<String>) {
        let graph = self.model.original();
        let inputs = graph.inputs().iter().map(|&id| graph.node(id).label.tensor.clone()).collect();
        let outputs = graph.outputs().iter().map(|output| output.name.clone()).collect();
        (inputs, outputs)
    }

    /// The layer a method attributes to unless one is named; none is the input.
    fn default_layer(&self, method: &str) -> PyResult<Option<String>> {
        let choice = MethodChoice::parse(method, &[]).map_err(exception)?;
        let layer: DefaultLayer = choice.configured().method.default_layer();
        Ok(chosen_layer(self.model.graph(), layer).map(|layer| layer.name))
    }

    /// A picture as the network reads it: the sample `[1, …]` and the pixels after scaling and cropping.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        rgb: PyReadonlyArrayDyn<'py, u8>,
    ) -> PyResult<(Bound<'py, PyAny>, Option<Bound<'py, PyAny>>)> {
        let picture = pictures::picture(&rgb)?;
        let sample =
            py.detach(|| self.model.sample(&picture, &self.model.preprocess()?)).map_err(exception)?;
        let seen = sample.picture.map(|picture| pictures::pixels(py, picture)).transpose()?;
        Ok((arrays::array(py, sample.tensor)?, seen))
    }

    /// The first output for samples along the first axis.
    #[pyo3(signature = (samples, batch=16))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        samples: &Bound<'py, PyAny>,
        batch: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let samples = arrays::tensor(samples)?;
        let count = samples.shape().first().copied().unwrap_or(0);
        let mut inference = py.detach(|| self.taken_inference()).map_err(exception)?;
        let mut parts = Vec::new();
        for start in (0..count.max(1)).step_by(batch.max(1)) {
            let end = count.min(start + batch.max(1));
            let part = py.detach(|| {
                let part = monosplit::graph::batch::rows(&samples, start..end)?;
                inference.run_beside(&[part], &self.model.given_inputs(start, end - start)?)
            });
            parts.push(part.map_err(exception)?);
            py.check_signals()?;
        }
        if let Ok(mut kept) = self.inference.lock() {
            *kept = Some(inference);
        }
        let kind = parts.first().map_or(monosplit::graph::Kind::Float, monosplit::Tensor::kind);
        arrays::array(py, monosplit::stack(&parts, kind).map_err(exception)?)
    }

    /// Compiles a method. `layer` is a name; none is the layer the method is best read at, and an empty name the input.
    #[pyo3(signature = (method, options, *, layer=None, absolute=false, pictures=false, batch=16))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn explainer(
        &self,
        py: Python<'_>,
        method: &str,
        options: Vec<(String, String)>,
        layer: Option<String>,
        absolute: bool,
        pictures: bool,
        batch: usize,
    ) -> PyResult<CompiledExplainer> {
        py.detach(|| {
            let model = &self.model;
            model.expect_classes()?;
            let chosen = self.configured(method, &options, pictures)?;
            let layer = self.layer(layer, chosen.method.as_ref());
            let request = MapRequest::of(chosen.method.clone(), layer.clone());
            let absolute = if absolute { Absolute::Map } else { Absolute::None };
            let compile =
                |requests: &[MapRequest]| Explainer::new(model.graph(), requests, self.engine.as_ref());
            let at_input = requests(&request, absolute, Size::Input);
            let (requests, explainer) = match compile(&at_input) {
                Ok(explainer) => (at_input, explainer),
                // Values without places have no map of the input's size.
                Err(error) => {
                    let at_layer = requests(&request, absolute, Size::Layer);
                    let explainer = compile(&at_layer).map_err(|_| error)?;
                    (at_layer, explainer)
                }
            };
            let explained = match &layer {
                Some(name) => &model.graph().node(LayerName::parse(name).value(model.graph())?).shape,
                None => &model.input()?.shape,
            };
            Ok(CompiledExplainer {
                explainer,
                explained: explained.dims().iter().map(|dim| dim.fixed()).collect(),
                request: requests[1].clone(),
                method: chosen.canonical(),
                settings: chosen.settings,
                class: model.explained_class(),
                title: chosen.title,
                layer,
                alpha: chosen.alpha,
                options: chosen.options,
                given: model.has_given_inputs().then(|| model.clone()),
                labels: self.labels()?,
                score_kind: model.score_kind(),
                batch: batch.max(1),
            })
        })
        .map_err(exception)
    }

    /// Checks the theorems of the split on a sample: claim, verdict and what was measured of each.
    #[pyo3(signature = (sample=None, pairs=10, report=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        sample: Option<&Bound<'py, PyAny>>,
        pairs: usize,
        report: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let given = sample.map(arrays::tensor).transpose()?;
        let listener = Listener::new(report);
        let verified = py.detach(|| {
            let image = given.map_or_else(|| self.model.pattern_sample(), Ok)?;
            let engines = (self.engine.as_ref(), &self.processor);
            Verification::new(&self.model, &image, pairs, None, engines, |done, total| {
                // An exception that the listener raised is returned below.
                let _ = monosplit::explain::Progress::advance(&listener, done, total);
            })
        });
        if let Some(raised) = listener.raised() {
            return Err(raised);
        }
        let findings = verified.map_err(exception)?.findings;
        let described = findings.into_iter().map(|finding| {
            let found = PyDict::new(py);
            found.set_item("claim", finding.claim)?;
            found.set_item("verdict", finding.verdict.word())?;
            found.set_item("found", finding.found)?;
            Ok(found)
        });
        described.collect()
    }

    /// The network with maps as further outputs, as the bytes of an ONNX file. Each method comes with its options and its
    /// layer; the class is a run-time input unless it is fixed.
    #[pyo3(signature = (methods, *, class_=None, top=false, double=None, half=false))]
    #[allow(clippy::type_complexity, reason = "what Python hands over")]
    fn compile<'py>(
        &self,
        py: Python<'py>,
        methods: Vec<(String, Vec<(String, String)>, Option<String>)>,
        class_: Option<usize>,
        top: bool,
        double: Option<bool>,
        half: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| {
            let mut maps = Vec::new();
            for (method, options, layer) in &methods {
                let chosen = self.configured(method, options, true)?;
                let layer = self.layer(layer.clone(), chosen.method.as_ref());
                let request = MapRequest::of(chosen.method.clone(), layer);
                maps.push((chosen, request));
            }
            let maps: Vec<_> = maps.iter().map(|(chosen, request)| (chosen, request.clone())).collect();
            let precision = match double {
                Some(true) => Precision::F64,
                Some(false) => Precision::F32,
                None => Compilation::own_precision(&self.model, &maps),
            };
            let source = match class_ {
                Some(class) => ClassSource::Fixed(class),
                None if top => ClassSource::Top,
                None if self.model.target().is_some() => ClassSource::of_target(&self.model),
                None => ClassSource::Input,
            };
            let labels = self.model.labels()?;
            let name = class_.and_then(|class| labels.named(class));
            let compiled = Compilation::new(&self.model, source, &maps, precision)?;
            let compiled = compiled.half(half).labelled(&labels).class_name(name);
            onnx::write(compiled.graph(), &compiled.export_options())
        });
        Ok(PyBytes::new(py, &bytes.map_err(exception)?))
    }

    /// Facts about the network, for people.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let facts = PyDict::new(py);
        let layers = self.model.graph().layers();
        facts.set_item("origin", self.model.origin().to_string())?;
        facts.set_item("parameters", layers.iter().map(|layer| layer.parameters).sum::<usize>())?;
        facts.set_item("multiply_adds", layers.iter().map(|layer| layer.multiply_adds).sum::<usize>())?;
        facts.set_item("layers", layers.len())?;
        facts.set_item("classes", self.model.classes())?;
        facts.set_item("sample_shape", self.model.sample_shape().ok())?;
        facts.set_item("fixed_batch", self.model.fixed_batch().ok().flatten())?;
        let remarks: Vec<String> = self.model.remarks().iter().map(|remark| remark.to_string()).collect();
        facts.set_item("remarks", remarks)?;
        facts.set_item("dtype", if self.precision == Precision::F64 { "float64" } else { "float32" })?;
        Ok(facts)
    }
}

impl Network {
    fn new(model: Model, engine: Arc<dyn Engine>, processor: Cpu, precision: Precision) -> Self {
        Network { model, engine, processor, precision, inference: Mutex::default(), labels: OnceLock::new() }
    }

    /// The compiled network: the one that is kept, or another while a thread uses that.
    fn taken_inference(&self) -> monosplit::Result<Inference> {
        let kept = self.inference.lock().ok().and_then(|mut kept| kept.take());
        kept.map_or_else(|| Inference::new(&self.model, self.engine.as_ref()), Ok)
    }

    fn labels(&self) -> monosplit::Result<Arc<Labels>> {
        if let Some(known) = self.labels.get() {
            return Ok(known.clone());
        }
        let found = Arc::new(self.model.labels()?);
        Ok(self.labels.get_or_init(|| found).clone())
    }

    /// The graph that is run, and what runs it.
    pub(crate) fn parts(&self) -> (&Graph, &dyn Engine) {
        (self.model.graph(), self.engine.as_ref())
    }

    /// The number of classes; an error if there are none.
    pub(crate) fn class_count(&self) -> monosplit::Result<usize> {
        self.model.expect_classes()
    }

    fn configured(
        &self,
        method: &str,
        options: &[(String, String)],
        pictures: bool,
    ) -> monosplit::Result<monosplit::catalogue::ConfiguredMethod> {
        let choice = MethodChoice::parse(method, options)?;
        let preprocess = if pictures { self.model.preprocess().ok() } else { None };
        choice.resolve(&ValueBounds::of_inputs(&self.model, preprocess.as_ref())?, self.model.graph())
    }

    fn layer(&self, named: Option<String>, method: &dyn Method) -> Option<String> {
        match named {
            None => chosen_layer(self.model.graph(), method.default_layer()).map(|layer| layer.name),
            Some(name) => Some(name).filter(|name| !name.is_empty()),
        }
    }
}
