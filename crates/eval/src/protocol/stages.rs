//! The stages of the protocol: each evaluates a grid of candidates, images and metrics, and records what it evaluated.

use monosplit_graph::{Graph, Result};

use super::candidates::fixed;
use super::given::computed;
use super::{Part, Protocol, inside};
use crate::candidate::{Candidate, Source};
use crate::evaluated_model::EvaluatedModel;
use crate::experiment::{AblationPart, Experiment, Fixed, SanityPart, TimingPart, about};
use crate::grid_evaluation::{EvaluatedImage, EvaluationGrid, Evaluator, GridEvaluation};
use crate::metric::{Better, Metric};
use crate::metric_evaluator::MetricEvaluator;
use crate::metrics;
use crate::randomisation::randomised_with;
use crate::sanity::{SIMILARITIES, Sanity};
use crate::store::{Member, Stage};
use crate::timing::Timing;

/// What one stage evaluates.
pub(super) struct Task<'t> {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) candidates: &'t [Candidate],
    pub(super) part: &'t Part,
    /// Some of the part's images.
    pub(super) images: Option<usize>,
    /// How many maps are computed together.
    pub(super) maps: usize,
    pub(super) batch: usize,
}

/// The ids of a stage's configurations in the store, and of its metrics with whether higher is better.
pub(super) type Numbers = (Vec<i64>, Vec<(i64, Better)>);

impl Protocol<'_> {
    pub(super) fn task<'t>(
        &self,
        name: &str,
        kind: &'static str,
        candidates: &'t [Candidate],
        part: &'t Part,
    ) -> Task<'t> {
        let Experiment { maps, batch, .. } = *self.experiment;
        Task { name: name.to_owned(), kind, candidates, part, images: None, maps, batch }
    }

    /// Measures candidates by metrics; returns their ids and those of the metrics.
    pub(super) fn evaluate_metrics(
        &mut self,
        task: Task<'_>,
        texts: &[String],
        position: &mut usize,
    ) -> Result<Numbers> {
        let measures: Vec<Box<dyn Metric>> = texts
            .iter()
            .map(|text| metrics::parse(text).map_err(|error| about("metric", text, &error)))
            .collect::<Result<_>>()?;
        let names: Vec<(String, Better)> =
            measures.iter().map(|metric| (metric.name().to_owned(), metric.better())).collect();
        let evaluated_model = self.evaluated_model;
        let mut evaluator = MetricEvaluator::new(evaluated_model, &measures, self.experiment.seed);
        self.grid_evaluation(task, &names, &mut evaluator, position)
    }

    pub(super) fn grid_evaluation(
        &mut self,
        task: Task<'_>,
        names: &[(String, Better)],
        evaluator: &mut dyn Evaluator,
        position: &mut usize,
    ) -> Result<Numbers> {
        let mut metrics = Vec::new();
        for (name, better) in names {
            metrics.push((self.store.metric(name, *better)?, name.clone(), *better));
        }
        let mut members = Vec::new();
        for Candidate { configuration, family, title, place, note, .. } in task.candidates {
            members.push(Member {
                id: self.store.configuration(configuration)?,
                configuration: configuration.clone(),
                family: family.clone(),
                title: title.clone(),
                place: place.clone(),
                note: note.clone(),
            });
        }
        let ids: Vec<i64> = members.iter().map(|member| member.id).collect();
        let stage = Stage {
            name: task.name.clone(),
            kind: task.kind.to_owned(),
            part: task.part.name.to_owned(),
            members,
            metrics: metrics.clone(),
        };
        self.store.set_stage(self.id, *position, &stage)?;
        *position += 1;
        let images: Vec<EvaluatedImage> = task.part.at_most(task.images);
        let rows = ids.len() * images.len() * metrics.len();
        let progress = self.observer.stage(&task.name, ids.len(), images.len(), rows);
        let metrics: Vec<(i64, Better)> = metrics.into_iter().map(|(id, _, better)| (id, better)).collect();
        let numbers: Vec<i64> = metrics.iter().map(|(id, _)| *id).collect();
        let grid = EvaluationGrid {
            candidates: task.candidates,
            ids: &ids,
            metrics: &numbers,
            images: &images,
            data: &task.part.data,
        };
        let mut grid_evaluation = GridEvaluation {
            store: self.store,
            worker: self.worker,
            model: self.model,
            seed: self.experiment.seed,
            preprocess: self.preprocess,
            batch: task.batch,
            maps: task.maps,
            progress: &*progress,
        };
        grid_evaluation.run(&grid, evaluator)?;
        Ok((ids, metrics))
    }

    pub(super) fn all_fixed(&self, key: &str, of: &[Fixed]) -> Result<Vec<Candidate>> {
        let mut all = Vec::new();
        for (part, number) in of.iter().zip(1..) {
            let found = fixed(part, "", None, self.catalogue, self.evaluated_model.graph());
            all.extend(found.map_err(|error| inside(&format!("{key}[{number}]"), &error))?);
        }
        Ok(all)
    }

    pub(super) fn varied(&self, ablation: &AblationPart, value: &str) -> Result<Vec<Candidate>> {
        let mut all = Vec::new();
        for (part, number) in ablation.of.iter().zip(1..) {
            let further = format!("{}={value}", ablation.vary);
            let found = fixed(part, &further, Some(value), self.catalogue, self.evaluated_model.graph());
            all.extend(found.map_err(|error| inside(&format!("of[{number}]"), &error))?);
        }
        Ok(all)
    }

    pub(super) fn ablate(
        &mut self,
        ablation: &AblationPart,
        part: &Part,
        position: &mut usize,
    ) -> Result<()> {
        let mut all = Vec::new();
        for value in &ablation.values {
            all.extend(self.varied(ablation, value)?);
        }
        let task = self.task(&format!("ablation of {}", ablation.name), "ablation", &all, part);
        self.evaluate_metrics(task, &ablation.metrics, position).map(|_| ())
    }

    pub(super) fn check_sanity(
        &mut self,
        sanity: &SanityPart,
        compared: &[Candidate],
        test: &Part,
        position: &mut usize,
    ) -> Result<()> {
        let own = self.all_fixed("sanity.of", &sanity.of)?;
        let candidates = if own.is_empty() { computed(compared) } else { own };
        let graph = self.randomised(sanity)?;
        let forgotten = EvaluatedModel::new(&graph, self.engine)?;
        let names =
            SIMILARITIES.map(|one| (Sanity::name(one, sanity.randomise, sanity.deviation), Better::Lower));
        let evaluated_model = self.evaluated_model;
        let mut evaluator = Sanity::new(evaluated_model, &forgotten);
        let task = Task { images: sanity.images, ..self.task("sanity check", "sanity", &candidates, test) };
        self.grid_evaluation(task, &names, &mut evaluator, position).map(|_| ())
    }

    pub(super) fn time(
        &mut self,
        timing: &TimingPart,
        compared: &[Candidate],
        test: &Part,
        position: &mut usize,
    ) -> Result<()> {
        let own = self.all_fixed("timing.of", &timing.of)?;
        let all = if own.is_empty() { compared } else { &own };
        // A mask is not computed.
        let mut candidates = computed(all);
        candidates.retain(|one| !matches!(one.source, Source::Mask));
        let names = Timing::METRICS.map(|(name, better)| (name.to_owned(), better));
        let evaluated_model = self.evaluated_model;
        let mut evaluator = Timing::new(evaluated_model);
        let task = self.task("timing", "timing", &candidates, test);
        let task = Task { images: timing.images, maps: 1, batch: 1, ..task };
        self.grid_evaluation(task, &names, &mut evaluator, position).map(|_| ())
    }

    /// The network of the randomisation check.
    pub(super) fn randomised(&self, sanity: &SanityPart) -> Result<Graph> {
        let graph = self.evaluated_model.graph();
        let found = randomised_with(graph, sanity.randomise, sanity.deviation, self.experiment.seed);
        found
            .map(|(graph, _)| graph)
            .map_err(|error| about("sanity.randomise", &sanity.randomise.to_string(), &error))
    }
}
