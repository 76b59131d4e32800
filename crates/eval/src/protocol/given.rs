//! Maps that were made elsewhere, in an experiment: what can be asked of them, and when they are read.

use monosplit_graph::{Error, Result};

use super::{Observer, Plan, StoredPart, inside};
use crate::candidate::{Candidate, Source};
use crate::given_maps::MappedImages;
use crate::metrics;

impl Plan<'_> {
    /// Says which metrics and stages cannot be asked of given maps. It is an error if a metric would have no value at all.
    pub(super) fn check_given_maps(&self, observer: &dyn Observer) -> Result<()> {
        let given: Vec<&str> = self
            .choices
            .iter()
            .filter(|choice| choice.given.is_some())
            .map(|choice| &*choice.title)
            .collect();
        if given.is_empty() {
            return Ok(());
        }
        let (names, all) = (given.join(", "), given.len() == self.choices.len());
        let mut said: Vec<&str> = Vec::new();
        for (key, text) in
            self.metrics().filter(|(key, _)| !key.starts_with("ablation") && !key.starts_with("layers"))
        {
            if !metrics::parse(text)?.recomputes_maps() || said.contains(&text.as_str()) {
                continue;
            }
            let why = "computes maps anew, for other images, classes or networks, which cannot be asked of given maps";
            if all {
                return Err(Error::argument(format!(
                    "{key} \"{text}\": this metric {why}; all maps here are given"
                )));
            }
            observer.remark(&format!("{key} \"{text}\" {why}: it is undefined for {names}"));
            said.push(text);
        }
        let stages = [
            ("sanity", self.setting.experiment.sanity.as_ref().is_some_and(|part| part.of.is_empty())),
            ("timing", self.setting.experiment.timing.as_ref().is_some_and(|part| part.of.is_empty())),
        ];
        for (key, _) in stages.into_iter().filter(|(_, borrows)| *borrows) {
            if all {
                return Err(Error::argument(format!(
                    "{key}: given maps are not computed here, and all maps are given; name other configurations in {key}.of"
                )));
            }
            observer.remark(&format!("{key} leaves out given maps, which are not computed here: {names}"));
        }
        Ok(())
    }

    /// Reads and checks the given maps of all images they are needed for, before anything is computed.
    pub(super) fn read_given_maps(
        &mut self,
        observer: &dyn Observer,
        validation: Option<&StoredPart>,
        test: &StoredPart,
        size: [usize; 2],
    ) -> Result<()> {
        let experiment = self.setting.experiment;
        let data = &experiment.data;
        for (choice, number) in self.choices.iter_mut().zip(1..) {
            let Some(source) = &choice.given else { continue };
            // Signs are chosen on validation images.
            let chooses = experiment.selection.is_some() && choice.candidates.len() > 1;
            let name = data.validation.as_deref().or(data.test.as_deref());
            let mut parts = vec![mapped(test, data.test.as_deref())];
            let mut others = Vec::new();
            if let Some(validation) = validation {
                let list = if chooses { &mut parts } else { &mut others };
                list.insert(0, mapped(validation, name));
            }
            let read = source.read(&parts, &others, size);
            let (maps, remarks) =
                read.map_err(|error| inside(&format!("method[{number}]"), &error.context("maps")))?;
            for remark in remarks {
                observer.remark(&format!("method[{number}].maps: {remark}"));
            }
            for candidate in &mut choice.candidates {
                candidate.source = Source::Given(maps.clone());
            }
        }
        Ok(())
    }
}

/// Candidates whose maps are computed here.
pub(super) fn computed(candidates: &[Candidate]) -> Vec<Candidate> {
    candidates.iter().filter(|one| !matches!(one.source, Source::Given(_))).cloned().collect()
}

fn mapped<'a>(part: &'a StoredPart, name: Option<&'a str>) -> MappedImages<'a> {
    let images = part.images.iter().map(|image| (image.id, image.index)).collect();
    MappedImages { part: name, data: &part.data, images }
}
