//! `monosplit explain` of inputs by name: several at once, and token ids.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use monosplit::catalogue::{ConfiguredMethod, MethodChoice, ValueBounds};
use monosplit::engine::Engine;
use monosplit::explain::{BatchPosition, Explanation};
use monosplit::graph::batch::{rows, stack};
use monosplit::graph::{Error, Kind, Result, Tensor};
use monosplit::{InputFile, InputKind, InputsExplainer, Model, Sample, Vocabulary};

use super::class::Classes;
use super::explain::{Explain, Outcome};
use super::explain_result::{ExplainContext, Explained, FileNames, InputResult, MapDescription};
use super::preprocessing::PreprocessingArgs;
use super::progress::Bar;
use crate::failure::Failure;
use crate::table::printable;

/// The inputs of a network by name.
#[derive(Args)]
#[command(next_help_heading = "Several inputs")]
pub(crate) struct NamedInputArgs {
    /// The value of an input of the network: a .npy, .npz or .csv file or a picture, with one
    /// sample for all or one for each. May be given several times. Where INPUT is left out, all
    /// are given so.
    #[arg(long = "input", value_name = "NAME=FILE", verbatim_doc_comment)]
    given: Vec<String>,

    /// The inputs that are explained; the others are held fixed [default: INPUT, or those of real
    /// numbers and the token ids].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', verbatim_doc_comment)]
    of: Vec<String>,

    /// What token ids stand for: a vocab.txt, vocab.json or tokenizer.json.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
}

impl NamedInputArgs {
    /// Whether values were given for inputs by name.
    pub(crate) fn are_given(&self) -> bool {
        !self.given.is_empty()
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

    /// The network with the inputs that are held fixed beside the only one that is explained.
    pub(crate) fn fixed(&self, model: Model, preprocessing: &PreprocessingArgs) -> Result<Model> {
        if self.given.is_empty() {
            return Ok(model);
        }
        let values = self.files()?.into_iter().map(|(name, file)| {
            let samples = samples_of(&model, name, &[file.to_owned()], preprocessing)?;
            Ok((name.to_owned(), stacked(&model, name, &samples)?))
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        model.with_inputs(values)
    }

    /// What is explained by name; none where the only input that is left holds real numbers, and is explained as the picture or
    /// array it is.
    pub(crate) fn chosen(&self, model: &Model, positional: &[PathBuf]) -> Result<Option<NamedInputs>> {
        let files = self.files()?;
        let facts = || model.input_facts();
        let one_is_left = || {
            let (names, given) = (graph_inputs(model), |name: &str| files.iter().any(|file| file.0 == name));
            let left: Vec<String> = names.into_iter().filter(|name| !given(name)).collect();
            if let [one] = &*left { Some(one.clone()) } else { None }
        };
        if self.of.is_empty() && !positional.is_empty() {
            // Several that are left are refused where the network is asked for its only input.
            let Some(left) = one_is_left() else { return Ok(None) };
            let is_text = |name: &str| {
                facts()
                    .iter()
                    .any(|input| input.name == name && matches!(input.holds, InputKind::Tokens { .. }))
            };
            let kind = model.reading_input(&left)?.input()?.kind;
            if kind == Kind::Float || !is_text(&left) {
                return match &self.tokens {
                    Some(file) => Err(Error::argument(format!(
                        "input '{left}' holds no token ids; leave out the tokens of {}",
                        file.display()
                    ))),
                    None => Ok(None),
                };
            }
            return Ok(Some(NamedInputs { of: vec![left.clone()], positional: Some(left) }));
        }
        let of = if self.of.is_empty() { model.default_inputs()? } else { self.of.clone() };
        let positional = match positional {
            [] => None,
            _ => Some(one_is_left().ok_or_else(|| {
                model.unfit(format!(
                    "INPUT is the value of the only input that was not given by name; the inputs are {}",
                    graph_inputs(model).join(", ")
                ))
            })?),
        };
        Ok(Some(NamedInputs { of, positional }))
    }

    fn vocabulary(&self) -> Result<Vocabulary> {
        self.tokens.as_deref().map_or_else(|| Ok(Vocabulary::default()), Vocabulary::open)
    }
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

/// Which inputs are explained, and which of them the file on the command line is for.
pub(crate) struct NamedInputs {
    of: Vec<String>,
    positional: Option<String>,
}

/// The values of all inputs.
struct Values {
    all: Vec<(String, Tensor)>,
    /// The samples of each explained input.
    explained: Vec<Vec<Sample>>,
    count: usize,
}

impl NamedInputs {
    /// Explains all samples; what has no meaning for inputs by name is refused.
    pub(crate) fn explain(
        &self,
        explain: &Explain,
        model: &Model,
        choice: &MethodChoice,
        positional: &[PathBuf],
        engine: &dyn Engine,
        out: &mut dyn Write,
    ) -> Result<(NamedJob, Outcome), Failure> {
        for (option, is_given) in [
            ("layer", !explain.method.layers().is_empty()),
            ("by-layer", explain.by_layer),
            ("piecewise", explain.piecewise.is_given()),
        ] {
            if is_given {
                return Err(model
                    .unfit(format!(
                        "the maps of {} are of inputs by name, which --{option} does not apply to; leave it out",
                        self.of.join(", ")
                    ))
                    .into());
            }
        }
        let values = self.values(explain, model, positional)?;
        let chosen = choice.resolve(&ValueBounds::of_inputs(model, None)?)?;
        let job = NamedJob::new(self, explain, model, chosen, engine)?;
        if !explain.json {
            writeln!(out, "{} of {}", printable(job.explainer.title()), printable(&self.of.join(", ")))?;
        }
        let classes = explain.class.classes(model, &job.context.labels)?;
        let found = job.run(explain, &values, &classes, out)?;
        Ok((job, found))
    }

    fn values(&self, explain: &Explain, model: &Model, positional: &[PathBuf]) -> Result<Values> {
        let (mut all, mut explained) = (Vec::new(), vec![Vec::new(); self.of.len()]);
        let given = explain.named.files()?.into_iter().map(|(name, file)| (name, vec![file.to_owned()]));
        let own = self.positional.as_deref().map(|name| (name, positional.to_vec()));
        for (name, files) in own.into_iter().chain(given) {
            let samples = samples_of(model, name, &files, &explain.preprocessing)?;
            all.push((name.to_owned(), stacked(model, name, &samples)?));
            if let Some(at) = self.of.iter().position(|of| of == name) {
                explained[at] = samples;
            }
        }
        let count = all.iter().filter_map(|(_, value)| value.shape().first().copied()).max().unwrap_or(0);
        Ok(Values { all, explained, count })
    }
}

/// An explanation of named inputs, compiled.
pub(crate) struct NamedJob {
    pub(crate) context: ExplainContext,
    explainer: InputsExplainer,
    vocabulary: Vocabulary,
    /// Which of the explained inputs hold token ids.
    texts: Vec<bool>,
}

impl NamedJob {
    fn new(
        inputs: &NamedInputs,
        explain: &Explain,
        model: &Model,
        chosen: ConfiguredMethod,
        engine: &dyn Engine,
    ) -> Result<Self> {
        let (labels, score_kind) = explain.class.labels(model)?;
        let vocabulary = explain.named.vocabulary()?;
        let descriptions = inputs.of.iter().map(|name| MapDescription::of_input(&chosen, name)).collect();
        let context = ExplainContext {
            labels,
            score_kind,
            descriptions,
            settings: chosen.settings.clone(),
            contours: explain.contours,
            is_target: model.target().is_some_and(|target| !target.is_class()),
        };
        let of: Vec<&str> = inputs.of.iter().map(String::as_str).collect();
        let finish = explain.method.finish();
        let explainer = model.configured_inputs_explainer(chosen, &of, finish, engine)?;
        let texts = explainer.tokens().map(|tokens| tokens.is_some()).collect();
        Ok(NamedJob { context, explainer, vocabulary, texts })
    }

    fn run(
        &self,
        explain: &Explain,
        values: &Values,
        classes: &Classes,
        out: &mut dyn Write,
    ) -> Result<Outcome, Failure> {
        let batch = explain.named_batch();
        let mut names = FileNames::default();
        let mut outcome = Outcome::new(self.context.descriptions.len());
        for start in (0..values.count).step_by(batch) {
            let started = Instant::now();
            let samples = start..(start + batch).min(values.count);
            let part = |(name, value): &(String, Tensor)| -> Result<(String, Tensor)> {
                let each = value.shape().first() == Some(&values.count);
                Ok((name.clone(), if each { rows(value, samples.clone())? } else { value.clone() }))
            };
            let part = values.all.iter().map(part).collect::<Result<Vec<_>>>()?;
            let part: Vec<(&str, Tensor)> = part.iter().map(|(name, v)| (name.as_str(), v.clone())).collect();
            let class = classes.of(start, samples.len())?;
            let position = BatchPosition { offset: start, is_last: samples.end == values.count };
            let found = self.explainer.explain_at(&part, &class, position, &Bar::new(samples.len()))?;
            let maps = found.maps.into_iter().map(|map| map.map).collect();
            let explained = Explanation { logits: found.logits, classes: found.classes, maps };
            let time = started.elapsed() / samples.len().max(1) as u32;
            for (row, sample) in samples.enumerate() {
                let result =
                    self.result(values, (sample, row), &explained, time, (&explain.out, &mut names))?;
                if !explain.json {
                    self.context.print(&result, out)?;
                }
                outcome.results.push(result);
            }
            outcome.keep(explain, explained.maps)?;
            out.flush()?;
        }
        classes.all_used(outcome.results.len())?;
        Ok(outcome)
    }

    /// The result for a sample, which is the given row of a batch.
    fn result(
        &self,
        values: &Values,
        (index, row): (usize, usize),
        explained: &Explanation,
        time: std::time::Duration,
        (folder, names): (&Path, &mut FileNames),
    ) -> Result<InputResult> {
        // One sample of an input may stand for all.
        let of = |samples: &'_ [Sample]| if samples.len() == 1 { 0 } else { index };
        let first = values.explained.iter().find(|samples| samples.len() == values.count);
        let first = first.or(values.explained.first()).and_then(|samples| samples.get(of(samples)));
        let first = first.ok_or_else(|| Error::argument("nothing that is explained has a value"))?;
        let mut result = self.context.result(first, row, explained, time)?;
        for (at, (map, samples)) in explained.maps.iter().zip(&values.explained).enumerate() {
            let Some(sample) = samples.get(of(samples)) else { continue };
            let words = self.texts[at].then(|| self.words(&sample.tensor));
            let explained = Explained { sample, words: words.as_deref() };
            self.context.add_map(&mut result, at, explained, (map, row), (folder, names))?;
        }
        Ok(result)
    }

    /// The words of token ids.
    fn words(&self, ids: &Tensor) -> Vec<String> {
        let ids = ids.to_i64();
        ids.iter().flat_map(|ids| ids.iter()).map(|&id| self.vocabulary.word(id)).collect()
    }
}
