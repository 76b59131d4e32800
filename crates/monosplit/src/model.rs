//! An opened network: its origin, the graph as the file has it, and the canonical form that is run and explained.

use std::path::Path;
use std::sync::Arc;

use monosplit_engine::{Cpu, Engine, Precision};
use monosplit_explain::{inputs, parameter_inputs};
use monosplit_graph::arch::{self, ArchOptions};
use monosplit_graph::metadata::SCORES;
use monosplit_graph::onnx::{self, ImportOptions, ImportReport, IntegerInput, Remark};
use monosplit_graph::passes::{
    Canonical, Observation, PiecewiseOptions, PiecewiseReport, canonicalise, multiplicative_form, piecewise,
    with_real_input,
};
use monosplit_graph::weights::Weights;
use monosplit_graph::{
    Dim, Error, ErrorKind, FileBytes, Graph, Hint, Kind, LogTimer, Node, Op, Result, Shape, Tensor,
};

use crate::compiled::is_compiled;
use crate::model_options::{ModelOptions, Origin};
use crate::prediction::ScoreKind;
use crate::target::ModelTarget;

/// The largest ONNX file: the limit of protocol buffers.
const MAX_ONNX: u64 = 1 << 31;

/// An output of the network is not where results are written.
const OUTPUT: Hint = Hint::new("output", "an output is one of the network's own");

/// The inputs that are not explained are to be given.
pub(crate) const GIVEN: Hint =
    Hint::new("given-inputs", "give the values of the inputs that are not explained");

/// The order of the axes of an image input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelOrder {
    /// Samples, channels, rows, columns (NCHW): PyTorch's.
    ChannelsFirst,
    /// Samples, rows, columns, channels (NHWC): TensorFlow's.
    ChannelsLast,
}

/// The image input of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureInput {
    /// Channels, height, width.
    pub size: [usize; 3],
    /// The order of the axes.
    pub order: ChannelOrder,
}

/// An opened network.
#[derive(Clone, Debug)]
pub struct Model {
    origin: Origin,
    original: Graph,
    canonical: Graph,
    report: Canonical,
    defaults: Vec<(String, Tensor)>,
    external: Vec<Arc<FileBytes>>,
    remarks: Vec<Remark>,
    integer_inputs: Vec<IntegerInput>,
    options: ModelOptions,
    pub(crate) target: Option<ModelTarget>,
    /// The values of inputs that are not explained.
    pub(crate) given: Vec<(String, Tensor)>,
    /// The input that files are read for, where it was named.
    read: Option<String>,
    /// Whether inputs became constants, on which relevance may lie.
    pub(crate) holds_inputs: bool,
}

/// The error of a network whose smooth functions were replaced by piecewise-linear ones.
#[derive(Clone, Debug, Default)]
pub struct Approximation {
    /// The replaced functions with the error of each.
    pub functions: Vec<PiecewiseReport>,
    /// The largest change of a class score on the samples.
    pub scores: f64,
    /// The largest class score.
    pub largest_score: f64,
}

impl Approximation {
    fn widen(&mut self, before: &[Tensor], after: &[Tensor]) {
        let (Some(before), Some(after)) = (before.first(), after.first()) else { return };
        for (b, a) in before.to_f64().iter().zip(after.to_f64().iter()) {
            let change = (a - b).abs();
            if change > self.scores || change.is_nan() {
                self.scores = change;
            }
            self.largest_score = self.largest_score.max(b.abs());
        }
    }

    /// The largest change of a class score over the largest score.
    pub fn relative(&self) -> f64 {
        self.scores / self.largest_score.max(f64::MIN_POSITIVE)
    }

    /// The function with the largest error.
    pub fn worst(&self) -> Option<&PiecewiseReport> {
        self.functions.iter().max_by(|a, b| a.error_in_range.total_cmp(&b.error_in_range))
    }
}

impl Model {
    /// Opens a network and brings it into canonical form: an ONNX file by its path, or any [`Origin`].
    ///
    /// [`Model::options`] says more about how it is opened.
    ///
    /// Files are mapped into memory. They must [not change](monosplit_graph::FileBytes#the-file-must-not-change) as long as the
    /// model lives; replacing a file by renaming another over it is allowed.
    pub fn open(origin: impl Into<Origin>) -> Result<Self> {
        ModelOptions::default().open(origin)
    }

    /// Options for opening a network.
    pub fn options() -> ModelOptions {
        ModelOptions::default()
    }

    pub(crate) fn with_options(origin: Origin, options: &ModelOptions) -> Result<Self> {
        let time = LogTimer::start(log::Level::Info);
        let model = match &origin {
            Origin::Onnx(path) => {
                let report = import_report(path, options)?;
                Model::from_report(origin, report, options)?.with_large_batch_open()
            }
            Origin::Architecture { name, weights } => {
                let original = build(name, weights, options)?;
                Model::from_graph(origin, original, options)?
            }
        };
        log::info!(
            "opened {}: {} nodes, {} in canonical form, in {time}",
            model.origin,
            model.original.len(),
            model.canonical.len()
        );
        for remark in model.remarks.iter().filter(|remark| remark.is_warning()) {
            log::warn!("{}: {remark}", model.origin);
        }
        Ok(model)
    }

    pub(crate) fn from_report(
        origin: Origin,
        mut report: ImportReport,
        options: &ModelOptions,
    ) -> Result<Self> {
        let defaults = std::mem::take(&mut report.defaults);
        let external = std::mem::take(&mut report.external);
        let remarks = std::mem::take(&mut report.remarks);
        let integers = std::mem::take(&mut report.integer_inputs);
        let original = complete(origin.path(), report)?;
        let model = Model::from_graph(origin, original, options)?;
        Ok(Model { defaults, external, remarks, integer_inputs: integers, ..model })
    }

    pub(crate) fn from_graph(origin: Origin, original: Graph, options: &ModelOptions) -> Result<Self> {
        // Constants are computed in double precision so that a double-precision run is exact.
        let engine = Cpu::default().precision(Precision::F64);
        let evaluate = |graph: &Graph| engine.compile(graph)?.run(&[]);
        let first = original.inputs().first().copied();
        let real = first.map_or(Ok(None), |input| with_real_input(&original, input))?;
        let mut chosen = real.as_ref().unwrap_or(&original).clone();
        let is_output = |word: &&String| original.outputs().iter().any(|output| output.name == **word);
        if let Some(name) = options.output.as_ref().or(options.output_word.as_ref().filter(is_output)) {
            choose_output(&mut chosen, name).map_err(|error| error.context(&origin))?;
        }
        let mut wanted = options.canonical;
        // A compiled file that returns probabilities says so.
        let told = original.metadata().iter().find(|(key, _)| key == SCORES).map(|(_, value)| value.as_str());
        wanted.logits &= told.and_then(ScoreKind::named) != Some(ScoreKind::Probabilities);
        let (canonical, report) =
            canonicalise(&chosen, wanted, &evaluate).map_err(|error| error.context(&origin))?;
        Ok(Model {
            origin,
            original,
            canonical,
            report,
            defaults: Vec::new(),
            external: Vec::new(),
            remarks: Vec::new(),
            integer_inputs: Vec::new(),
            options: options.clone(),
            target: None,
            given: Vec::new(),
            read: None,
            holds_inputs: false,
        })
    }

    /// The network as those see it who make values of its input `name` ready: pictures get the size and the preprocessing of
    /// that input, [`Model::input`] is it, and a [`SampleReader`](crate::SampleReader) reads files for it.
    pub fn reading_input(&self, name: &str) -> Result<Model> {
        let mut inputs = self.canonical.inputs().iter().map(|&id| self.canonical.node(id));
        if inputs.all(|node| node.label.tensor != name) {
            return Err(unknown_input(&self.canonical, name).context(&self.origin));
        }
        Ok(Model { read: Some(name.to_owned()), ..self.clone() })
    }

    /// What a person should know of how the network's file was read.
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// The integers that [`Model::input`] holds in the file, where the network reads them as real numbers: pictures of bytes.
    pub fn integer_input(&self) -> Option<&IntegerInput> {
        let input = self.input().ok().filter(|input| input.kind == Kind::Float)?;
        self.integer_inputs.iter().find(|integers| integers.name == input.label.tensor)
    }

    /// The inputs that hold integers in the file.
    pub fn integer_inputs(&self) -> &[IntegerInput] {
        &self.integer_inputs
    }

    /// The same with another canonical form.
    pub(crate) fn with_canonical(self, canonical: Graph) -> Self {
        Model { canonical, ..self }
    }

    /// The options it was opened with.
    pub(crate) fn opened_with(&self) -> &ModelOptions {
        &self.options
    }

    /// The value of a property in the metadata of the network's file.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        let mut properties = self.original.metadata().iter();
        properties.find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// The files of external data it was read from, besides its own.
    pub fn external_data(&self) -> &[Arc<FileBytes>] {
        &self.external
    }

    /// Its origin.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The network with its smooth functions replaced by piecewise-linear ones of `knots` knots each, fitted to the
    /// values they take on `samples`, and the error that makes. Softmax and norms are written as elementary ops first, so
    /// that affine maps, maxima and products remain.
    pub fn piecewise(
        &self,
        samples: &[Tensor],
        knots: usize,
        engine: &dyn Engine,
    ) -> Result<(Model, Approximation)> {
        let spelled_out = multiplicative_form(&self.canonical)?;
        let observation = Observation::new(&spelled_out)?;
        let mut options = PiecewiseOptions::default().knots(knots);
        if !observation.nodes.is_empty() {
            let program = engine.compile(&observation.graph)?;
            for sample in samples {
                observation.widen(&program.run(std::slice::from_ref(sample))?, &mut options.ranges);
            }
        }
        let (canonical, functions) = piecewise(&spelled_out, &options)?;
        if functions.is_empty() {
            return Ok((self.clone(), Approximation::default()));
        }
        let mut found = Approximation { functions, ..Approximation::default() };
        let (before, after) = (engine.compile(&self.canonical)?, engine.compile(&canonical)?);
        for sample in samples {
            let [before, after] = [&before, &after].map(|program| program.run(std::slice::from_ref(sample)));
            found.widen(&before?, &after?);
        }
        Ok((Model { canonical, ..self.clone() }, found))
    }

    /// The network as its file has it.
    pub fn original(&self) -> &Graph {
        &self.original
    }

    /// The network that is run and explained: batch norms folded, logits at the outputs.
    pub fn graph(&self) -> &Graph {
        &self.canonical
    }

    /// What the canonical form changed.
    pub fn report(&self) -> &Canonical {
        &self.report
    }

    /// The optional inputs and their default values.
    pub fn defaults(&self) -> &[(String, Tensor)] {
        &self.defaults
    }

    /// The only input that is neither optional nor given nor a target's; an error if there is not exactly one.
    pub fn input(&self) -> Result<&Node> {
        let inputs = self.canonical.inputs().iter().map(|&id| self.canonical.node(id));
        let is_needed = |node: &&Node| {
            let name = node.label.tensor.as_str();
            if let Some(read) = &self.read {
                return name == read;
            }
            let is_target = self.target.is_some() && parameter_inputs::ALL.contains(&name);
            !is_target && self.defaults.iter().chain(&self.given).all(|(input, _)| input != name)
        };
        match &*inputs.filter(is_needed).collect::<Vec<_>>() {
            [input] => Ok(*input),
            inputs => {
                let names = inputs.iter().map(|node| format!("'{}'", node.label.tensor));
                let names: Vec<String> = names.collect();
                Err(match names.len() {
                    0 => self.unfit("the output does not depend on any input".to_owned()),
                    n => self
                        .unfit(format!("the network has {n} inputs ({}), expected one", names.join(", ")))
                        .hint(GIVEN.about(inputs.last().map_or("NAME", |node| node.label.tensor.as_str()))),
                })
            }
        }
    }

    /// The batch size, where the file fixes it.
    pub fn fixed_batch(&self) -> Result<Option<usize>> {
        let input = self.input()?;
        match input.shape.dims().first() {
            Some(Dim::Batch(1)) => Ok(None),
            Some(Dim::Fixed(n)) if *n > 0 => Ok(Some(*n)),
            _ => Err(self.unfit(format!(
                "input '{}' has the shape {}, expected samples along its first axis",
                input.label.tensor, input.shape
            ))),
        }
    }

    /// Shape of one sample of the input.
    pub fn sample_shape(&self) -> Result<Vec<usize>> {
        let input = self.input()?;
        let rest = input.shape.dims().get(1..).unwrap_or_default().iter().map(|dim| dim.fixed());
        rest.collect::<Option<Vec<usize>>>().ok_or_else(|| {
            self.unfit(format!(
                "input '{}' has the shape {}, expected one axis of samples",
                input.label.tensor, input.shape
            ))
        })
    }

    /// The image input; an error if the network does not read images.
    pub fn picture_input(&self) -> Result<PictureInput> {
        let input = self.input()?;
        if input.kind != Kind::Float {
            let text = if is_looked_up(&self.canonical, &input.label.tensor) {
                ", as the token ids of a text are"
            } else {
                ""
            };
            return Err(self.unfit(format!(
                "input '{}' of shape {} holds numbers of kind {} that are not turned into real ones right away{text}; \
                 no picture fits it, give a .npy batch of such numbers",
                input.label.tensor, input.shape, input.kind
            )));
        }
        match self.sample_shape()?[..] {
            [c @ (1 | 3), h, w] => Ok(PictureInput { size: [c, h, w], order: ChannelOrder::ChannelsFirst }),
            [h, w, c @ (1 | 3)] => Ok(PictureInput { size: [c, h, w], order: ChannelOrder::ChannelsLast }),
            ref other => {
                let input = self.input()?;
                let expected = match other.len() {
                    3 => "expected 1 or 3 channels".to_owned(),
                    axes => format!(
                        "expected four axes, as [N, channels, height, width], found {}",
                        axes.saturating_add(1)
                    ),
                };
                Err(self.unfit(format!(
                    "input '{}' has the shape {}, which no picture fits ({expected}); \
                     give a preprocessed .npy batch",
                    input.label.tensor, input.shape
                )))
            }
        }
    }

    /// The number of classes, if the first output holds one score for each.
    pub fn classes(&self) -> Option<usize> {
        class_count(&self.canonical.node(self.canonical.outputs().first()?.node).shape)
    }

    /// The outputs that hold one score for each class, by name.
    pub fn class_outputs(&self) -> Vec<&str> {
        let outputs = self.canonical.outputs().iter();
        let of_classes =
            outputs.filter(|output| class_count(&self.canonical.node(output.node).shape).is_some());
        of_classes.map(|output| output.name.as_str()).collect()
    }

    /// An error about this network; the message starts with where the network came from.
    pub fn unfit(&self, message: String) -> Error {
        Error::argument(format!("{}: {message}", self.origin))
    }
}

/// The number of classes, if a value of this shape holds one score for each.
fn class_count(shape: &Shape) -> Option<usize> {
    let (classes, rest) = shape.dims().get(1..)?.split_first()?;
    let ones = rest.iter().all(|&dim| dim == Dim::Fixed(1));
    classes.fixed().filter(|&n| ones && n > 0)
}

/// Whether a graph looks its input of this name up in a table.
fn is_looked_up(graph: &Graph, name: &str) -> bool {
    let input = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == name);
    graph.nodes().any(|(_, node)| matches!(node.op, Op::Gather { .. }) && node.inputs.get(1) == input)
}

/// The error that there is no input of this name.
pub(crate) fn unknown_input(graph: &Graph, name: &str) -> Error {
    let names = graph.inputs().iter().map(|&id| format!("'{}'", graph.node(id).label.tensor));
    let names = names.collect::<Vec<_>>().join(", ");
    Error::new(ErrorKind::UnknownName, format!("there is no input '{name}'; the inputs are {names}"))
}

/// Puts the output of this name first.
fn choose_output(graph: &mut Graph, name: &str) -> Result<()> {
    let mut outputs = graph.outputs().to_vec();
    let Some(position) = outputs.iter().position(|output| output.name == name) else {
        let names: Vec<String> = outputs.iter().map(|output| format!("'{}'", output.name)).collect();
        let message = format!("there is no output '{name}'; the outputs are {}", names.join(", "));
        return Err(Error::new(ErrorKind::UnknownName, message).hint(OUTPUT));
    };
    outputs[..=position].rotate_right(1);
    graph.set_outputs(outputs);
    Ok(())
}

pub(crate) fn import_report(path: &Path, options: &ModelOptions) -> Result<ImportReport> {
    let file = read_file(path, MAX_ONNX)?;
    let import = import_options(&file, options);
    onnx::import_report_of_file(&file, path.parent(), &import).map_err(|error| error.context(path.display()))
}

/// How the bytes of an ONNX file are read.
pub(crate) fn import_options(file: &[u8], options: &ModelOptions) -> ImportOptions {
    let mut import = ImportOptions::default().any_samples(options.open_batch);
    if let Some(lengths) = &options.input_shape {
        import = import.input_shape(lengths.clone());
    }
    for (name, lengths) in &options.named_shapes {
        import = import.named_input_shape(name.clone(), lengths.clone());
    }
    let is_kept = options.optional_inputs || options.target_inputs;
    if is_kept && onnx::metadata(file).is_ok_and(|found| is_compiled(&found)) {
        // The baseline is an image; what explains a compiled file gives numbers and classes only.
        let given =
            inputs::ALL.into_iter().filter(|&name| options.optional_inputs && name != inputs::BASELINE);
        let of_target = parameter_inputs::ALL.into_iter().filter(|_| options.target_inputs);
        import = given.chain(of_target).fold(import, ImportOptions::optional_input);
    }
    import
}

/// Whether a file is a compiled one, which returns its own maps.
pub fn holds_maps(path: impl AsRef<Path>) -> bool {
    let metadata = read_file(path.as_ref(), MAX_ONNX).and_then(|file| onnx::metadata(&file));
    metadata.is_ok_and(|found| is_compiled(&found))
}

/// The network of a file without problems.
fn complete(path: &Path, report: ImportReport) -> Result<Graph> {
    if let Some(graph) = report.graph {
        return Ok(graph);
    }
    // What reads an input of open lengths cannot be read either.
    let open = report.problems.iter().find(|problem| problem.op == "Input");
    if let Some(open) = open {
        return Err(open.error.clone().at(&open.node).context(path.display()));
    }
    let error = match &report.problems[..] {
        [] => Error::unsupported("the network could not be read"),
        [only] => only.error.clone().at(&only.node),
        [first, rest @ ..] => {
            let message = format!("{} (and {} more)", first.error.message(), rest.len());
            Error::unsupported(message).at(&first.node).hint(Hint::IMPORT_REPORT)
        }
    };
    Err(error.context(path.display()))
}

fn build(name: &str, path: &Path, options: &ModelOptions) -> Result<Graph> {
    // An unknown name is reported before a large file is read.
    arch::parameters(name, 1)?;
    let mut architecture = ArchOptions::default().transform_input(options.transform_input);
    match options.input_shape.as_deref() {
        None => {}
        Some(&[3, height, width]) => architecture.input = (height, width),
        Some(other) => {
            return Err(Error::argument(format!(
                "'{name}' reads images of 3 channels: expected an input shape of 3,HEIGHT,WIDTH, found {other:?}"
            ))
            .hint(Hint::INPUT_SHAPE));
        }
    }
    let weights = Weights::open(path)?;
    arch::build(name, &weights, &architecture).map_err(|error| error.context(path.display()))
}

/// The bytes of a file of at most `limit` bytes; a larger file is refused before it is read.
pub fn read_file(path: &Path, limit: u64) -> Result<Arc<FileBytes>> {
    let file = FileBytes::open(path)?;
    if file.len() as u64 > limit {
        return Err(Error::unsupported(format!(
            "{}: the file is larger than the {} MiB that are read",
            path.display(),
            limit >> 20
        )));
    }
    Ok(file)
}
