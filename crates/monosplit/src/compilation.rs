//! A network and its explanation as one graph for deployment. It uses standard ONNX operators only and stores weights once.
//! Numbers that may change at run time are optional inputs.

use std::collections::HashMap;
use std::fmt;

use monosplit_engine::{Cpu, Precision};
use monosplit_explain::{
    Absolute, CLASS_IN_RANGE, ChannelReduction, Class, ClassInput, ExplainedInputs, ExplanationGraph, Finish,
    InputPart, MapRequest, Normalise, Settings, Size, TARGET_IN_RANGE, Upsampling, inputs, parameter_inputs,
};
use monosplit_graph::metadata::{self, CLASSES, PRESET};
use monosplit_graph::onnx::{ExportOptions, IntegerInput};
use monosplit_graph::op::Binary;
use monosplit_graph::passes::{drop_identities, matrix_form, portable, share_computations};
use monosplit_graph::{Error, Graph, Kind, Label, NodeId, Op, Output, Result, Tensor, array_file};

use crate::catalogue::ConfiguredMethod;
use crate::compiled::{self, CompiledMap};
use crate::labels::Labels;
use crate::model::Model;
use crate::prediction::ScoreKind;
use crate::target::TargetChoice;

/// The name of the output with the class scores.
const SCORES: &str = "logits";
/// The name of the same output where the scores are probabilities.
const PROBABILITIES: &str = "probabilities";
/// The name of the same output where it holds the scores of a target.
const SCORE: &str = "score";
/// Names of more scores are not stored.
const MOST_NAMES: usize = 10_000;
/// The name of the output with the explained class of each sample.
const EXPLAINED: &str = "explained_class";

/// The ranges of the numbers that are inputs of a compiled file.
const RANGES: [(&str, (f64, f64)); 4] = [
    (inputs::ALPHA, (0.0, 1.0)),
    (inputs::SHARE, (0.0, 1e6)),
    (inputs::THETA, (f32::MIN_POSITIVE as f64, 1.0)),
    (inputs::LIMIT, (f32::MIN_POSITIVE as f64, f64::INFINITY)),
];

/// Where the class of a compiled file comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassSource {
    /// An optional input; by default the class with the highest score.
    #[default]
    Input,
    /// The class with the highest score.
    Top,
    /// The class with the second highest score.
    Second,
    /// Always this class.
    Fixed(usize),
    /// An optional input; by default this class.
    InputOr(usize),
}

impl ClassSource {
    /// The source that a network's target asks for: where its scores are those of classes, a class that it names is the
    /// default of the input.
    pub fn of_target(model: &Model) -> Self {
        let is_class = model.target().is_none_or(TargetChoice::is_class);
        match (model.explained_class(), is_class) {
            (Class::Second, _) => ClassSource::Second,
            (Class::Index(class), true) => ClassSource::Fixed(class),
            (Class::Index(class), false) => ClassSource::InputOr(class),
            (_, true) => ClassSource::Top,
            (_, false) if model.classes() == Some(1) => ClassSource::Top,
            (_, false) => ClassSource::Input,
        }
    }

    /// Whether the class is an input of the file.
    fn is_input(self) -> bool {
        matches!(self, ClassSource::Input | ClassSource::InputOr(_))
    }
}

impl fmt::Display for ClassSource {
    /// `input`, `top1`, `top2`, or the number of the class.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassSource::Input | ClassSource::InputOr(_) => f.write_str("input"),
            ClassSource::Second => f.write_str("top2"),
            ClassSource::Top => f.write_str("top1"),
            ClassSource::Fixed(class) => write!(f, "{class}"),
        }
    }
}

/// A network and its explanation, ready to be written as one file.
#[derive(Clone, Debug)]
pub struct Compilation {
    graph: Graph,
    defaults: Vec<(&'static str, Tensor)>,
    precision: Precision,
    half: bool,
    integer_inputs: Vec<IntegerInput>,
}

impl Compilation {
    /// The default precision of a file with these maps: the one in which [`Explainer`](monosplit_explain::Explainer) computes
    /// them.
    pub fn own_precision(model: &Model, maps: &[(&ConfiguredMethod, MapRequest)]) -> Precision {
        let needs_double =
            |(_, request): &(&ConfiguredMethod, MapRequest)| request.needs_double_precision(model.graph());
        if maps.iter().any(needs_double) { Precision::F64 } else { Precision::F32 }
    }

    /// Compiles maps of a network, each with its method. In double precision convolutions become matrix products, because
    /// runtimes lack convolutions in that precision.
    pub fn new(
        model: &Model,
        class: ClassSource,
        maps: &[(&ConfiguredMethod, MapRequest)],
        precision: Precision,
    ) -> Result<Self> {
        Compilation::with_copies(model, class, maps, precision, None)
    }

    /// The same, where methods of many passes make at most so many copies of a sample at a time.
    pub fn with_copies(
        model: &Model,
        class: ClassSource,
        maps: &[(&ConfiguredMethod, MapRequest)],
        precision: Precision,
        copies: Option<usize>,
    ) -> Result<Self> {
        Compilation::written(model, class, maps, precision, copies, None)
    }

    /// Compiles a map of each of the inputs `of` by each method, as [`Model::inputs_explainer`] makes them: token ids are
    /// explained at their embedding. All inputs of the network are inputs of the file.
    pub fn of_inputs(
        model: &Model,
        class: ClassSource,
        methods: &[ConfiguredMethod],
        of: &[&str],
        finish: Finish,
        options: (Option<Precision>, Option<usize>),
    ) -> Result<Self> {
        let (precision, copies) = options;
        let inputs =
            ExplainedInputs::new(model.graph(), of).map_err(|error| error.context(model.origin()))?;
        let encoder = inputs.encoder(&Cpu::default().precision(Precision::F64))?;
        let methods =
            methods.iter().map(|chosen| model.with_encoded_baseline(chosen.clone(), &inputs, &encoder));
        let methods = methods.collect::<Result<Vec<_>>>()?;
        let maps: Vec<(&ConfiguredMethod, MapRequest)> = methods
            .iter()
            .flat_map(|chosen| {
                let requests = MapRequest::of_inputs(&chosen.method, inputs.parts());
                requests.into_iter().map(move |request| (chosen, request.finish(finish)))
            })
            .collect();
        let precision = precision.unwrap_or_else(|| {
            let needs_double = |map: &(_, MapRequest)| map.1.needs_double_precision(inputs.network());
            if maps.iter().any(needs_double) { Precision::F64 } else { Precision::F32 }
        });
        Compilation::written(model, class, &maps, precision, copies, Some(&inputs))
    }

    fn written(
        model: &Model,
        class: ClassSource,
        maps: &[(&ConfiguredMethod, MapRequest)],
        precision: Precision,
        copies: Option<usize>,
        of: Option<&ExplainedInputs>,
    ) -> Result<Self> {
        check_inputs(model)?;
        check_maps(maps)?;
        let requests: Vec<MapRequest> =
            maps.iter().map(|map| map.1.clone().called(told_apart(map, maps))).collect();
        let input = match class {
            ClassSource::Top => ClassInput::Top,
            ClassSource::Second => ClassInput::Second,
            ClassSource::Input | ClassSource::Fixed(_) | ClassSource::InputOr(_) => ClassInput::Broadcast,
        };
        let network = of.map_or(model.graph(), ExplainedInputs::network);
        let explanation = ExplanationGraph::with_copies(network, input, &requests, copies)?;
        let mut graph = match of {
            Some(inputs) => portable(&inputs.with_encoder(explanation.graph())?)?,
            None => portable(explanation.graph())?,
        };
        if precision == Precision::F64 {
            graph = matrix_form(&graph)?;
        }
        unname_inner_values(&mut graph);
        graph = share_computations(&drop_identities(&graph)?)?;
        if let ClassSource::Fixed(number) = class {
            graph = with_constant(&graph, inputs::CLASS, &Tensor::vector(vec![number as i64]))?;
        }
        if !class.is_input() {
            let kept = graph.outputs().iter().filter(|output| output.name != CLASS_IN_RANGE);
            graph.set_outputs(kept.cloned().collect());
            graph = graph.pruned()?;
        }
        let mut defaults = defaults(&graph, class, &settings(maps)?);
        defaults.extend(default_baseline(&graph, explanation.baseline())?);
        defaults.extend(model.target_parameters().iter().cloned());
        for (name, value) in &defaults {
            // As float32 inputs these would lose the digits that double precision is for.
            let exact = precision == Precision::F64 && [inputs::THETA, inputs::LIMIT].contains(name);
            // One α for each layer is part of the method, and no number to choose anew.
            let held = exact || (*name == inputs::ALPHA && value.shape().len() == 1);
            if held || !is_read(&graph, name) {
                graph = with_constant(&graph, name, value)?;
            } else if precision == Precision::F64
                && [inputs::ALPHA, inputs::SHARE, inputs::BASELINE].contains(name)
            {
                graph = with_exact_default(&graph, name, value.to_f64()[0])?;
            }
        }
        let defaults: Vec<_> = defaults.into_iter().filter(|(name, _)| has_input(&graph, name)).collect();
        for (name, range) in RANGES {
            graph = within_range(&graph, name, range)?;
        }
        let mut outputs: Vec<Output> = graph.outputs().to_vec();
        let score_kind = model.score_kind();
        let is_target = model.target().is_some_and(|target| !target.is_class());
        outputs[0].name = match score_kind {
            _ if is_target => SCORE,
            ScoreKind::Probabilities => PROBABILITIES,
            _ => SCORES,
        }
        .to_owned();
        outputs[1].name = EXPLAINED.to_owned();
        let described: Vec<CompiledMap> = maps
            .iter()
            .zip(explanation.map_outputs())
            .map(|(map, output)| described(map, &outputs[output.map].name, has_input(&graph, inputs::ALPHA)))
            .collect();
        graph.set_outputs(outputs);
        let file = model.origin().to_string();
        let file = file.rsplit(['/', '\\']).next().unwrap_or_default();
        compiled::describe(&mut graph, file, &class.to_string(), precision, &described);
        graph.set_metadata(metadata::SCORES, score_kind.name());
        if let Some(target) = model.target() {
            compiled::describe_target(&mut graph, &target.without_folders().to_string());
        }
        // Preprocessing and class names hold for the new file too.
        let told = model.original().metadata().iter();
        for (key, value) in told.filter(|(key, _)| [CLASSES, PRESET].contains(&key.as_str())) {
            graph.set_metadata(key.clone(), value.clone());
        }
        if let Some(preset) = model.opened_with().preset {
            graph.set_metadata(PRESET, preset.name());
        }
        if is_target && let Some(classes) = model.classes().filter(|&classes| classes <= MOST_NAMES) {
            graph.set_metadata(CLASSES, Labels::of(model, classes).to_text());
        }
        let integer_inputs = model.integer_inputs().to_vec();
        Ok(Compilation { graph, defaults, precision, half: false, integer_inputs })
    }

    /// Whether weights are stored in half precision.
    #[must_use]
    pub fn half(mut self, half: bool) -> Self {
        compiled::describe_weights(&mut self.graph, half);
        Compilation { half, ..self }
    }

    /// Stores the names of the classes.
    #[must_use]
    pub fn labelled(mut self, labels: &Labels) -> Self {
        self.graph.set_metadata(CLASSES, labels.to_text());
        self
    }

    /// Stores the name of the class that is always explained, if it is known.
    #[must_use]
    pub fn class_name(mut self, name: Option<String>) -> Self {
        if let Some(name) = name {
            compiled::describe_class(&mut self.graph, name);
        }
        self
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The optional inputs and their default values.
    pub fn defaults(&self) -> &[(&'static str, Tensor)] {
        &self.defaults
    }

    /// The inputs that hold integers in the network's file and real numbers in the graph.
    fn real_integers(&self) -> impl Iterator<Item = IntegerInput> {
        let real: Vec<&str> = (self.graph.inputs().iter().map(|&id| self.graph.node(id)))
            .filter(|node| node.kind == Kind::Float)
            .map(|node| node.label.tensor.as_str())
            .collect();
        self.integer_inputs.iter().filter(move |input| real.contains(&&*input.name)).cloned()
    }

    /// The options for writing the graph, with the optional inputs.
    pub fn export_options(&self) -> ExportOptions {
        let add =
            |options: ExportOptions, (name, value): &(&str, Tensor)| options.optional(*name, value.clone());
        let options = ExportOptions::default()
            .double_inside(self.precision == Precision::F64)
            .half(self.half)
            .compact(true);
        let options = self.real_integers().fold(options, ExportOptions::integer_input);
        self.defaults.iter().fold(options, add)
    }
}

fn described((chosen, request): &(&ConfiguredMethod, MapRequest), output: &str, alpha: bool) -> CompiledMap {
    CompiledMap {
        output: output.to_owned(),
        method: chosen.name.to_owned(),
        title: chosen.title.clone(),
        layer: place(request).map(str::to_owned),
        takes_alpha: alpha && chosen.alpha.is_some(),
        options: without_folders(chosen).options_text(),
        finish: finish_text(&request.finish),
    }
}

/// The layer of a map, or the input that it is of.
fn place(request: &MapRequest) -> Option<&str> {
    request.part.as_ref().map(InputPart::name).or(request.layer.as_deref())
}

/// The name of a map in the file: the name of its method, with the options if another map of the same method and layer exists.
fn told_apart(
    (chosen, request): &(&ConfiguredMethod, MapRequest),
    maps: &[(&ConfiguredMethod, MapRequest)],
) -> String {
    let alike = maps.iter().filter(|(other, at)| other.name == chosen.name && place(at) == place(request));
    match alike.count() {
        1 => chosen.name.to_owned(),
        _ => without_folders(chosen).canonical(),
    }
}

/// An error if two maps have the same name: they are equal, or read files of the same name in two folders.
fn check_maps(maps: &[(&ConfiguredMethod, MapRequest)]) -> Result<()> {
    for (i, map) in maps.iter().enumerate() {
        let name = told_apart(map, maps);
        let is_alike = |other: &&(&ConfiguredMethod, MapRequest)| {
            place(&other.1) == place(&map.1) && told_apart(other, maps) == name
        };
        let Some(other) = maps[..i].iter().find(is_alike) else { continue };
        let layer = place(&map.1).unwrap_or("input");
        return Err(Error::argument(match other.0.options == map.0.options {
            true => format!("'{name}' is asked for twice at '{layer}'; ask for it once"),
            false => format!(
                "'{}' and '{}' at '{layer}' would both be called '{name}', since a file is called by its name without the \
                 folder; give one of the files another name, or compile two files",
                other.0.canonical(),
                map.0.canonical()
            ),
        }));
    }
    Ok(())
}

/// The same method with file names without their folders, which say nothing about the map and may be private.
fn without_folders(chosen: &ConfiguredMethod) -> ConfiguredMethod {
    let mut chosen = chosen.clone();
    for (_, value) in chosen.options.iter_mut().filter(|(_, value)| array_file::is_array_name(value)) {
        *value = value.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    }
    chosen
}

/// The finishing options as text, `key=value,key=value`.
fn finish_text(finish: &Finish) -> String {
    let channels = match finish.channels {
        ChannelReduction::Own => "own",
        ChannelReduction::Keep => "keep",
        ChannelReduction::Sum => "sum",
        ChannelReduction::Mean => "mean",
        ChannelReduction::Max => "max",
        ChannelReduction::L2 => "l2",
        ChannelReduction::Positive => "positive",
    };
    let absolute = match finish.absolute {
        Absolute::None => "none",
        Absolute::Map => "map",
        Absolute::Channels => "channels",
    };
    let normalise = match finish.normalise {
        Normalise::None => "none",
        Normalise::MinMax => "minmax",
        Normalise::Max => "max",
    };
    let size = match finish.size {
        Size::Layer => "layer",
        Size::Input => "input",
    };
    let rectified = if finish.rectified { "yes" } else { "no" };
    // Files of earlier versions are bilinear and do not say so.
    let upsampling = if finish.upsampling == Upsampling::Nearest { ",upsampling=nearest" } else { "" };
    format!(
        "size={size},normalise={normalise},abs={absolute},rectify={rectified},channels={channels}{upsampling}"
    )
}

/// Removes the names of values inside the rewritten nodes of the network: there are thousands, and no layer address uses them.
fn unname_inner_values(graph: &mut Graph) {
    let inner = graph.nodes().filter(|(_, node)| node.label.tensor.is_empty());
    let inner: Vec<NodeId> = inner.map(|(id, _)| id).collect();
    inner.into_iter().for_each(|id| *graph.label_mut(id) = Label::default());
}

/// An error if an input of the network has a name that compiled files reserve. The names are reserved whether or not a
/// method of this file reads them, so that they mean the same in every compiled file.
fn check_inputs(model: &Model) -> Result<()> {
    let returned = [SCORES, SCORE, PROBABILITIES, EXPLAINED, CLASS_IN_RANGE, TARGET_IN_RANGE];
    let mut taken = inputs::ALL.into_iter().chain(returned).chain(parameter_inputs::ALL);
    match taken.find(|name| has_input(model.original(), name)) {
        Some(name) => Err(model.unfit(format!(
            "its input is called '{name}', as something that compiled files read or return is; give the network's input \
             another name, and compile it then"
        ))),
        None => Ok(()),
    }
}

fn has_input(graph: &Graph, name: &str) -> bool {
    graph.inputs().iter().any(|&id| graph.node(id).label.tensor == name)
}

/// Whether any node reads an input.
fn is_read(graph: &Graph, input: &str) -> bool {
    let is_it =
        |id: &NodeId| graph.node(*id).label.tensor == input && matches!(graph.node(*id).op, Op::Input);
    graph.nodes().any(|(_, node)| node.inputs.iter().any(is_it))
}

/// `graph` with an input replaced by a constant.
fn with_constant(graph: &Graph, input: &str, value: &Tensor) -> Result<Graph> {
    let mut fixed = Graph::new();
    let found = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == input);
    let given = found.map(|&id| (id, fixed.constant(value.clone()))).into_iter().collect();
    let map = graph.copy_into_with(&mut fixed, &given)?;
    graph.outputs().iter().for_each(|output| fixed.output(output.name.clone(), map[output.node]));
    fixed.pruned()
}

/// `graph` with an input replaced by the exact `default` where it equals the default rounded to single precision. Inputs are
/// float32 even in files that compute in double precision, and 0.4 is not a float32.
fn with_exact_default(graph: &Graph, input: &str, default: f64) -> Result<Graph> {
    let rounded = f64::from(default as f32);
    let found = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == input);
    let Some(&found) = found.filter(|_| rounded != default) else { return Ok(graph.clone()) };
    let mut exact = Graph::new();
    let mut given = HashMap::new();
    // Inputs keep their order.
    for &id in graph.inputs() {
        given.insert(id, exact.add_copy(graph.node(id), &[])?);
    }
    let [rounded, default] = [rounded, default].map(|number| exact.constant(Tensor::scalar(number)));
    let read = given[&found];
    let is_default = exact.binary(Binary::Equal, read, rounded)?;
    given.insert(found, exact.select(is_default, default, read)?);
    let map = graph.copy_into_with(&mut exact, &given)?;
    graph.outputs().iter().for_each(|output| exact.output(output.name.clone(), map[output.node]));
    exact.pruned()
}

/// `graph` with maps that are NaN where an input they read lies outside its range, because an out-of-range input must not
/// give a map that looks valid. The maps are guarded and not the input, because a comparison or a maximum on the way can drop
/// a NaN.
fn within_range(graph: &Graph, input: &str, (low, high): (f64, f64)) -> Result<Graph> {
    let Some(&number) = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == input) else {
        return Ok(graph.clone());
    };
    let reached = graph.descendants([number]);
    let mut guarded = Graph::new();
    let map = graph.copy_into_with(&mut guarded, &HashMap::new())?;
    let [low, high, none] = [low, high, f64::NAN].map(|bound| guarded.number(bound));
    let above = guarded.binary(Binary::LessOrEqual, low, map[number])?;
    let below = guarded.binary(Binary::LessOrEqual, map[number], high)?;
    let inside = guarded.binary(Binary::And, above, below)?;
    for output in graph.outputs() {
        let mut value = map[output.node];
        let is_map = guarded.node(value).kind == Kind::Float && !output.name.ends_with("/exponent");
        if is_map && reached[output.node.index()] {
            value = guarded.select(inside, value, none)?;
        }
        guarded.output(output.name.clone(), value);
    }
    guarded.pruned()
}

/// The run-time numbers of the methods. Methods share the inputs, so that the numbers must agree.
fn settings(maps: &[(&ConfiguredMethod, MapRequest)]) -> Result<Settings> {
    let alpha = shared_alpha(maps)?;
    let share = shared(maps, inputs::SHARE, |settings| settings.share)?;
    let theta = shared(maps, inputs::THETA, |settings| settings.theta)?;
    let limit = shared(maps, inputs::LIMIT, |settings| settings.limit)?;
    let usual = Settings::default();
    Ok(Settings {
        alpha: alpha.unwrap_or(usual.alpha),
        share: share.unwrap_or(usual.share),
        theta: theta.unwrap_or(usual.theta),
        limit: limit.unwrap_or(usual.limit),
    })
}

/// α of the methods that take it; an error if they differ, since the file has one input for it.
fn shared_alpha(maps: &[(&ConfiguredMethod, MapRequest)]) -> Result<Option<Vec<f64>>> {
    let one = shared(maps, inputs::ALPHA, |settings| settings.alpha[0])?;
    let mut taking = maps.iter().map(|(chosen, _)| *chosen).filter(|chosen| takes(chosen, inputs::ALPHA));
    let Some(first) = taking.next().filter(|_| one.is_some()) else { return Ok(None) };
    match taking.find(|other| other.settings.alpha != first.settings.alpha) {
        Some(other) => Err(Error::argument(format!(
            "alpha is one input of the file, which all its methods share, but '{}' and '{}' take it to be different by layer; \
             give both the same, or compile two files",
            first.name, other.name
        ))),
        None => Ok(Some(first.settings.alpha.clone())),
    }
}

/// Whether a method reads a run-time number; one that shifts by a share tells that its α is none.
fn takes(chosen: &ConfiguredMethod, name: &str) -> bool {
    chosen.options.iter().any(|(option, value)| *option == name && !value.eq_ignore_ascii_case("none"))
}

/// The value of a number that several methods take; an error if they differ, since the file has one input for it.
fn shared(
    maps: &[(&ConfiguredMethod, MapRequest)],
    name: &str,
    number: fn(&Settings) -> f64,
) -> Result<Option<f64>> {
    let mut taking = maps.iter().map(|(chosen, _)| *chosen).filter(|chosen| takes(chosen, name));
    let Some(first) = taking.next() else { return Ok(None) };
    let own = number(&first.settings);
    match taking.find(|other| number(&other.settings) != own) {
        Some(other) => Err(Error::argument(format!(
            "{name} is one input of the file, which all its methods share, but '{}' takes it to be {own} and '{}' {}; give \
             both the same, or compile two files",
            first.name,
            other.name,
            number(&other.settings)
        ))),
        None => Ok(Some(own)),
    }
}

/// The default values of the inputs that an explanation adds.
fn defaults(graph: &Graph, class: ClassSource, settings: &Settings) -> Vec<(&'static str, Tensor)> {
    let class = if let ClassSource::InputOr(class) = class { class as i64 } else { -1 };
    let by_layer = graph
        .inputs()
        .iter()
        .any(|&id| graph.node(id).label.tensor == inputs::ALPHA && graph.node(id).shape.rank() == 1);
    let alpha = match by_layer {
        true => Tensor::vector(settings.alpha.clone()),
        false => Tensor::scalar(settings.alpha[0]),
    };
    let all = [
        (inputs::CLASS, Tensor::vector(vec![class])),
        (inputs::ALPHA, alpha),
        (inputs::SHARE, Tensor::scalar(settings.share)),
        (inputs::THETA, Tensor::scalar(settings.theta)),
        (inputs::LIMIT, Tensor::scalar(settings.limit)),
    ];
    all.into_iter().filter(|(name, _)| has_input(graph, name)).collect()
}

/// The default of the baseline, one number for all elements of the image, where a method reads it.
fn default_baseline(graph: &Graph, number: Option<f64>) -> Result<Option<(&'static str, Tensor)>> {
    let found = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == inputs::BASELINE);
    let (Some(&id), Some(number)) = (found, number) else { return Ok(None) };
    let lengths = vec![1; graph.node(id).shape.rank()];
    Ok(Some((inputs::BASELINE, Tensor::new(lengths, vec![number])?)))
}
