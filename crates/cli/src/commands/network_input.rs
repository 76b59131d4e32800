//! What the network of this command takes and returns. Suggestions are made of it, so that none names something the network
//! refuses.

use std::sync::OnceLock;

use monosplit::graph::onnx::ImportReport;
use monosplit::graph::{Dim, Kind, Result, shown};
use monosplit::{InputFile, Model, ModelOptions, OpenNetwork, Origin};

use super::named_inputs::GivenInputArgs;
use super::preprocessing::{PreprocessingArgs, Scaling};
use crate::failure::note;
use crate::shell_word::quoted;

/// What a network can be given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkInput {
    /// Pictures, or arrays of their shape.
    Pictures,
    /// Arrays alone.
    Arrays,
    /// Arrays of integers that no explanation can follow.
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
            Ok(input) if input.kind != Kind::Float => {
                let is_explainable = model.input_facts().iter().any(|facts| facts.is_explainable);
                if is_explainable { NetworkInput::Arrays } else { NetworkInput::Integers }
            }
            Ok(_) if model.picture_input().is_ok() => NetworkInput::Pictures,
            Ok(_) => NetworkInput::Arrays,
        }
    }

    /// Whether a command can read something that the network takes.
    pub(super) fn suits(self, command: &str) -> bool {
        match (self, command) {
            (NetworkInput::Pictures, _) => true,
            (NetworkInput::Arrays, "figure" | "counterfactual") => false,
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

/// Opens the network of this command for its inputs: `sources` are the files without a name. Lengths that the network's file leaves
/// open are taken from the first of each.
pub(super) fn open_for(
    options: &ModelOptions,
    origin: Origin,
    (given, preprocessing): (&GivenInputArgs, &PreprocessingArgs),
    sources: &[InputFile],
) -> Result<OpenedForInputs> {
    let refused = match options.open(origin.clone()) {
        Ok(model) => {
            OpenedNetwork::remember(&model);
            return Ok(OpenedForInputs { model, open: None });
        }
        Err(error) => error,
    };
    let Some(network) = options.open_lengths(&origin).ok().flatten() else { return Err(refused) };
    let files = given.sources(preprocessing)?;
    let is_given = |name: &&str| files.iter().any(|(given, _)| given == name);
    let left: Vec<String> = network.inputs().filter(|name| !is_given(name)).map(str::to_owned).collect();
    let mut open = OpenLengths { own: None, given: Vec::new(), scaling: preprocessing.scaling(), network };
    for (name, file) in &files {
        let shape = open.network.sample_shape(name, file, &open.scaling)?;
        open.given.push((name.clone(), shape));
    }
    let model = match (&left[..], sources) {
        ([], _) => open.network.open(&open.given)?,
        ([only], [_, ..]) => {
            open.own = Some(only.clone());
            let readable = sources.iter().map(|source| open.shape(source)).find(Result::is_ok);
            open.open(&readable.unwrap_or_else(|| open.shape(&sources[0]))?)?
        }
        _ => return Err(refused),
    };
    OpenedNetwork::remember(&model);
    note("lengths that the network's file leaves open are those of its inputs; --input-shape settles them");
    Ok(OpenedForInputs { model, open: Some(open) })
}

/// A network that was opened for inputs.
pub(super) struct OpenedForInputs {
    /// The network for the first input.
    pub(super) model: Model,
    /// What its file leaves open, where it does.
    open: Option<OpenLengths>,
}

/// The lengths that a network's file leaves open.
struct OpenLengths {
    network: OpenNetwork,
    /// The input that files without a name are read for.
    own: Option<String>,
    /// The shapes of the inputs that were given by name.
    given: Vec<(String, Vec<usize>)>,
    scaling: Scaling,
}

/// Inputs of one shape in their order; none where the network has lengths of its own.
pub(super) type SameShape = (Option<Vec<usize>>, Vec<InputFile>);

impl OpenLengths {
    fn shape(&self, source: &InputFile) -> Result<Vec<usize>> {
        self.network.sample_shape(self.own.as_deref().unwrap_or_default(), source, &self.scaling)
    }

    fn open(&self, shape: &[usize]) -> Result<Model> {
        let own = self.own.iter().map(|name| (name.clone(), shape.to_vec()));
        self.network.open(&own.chain(self.given.iter().cloned()).collect::<Vec<_>>())
    }
}

impl OpenedForInputs {
    /// The inputs, those of one shape after another together. One that cannot be read stays with its neighbours: who reads it
    /// says why.
    pub(super) fn same_shapes(&self, sources: Vec<InputFile>) -> Vec<SameShape> {
        let Some(open) = self.open.as_ref().filter(|open| open.own.is_some()) else {
            return vec![(None, sources)];
        };
        let mut groups: Vec<SameShape> = Vec::new();
        for source in sources {
            let shape = open.shape(&source).ok();
            match groups.last_mut() {
                Some((known, files)) if shape.is_none() || known.is_none() || *known == shape => {
                    *known = known.take().or(shape);
                    files.push(source);
                }
                _ => groups.push((shape, vec![source])),
            }
        }
        groups
    }

    /// The network for inputs of a shape.
    pub(super) fn model(&self, shape: Option<&[usize]>) -> Result<Model> {
        match (&self.open, shape) {
            (Some(open), Some(shape)) => open.open(shape),
            _ => Ok(self.model.clone()),
        }
    }
}

/// What was made for the shapes of the last few inputs.
pub(super) struct RecentShapes<T> {
    kept: Vec<(Option<Vec<usize>>, T)>,
}

impl<T> RecentShapes<T> {
    /// So many are kept: each holds the memory of a program.
    const MOST: usize = 4;

    pub(super) fn new() -> Self {
        RecentShapes { kept: Vec::new() }
    }

    /// What was made for this shape, or is made now.
    pub(super) fn get<E>(
        &mut self,
        shape: &Option<Vec<usize>>,
        make: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<&mut T, E> {
        let found = match self.kept.iter().position(|(known, _)| known == shape) {
            Some(at) => self.kept.remove(at),
            None => {
                // Memory is given back before more is taken.
                if self.kept.len() == Self::MOST {
                    self.kept.remove(0);
                }
                (shape.clone(), make()?)
            }
        };
        let at = self.kept.len();
        self.kept.push(found);
        Ok(&mut self.kept[at].1)
    }
}

/// Opens the network of a file that has been read already.
pub(super) fn open_report(options: &ModelOptions, origin: Origin, report: ImportReport) -> Result<Model> {
    let model = options.open_report(origin, report)?;
    OpenedNetwork::remember(&model);
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_used_last_are_kept() {
        let (mut recent, mut made) = (RecentShapes::new(), Vec::new());
        for side in [1, 2, 1, 3, 4, 5, 1, 2] {
            let get = recent.get(&Some(vec![side]), || {
                made.push(side);
                Ok::<_, ()>(side)
            });
            assert_eq!(get, Ok(&mut side.clone()));
        }
        // 2 was the oldest when 5 came.
        assert_eq!(made, [1, 2, 3, 4, 5, 2]);
    }
}
