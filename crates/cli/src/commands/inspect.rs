//! `monosplit inspect`: what a network consists of, and what in it cannot be read.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use monosplit::graph::onnx::{DeclaredLength, DeclaredValue, Problem};
use monosplit::graph::{Dim, Error, Graph, LayerSummary, NodeId, Op, Tensor, shortened, shown};
use monosplit::{CompiledFileFacts, CompiledMap, Origin, SuggestedTargets, compiled_maps};

use super::inspect_output::InspectOutput;
use super::network::NetworkArgs;
use super::network_input;
use crate::exit_status::ExitStatus;
use crate::failure::{Failure, text};
use crate::json;
use crate::table::{Align, TextTable, counted, grouped, printable, rounded};

/// Names longer than this are shortened, so that a line fits into a hundred columns.
const NAME_WIDTH: usize = 42;
/// The longest row about the network as a whole; names of nodes are in it.
const LONGEST_REMARK: usize = 1000;
/// So many inputs and outputs are listed.
const MOST_VALUES: usize = 20;

/// Show what a network consists of, and what in it cannot be read.
#[derive(Args)]
#[command(override_usage = "monosplit inspect MODEL [OPTIONS]
       monosplit inspect --arch NAME --weights FILE [OPTIONS]")]
#[command(long_about = "\
Shows what a network consists of: its input and outputs, then every layer with its name, operator,
output shape, trained parameters and multiply-adds for one sample.

Names are the paths PyTorch gives its modules (layer4.1.conv2) wherever they can be told from the
file; they are the names other commands accept. N in a shape is the number of samples.

  monosplit inspect resnet18.onnx
  monosplit inspect --arch vgg16 --weights vgg16-397923af.pth
  monosplit inspect detector.onnx --input-shape 3,640,640

If something in the file is not supported, all of it is listed at once, with what could be read,
and the exit code is 2.")]
pub(crate) struct Inspect {
    /// The network, an ONNX file.
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,

    #[command(flatten)]
    network: NetworkArgs,

    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// The facts about a network, whether or not all of it could be read.
pub(super) struct Findings {
    pub(super) origin: Origin,
    pub(super) producer: Option<String>,
    pub(super) opset: Option<i64>,
    pub(super) problems: Vec<Problem>,
    pub(super) graph: Graph,
    /// What the canonical form changes, if all could be read.
    pub(super) canonical: Option<String>,
    /// The optional inputs and their default values.
    pub(super) defaults: Vec<(String, Tensor)>,
    /// The maps it returns, if it was compiled.
    pub(super) maps: Vec<CompiledMap>,
    /// Targets that suit its outputs, if all could be read.
    pub(super) targets: Vec<SuggestedTargets>,
    /// What a person should know of how the file was read.
    pub(super) remarks: Vec<String>,
    /// The inputs and outputs as the file declares them.
    declared: [Vec<DeclaredValue>; 2],
}

impl Inspect {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<ExitStatus, Failure> {
        let findings = self.findings()?;
        if self.json {
            json::print(&InspectOutput::of(&findings), out)?;
        } else {
            findings.print(out)?;
        }
        if findings.problems.is_empty() {
            return Ok(ExitStatus::SUCCESS);
        }
        out.flush()?;
        // Nothing behind an input of open size could be read, so that it alone is what is wrong.
        if let Some(open) = findings.problems.iter().find(|problem| problem.op == "Input") {
            return Err(Failure::Error(open.error.clone().context(&findings.origin)));
        }
        let ops: BTreeSet<&str> = findings.problems.iter().map(|problem| problem.op.as_str()).collect();
        let ops: Vec<&str> = ops.into_iter().collect();
        Err(Failure::Error(Error::unsupported(format!(
            "{}: {} could not be read ({}); `monosplit ops` lists what can",
            findings.origin,
            counted(findings.problems.len(), "node"),
            ops.iter().take(MOST_VALUES).map(|op| shown(op)).collect::<Vec<_>>().join(", ")
        ))))
    }

    fn findings(&self) -> Result<Findings, Failure> {
        let origin = self.network.origin(self.model.as_deref())?;
        let options = self.network.options().optional_inputs(true).target_inputs(true);
        let Origin::Onnx(path) = &origin else {
            let model = network_input::open(&options, origin.clone())?;
            let (canonical, targets) = (Some(model.report().to_string()), model.suggested_targets());
            let graph = model.original().clone();
            return Ok(Findings {
                origin,
                producer: None,
                opset: None,
                problems: Vec::new(),
                graph,
                canonical,
                defaults: Vec::new(),
                maps: Vec::new(),
                targets,
                remarks: Vec::new(),
                declared: [Vec::new(), Vec::new()],
            });
        };
        let mut options = options;
        let mut report = options.import_report(path)?;
        let mut assumed = None;
        let is_open = report.problems.iter().any(|problem| problem.op == "Input");
        if is_open && let Some(open) = options.open_lengths(&origin)? {
            let shapes = open.usual_shapes();
            let shaped = shapes.iter().fold(options.clone(), |options, (name, lengths)| {
                options.named_input_shape(name.clone(), lengths.clone())
            });
            let found = shaped.import_report(path)?;
            if found.graph.is_some() {
                (options, report, assumed) = (shaped, found, Some(shapes));
            }
        }
        let maps = compiled_maps(&report.read);
        let (canonical, targets) = match report.graph {
            Some(_) => {
                let model = network_input::open_report(&options, origin.clone(), report.clone())?;
                let targets = if maps.is_empty() { model.suggested_targets() } else { Vec::new() };
                (Some(model.report().to_string()), targets)
            }
            None => (None, Vec::new()),
        };
        let mut remarks: Vec<String> = report.remarks.iter().map(ToString::to_string).collect();
        remarks.extend(assumed.map(|shapes| assumption(&shapes)));
        Ok(Findings {
            origin,
            producer: Some(report.producer).filter(|name| !name.is_empty()),
            opset: Some(report.opset),
            problems: report.problems,
            defaults: report.defaults,
            maps,
            targets,
            graph: report.read,
            remarks,
            declared: [report.declared_inputs, report.declared_outputs],
            canonical,
        })
    }
}

impl Findings {
    pub(super) fn layers(&self) -> Vec<LayerSummary> {
        let is_layer = |layer: &LayerSummary| !matches!(self.graph.node(layer.node).op, Op::Input);
        self.layers_with_parameters().into_iter().filter(is_layer).collect()
    }

    /// Counts parameters of the network only: what a compiled file adds reads weights derived from those.
    fn layers_with_parameters(&self) -> Vec<LayerSummary> {
        let (false, Some(scores)) = (self.maps.is_empty(), self.graph.outputs().first()) else {
            return self.graph.layers();
        };
        let own = self.graph.ancestors([scores.node]);
        self.graph.layers_trained(|id| own[id.index()])
    }

    /// Its inputs and outputs: as they were read, or as the file declares them where not all could be.
    pub(super) fn values(&self) -> [Vec<DeclaredValue>; 2] {
        if self.canonical.is_none() {
            return self.declared.clone();
        }
        let value = |name: &str, id: NodeId| {
            let dims = self.graph.node(id).shape.dims().iter();
            let length = |dim: &Dim| match dim.fixed() {
                Some(length) => DeclaredLength::Fixed(length),
                None => DeclaredLength::Open(dim.to_string()),
            };
            DeclaredValue { name: name.to_owned(), lengths: Some(dims.map(length).collect()) }
        };
        let needed = |value: &DeclaredValue| self.defaults.iter().all(|(input, _)| *input != value.name);
        let inputs = self.graph.inputs().iter();
        [
            inputs.map(|&id| value(&self.graph.node(id).label.tensor, id)).filter(needed).collect(),
            self.graph.outputs().iter().map(|o| value(&o.name, o.node)).collect(),
        ]
    }

    fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let layers = self.layers();
        for line in self.header(&layers) {
            writeln!(out, "{line}")?;
        }
        let mut table = TextTable::new(&[
            ("layer", Align::Left, NAME_WIDTH),
            ("op", Align::Left, 18),
            ("output", Align::Left, 22),
            ("parameters", Align::Right, 20),
            ("mult-adds", Align::Right, 12),
        ]);
        for layer in &layers {
            let dash = |number: usize, text: String| if number == 0 { "–".to_owned() } else { text };
            table.row([
                layer.name.clone(),
                layer.op.to_owned(),
                layer.shape.to_string(),
                dash(layer.parameters, grouped(layer.parameters)),
                dash(layer.multiply_adds, rounded(layer.multiply_adds)),
            ]);
        }
        if !layers.is_empty() {
            writeln!(out)?;
        }
        for line in table.lines().iter().filter(|_| !layers.is_empty()) {
            writeln!(out, "{line}")?;
        }
        self.print_problems(out)
    }

    fn header(&self, layers: &[LayerSummary]) -> Vec<String> {
        let [inputs, outputs] = self.values();
        let listed = |values: Vec<DeclaredValue>| match values.len() {
            0 => "none".to_owned(),
            all => {
                let named =
                    values.iter().take(MOST_VALUES).map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let more = all.saturating_sub(MOST_VALUES);
                if more > 0 { format!("{named} and {more} more") } else { named }
            }
        };
        let written = [
            self.producer.as_ref().map(|name| format!("by {name}")),
            self.opset.map(|version| format!("ONNX operator set {version}")),
        ];
        let written: Vec<String> = written.into_iter().flatten().collect();
        let (parameters, multiply_adds) = totals(layers);
        let mut table = TextTable::new(&[("", Align::Left, 16), ("", Align::Left, usize::MAX)]);
        table.row(["network".to_owned(), self.origin.to_string()]);
        if !written.is_empty() {
            table.row(["written".to_owned(), written.join(", ")]);
        }
        table.row(["input".to_owned(), listed(inputs)]);
        if !self.defaults.is_empty() {
            let optional = self.defaults.iter().map(|(name, value)| format!("{name} = {}", single(value)));
            table.row(["may be left out".to_owned(), optional.collect::<Vec<_>>().join(", ")]);
        }
        table.row(["output".to_owned(), listed(outputs)]);
        for suggested in self.targets.iter().filter(|suggested| !suggested.targets.is_empty()) {
            let of = if self.targets.len() > 1 { format!("{}: ", suggested.output) } else { String::new() };
            table.row(["targets".to_owned(), format!("{of}{}", suggested.targets.join(", "))]);
        }
        if !self.maps.is_empty() {
            table.row(["compiled".to_owned(), self.compiled()]);
        }
        for map in &self.maps {
            let layer = map.layer.as_deref().unwrap_or("the image");
            table.row(["explains".to_owned(), format!("{}: {} at {layer}", map.output, map.title)]);
            for words in [&map.options, &map.finish].into_iter().filter(|words| !words.is_empty()) {
                table.row([String::new(), words.replace(',', ", ")]);
            }
        }
        // Where no layer could be read, nothing is known of any.
        if !layers.is_empty() || self.canonical.is_some() {
            table.row(["layers".to_owned(), grouped(layers.len())]);
            table.row(["parameters".to_owned(), grouped(parameters)]);
            table.row(["multiply-adds".to_owned(), format!("{} {}", rounded(multiply_adds), self.unit())]);
        }
        if let Some(done) = &self.canonical {
            table.row(["canonical form".to_owned(), shortened(done, LONGEST_REMARK).into_owned()]);
        }
        for remark in &self.remarks {
            table.row(["remark".to_owned(), shortened(remark, LONGEST_REMARK).into_owned()]);
        }
        table.lines()
    }

    /// The facts about a compiled file as a whole, in a line.
    fn compiled(&self) -> String {
        let CompiledFileFacts { version, network, class, class_name, target, weights, precision } =
            CompiledFileFacts::of(&self.graph);
        let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
        let class = match class.as_deref() {
            Some("input") => "the class is an input".to_owned(),
            Some("top1") => "for the class with the highest score".to_owned(),
            other => {
                let name = class_name.map_or_else(String::new, |name| format!(" ({name})"));
                format!("for class {}{name}", other.unwrap_or("unknown"))
            }
        };
        format!(
            "from {} by monosplit {}, in {} (weights {}); {class}",
            known(network),
            known(version),
            precision.name(),
            known(weights),
        ) + &target.map_or_else(String::new, |target| format!(", of {target}"))
    }

    /// The unit of the multiply-add count: a file of fixed batch size counts the whole batch.
    fn unit(&self) -> String {
        let first = self.graph.inputs().first().map(|&id| self.graph.node(id).shape.dims());
        match first.and_then(|dims| dims.first()) {
            Some(Dim::Fixed(n)) if *n != 1 => format!("a batch of {n}"),
            _ => "a sample".to_owned(),
        }
    }

    fn print_problems(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.problems.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nwhat could not be read:\n")?;
        for problem in &self.problems {
            let [node, op, reason] =
                [shown(&problem.node), shown(&problem.op), printable(&text(&problem.error))];
            writeln!(out, "  {op} at '{node}': {reason}")?;
        }
        Ok(())
    }
}

/// What is said where lengths that the file leaves open were chosen.
fn assumption(shapes: &[(String, Vec<usize>)]) -> String {
    let each = shapes.iter().map(|(name, lengths)| {
        let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        format!("--input-shape {}={}", shown(name), lengths.join(","))
    });
    format!("the file leaves lengths open; shown is the network for {}", each.collect::<Vec<_>>().join(" "))
}

/// The first number of a tensor as the shortest decimal.
pub(super) fn single(value: &Tensor) -> String {
    value.to_f32().first().map_or_else(|| "nothing".to_owned(), f32::to_string)
}

pub(super) fn totals(layers: &[LayerSummary]) -> (usize, usize) {
    layers.iter().fold((0, 0), |(parameters, multiply_adds), layer| {
        (parameters.saturating_add(layer.parameters), multiply_adds.saturating_add(layer.multiply_adds))
    })
}
