//! The stages of a protocol one after the other: each is entered into the store when those before it are complete.

use monosplit_engine::EngineIdentity;
use monosplit_graph::Result;

use super::plan::{PlannedStage, StageKind};
use super::{Observer, Protocol, StoredPart, no_validation};
use crate::candidate::Candidate;
use crate::store::{Member, Provenance, Stage, Store, Worker};
use crate::sweep::{EvaluatedImage, Measurer, SharedSweep, StageIds};

/// A stage that was entered into the store.
#[derive(Clone, Debug)]
pub struct EnteredStage {
    /// What it evaluates.
    pub planned: PlannedStage,
    /// The ids of its candidates and metrics.
    pub ids: StageIds,
    /// Its images.
    pub images: Vec<EvaluatedImage>,
}

impl EnteredStage {
    /// The number of its rows.
    pub fn rows(&self) -> usize {
        self.ids.configurations.len() * self.images.len() * self.ids.metrics.len()
    }
}

impl Protocol<'_> {
    /// Enters the next stage into the store; none if there is no other. All rows of the stages before it must be stored: what was
    /// chosen follows from them.
    pub fn next_stage(&mut self, store: &mut Store, observer: &dyn Observer) -> Result<Option<EnteredStage>> {
        if let Some(ids) = self.selected.take() {
            self.compared = self.winners(&ids, store, observer)?;
        }
        let Some(&kind) = self.stages.get(self.next) else { return Ok(None) };
        let planned = self.plan.stage(kind, &self.compared)?;
        let part = self.part(&planned)?;
        let ids = enter(store, (self.id, self.next), &planned, part.name)?;
        let images = part.at_most(planned.image_count);
        self.next += 1;
        if kind == StageKind::Selection {
            self.selected = Some(ids.clone());
        }
        Ok(Some(EnteredStage { planned, ids, images }))
    }

    /// The images a stage is about.
    pub(super) fn part(&self, stage: &PlannedStage) -> Result<&StoredPart> {
        match (stage.on_validation, &self.validation) {
            (false, _) => Ok(&self.test),
            (true, Some(part)) => Ok(part),
            (true, None) => Err(no_validation(&stage.name)),
        }
    }

    /// Runs all stages in this process, beside others that work on the same store.
    pub fn run(&mut self, store: &mut Store, worker: &Worker, observer: &dyn Observer) -> Result<()> {
        let made_by = Provenance::of(self.plan.setting.engine)?;
        while let Some(stage) = self.next_stage(store, observer)? {
            let EnteredStage { planned, ids, images } = &stage;
            let progress =
                observer.stage(&planned.name, ids.configurations.len(), images.len(), stage.rows());
            let data = (&self.part(planned)?.data, self.plan.setting.preprocess);
            let evaluator = self.plan.evaluator(planned.kind)?;
            let mut measurer = Measurer::new((planned.grid.clone(), ids.clone()), data, evaluator);
            let mut sweep = SharedSweep {
                store,
                worker,
                key: self.key(),
                made_by: &made_by,
                stage: (&planned.grid, ids),
                images,
                progress: &*progress,
            };
            sweep.run(&mut measurer)?;
        }
        Ok(())
    }
}

/// A remark on values that different engines or instructions computed; none if all have the same.
pub fn identity_remark(identities: &[EngineIdentity]) -> Option<String> {
    let one = |EngineIdentity { engine, instructions }: &EngineIdentity| match instructions.as_str() {
        "" => engine.clone(),
        instructions => format!("{engine} {instructions}"),
    };
    let all: Vec<String> = identities.iter().map(one).collect();
    (all.len() > 1).then(|| {
        format!(
            "values were computed by {}: their last digits may differ from those of one machine",
            all.join(" and by ")
        )
    })
}

/// Enters a stage of an experiment into the store.
fn enter(
    store: &mut Store,
    (experiment, position): (i64, usize),
    planned: &PlannedStage,
    part: &str,
) -> Result<StageIds> {
    let mut metrics = Vec::new();
    for (name, better) in &planned.grid.metrics {
        metrics.push((store.metric(name, *better)?, name.clone(), *better));
    }
    let mut members = Vec::new();
    for Candidate { configuration, family, title, place, note, .. } in &planned.grid.candidates {
        members.push(Member {
            id: store.configuration(configuration)?,
            configuration: configuration.clone(),
            family: family.clone(),
            title: title.clone(),
            place: place.clone(),
            note: note.clone(),
        });
    }
    let ids = StageIds {
        configurations: members.iter().map(|member| member.id).collect(),
        metrics: metrics.iter().map(|(id, ..)| *id).collect(),
    };
    let kind = planned.kind.name().to_owned();
    let stage = Stage { name: planned.name.clone(), kind, part: part.to_owned(), members, metrics };
    store.set_stage(experiment, position, &stage)?;
    Ok(ids)
}
