//! What the network of this command takes. Suggestions are made of it, so that none names something the network cannot be
//! given.

use std::sync::OnceLock;

use monosplit::graph::onnx::ImportReport;
use monosplit::graph::{Kind, Result};
use monosplit::{Model, ModelOptions, Origin};

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

static OPENED: OnceLock<NetworkInput> = OnceLock::new();

impl NetworkInput {
    fn of(model: &Model) -> Self {
        match model.input() {
            Err(_) => NetworkInput::Nothing,
            Ok(input) if input.kind != Kind::Float => NetworkInput::Integers,
            Ok(_) if model.picture_input().is_ok() => NetworkInput::Pictures,
            Ok(_) => NetworkInput::Arrays,
        }
    }

    /// What the network that was opened last takes, if this command opened one.
    pub(super) fn opened() -> Option<Self> {
        OPENED.get().copied()
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

/// Opens the network of this command.
pub(super) fn open(options: &ModelOptions, origin: Origin) -> Result<Model> {
    let model = options.open(origin)?;
    // Only the first network of a command matters to what is suggested after it.
    let _ = OPENED.set(NetworkInput::of(&model));
    Ok(model)
}

/// Opens the network of a file that has been read already.
pub(super) fn open_report(options: &ModelOptions, origin: Origin, report: ImportReport) -> Result<Model> {
    let model = options.open_report(origin, report)?;
    let _ = OPENED.set(NetworkInput::of(&model));
    Ok(model)
}
