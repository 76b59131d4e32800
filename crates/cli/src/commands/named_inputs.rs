//! The options that give the inputs of a network by name, and those that say which of them are explained.

use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::engine::Engine;
use monosplit::graph::batch::{rows, stack};
use monosplit::graph::{Error, Kind, Node, Result, Tensor};
use monosplit::{InputFile, Model, Sample, Vocabulary};

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

/// The words of token ids.
#[derive(Args)]
#[command(next_help_heading = "Several inputs")]
pub(crate) struct TokenArgs {
    /// What token ids stand for: a vocab.txt, vocab.json or tokenizer.json.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
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
            let samples =
                samples_of(model, name, preprocessing.inputs.list(&[file.to_owned()])?, preprocessing)?;
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
        let left: Vec<String> = input_names(model).into_iter().filter(|name| !is_given(name)).collect();
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
            input_names(model).join(", ")
        ))
    }
}

impl TokenArgs {
    /// The words of what is explained. It is an error if words were given and nothing of it holds token ids.
    pub(crate) fn vocabulary(&self, model: &Model, holds_ids: bool) -> Result<Vocabulary> {
        match &self.tokens {
            Some(file) if holds_ids => Vocabulary::open(file),
            Some(_) => self.refuse(model).map(|()| Vocabulary::default()),
            None => Ok(Vocabulary::default()),
        }
    }

    /// An error if words were given: nothing that is explained holds token ids.
    pub(crate) fn refuse(&self, model: &Model) -> Result<()> {
        let Some(file) = &self.tokens else { return Ok(()) };
        Err(model.unfit(format!(
            "no input that is explained holds token ids; leave out the words of {}",
            file.display()
        )))
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
    /// The values of all inputs, from the files that were given by name and the one that was not, which is listed already:
    /// standard input can be read only once.
    pub(crate) fn values(
        &self,
        model: &Model,
        given: &GivenInputArgs,
        positional: &[InputFile],
        preprocessing: &PreprocessingArgs,
    ) -> Result<InputValues> {
        let (mut all, mut explained) = (Vec::new(), vec![Vec::new(); self.of.len()]);
        let own = self.positional.as_deref().map(|name| Ok((name, positional.to_vec())));
        let files = given.files()?.into_iter().map(|(name, file)| {
            let sources = preprocessing.inputs.list(&[file.to_owned()])?;
            Ok((name, sources))
        });
        for each in own.into_iter().chain(files) {
            let (name, sources) = each?;
            let samples = samples_of(model, name, sources, preprocessing)?;
            all.push((name.to_owned(), stacked(model, name, &samples)?));
            if let Some(at) = self.of.iter().position(|of| of == name) {
                explained[at] = samples;
            }
        }
        let count = all.iter().filter_map(|(_, value)| value.shape().first().copied()).max().unwrap_or(0);
        for (name, value) in &all {
            match value.shape().first() {
                Some(&own) if own != 1 && own != count => {
                    return Err(Error::argument(format!(
                        "input '{name}' was given for {own} samples and another for {count}; give one for all, or one for each"
                    )));
                }
                _ => {}
            }
        }
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

/// The inputs that a person gives; not the numbers of a compiled file, which have defaults.
pub(super) fn graph_inputs(model: &Model) -> impl Iterator<Item = &Node> {
    let all = model.graph().inputs().iter().map(|&id| model.graph().node(id));
    all.filter(|node| model.defaults().iter().all(|(optional, _)| *optional != node.label.tensor))
}

fn input_names(model: &Model) -> Vec<String> {
    graph_inputs(model).map(|node| node.label.tensor.clone()).collect()
}

/// The samples that files hold for an input.
fn samples_of(
    model: &Model,
    name: &str,
    sources: Vec<InputFile>,
    preprocessing: &PreprocessingArgs,
) -> Result<Vec<Sample>> {
    let view = model.reading_input(name)?;
    let preprocess = preprocessing.for_sources(&view, &sources)?;
    let mut reader = preprocessing.reader(&view, sources, preprocess)?.skip_unreadable(false);
    reader.take(usize::MAX).map_err(|error| error.context(format!("input '{name}'")))
}

/// The samples of an input as one array.
fn stacked(model: &Model, name: &str, samples: &[Sample]) -> Result<Tensor> {
    let kind = model.reading_input(name)?.input()?.kind;
    stack(&samples.iter().map(|sample| sample.tensor.clone()).collect::<Vec<_>>(), kind)
}
