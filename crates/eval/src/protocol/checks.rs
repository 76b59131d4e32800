//! The checks of an experiment that need its network and its images. They run before anything is computed.

use monosplit_explain::is_target_score;
use monosplit_graph::{Error, Result};

use super::{Plan, no_validation};
use crate::candidate::Source;
use crate::experiment::{Experiment, about};
use crate::metric::CaseShape;
use crate::metrics;

impl Plan<'_> {
    /// Resolves and compiles every method before anything is computed, so that a mistake is found at once.
    pub(super) fn check_texts(&self) -> Result<()> {
        let experiment = self.setting.experiment;
        for (ablation, number) in experiment.ablations.iter().zip(1..) {
            self.all_fixed(&format!("ablation[{number}].of"), &ablation.of)?;
            for value in &ablation.values {
                let varied = format!("{}={value}", ablation.vary);
                self.varied(ablation, value)
                    .map_err(|error| about(&format!("ablation[{number}].vary"), &varied, &error))?;
            }
        }
        experiment.sanity.iter().try_for_each(|part| self.randomised(part).map(|_| ()))?;
        let sanity = experiment.sanity.iter().map(|part| ("sanity.of", &part.of));
        let timing = experiment.timing.iter().map(|part| ("timing.of", &part.of));
        let curves = experiment.layers.iter().map(|part| ("layers.of", &part.of));
        sanity.chain(timing).chain(curves).try_for_each(|(key, of)| self.all_fixed(key, of).map(|_| ()))
    }

    /// An error if a stage needs validation images and there are none.
    pub(super) fn check_parts(&self, is_validated: bool) -> Result<()> {
        let Experiment { selection, ablations, layers, .. } = self.setting.experiment;
        let chooses = selection.is_some() && self.choices.iter().any(|choice| choice.candidates.len() > 1);
        let ablations = ablations.iter().zip(1..).filter(|(part, _)| part.on_validation);
        let asks = chooses.then(|| "selection".to_owned()).into_iter();
        let asks = asks.chain(ablations.map(|(_, number)| format!("ablation[{number}].images")));
        let curves = layers.iter().filter(|part| part.on_validation).map(|_| "layers.images".to_owned());
        match asks.chain(curves).next() {
            Some(key) if !is_validated => Err(no_validation(&key)),
            _ => Ok(()),
        }
    }

    /// An error if a metric is undefined on images of this shape.
    pub(super) fn check_metrics(&self, frame: Option<CaseShape>) -> Result<()> {
        let Some(frame) = frame else { return Ok(()) };
        let is_target = is_target_score(self.setting.evaluated_model.graph());
        self.metrics().try_for_each(|(key, text)| {
            let fits = metrics::parse(text).and_then(|metric| match metric.needs_class_scores() {
                Some(why) if is_target => Err(Error::argument(format!("the metric {why}"))),
                _ => metric.check(&frame),
            });
            fits.map_err(|error| about(&key, text, &error))
        })
    }

    /// All metrics of the experiment, and the key that names each.
    pub(super) fn metrics(&self) -> impl Iterator<Item = (String, &String)> {
        let experiment = self.setting.experiment;
        let criteria = experiment.selection.iter().flat_map(|part| &part.criteria);
        let criteria = criteria.map(|(name, metrics)| (format!("selection.{name}"), metrics));
        let asked = experiment.comparison.iter().map(|metrics| ("comparison.metrics".to_owned(), metrics));
        let ablated = experiment.ablations.iter().zip(1..);
        let ablated = ablated.map(|(part, number)| (format!("ablation[{number}].metrics"), &part.metrics));
        let curves = experiment.layers.iter().map(|part| ("layers.metrics".to_owned(), &part.metrics));
        let all = criteria.chain(asked).chain(ablated).chain(curves);
        all.flat_map(|(key, texts)| texts.iter().map(move |text| (key.clone(), text)))
    }

    /// Whether any metric or method needs masks.
    pub(super) fn asks_masks(&self) -> Result<bool> {
        let mut candidates = self.choices.iter().flat_map(|choice| &choice.candidates);
        if candidates.any(|candidate| matches!(candidate.source, Source::Mask)) {
            return Ok(true);
        }
        for (_, text) in self.metrics() {
            if metrics::parse(text)?.needs_mask() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
