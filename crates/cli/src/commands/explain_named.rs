//! `monosplit explain` of inputs by name: several at once, and token ids.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use monosplit::catalogue::{ConfiguredMethod, MethodChoice, ValueBounds};
use monosplit::engine::Engine;
use monosplit::explain::{BatchPosition, Explanation};
use monosplit::graph::batch::rows;
use monosplit::graph::{Error, Result, Tensor};
use monosplit::{InputsExplainer, Model, Sample, Vocabulary};

use super::class::Classes;
use super::drawn_files::DrawnFiles;
use super::explain::{Explain, Outcome};
use super::explain_result::{ExplainContext, Explained, InputResult, MapDescription};
use super::named_inputs::{InputValues, NamedInputs};
use super::progress::Bar;
use crate::failure::Failure;
use crate::table::printable;

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
        let values = self.values(model, &explain.given, positional, &explain.preprocessing)?;
        let chosen = choice.resolve(&ValueBounds::of_inputs(model, None)?, model.graph())?;
        let job = NamedJob::new(self, explain, model, chosen, engine)?;
        if !explain.json {
            writeln!(out, "{} of {}", printable(job.explainer.title()), printable(&self.of.join(", ")))?;
        }
        let classes = explain.class.classes(model, &job.context.labels)?;
        let found = job.run(explain, &values, &classes, out)?;
        Ok((job, found))
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
        let vocabulary =
            explain.tokens.as_deref().map_or_else(|| Ok(Vocabulary::default()), Vocabulary::open)?;
        let descriptions = inputs.of.iter().map(|name| MapDescription::of_input(&chosen, name)).collect();
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
        let explainer = model.configured_inputs_explainer(chosen, &of, finish, engine)?;
        let texts = explainer.tokens().map(|tokens| tokens.is_some()).collect();
        Ok(NamedJob { context, explainer, vocabulary, texts })
    }

    fn run(
        &self,
        explain: &Explain,
        values: &InputValues,
        classes: &Classes,
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
            for (row, sample) in samples.enumerate() {
                let result = self.result(values, (sample, row), &explained, time, &mut files)?;
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
        for (at, (map, samples)) in explained.maps.iter().zip(&values.explained).enumerate() {
            let Some(sample) = samples.get(of(samples)) else { continue };
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
