//! `monosplit compile`: a network and its explanation as one ONNX file.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit_explain::{ClassInput, Explanation, Request, Settings, inputs};
use monosplit_graph::onnx::{self, ExportOptions};
use monosplit_graph::passes::{portable, share_constants};
use monosplit_graph::{Error, Graph, NodeId, Op, Output, Result, Tensor};

use super::method::MethodArgs;
use super::network::NetworkArgs;
use super::run::check_writable;
use crate::catalogue::{self, Chosen};
use crate::compiled;
use crate::failure::Failure;
use crate::layer_choice::chosen_layer;
use crate::model::Model;
use crate::table::printable;

/// Writes a network and its explanation as one ONNX file
#[derive(Args)]
#[command(override_usage = "monosplit compile MODEL -o FILE [OPTIONS]
       monosplit compile --arch NAME --weights FILE -o FILE [OPTIONS]")]
#[command(long_about = "\
Writes a network and its explanation as one ONNX file that any runtime can run, without this program.

  monosplit compile resnet18.onnx -o explained.onnx
  monosplit compile resnet18.onnx --method gradcam --layer layer4.1.relu:out -o explained.onnx
  monosplit compile resnet18.onnx --methods splitcam,lrp,saliency --size input -o explained.onnx

The file has the network's own inputs and returns `logits`, `explained_class` and one output
`saliency/METHOD/LAYER` for each map, for whatever batch it is given. It reads two more inputs that
may be left out: `class` (one number for all samples or one for each; negative, as it is by default,
for the class with the highest score) and, for splitcam and splitgrad, `alpha`.

Only standard operators are used. Weights are stored once; what is derived from them is written as
nodes that a runtime computes when it loads the file. Methods that ask the network many times
(occlusion, …) are no graph and are refused.")]
pub(crate) struct Compile {
    /// The network, an ONNX file (leave it out with --arch and --weights).
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    /// Write to this file.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    method: MethodArgs,

    /// Several methods, separated by commas, each as --method takes it.
    #[arg(long, value_name = "NAMES", conflicts_with = "method")]
    methods: Option<String>,

    /// Several layers, separated by commas; every method is read off at each of them.
    #[arg(long = "layers", value_name = "NAMES", conflicts_with = "layers")]
    layer_list: Option<String>,

    /// The class is an optional input of the file. This is the default.
    #[arg(long, conflicts_with = "class")]
    class_input: bool,

    /// The class is fixed: a number, or top1 for the one with the highest score of each sample.
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,

    /// Write for this version of the ONNX operators, 13 to 26.
    #[arg(long, value_name = "N", default_value_t = 17)]
    opset: u32,

    /// Store weights in half precision.
    #[arg(long)]
    fp16: bool,
}

impl Compile {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        check_writable(&self.output)?;
        let chosen = self.chosen()?;
        let model = Model::open(self.network.origin(self.model.as_deref())?, &self.network.options())?;
        let requests = self.requests(&model, &chosen);
        let class = self.class(&model)?;
        let explanation = Explanation::new(model.graph(), class.input(), &requests)?;
        let (graph, names) = self.shipped(&model, &explanation, class)?;
        let mut options = ExportOptions::default().opset(i64::from(self.opset)).half(self.fp16);
        for (name, value) in defaults(&graph, &settings(&chosen)?) {
            options = options.optional(name, value);
        }
        let graph = compiled::described(graph, &model, &requests, &names);
        let bytes = onnx::write(&graph, &options)?;
        monosplit_image::write_atomically(&self.output, &bytes)?;
        writeln!(
            out,
            "{}: {:.1} MB",
            printable(&self.output.display().to_string()),
            bytes.len() as f64 / 1e6
        )?;
        for &input in graph.inputs() {
            let name = &graph.node(input).label.tensor;
            let note = if options.is_optional(name) { " (may be left out)" } else { "" };
            writeln!(out, "  reads   {}{note}", printable(name))?;
        }
        for output in graph.outputs() {
            writeln!(out, "  returns {}", printable(&output.name))?;
        }
        writeln!(out, "Try it: monosplit explain {} PICTURE", printable(&self.output.display().to_string()))?;
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<Chosen>> {
        match &self.methods {
            Some(list) => catalogue::words(list)?.iter().map(|word| catalogue::parse(word, &[])).collect(),
            None => Ok(vec![self.method.choose()?]),
        }
    }

    fn requests(&self, model: &Model, chosen: &[Chosen]) -> Vec<Request> {
        let listed: Vec<String> = match &self.layer_list {
            Some(list) => list.split(',').map(|layer| layer.trim().to_owned()).collect(),
            None => self.method.layers().to_vec(),
        };
        let finish = self.method.finish();
        let at = |chosen: &Chosen| -> Vec<Option<String>> {
            if listed.is_empty() {
                return vec![chosen_layer(model.graph(), chosen.method.place())];
            }
            listed.iter().cloned().map(Some).collect()
        };
        let each = chosen.iter().flat_map(|chosen| at(chosen).into_iter().map(move |layer| (chosen, layer)));
        each.map(|(chosen, layer)| Request::of(chosen.method.clone(), layer).finish(finish)).collect()
    }

    fn class(&self, model: &Model) -> Result<ClassChoice> {
        let classes = model.classes().unwrap_or(0);
        match self.class.as_deref() {
            None => Ok(ClassChoice::Input),
            Some("top1" | "top") => Ok(ClassChoice::Top),
            Some(number) => {
                let class = number.parse().ok().filter(|&class: &usize| class < classes);
                class.map(ClassChoice::Fixed).ok_or_else(|| {
                    Error::argument(format!(
                        "--class is top1 or a number from 0 to {}, found '{number}'",
                        classes.saturating_sub(1)
                    ))
                })
            }
        }
    }

    /// The graph as it is shipped, and the names of its maps.
    fn shipped(
        &self,
        model: &Model,
        explanation: &Explanation,
        class: ClassChoice,
    ) -> Result<(Graph, Vec<String>)> {
        let mut graph = share_constants(&portable(explanation.graph())?)?;
        if let ClassChoice::Fixed(number) = class {
            graph = compiled::with_constant(&graph, inputs::CLASS, &Tensor::vector(vec![number as i64]))?;
        }
        for (name, value) in defaults(&graph, &Settings::default()) {
            if !is_read(&graph, name) {
                graph = compiled::with_constant(&graph, name, &value)?;
            }
        }
        let mut outputs: Vec<Output> = graph.outputs().to_vec();
        outputs[0].name = "logits".to_owned();
        outputs[1].name = "explained_class".to_owned();
        let names = explanation.readings().iter().map(|reading| outputs[reading.map].name.clone()).collect();
        graph.set_outputs(outputs);
        if let Some(input) = graph.inputs().iter().find(|&&id| graph.node(id).label.tensor == "logits") {
            let shape = &graph.node(*input).shape;
            return Err(
                model.unfit(format!("its input of shape {shape} is called 'logits', as the scores are"))
            );
        }
        Ok((graph, names))
    }
}

/// Whether any node reads an input.
fn is_read(graph: &Graph, input: &str) -> bool {
    let is_it =
        |id: &NodeId| graph.node(*id).label.tensor == input && matches!(graph.node(*id).op, Op::Input);
    graph.nodes().any(|(_, node)| node.inputs.iter().any(is_it))
}

/// Where the class of a compiled file comes from.
#[derive(Clone, Copy)]
enum ClassChoice {
    Input,
    Top,
    Fixed(usize),
}

impl ClassChoice {
    fn input(self) -> ClassInput {
        match self {
            ClassChoice::Top => ClassInput::Top,
            ClassChoice::Input | ClassChoice::Fixed(_) => ClassInput::Broadcast,
        }
    }
}

/// The run-time numbers of the methods, which are inputs they share.
fn settings(chosen: &[Chosen]) -> Result<Settings> {
    let mut settings: Option<&Settings> = None;
    for chosen in chosen.iter().filter(|chosen| chosen.settings != Settings::default()) {
        if settings.is_some_and(|earlier| *earlier != chosen.settings) {
            return Err(Error::argument(
                "alpha, theta and limit are inputs of the file that all methods share; give all of them the same",
            ));
        }
        settings = Some(&chosen.settings);
    }
    Ok(settings.cloned().unwrap_or_default())
}

/// What the inputs that an explanation adds are unless given.
fn defaults(graph: &Graph, settings: &Settings) -> Vec<(&'static str, Tensor)> {
    let all = [
        (inputs::CLASS, Tensor::vector(vec![-1i64])),
        (inputs::ALPHA, Tensor::scalar(settings.alpha[0])),
        (inputs::THETA, Tensor::scalar(settings.theta)),
        (inputs::LIMIT, Tensor::scalar(settings.limit)),
    ];
    let has = |name: &str| graph.inputs().iter().any(|&id| graph.node(id).label.tensor == name);
    all.into_iter().filter(|(name, _)| has(name)).collect()
}
