//! `monosplit explain` of inputs by name: several at once, and token ids.

use std::io::Write;
use std::time::{Duration, Instant};

use monosplit::catalogue::{ConfiguredMethod, MethodChoice, ValueBounds};
use monosplit::engine::Engine;
use monosplit::explain::{BatchPosition, Explanation};
use monosplit::graph::batch::rows;
use monosplit::graph::{Error, Result, Tensor};
use monosplit::{
    InputFile, InputsExplainer, LayerContributions, LayerDecomposition, Model, Sample, Vocabulary,
};

use super::by_layer;
use super::class::Classes;
use super::drawn_files::DrawnFiles;
use super::explain::{Explain, Outcome};
use super::explain_result::{ExplainContext, Explained, InputResult, MapDescription};
use super::named_inputs::{InputValues, NamedInputs};
use super::progress::Bar;
use crate::failure::Failure;
use crate::table::printable;

impl NamedInputs {
    /// Explains all samples. Paths through several inputs at once have no meaning at a layer, and are refused there.
    pub(crate) fn explain(
        &self,
        explain: &Explain,
        model: &Model,
        choice: &MethodChoice,
        positional: &[InputFile],
        engine: &dyn Engine,
        out: &mut dyn Write,
    ) -> Result<(NamedJob, Outcome), Failure> {
        if explain.piecewise.is_given() {
            return Err(model
                .unfit(format!(
                    "the maps of {} are of inputs by name, which --piecewise does not apply to; leave it out",
                    self.of.join(", ")
                ))
                .into());
        }
        if self.of.len() > 1 && !explain.method.layers().is_empty() {
            return Err(model
                .unfit(format!(
                    "a layer has no part of its own for each of {}, which are explained together; name one with --of, or leave out \
                     --layer",
                    self.of.join(", ")
                ))
                .into());
        }
        if explain.by_layer && explain.json {
            return Err(Error::argument("--by-layer prints a table; leave out --json").into());
        }
        let values = self.values(model, &explain.given, positional, &explain.preprocessing)?;
        let chosen = choice.resolve(&ValueBounds::of_inputs(model, None)?, model.graph())?;
        let job = NamedJob::new(self, explain, model, chosen.clone(), engine)?;
        if !explain.json {
            let at = match explain.method.layers() {
                [] => String::new(),
                layers => format!(" at {}", layers.join(", ")),
            };
            let of = self.of.join(", ");
            writeln!(out, "{}{} of {}", printable(job.explainer.title()), printable(&at), printable(&of))?;
        }
        let classes = explain.class.classes(model, &job.context.labels)?;
        let decompose = |values: &[(&str, Tensor)], class: usize| {
            self.contributions(explain, model, (&chosen, &job.context), (values, class), engine)
        };
        if explain.by_layer {
            // A method without a decomposition is refused before anything is written.
            decompose(&values.row(0)?, 0)?;
        }
        let decompose = explain.by_layer.then_some(&decompose as &Decompose<'_>);
        let found = job.run(explain, &values, (&classes, decompose), out)?;
        Ok((job, found))
    }

    /// What each layer contributes to the map of a sample.
    fn contributions(
        &self,
        explain: &Explain,
        model: &Model,
        (chosen, context): (&ConfiguredMethod, &ExplainContext),
        (values, class): (&[(&str, Tensor)], usize),
        engine: &dyn Engine,
    ) -> Result<LayerContributions> {
        let of: Vec<&str> = self.of.iter().map(String::as_str).collect();
        let values: Vec<(String, Tensor)> =
            values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let (network, value) = model.at_inputs(&of, &values, engine)?;
        let own = || format!("{}:out", network.graph().node(network.graph().inputs()[0]).label.tensor);
        let layers: Vec<Option<String>> = match explain.method.layers() {
            [] => vec![Some(own())],
            layers => layers.iter().cloned().map(Some).collect(),
        };
        let decomposition = LayerDecomposition::new(&network, chosen, &layers, engine)
            .map_err(|error| error.context("--by-layer"))?;
        decomposition.contributions(&value, &[class], context.settings.alpha[0])
    }
}

/// The decomposition of a map by layer, from one sample of every input and its class.
type Decompose<'a> = dyn Fn(&[(&str, Tensor)], usize) -> Result<LayerContributions> + 'a;

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
        let layers = explain.method.layers();
        let descriptions = match layers {
            [] => inputs.of.iter().map(|name| MapDescription::of_input(&chosen, name)).collect(),
            layers => layers.iter().map(|name| MapDescription::new(&chosen, Some(name.clone()))).collect(),
        };
        let context = ExplainContext {
            labels,
            score_kind,
            descriptions,
            settings: chosen.settings.clone(),
            contours: explain.contours,
            is_target: model.target().is_some_and(|target| !target.is_class()),
            named_class: model.named_class(),
        };
        let of: Vec<&str> = inputs.of.iter().map(String::as_str).collect();
        let finish = explain.method.finish();
        let explainer = match layers {
            [] => model.configured_inputs_explainer(chosen, &of, finish, engine)?,
            layers => model.configured_layers_explainer(chosen, of[0], layers, finish, engine)?,
        };
        let holds_ids = explainer.parts().iter().any(|part| part.tokens().is_some());
        let vocabulary = explain.tokens.vocabulary(model, holds_ids)?;
        let texts = explainer.tokens().map(|tokens| tokens.is_some()).collect();
        Ok(NamedJob { context, explainer, vocabulary, texts })
    }

    fn run(
        &self,
        explain: &Explain,
        values: &InputValues,
        (classes, decompose): (&Classes, Option<&Decompose<'_>>),
        out: &mut dyn Write,
    ) -> Result<Outcome, Failure> {
        let batch = explain.named_batch();
        let mut files = DrawnFiles::at(&explain.out)?;
        let mut outcome = Outcome::default();
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
            for (row, sample) in samples.clone().enumerate() {
                let result = self.result(values, (sample, row), &explained, time, &mut files)?;
                if !explain.json {
                    self.context.print(&result, out)?;
                }
                outcome.results.push(result);
            }
            if let Some(decompose) = decompose {
                for (sample, &class) in samples.zip(&explained.classes) {
                    let contributions = decompose(&values.row(sample)?, class)?;
                    let named = values.sample(0, sample).cloned();
                    by_layer::print(&contributions, named.as_slice(), out)?;
                }
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
        values: &InputValues,
        (index, row): (usize, usize),
        explained: &Explanation,
        time: Duration,
        files: &mut DrawnFiles,
    ) -> Result<InputResult> {
        // One sample of an input may stand for all.
        let of = |samples: &'_ [Sample]| if samples.len() == 1 { 0 } else { index };
        let first = values.explained.iter().find(|samples| samples.len() == values.count);
        let first = first.or(values.explained.first()).and_then(|samples| samples.get(of(samples)));
        let first = first.ok_or_else(|| Error::argument("nothing that is explained has a value"))?;
        let mut result = self.context.result(first, row, explained, time)?;
        for (at, map) in explained.maps.iter().enumerate() {
            // The maps of several layers are of one input.
            let input = if values.explained.len() == 1 { 0 } else { at };
            let Some(sample) = values.sample(input, index) else { continue };
            let words = self.texts[at].then(|| words(&self.vocabulary, &sample.tensor));
            let explained = Explained { sample, words: words.as_deref() };
            self.context.add_map(&mut result, at, explained, (map, row), files)?;
        }
        Ok(result)
    }
}

/// The words of token ids.
pub(super) fn words(vocabulary: &Vocabulary, ids: &Tensor) -> Vec<String> {
    let ids = ids.to_i64();
    ids.iter().flat_map(|ids| ids.iter()).map(|&id| vocabulary.word(id)).collect()
}
