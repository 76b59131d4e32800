//! What the network of this command takes and returns. Suggestions are made of it, so that none names something the network
//! refuses.

use std::sync::OnceLock;

use monosplit::graph::onnx::ImportReport;
use monosplit::graph::{Dim, Kind, Result, shown};
use monosplit::{Model, ModelOptions, Origin};

use crate::shell_word::quoted;

/// What a network can be given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkInput {
    /// Pictures, or arrays of their shape.
    Pictures,
    /// Arrays alone.
    Arrays,
    /// Arrays of integers, which can be run but not explained.
    Integers,
    /// Nothing: it has several inputs, or none.
    Nothing,
}

/// What the output that is run and explained holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NetworkOutput {
    /// One score for each class.
    Classes,
    /// Something else, but the output of this name holds scores.
    ClassesElsewhere(String),
    /// Something else for each sample, which can be written as an array.
    Values,
    /// Nothing that a sample is the first axis of.
    Nothing,
}

/// A network as far as suggestions are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenedNetwork {
    pub(super) input: NetworkInput,
    pub(super) output: NetworkOutput,
}

static OPENED: OnceLock<OpenedNetwork> = OnceLock::new();

impl NetworkInput {
    fn of(model: &Model) -> Self {
        match model.input() {
            Err(_) => NetworkInput::Nothing,
            Ok(input) if input.kind != Kind::Float => NetworkInput::Integers,
            Ok(_) if model.picture_input().is_ok() => NetworkInput::Pictures,
            Ok(_) => NetworkInput::Arrays,
        }
    }

    /// Whether a command can read something that the network takes.
    pub(super) fn suits(self, command: &str) -> bool {
        match (self, command) {
            (NetworkInput::Pictures, _) => true,
            (NetworkInput::Arrays, "compare" | "figure" | "counterfactual") => false,
            (NetworkInput::Arrays, _) => true,
            (NetworkInput::Integers, command) => command == "run",
            (NetworkInput::Nothing, _) => false,
        }
    }
}

impl NetworkOutput {
    fn of(model: &Model) -> Self {
        if model.classes().is_some() {
            return NetworkOutput::Classes;
        }
        // A name that cannot be printed as it is cannot be copied either.
        if let Some(name) = model.class_outputs().into_iter().find(|name| shown(name) == **name) {
            return NetworkOutput::ClassesElsewhere(name.to_owned());
        }
        let output = model.graph().outputs().first();
        let dims = output.map(|output| model.graph().node(output.node).shape.dims());
        let rows = model.fixed_batch().map(|fixed| fixed.map_or(Dim::Batch(1), Dim::Fixed));
        match dims.and_then(|dims| dims.split_first()).zip(rows.ok()) {
            Some(((first, rest), rows)) if *first == rows && rest.iter().all(|dim| dim.fixed().is_some()) => {
                NetworkOutput::Values
            }
            _ => NetworkOutput::Nothing,
        }
    }
}

impl OpenedNetwork {
    fn remember(model: &Model) {
        // Only the first network of a command matters to what is suggested after it.
        OPENED.get_or_init(|| OpenedNetwork {
            input: NetworkInput::of(model),
            output: NetworkOutput::of(model),
        });
    }

    /// The network that this command opened, if it opened one.
    pub(super) fn get() -> Option<&'static Self> {
        OPENED.get()
    }

    /// The options without which a command refuses the network; none if it refuses it in any case. Whoever has `chosen` an
    /// output wants that one.
    pub(super) fn options_for(&self, command: &str, chosen: bool) -> Option<String> {
        match &self.output {
            NetworkOutput::Classes => Some(String::new()),
            NetworkOutput::ClassesElsewhere(name) if !chosen => Some(format!(" --output {}", quoted(name))),
            NetworkOutput::ClassesElsewhere(_) | NetworkOutput::Values if command == "run" => {
                Some(" --raw OUTPUT.npy".to_owned())
            }
            _ => None,
        }
    }
}

/// Opens the network of this command.
pub(super) fn open(options: &ModelOptions, origin: Origin) -> Result<Model> {
    let model = options.open(origin)?;
    OpenedNetwork::remember(&model);
    Ok(model)
}

/// Opens the network of a file that has been read already.
pub(super) fn open_report(options: &ModelOptions, origin: Origin, report: ImportReport) -> Result<Model> {
    let model = options.open_report(origin, report)?;
    OpenedNetwork::remember(&model);
    Ok(model)
}
