//! The stage that chooses configurations on validation images.

use monosplit_graph::Result;

use super::candidates::MethodCandidates;
use super::{Part, Protocol, no_validation};
use crate::candidate::Candidate;
use crate::experiment::SelectionPart;
use crate::metric::Better;
use crate::selection::{self, MetricValues};

impl Protocol<'_> {
    /// The configurations to compare: those chosen on validation images, or all if nothing is chosen.
    pub(super) fn select(
        &mut self,
        choices: &[MethodCandidates],
        validation: Option<&Part>,
        position: &mut usize,
    ) -> Result<Vec<Candidate>> {
        let Some(selection) = &self.experiment.selection else {
            return Ok(choices.iter().flat_map(|choice| choice.candidates.clone()).collect());
        };
        let open: Vec<Candidate> =
            choices.iter().filter(|c| c.candidates.len() > 1).flat_map(|c| c.candidates.clone()).collect();
        let mut texts: Vec<String> = Vec::new();
        for text in selection.criteria.iter().flat_map(|(_, metrics)| metrics) {
            if !texts.contains(text) {
                texts.push(text.clone());
            }
        }
        if open.is_empty() {
            return Ok(choices.iter().flat_map(|choice| choice.candidates.clone()).collect());
        }
        let part = validation.ok_or_else(|| no_validation("selection"))?;
        let task = self.task("selection", "selection", &open, part);
        let (ids, metrics) = self.evaluate_metrics(task, &texts, position)?;
        let mut compared = Vec::new();
        let mut first = 0;
        for choice in choices {
            if choice.candidates.len() == 1 {
                compared.extend(choice.candidates.clone());
                continue;
            }
            let own = &ids[first..first + choice.candidates.len()];
            first += choice.candidates.len();
            compared.extend(self.winners(choice, own, selection, (&texts, &metrics), part)?);
        }
        Ok(compared)
    }

    /// For each criterion the candidate with the best average rank. One that wins several is listed once.
    pub(super) fn winners(
        &self,
        choice: &MethodCandidates,
        ids: &[i64],
        selection: &SelectionPart,
        (texts, metrics): (&[String], &[(i64, Better)]),
        part: &Part,
    ) -> Result<Vec<Candidate>> {
        let mut won: Vec<(usize, String)> = Vec::new();
        for (criterion, wanted) in &selection.criteria {
            let mut columns = Vec::new();
            for text in wanted {
                let Some(at) = texts.iter().position(|resolved| resolved == text) else { continue };
                let (metric, better) = metrics[at];
                let values =
                    ids.iter().map(|&id| self.values_of(id, metric, part)).collect::<Result<Vec<_>>>()?;
                columns.push((values, better));
            }
            let Some(best) = selection::best(&columns) else { continue };
            self.observer.chosen(&choice.title, criterion, &described(&choice.candidates[best]));
            match won.iter_mut().find(|(index, _)| *index == best) {
                Some((_, note)) => {
                    note.push_str(", ");
                    note.push_str(criterion);
                }
                None => won.push((best, criterion.clone())),
            }
        }
        won.sort_unstable();
        let winner = |(index, note): (usize, String)| Candidate { note, ..choice.candidates[index].clone() };
        Ok(won.into_iter().map(winner).collect())
    }

    pub(super) fn values_of(&self, configuration: i64, metric: i64, part: &Part) -> Result<MetricValues> {
        let values = self.store.values((self.model, self.experiment.seed), configuration, metric)?;
        Ok(part.images.iter().map(|image| values.get(&image.id).copied().flatten()).collect())
    }
}

/// What tells a candidate from the others of its method: its options, its layer, and whether signs count. Given maps have
/// neither options nor a layer.
fn described(candidate: &Candidate) -> String {
    let layer = &candidate.configuration.layer;
    let parts =
        [candidate.place.clone(), if layer.is_empty() { String::new() } else { format!("at {layer}") }];
    let place = parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ");
    let place = place.strip_prefix("at ").unwrap_or(&place);
    match (place, candidate.configuration.absolute) {
        ("", true) => "absolute values".to_owned(),
        ("", false) => "signed values".to_owned(),
        (place, true) => format!("{place}, absolute"),
        (place, false) => place.to_owned(),
    }
}
