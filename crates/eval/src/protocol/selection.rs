//! The choice of configurations by their values on validation images.

use monosplit_graph::Result;

use super::plan::{Compared, StageKind};
use super::{Observer, Protocol, no_validation};
use crate::candidate::Candidate;
use crate::selection::{self, MetricValues};
use crate::store::Store;
use crate::sweep::StageIds;

impl Protocol<'_> {
    /// The configurations to compare, by the complete values of the selection: for each method and criterion the candidate with
    /// the best average rank. One that wins several is listed once. Methods with one candidate are compared as they are.
    pub(super) fn winners(
        &self,
        ids: &StageIds,
        store: &Store,
        observer: &dyn Observer,
    ) -> Result<Vec<Compared>> {
        let Some(selection) = &self.plan.setting.experiment.selection else {
            return Ok(self.plan.all_compared());
        };
        let texts = self.plan.criteria();
        let metrics = self.plan.stage(StageKind::Selection, &[])?.grid.metrics;
        let (mut compared, mut first, mut all) = (Vec::new(), 0, 0);
        for choice in &self.plan.choices {
            let begin = all;
            all += choice.candidates.len();
            if choice.candidates.len() == 1 {
                compared.push(Compared { index: begin, note: String::new() });
                continue;
            }
            let own = &ids.configurations[first..first + choice.candidates.len()];
            first += choice.candidates.len();
            let mut won: Vec<Compared> = Vec::new();
            for (criterion, wanted) in &selection.criteria {
                let mut columns = Vec::new();
                for text in wanted {
                    let Some(at) = texts.iter().position(|resolved| resolved == text) else { continue };
                    let values = own.iter().map(|&id| self.values_of(id, ids.metrics[at], store));
                    columns.push((values.collect::<Result<Vec<_>>>()?, metrics[at].1));
                }
                let Some(best) = selection::best(&columns) else { continue };
                observer.chosen(&choice.title, criterion, &described(&choice.candidates[best]));
                match won.iter_mut().find(|one| one.index == begin + best) {
                    Some(Compared { note, .. }) => {
                        note.push_str(", ");
                        note.push_str(criterion);
                    }
                    None => won.push(Compared { index: begin + best, note: criterion.clone() }),
                }
            }
            won.sort_unstable_by_key(|one| one.index);
            compared.extend(won);
        }
        Ok(compared)
    }

    fn values_of(&self, configuration: i64, metric: i64, store: &Store) -> Result<MetricValues> {
        let part = self.validation.as_ref().ok_or_else(|| no_validation("selection"))?;
        let values = store.values(self.key(), configuration, metric)?;
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
