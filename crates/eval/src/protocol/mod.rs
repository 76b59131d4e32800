//! The evaluation protocol. Its stages are the selection of configurations on validation images, their comparison on other
//! images, ablations of one option, curves over layers, the randomisation check, and run times. Every stage stores its values
//! row by row, so that an interrupted run can be resumed.

mod candidates;
mod images;

use std::collections::HashSet;
use std::sync::Arc;

use monosplit_engine::Engine;
use monosplit_explain::{Method, Progress, Settings};
use monosplit_graph::{Error, Graph, Result};
use monosplit_image::Preprocess;

use crate::candidate::{Candidate, Source};
use crate::evaluated_model::EvaluatedModel;
use crate::experiment::{AblationPart, Experiment, Fixed, SanityPart, SelectionPart, TimingPart, about};
use crate::grid_evaluation::{EvaluatedImage, EvaluationGrid, Evaluator, GridEvaluation};
use crate::metric::{Better, CaseShape, Metric};
use crate::metric_evaluator::MetricEvaluator;
use crate::metrics;
use crate::randomisation::randomised;
use crate::sanity::{SIMILARITIES, Sanity};
use crate::selection::{self, MetricValues};
use crate::store::{Member, Stage, Store, Worker};
use crate::timing::Timing;
use candidates::{MethodCandidates, choices, fixed};

pub use images::{Images, Part};

/// A method resolved from its text.
#[derive(Clone, Debug)]
pub struct ResolvedMethod {
    /// Its name.
    pub name: String,
    /// The options that differ from its defaults, in alphabetical order.
    pub options: String,
    /// Its title in reports.
    pub title: String,
    /// The family it is listed under.
    pub family: String,
    /// The method; `None` is the object mask.
    pub method: Option<Arc<dyn Method>>,
    /// Its run-time settings.
    pub settings: Settings,
}

/// Resolves methods from their texts.
pub trait Catalogue {
    /// The method written as `text`.
    fn method(&self, text: &str) -> Result<ResolvedMethod>;

    /// The default layer of a method; `None` is the image.
    fn usual_layer(&self, method: &ResolvedMethod) -> Option<String>;
}

/// Receives the events of a run.
pub trait Observer {
    /// The images of a part were read.
    fn part(&self, part: &Part);

    /// A stage begins. Some of its rows may already be stored.
    fn stage(&self, name: &str, configurations: usize, images: usize, rows: usize) -> Box<dyn Progress>;

    /// A warning about the experiment.
    fn remark(&self, message: &str);

    /// A method's configuration was chosen.
    fn chosen(&self, title: &str, criterion: &str, configuration: &str);
}

/// The protocol of one experiment with everything it needs.
pub struct Protocol<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The network.
    pub evaluated_model: &'a EvaluatedModel<'a>,
    /// The engine that compiles randomised networks.
    pub engine: &'a dyn Engine,
    /// The methods.
    pub catalogue: &'a dyn Catalogue,
    /// How images are preprocessed.
    pub preprocess: &'a Preprocess,
    /// The store of the results.
    pub store: &'a mut Store,
    /// This process.
    pub worker: &'a Worker,
    /// The id of the model in the store.
    pub model: i64,
    /// The id of the experiment in the store.
    pub id: i64,
    /// Receives events and progress.
    pub observer: &'a dyn Observer,
}

/// What one stage evaluates.
struct Task<'t> {
    name: String,
    kind: &'static str,
    candidates: &'t [Candidate],
    part: &'t Part,
    /// Some of the part's images.
    images: Option<usize>,
    /// How many maps are computed together.
    maps: usize,
    batch: usize,
}

/// The ids of a stage's configurations in the store, and of its metrics with whether higher is better.
type Numbers = (Vec<i64>, Vec<(i64, Better)>);

impl Protocol<'_> {
    /// Runs all stages over some images.
    pub fn run(&mut self, Images { validation, test, .. }: Images) -> Result<()> {
        let experiment = self.experiment;
        let choices: Vec<MethodCandidates> = experiment
            .methods
            .iter()
            .zip(1..)
            .map(|(part, number)| {
                choices(part, self.catalogue, self.evaluated_model.graph())
                    .map_err(|error| inside(&format!("method[{number}]"), &error))
            })
            .collect::<Result<_>>()?;
        self.check_texts()?;
        self.check_parts(&choices, validation.is_some())?;
        self.check_metrics(images::frame(&test, self.evaluated_model, self.preprocess)?)?;
        let asks_masks = self.asks_masks(&choices)?;
        let enter = |name, data| {
            let how = (self.evaluated_model, self.preprocess);
            let mut part = Part::enter(name, data, experiment.data.class, how, self.store)?;
            part.unmasked.retain(|_| asks_masks);
            self.observer.part(&part);
            Ok::<_, Error>(part)
        };
        let validation = validation.map(|data| enter("validation", data)).transpose()?;
        let test = enter("test", test)?;
        let chosen_on: HashSet<i64> =
            validation.iter().flat_map(|part| &part.images).map(|image| image.id).collect();
        let both = test.images.iter().filter(|image| chosen_on.contains(&image.id)).count();
        if both > 0 {
            self.observer.remark(&format!(
                "data.validation and data.test share {both} images: what was chosen on them is compared on them"
            ));
        }
        for part in validation.iter().chain([&test]) {
            let ids: Vec<i64> = part.images.iter().map(|image| image.id).collect();
            self.store.set_images(self.id, part.name, &ids)?;
            self.store.set_image_issues(self.id, part.name, &part.excluded, &part.unmasked)?;
        }
        let mut position = 0;
        let compared = self.select(&choices, validation.as_ref(), &mut position)?;
        if let Some(metrics) = &experiment.comparison {
            let task = self.task("comparison", "comparison", &compared, &test);
            self.evaluate_metrics(task, metrics, &mut position)?;
        }
        for ablation in &experiment.ablations {
            let part = self.part(ablation.on_validation, &ablation.name, validation.as_ref(), &test)?;
            self.ablate(ablation, part, &mut position)?;
        }
        if let Some(layers) = &experiment.layers {
            let part = self.part(layers.on_validation, "layers", validation.as_ref(), &test)?;
            let curves = self.all_fixed("layers.of", &layers.of)?;
            let task = self.task("layers", "layers", &curves, part);
            self.evaluate_metrics(task, &layers.metrics, &mut position)?;
        }
        if let Some(sanity) = &experiment.sanity {
            self.check_sanity(sanity, &compared, &test, &mut position)?;
        }
        if let Some(timing) = &experiment.timing {
            self.time(timing, &compared, &test, &mut position)?;
        }
        Ok(())
    }

    /// Resolves and compiles every method before anything is computed, so that a mistake is found at once.
    fn check_texts(&self) -> Result<()> {
        let experiment = self.experiment;
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
    fn check_parts(&self, choices: &[MethodCandidates], is_validated: bool) -> Result<()> {
        let Experiment { selection, ablations, layers, .. } = self.experiment;
        let chooses = selection.is_some() && choices.iter().any(|choice| choice.candidates.len() > 1);
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
    fn check_metrics(&self, frame: Option<CaseShape>) -> Result<()> {
        let Some(frame) = frame else { return Ok(()) };
        self.metrics().try_for_each(|(key, text)| {
            let fits = metrics::parse(text).and_then(|metric| metric.check(&frame));
            fits.map_err(|error| about(&key, text, &error))
        })
    }

    /// All metrics of the experiment, and the key that names each.
    fn metrics(&self) -> impl Iterator<Item = (String, &String)> {
        let experiment = self.experiment;
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
    fn asks_masks(&self, choices: &[MethodCandidates]) -> Result<bool> {
        let mut candidates = choices.iter().flat_map(|choice| &choice.candidates);
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

    /// The network of the randomisation check.
    fn randomised(&self, sanity: &SanityPart) -> Result<Graph> {
        let found = randomised(self.evaluated_model.graph(), sanity.randomise, self.experiment.seed);
        found
            .map(|(graph, _)| graph)
            .map_err(|error| about("sanity.randomise", &sanity.randomise.to_string(), &error))
    }

    fn part<'p>(
        &self,
        on_validation: bool,
        stage: &str,
        validation: Option<&'p Part>,
        test: &'p Part,
    ) -> Result<&'p Part> {
        match (on_validation, validation) {
            (false, _) => Ok(test),
            (true, Some(part)) => Ok(part),
            (true, None) => Err(no_validation(stage)),
        }
    }

    fn task<'t>(
        &self,
        name: &str,
        kind: &'static str,
        candidates: &'t [Candidate],
        part: &'t Part,
    ) -> Task<'t> {
        let Experiment { maps, batch, .. } = *self.experiment;
        Task { name: name.to_owned(), kind, candidates, part, images: None, maps, batch }
    }

    fn all_fixed(&self, key: &str, of: &[Fixed]) -> Result<Vec<Candidate>> {
        let mut all = Vec::new();
        for (part, number) in of.iter().zip(1..) {
            let found = fixed(part, "", None, self.catalogue, self.evaluated_model.graph());
            all.extend(found.map_err(|error| inside(&format!("{key}[{number}]"), &error))?);
        }
        Ok(all)
    }

    fn varied(&self, ablation: &AblationPart, value: &str) -> Result<Vec<Candidate>> {
        let mut all = Vec::new();
        for (part, number) in ablation.of.iter().zip(1..) {
            let further = format!("{}={value}", ablation.vary);
            let found = fixed(part, &further, Some(value), self.catalogue, self.evaluated_model.graph());
            all.extend(found.map_err(|error| inside(&format!("of[{number}]"), &error))?);
        }
        Ok(all)
    }

    /// Measures candidates by metrics; returns their ids and those of the metrics.
    fn evaluate_metrics(
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

    fn grid_evaluation(
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

    /// The configurations to compare: those chosen on validation images, or all if nothing is chosen.
    fn select(
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
    fn winners(
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
            let configuration = &choice.candidates[best].configuration;
            let sign = if configuration.absolute { ", absolute" } else { "" };
            let configuration_text =
                format!("{} at {}{sign}", choice.candidates[best].place, configuration.layer);
            self.observer.chosen(&choice.title, criterion, configuration_text.trim_start_matches(" at "));
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

    fn values_of(&self, configuration: i64, metric: i64, part: &Part) -> Result<MetricValues> {
        let values = self.store.values((self.model, self.experiment.seed), configuration, metric)?;
        Ok(part.images.iter().map(|image| values.get(&image.id).copied().flatten()).collect())
    }

    fn ablate(&mut self, ablation: &AblationPart, part: &Part, position: &mut usize) -> Result<()> {
        let mut all = Vec::new();
        for value in &ablation.values {
            all.extend(self.varied(ablation, value)?);
        }
        let task = self.task(&format!("ablation of {}", ablation.name), "ablation", &all, part);
        self.evaluate_metrics(task, &ablation.metrics, position).map(|_| ())
    }

    fn check_sanity(
        &mut self,
        sanity: &SanityPart,
        compared: &[Candidate],
        test: &Part,
        position: &mut usize,
    ) -> Result<()> {
        let own = self.all_fixed("sanity.of", &sanity.of)?;
        let candidates = if own.is_empty() { compared } else { &own };
        let graph = self.randomised(sanity)?;
        let forgotten = EvaluatedModel::new(&graph, self.engine)?;
        let names = SIMILARITIES.map(|one| (Sanity::name(one, sanity.randomise), Better::Lower));
        let evaluated_model = self.evaluated_model;
        let mut evaluator = Sanity::new(evaluated_model, &forgotten);
        let task = Task { images: sanity.images, ..self.task("sanity check", "sanity", candidates, test) };
        self.grid_evaluation(task, &names, &mut evaluator, position).map(|_| ())
    }

    fn time(
        &mut self,
        timing: &TimingPart,
        compared: &[Candidate],
        test: &Part,
        position: &mut usize,
    ) -> Result<()> {
        let own = self.all_fixed("timing.of", &timing.of)?;
        let all = if own.is_empty() { compared } else { &own };
        // A mask is not computed.
        let candidates: Vec<Candidate> =
            all.iter().filter(|one| !matches!(one.source, Source::Mask)).cloned().collect();
        let names = Timing::METRICS.map(|(name, better)| (name.to_owned(), better));
        let evaluated_model = self.evaluated_model;
        let mut evaluator = Timing::new(evaluated_model);
        let task = self.task("timing", "timing", &candidates, test);
        let task = Task { images: timing.images, maps: 1, batch: 1, ..task };
        self.grid_evaluation(task, &names, &mut evaluator, position).map(|_| ())
    }
}

/// An error about a key inside of a table.
fn inside(table: &str, error: &Error) -> Error {
    error.clone().prefixed(&format!("{table}."))
}

fn no_validation(key: &str) -> Error {
    Error::argument(format!(
        "{key}: validation images are needed, but there are none; set data.validation to a part of the data set, or \
         data.validation-per-class to a number"
    ))
}
