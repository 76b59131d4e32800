//! `monosplit compile`: a network and its explanation as one ONNX file.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit::catalogue::{self, ConfiguredMethod, MethodAtLayer, ValueBounds};
use monosplit::engine::Cpu;
use monosplit::explain::{MapRequest, Parameters, chosen_layer};
use monosplit::graph::onnx::{self, Remark};
use monosplit::graph::{Error, Kind, NodeId, Result};
use monosplit::{
    ClassSource, Compilation, Labels, Model, ScoreKind, TargetChoice, TargetContext, is_compiled,
};
use serde::Serialize;

use super::class;
use super::compute::Precision;
use super::method::MethodArgs;
use super::named_inputs::ExplainedInputArgs;
use super::network::NetworkArgs;
use super::network_input;
use super::preprocessing::ValueArgs;
use super::run::check_writable;
use super::target::{TargetArgs, opened_for};
use crate::failure::{Failure, note};
use crate::json;
use crate::table::printable;

/// Writes a network and its explanation as one ONNX file
#[derive(Args)]
#[command(override_usage = "monosplit compile MODEL -o FILE [OPTIONS]
       monosplit compile --arch NAME --weights FILE -o FILE [OPTIONS]")]
#[command(long_about = "\
Writes a network and its explanation as one ONNX file that any runtime can run by itself.

  monosplit compile resnet18.onnx -o explained.onnx
  monosplit compile resnet18.onnx --method gradcam --layer layer4:out -o explained.onnx
  monosplit compile resnet18.onnx --methods splitcam,lrp,saliency --size input -o explained.onnx
  monosplit compile resnet18.onnx --methods gradcam@layer4,rise -o explained.onnx
  monosplit compile resnet18.onnx --target contrast:tabby,lynx -o explained.onnx

The file has the network's own inputs and returns `logits`, `explained_class` and one output
`saliency/METHOD/LAYER` for each map, for whatever batch it is given. It reads two more inputs that
may be left out: `class` (int64 [1] or [N], one number for all samples or one for each; negative, as
it is by default, for the class with the highest score) and, for splitcam and splitgrad, `alpha`
(float32 [], 0 to 1). A class above the last one is taken for the last, and the output
`class_in_range` is false for the sample.

A file compiled with --target returns `score` in place of `logits`. What the target is given becomes
an optional input with that default: `target_mask` (float32 [1, 1, …] or [N, 1, …]),
`target_reference` (float32 [1, D] or [N, D]), `target_against` (int64 [1, 1] or [N, 1]), and
`class` for the class of a region or a contrast.

Only standard operators are used. Weights are stored once; what is derived from them is written as
nodes that a runtime computes when it loads the file. Methods that ask the network many times
(integrated gradients, occlusion, RISE, …) are written pass after pass, --copies copies of the
picture at a time; their random numbers are settled by the seed, and the number at the picture that
stands for no evidence is the optional input `baseline` (float32, one number, one picture or one for
each sample). LIME, KernelSHAP and Eigen-CAM are no graph and are refused.

The box rule of lrp needs the least and the largest value of a pixel. They are settled by what
--preset and the options beside it, or the network's file, say of pictures; where neither says
anything they are -3 and 3, and a note says so.")]
pub(crate) struct Compile {
    /// The network, an ONNX file (leave it out with --arch and --weights).
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    /// Write to this file.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    method: MethodArgs,

    /// Several methods, separated by commas, each as --method takes it, and its layer behind an
    /// @ where it has one of its own: gradcam@layer4,occlusion:stride=8.
    #[arg(long, value_name = "NAMES", conflicts_with = "method", verbatim_doc_comment)]
    methods: Option<String>,

    /// Several layers, separated by commas; every method without a layer of its own is read off
    /// at each of them.
    #[arg(long = "layers", value_name = "NAMES", conflicts_with = "layers", verbatim_doc_comment)]
    layer_list: Option<String>,

    /// The class is an optional input of the file. This is the default.
    #[arg(long, conflicts_with_all = ["class", "target"])]
    class_input: bool,

    /// The class is fixed: its number, its name, or top1 for the one with the highest score of
    /// each sample.
    #[arg(long, value_name = "CLASS", conflicts_with = "target", verbatim_doc_comment)]
    class: Option<String>,

    #[command(flatten)]
    target: TargetArgs,

    /// Class names, one a line, which the new file keeps. For networks with 1000 classes those of
    /// ImageNet are built in.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    labels: Option<PathBuf>,

    /// Write for this version of the ONNX operators, 13 to 26.
    #[arg(long, value_name = "N", default_value_t = 17)]
    opset: u32,

    /// Methods that run the network many times compute at most N copies of a sample at once.
    /// More make a smaller file, which takes more memory [default: 16, or the method's batch].
    #[arg(long, value_name = "N", verbatim_doc_comment)]
    copies: Option<usize>,

    /// Store weights in half precision.
    #[arg(long)]
    fp16: bool,

    /// Compute in single (f32) or double (f64) precision. Inputs and outputs are float32 in
    /// either; so are weights, but for those a batch norm is merged into where f64 is asked for
    /// [default: f64 with splitlrp and with lrp over tokens, as explain does it; f32 for all
    /// others].
    #[arg(long, value_name = "KIND", value_parser = precision_of_a_file, verbatim_doc_comment)]
    precision: Option<Precision>,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    of: ExplainedInputArgs,

    #[command(flatten)]
    values: ValueArgs,
}

/// Parses the precision of a file, which is f32 or f64.
fn precision_of_a_file(word: &str) -> Result<Precision, String> {
    match word.to_ascii_lowercase().as_str() {
        "f32" => Ok(Precision::F32),
        "f64" => Ok(Precision::F64),
        "tf32" | "bf16" => Err("this is arithmetic of a GPU; a file is compiled in f32 or f64".into()),
        "f16" | "fp16" | "half" => Err("expected f32 or f64; weights are stored in half with --fp16".into()),
        _ => Err("expected f32 or f64".into()),
    }
}

/// Says that the types of the numbers in the network's file are not those of the new file.
fn remark_on_types(model: &Model, precision: monosplit::engine::Precision) {
    let own = model.remarks().iter().find_map(|remark| match remark {
        Remark::HalfArithmetic => Some("half"),
        Remark::DoubleArithmetic => Some("double"),
        _ => None,
    });
    let inside = match precision {
        monosplit::engine::Precision::F64 => ", and computes in double precision",
        _ => "",
    };
    if let Some(own) = own {
        note(&format!(
            "the network's file has numbers of {own} precision; the new file reads and returns float32{inside}"
        ));
    }
}

/// The file that was written, for programs.
#[derive(Serialize)]
struct CompiledOutput {
    file: String,
    bytes: usize,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Compile {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        check_writable(&self.out)?;
        if self.layer_list.as_ref().is_some_and(|list| list.split(',').any(|layer| layer.trim().is_empty())) {
            return Err(
                Error::argument("--layers: expected names separated by commas, found an empty one").into()
            );
        }
        let choices = self.choices()?;
        let target = self.target.choice()?;
        if self.class.is_some() && target.is_some() {
            return Err(Error::argument(
                "expected a class or a target, found defaults of both; leave out one",
            )
            .into());
        }
        // The file must give the same numbers as `explain` in the same precision.
        let options = self.network.options_for(self.precision.unwrap_or(Precision::F32));
        let options = opened_for(options, target.as_ref());
        let model = network_input::open(&options, self.network.origin(self.model.as_deref())?)?;
        if is_compiled(model.graph().metadata()) {
            return Err(Error::argument(
                "this file was compiled and holds maps already; compile the network it was made of, with --methods for \
                 several maps",
            )
            .into());
        }
        let mut model = for_any_batch(model);
        if let Some(target) = &target {
            model = self.with_target(model, target)?;
        }
        remark_on_outputs(&model);
        let chosen = self.resolved(&choices, &model)?;
        let named = self.explained_inputs(&model, &choices)?;
        let of: Vec<&str> = named.iter().map(String::as_str).collect();
        let maps = if of.is_empty() { self.maps(&model, &choices, &chosen) } else { Vec::new() };
        let precision = self
            .precision
            .map_or_else(|| Compilation::own_precision(&model, &maps), |precision| precision.into());
        self.remark_on_precision(&model, &maps);
        remark_on_types(&model, precision);
        let (labels, classes) = class::labels(self.labels.as_deref(), &model)?;
        let class = match &target {
            Some(_) => ClassSource::of_target(&model),
            None => self.class(&labels, classes)?,
        };
        let mut compilation = match &of[..] {
            [] => Compilation::with_copies(&model, class, &maps, precision, self.copies)?,
            of => {
                let options = (self.precision.map(|precision| precision.into()), self.copies);
                Compilation::of_inputs(&model, class, &chosen, of, self.method.finish(), options)?
            }
        }
        .half(self.fp16);
        if self.labels.is_some() && target.as_ref().is_none_or(TargetChoice::is_class) {
            compilation = compilation.labelled(&labels);
        }
        if let ClassSource::Fixed(class) = class {
            compilation = compilation.class_name(labels.named(class));
        }
        let graph = compilation.graph();
        let options = compilation.export_options().opset(i64::from(self.opset));
        let bytes = onnx::write(graph, &options)?;
        monosplit::graph::write_atomically(&self.out, &bytes)?;
        if self.json {
            let inputs = graph.inputs().iter().map(|&input| graph.node(input).label.tensor.clone());
            let outputs = graph.outputs().iter().map(|output| output.name.clone());
            let file = CompiledOutput {
                file: self.out.display().to_string(),
                bytes: bytes.len(),
                inputs: inputs.collect(),
                outputs: outputs.collect(),
            };
            return json::print(&file, out);
        }
        let size = match bytes.len() {
            small @ ..100_000 => format!("{:.1} kB", small as f64 / 1e3),
            large => format!("{:.1} MB", large as f64 / 1e6),
        };
        writeln!(out, "{}: {size}", printable(&self.out.display().to_string()))?;
        for &input in graph.inputs() {
            let name = &graph.node(input).label.tensor;
            let note = if options.is_optional(name) { " (may be left out)" } else { "" };
            writeln!(out, "  reads   {}{note}", printable(name))?;
        }
        for output in graph.outputs() {
            writeln!(out, "  returns {}", printable(&output.name))?;
        }
        Ok(())
    }

    /// The inputs that are explained by name: those that were named, or the token ids where no input holds real numbers.
    fn explained_inputs(&self, model: &Model, choices: &[MethodAtLayer]) -> Result<Vec<String>> {
        let is_float = |id: &NodeId| model.graph().node(*id).kind == Kind::Float;
        let of = match self.of.names() {
            [] if !model.graph().inputs().iter().any(is_float) => model.default_inputs()?,
            names => names.to_vec(),
        };
        let layered = self.layer_list.is_some()
            || !self.method.layers().is_empty()
            || choices.iter().any(|choice| choice.layer.is_some());
        if !of.is_empty() && layered {
            return Err(
                model.unfit(format!("the maps of {} are of inputs by name; leave out layers", of.join(", ")))
            );
        }
        Ok(of)
    }

    /// The network with a target, whose mask, reference or other class is an input.
    fn with_target(&self, model: Model, target: &TargetChoice) -> Result<Model> {
        let (engine, preprocess) = (Cpu::default(), self.values.preprocess(&model).ok());
        let context = TargetContext {
            labels: self.labels.as_deref(),
            preprocess: preprocess.as_ref(),
            parameters: Parameters::Input,
            ..TargetContext::new(&engine)
        };
        model.with_target(target, &context)
    }

    /// Prints a remark where the precision does not suit some maps.
    fn remark_on_precision(&self, model: &Model, maps: &[(&ConfiguredMethod, MapRequest)]) {
        use monosplit::engine::Precision::{F32, F64};
        let of = |map| Compilation::own_precision(model, std::slice::from_ref(map));
        let need = |needed| maps.iter().any(|map| of(map) == needed);
        let mut doubles: Vec<&str> =
            maps.iter().filter(|map| of(map) == F64).map(|(method, _)| method.name).collect();
        doubles.dedup();
        let methods = doubles.join(" and ");
        match self.precision.map(monosplit::engine::Precision::from) {
            Some(F32) if need(F64) => note(&format!(
                "{methods} divides by numbers that single precision can lose; maps may be off by tens of per cent"
            )),
            None if need(F64) && need(F32) => note(&format!(
                "because of {methods} the whole file is computed in double precision, which takes several times as long; \
                 a file of its own for {methods} spares the other maps"
            )),
            _ => {}
        }
    }

    /// The methods that were named, and the layers of those that were named with one.
    fn choices(&self) -> Result<Vec<MethodAtLayer>> {
        match &self.methods {
            Some(list) => {
                let beside: Vec<String> = self.method.options()?.into_iter().map(|(key, _)| key).collect();
                if !beside.is_empty() {
                    return Err(Error::argument(format!(
                        "with --methods the options of a method stand behind its name (--methods splitcam:alpha=0.3); leave \
                         out what was given beside it: {}",
                        beside.join(", ")
                    )));
                }
                catalogue::words(list)?.iter().map(|word| MethodAtLayer::parse(word)).collect()
            }
            None => Ok(vec![MethodAtLayer { choice: self.method.choice()?, layer: None }]),
        }
    }

    /// The methods with the options that follow from the preprocessing, as `explain` resolves them. Where the preprocessing
    /// would be a guess, those options keep their defaults, and a remark names them.
    fn resolved(&self, choices: &[MethodAtLayer], model: &Model) -> Result<Vec<ConfiguredMethod>> {
        let known = self.values.is_known(model);
        let plain = choices.iter().map(|at| at.choice.configured().clone().for_network(model.graph()));
        let plain = plain.collect::<Result<Vec<_>>>()?;
        if !known && model.picture_input().is_err() {
            return Ok(plain);
        }
        let bounds = ValueBounds::of(Some(&self.values.preprocess(model)?))?;
        let seen =
            choices.iter().map(|at| at.choice.resolve(&bounds, model.graph())).collect::<Result<Vec<_>>>()?;
        if known {
            return Ok(seen);
        }
        if let Some(guessed) = plain.iter().zip(&seen).find_map(|(plain, seen)| differing(plain, seen)) {
            note(&format!(
                "nothing says how pictures are preprocessed, so {guessed}; --preset imagenet settles what explain takes \
                 for pictures"
            ));
        }
        Ok(plain)
    }

    /// The maps of each method, at its own layer or at each of those for all methods.
    fn maps<'a>(
        &self,
        model: &Model,
        choices: &[MethodAtLayer],
        chosen: &'a [ConfiguredMethod],
    ) -> Vec<(&'a ConfiguredMethod, MapRequest)> {
        let listed: Vec<String> = match &self.layer_list {
            Some(list) => list.split(',').map(|layer| layer.trim().to_owned()).collect(),
            None => self.method.layers().to_vec(),
        };
        let finish = self.method.finish();
        let mut maps = Vec::new();
        for (chosen, own) in chosen.iter().zip(choices.iter().map(|at| &at.layer)) {
            let layers: Vec<Option<String>> = match own {
                Some(layer) => vec![Some(layer.clone())],
                None if listed.is_empty() => {
                    let default = chosen_layer(model.graph_of_layers(), chosen.method.default_layer());
                    vec![default.map(|layer| layer.name)]
                }
                None => listed.iter().cloned().map(Some).collect(),
            };
            let request = |layer| MapRequest::of(chosen.method.clone(), layer).finish(finish);
            maps.extend(layers.into_iter().map(|layer| (chosen, request(layer))));
        }
        maps
    }

    fn class(&self, labels: &Labels, classes: usize) -> Result<ClassSource> {
        let Some(text) = &self.class else { return Ok(ClassSource::Input) };
        let class = class::class(text, labels, classes)?;
        Ok(class.map_or(ClassSource::Top, ClassSource::Fixed))
    }
}

/// The network with an open batch size where that is possible. A remark is printed if the file fixes the batch size.
fn for_any_batch(model: Model) -> Model {
    let Ok(Some(size)) = model.fixed_batch() else { return model };
    match model.with_open_batch() {
        Some(open) => {
            note(&format!(
                "the network was exported for batches of {size}; the new file takes any number of samples"
            ));
            open
        }
        None => {
            note(&format!(
                "the network takes batches of {size} and no others, and so does the new file; export it with a batch axis \
                 of open length to change that"
            ));
            model
        }
    }
}

/// Prints a remark on outputs of the network that the new file lacks.
fn remark_on_outputs(model: &Model) {
    let outputs = model.graph().outputs();
    let is_class = model.target().is_none_or(TargetChoice::is_class);
    let Some(first) = outputs.first().filter(|_| is_class) else { return };
    let found = &model.report().outputs;
    for (ends, names) in [("softmax", &found.softmax), ("sigmoid", &found.sigmoid)] {
        if names.contains(&first.name) {
            note(&format!("the network ends in a {ends}; `logits` of the new file are what enters it"));
        }
    }
    let further: Vec<String> = outputs.iter().skip(1).map(|output| format!("'{}'", output.name)).collect();
    if !further.is_empty() {
        let scores = if model.score_kind() == ScoreKind::Probabilities { "probabilities" } else { "logits" };
        note(&format!(
            "the scores of the new file, `{scores}`, are the network's output '{}'; it leaves out {}, which --output \
             chooses",
            printable(&first.name),
            printable(&further.join(", "))
        ));
    }
}

/// The options of a method that differ between `plain` and `seen`, as a remark.
fn differing(plain: &ConfiguredMethod, seen: &ConfiguredMethod) -> Option<String> {
    let others = plain.options.iter().filter(|option| !seen.options.contains(option));
    let others: Vec<String> = others.map(|(key, value)| format!("{key}={value}")).collect();
    (!others.is_empty()).then(|| format!("{} is compiled with {}", plain.name, others.join(" and ")))
}
