//! The options that give the inputs of a network by name, and those that say which of them are explained.

use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::engine::Engine;
use monosplit::graph::batch::{rows, stack};
use monosplit::graph::{Error, Kind, Result, Tensor};
use monosplit::{InputFile, Model, Sample};

use super::preprocessing::PreprocessingArgs;

/// The values of inputs by name.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Several inputs")]
pub(crate) struct GivenInputArgs {
    /// The value of an input of the network: a .npy, .npz or .csv file or a picture. May be given
    /// several times. Inputs that are not explained are held fixed.
    #[arg(long = "input", value_name = "NAME=FILE", verbatim_doc_comment)]
    given: Vec<String>,
}

/// The inputs that are explained.
#[derive(Args)]
#[command(next_help_heading = "Several inputs")]
pub(crate) struct ExplainedInputArgs {
    /// The inputs that are explained; the others are held fixed [default: the input that --input
    /// leaves, or those of real numbers and of token ids].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', verbatim_doc_comment)]
    of: Vec<String>,
}

/// Which inputs are explained by name, and which of all inputs the file on the command line is for.
pub(crate) struct NamedInputs {
    pub(crate) of: Vec<String>,
    positional: Option<String>,
}

/// The values of all inputs.
pub(crate) struct InputValues {
    pub(crate) all: Vec<(String, Tensor)>,
    /// The samples of each explained input.
    pub(crate) explained: Vec<Vec<Sample>>,
    pub(crate) count: usize,
}

impl GivenInputArgs {
    /// Whether values were given for inputs by name.
    pub(crate) fn are_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// The first file that was given by name, and the others: where a network is only run, none of its inputs is different.
    pub(crate) fn first_apart(&self) -> Result<(Option<PathBuf>, GivenInputArgs)> {
        let first = self.files()?.first().map(|(_, file)| (*file).to_owned());
        Ok((first, GivenInputArgs { given: self.given.iter().skip(1).cloned().collect() }))
    }

    /// The names and files that were given.
    fn files(&self) -> Result<Vec<(&str, &Path)>> {
        let each = self.given.iter().map(|text| {
            let parts = text.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
            let (name, file) = parts
                .ok_or_else(|| Error::argument(format!("expected --input NAME=FILE, found '{text}'")))?;
            Ok((name, Path::new(file)))
        });
        each.collect()
    }

    /// The first file of each input that was given.
    pub(crate) fn sources(&self, preprocessing: &PreprocessingArgs) -> Result<Vec<(String, InputFile)>> {
        let each = self.files()?.into_iter().map(|(name, file)| {
            let mut sources = preprocessing.inputs.list(&[file.to_owned()])?;
            Ok((name.to_owned(), sources.swap_remove(0)))
        });
        each.collect()
    }

    fn values(&self, model: &Model, preprocessing: &PreprocessingArgs) -> Result<Vec<(String, Tensor)>> {
        let values = self.files()?.into_iter().map(|(name, file)| {
            let samples = samples_of(model, name, &[file.to_owned()], preprocessing)?;
            Ok((name.to_owned(), stacked(model, name, &samples)?))
        });
        values.collect()
    }

    /// The network with the inputs that are fixed beside the only one that is explained, one sample for all or one for each.
    pub(crate) fn fixed(&self, model: Model, preprocessing: &PreprocessingArgs) -> Result<Model> {
        let values = self.values(&model, preprocessing)?;
        if values.is_empty() { Ok(model) } else { model.with_inputs(values) }
    }

    /// The network with the first sample of each given input as a constant.
    pub(crate) fn first_held(&self, model: Model, preprocessing: &PreprocessingArgs) -> Result<Model> {
        let first = |(name, value): (String, Tensor)| rows(&value, 0..1).map(|value| (name, value));
        let values =
            self.values(&model, preprocessing)?.into_iter().map(first).collect::<Result<Vec<_>>>()?;
        if values.is_empty() { Ok(model) } else { model.with_held_inputs(&values) }
    }

    /// The network with the given inputs as constants.
    pub(crate) fn held(&self, model: Model, preprocessing: &PreprocessingArgs) -> Result<Model> {
        let values = self.values(&model, preprocessing)?;
        if values.is_empty() { Ok(model) } else { model.with_held_inputs(&values) }
    }
}

impl ExplainedInputArgs {
    /// The names that were given.
    pub(crate) fn names(&self) -> &[String] {
        &self.of
    }

    /// What is explained by name; none where the only input that is left holds real numbers, and is explained as the picture or
    /// array it is.
    pub(crate) fn chosen(
        &self,
        model: &Model,
        given: &GivenInputArgs,
        positional: &[PathBuf],
    ) -> Result<Option<NamedInputs>> {
        let files = given.files()?;
        let is_given = |name: &str| files.iter().any(|file| file.0 == name);
        let left: Vec<String> = graph_inputs(model).into_iter().filter(|name| !is_given(name)).collect();
        if self.of.is_empty() && (!positional.is_empty() || !given.are_given()) {
            // Several that are left are refused where the network is asked for its only input.
            return match &*left {
                [only] if is_named(model, only)? => {
                    let positional = (!positional.is_empty()).then(|| only.clone());
                    Ok(Some(NamedInputs { of: left, positional }))
                }
                [] if !positional.is_empty() && given.are_given() => Err(self.no_place(model)),
                _ => Ok(None),
            };
        }
        let of = if self.of.is_empty() { model.default_inputs()? } else { self.of.clone() };
        let positional = match (positional, &*left) {
            ([], _) => None,
            (_, [only]) => Some(only.clone()),
            _ => return Err(self.no_place(model)),
        };
        Ok(Some(NamedInputs { of, positional }))
    }

    /// An error about a file without a name.
    fn no_place(&self, model: &Model) -> Error {
        model.unfit(format!(
            "a file without a name is the value of the only input that --input does not give; the inputs are {}",
            graph_inputs(model).join(", ")
        ))
    }
}

impl InputValues {
    /// One sample of every input, by name; what holds one sample for all holds it for each.
    pub(crate) fn row(&self, row: usize) -> Result<Vec<(&str, Tensor)>> {
        let own = self.all.iter().map(|(name, value)| {
            let at = if value.shape().first() == Some(&self.count) { row } else { 0 };
            Ok((name.as_str(), rows(value, std::iter::once(at))?))
        });
        own.collect()
    }

    /// The same sample of an explained input.
    pub(crate) fn sample(&self, at: usize, row: usize) -> Option<&Sample> {
        let samples = self.explained.get(at)?;
        samples.get(if samples.len() == 1 { 0 } else { row })
    }
}

impl NamedInputs {
    /// The values of all inputs, from the files that were given by name and the one that was not.
    pub(crate) fn values(
        &self,
        model: &Model,
        given: &GivenInputArgs,
        positional: &[PathBuf],
        preprocessing: &PreprocessingArgs,
    ) -> Result<InputValues> {
        let (mut all, mut explained) = (Vec::new(), vec![Vec::new(); self.of.len()]);
        let files = given.files()?.into_iter().map(|(name, file)| (name, vec![file.to_owned()]));
        let own = self.positional.as_deref().map(|name| (name, positional.to_vec()));
        for (name, files) in own.into_iter().chain(files) {
            let samples = samples_of(model, name, &files, preprocessing)?;
            all.push((name.to_owned(), stacked(model, name, &samples)?));
            if let Some(at) = self.of.iter().position(|of| of == name) {
                explained[at] = samples;
            }
        }
        let count = all.iter().filter_map(|(_, value)| value.shape().first().copied()).max().unwrap_or(0);
        Ok(InputValues { all, explained, count })
    }

    /// The network from what is explained on, and its value for the first sample.
    pub(crate) fn first(
        &self,
        model: &Model,
        values: &InputValues,
        engine: &dyn Engine,
    ) -> Result<(Model, Tensor)> {
        let of: Vec<&str> = self.of.iter().map(String::as_str).collect();
        model.at_inputs(&of, &values.all, engine)
    }
}

/// Whether an input holds integers that an explanation can follow: token ids, or numbers that the network turns into real ones.
fn is_named(model: &Model, name: &str) -> Result<bool> {
    if model.reading_input(name)?.input()?.kind == Kind::Float {
        return Ok(false);
    }
    let mut facts = model.input_facts().into_iter();
    Ok(facts.any(|input| input.name == name && input.is_explainable))
}

/// The names of the inputs that a person gives.
fn graph_inputs(model: &Model) -> Vec<String> {
    let all = model.graph().inputs().iter().map(|&id| model.graph().node(id).label.tensor.clone());
    all.filter(|name| model.defaults().iter().all(|(optional, _)| optional != name)).collect()
}

/// The samples that files hold for an input.
fn samples_of(
    model: &Model,
    name: &str,
    files: &[PathBuf],
    preprocessing: &PreprocessingArgs,
) -> Result<Vec<Sample>> {
    let view = model.reading_input(name)?;
    let sources: Vec<InputFile> = preprocessing.inputs.list(files)?;
    let preprocess = preprocessing.for_sources(&view, &sources)?;
    let mut reader = preprocessing.reader(&view, sources, preprocess)?.skip_unreadable(false);
    reader.take(usize::MAX).map_err(|error| error.context(format!("input '{name}'")))
}

/// The samples of an input as one array.
fn stacked(model: &Model, name: &str, samples: &[Sample]) -> Result<Tensor> {
    let kind = model.reading_input(name)?.input()?.kind;
    stack(&samples.iter().map(|sample| sample.tensor.clone()).collect::<Vec<_>>(), kind)
}
