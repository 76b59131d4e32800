//! What an experiment asks, without its images and without a store: its stages, their candidates and what evaluates them. Every
//! process that works on an experiment derives the same plan.

use monosplit_engine::Engine;
use monosplit_graph::{Graph, Result};
use monosplit_image::Preprocess;

use super::candidates::{MethodCandidates, choices, fixed};
use super::given::computed;
use super::{Catalogue, inside};
use crate::candidate::{Candidate, Source};
use crate::evaluated_model::EvaluatedModel;
use crate::experiment::{AblationPart, Experiment, Fixed, SanityPart, about};
use crate::metric::{Better, Metric};
use crate::metric_evaluator::MetricEvaluator;
use crate::metrics;
use crate::randomisation::randomised_with;
use crate::sanity::{SIMILARITIES, Sanity};
use crate::sweep::{Evaluator, StageGrid};
use crate::timing::Timing;

/// An experiment with what it is run with.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
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
}

/// The stages of an experiment.
pub struct Plan<'a> {
    pub(super) setting: Setting<'a>,
    pub(super) choices: Vec<MethodCandidates>,
}

/// A stage of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StageKind {
    /// Configurations are chosen on validation images.
    Selection,
    /// The chosen ones are compared on other images.
    Comparison,
    /// The ablation with this index.
    Ablation(usize),
    /// Curves over layers.
    Layers,
    /// The randomisation check.
    Sanity,
    /// Run times.
    Timing,
}

impl StageKind {
    /// How a store writes it.
    pub fn name(self) -> &'static str {
        match self {
            StageKind::Selection => "selection",
            StageKind::Comparison => "comparison",
            StageKind::Ablation(_) => "ablation",
            StageKind::Layers => "layers",
            StageKind::Sanity => "sanity",
            StageKind::Timing => "timing",
        }
    }
}

/// A candidate that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Its index among all candidates of all methods, in the order of the experiment.
    pub index: usize,
    /// Why it was chosen.
    pub note: String,
}

/// What one stage evaluates.
#[derive(Clone, Debug)]
pub struct PlannedStage {
    /// The stage.
    pub kind: StageKind,
    /// Its name.
    pub name: String,
    /// Whether it is about the validation images.
    pub on_validation: bool,
    /// How many of the images it is about; all if none.
    pub image_count: Option<usize>,
    /// Its candidates and metrics.
    pub grid: StageGrid,
}

impl<'a> Plan<'a> {
    /// Resolves all methods of an experiment.
    pub fn new(setting: Setting<'a>) -> Result<Self> {
        let graph = setting.evaluated_model.graph();
        let choices = setting.experiment.methods.iter().zip(1..).map(|(part, number)| {
            choices(part, setting.catalogue, graph)
                .map_err(|error| inside(&format!("method[{number}]"), &error))
        });
        Ok(Plan { choices: choices.collect::<Result<_>>()?, setting })
    }

    /// What the plan was made with.
    pub fn setting(&self) -> &Setting<'a> {
        &self.setting
    }

    /// Whether maps that were made elsewhere are evaluated.
    pub fn has_given_maps(&self) -> bool {
        self.choices.iter().any(|choice| choice.given.is_some())
    }

    /// The stages in the order in which they are run. Each needs those before it.
    pub fn stages(&self) -> Vec<StageKind> {
        let Experiment { selection, comparison, ablations, layers, sanity, timing, .. } =
            self.setting.experiment;
        let chooses = selection.is_some() && self.choices.iter().any(|choice| choice.candidates.len() > 1);
        let mut stages = Vec::new();
        stages.extend(chooses.then_some(StageKind::Selection));
        stages.extend(comparison.as_ref().map(|_| StageKind::Comparison));
        stages.extend((0..ablations.len()).map(StageKind::Ablation));
        stages.extend(layers.as_ref().map(|_| StageKind::Layers));
        stages.extend(sanity.as_ref().map(|_| StageKind::Sanity));
        stages.extend(timing.as_ref().map(|_| StageKind::Timing));
        stages
    }

    /// All candidates of all methods: those that are compared if nothing is chosen.
    pub fn all_compared(&self) -> Vec<Compared> {
        let all = self.choices.iter().map(|choice| choice.candidates.len()).sum();
        (0..all).map(|index| Compared { index, note: String::new() }).collect()
    }

    /// What a stage evaluates if `compared` are the chosen candidates.
    pub fn stage(&self, kind: StageKind, compared: &[Compared]) -> Result<PlannedStage> {
        let experiment = self.setting.experiment;
        let Experiment { maps, batch, .. } = *experiment;
        let planned = |name: String, on_validation, candidates, metrics| PlannedStage {
            kind,
            name,
            on_validation,
            image_count: None,
            grid: StageGrid::new(candidates, metrics, maps, batch),
        };
        let named = || kind.name().to_owned();
        let missing =
            || monosplit_graph::Error::argument(format!("the experiment has no stage {}", kind.name()));
        Ok(match kind {
            StageKind::Selection => {
                let open = self.choices.iter().filter(|choice| choice.candidates.len() > 1);
                let open = open.flat_map(|choice| choice.candidates.clone()).collect();
                planned(named(), true, open, names(&parsed(&self.criteria())?))
            }
            StageKind::Comparison => {
                let texts = experiment.comparison.as_ref().ok_or_else(missing)?;
                planned(named(), false, self.compared(compared)?, names(&parsed(texts)?))
            }
            StageKind::Ablation(index) => {
                let ablation = experiment.ablations.get(index).ok_or_else(missing)?;
                let mut all = Vec::new();
                for value in &ablation.values {
                    all.extend(self.varied(ablation, value)?);
                }
                let name = format!("ablation of {}", ablation.name);
                planned(name, ablation.on_validation, all, names(&parsed(&ablation.metrics)?))
            }
            StageKind::Layers => {
                let layers = experiment.layers.as_ref().ok_or_else(missing)?;
                let curves = self.all_fixed("layers.of", &layers.of)?;
                planned(named(), layers.on_validation, curves, names(&parsed(&layers.metrics)?))
            }
            StageKind::Sanity => {
                let sanity = experiment.sanity.as_ref().ok_or_else(missing)?;
                let own = self.all_fixed("sanity.of", &sanity.of)?;
                let candidates = if own.is_empty() { computed(&self.compared(compared)?) } else { own };
                let names = SIMILARITIES
                    .map(|one| (Sanity::name(one, sanity.randomise, sanity.deviation), Better::Lower));
                let stage = planned("sanity check".to_owned(), false, candidates, names.to_vec());
                PlannedStage { image_count: sanity.images, ..stage }
            }
            StageKind::Timing => {
                let timing = experiment.timing.as_ref().ok_or_else(missing)?;
                let own = self.all_fixed("timing.of", &timing.of)?;
                let all = if own.is_empty() { self.compared(compared)? } else { own };
                // A mask is not computed.
                let mut candidates = computed(&all);
                candidates.retain(|one| !matches!(one.source, Source::Mask));
                let names = Timing::METRICS.map(|(name, better)| (name.to_owned(), better));
                PlannedStage {
                    image_count: timing.images,
                    grid: StageGrid::new(candidates, names.to_vec(), 1, 1),
                    ..planned(named(), false, Vec::new(), Vec::new())
                }
            }
        })
    }

    /// What evaluates a stage.
    pub fn evaluator(&self, kind: StageKind) -> Result<Box<dyn Evaluator + 'a>> {
        let Setting { experiment, evaluated_model, engine, .. } = self.setting;
        let texts = match kind {
            StageKind::Selection => self.criteria(),
            StageKind::Comparison => experiment.comparison.clone().unwrap_or_default(),
            StageKind::Ablation(index) => experiment.ablations[index].metrics.clone(),
            StageKind::Layers => {
                experiment.layers.as_ref().map(|part| part.metrics.clone()).unwrap_or_default()
            }
            StageKind::Sanity => {
                let sanity = experiment.sanity.as_ref();
                let sanity =
                    sanity.ok_or_else(|| monosplit_graph::Error::argument("there is no sanity check"))?;
                let randomised = EvaluatedModel::owned(self.randomised(sanity)?, engine)?;
                return Ok(Box::new(Sanity::new(evaluated_model, randomised)));
            }
            StageKind::Timing => return Ok(Box::new(Timing::new(evaluated_model))),
        };
        Ok(Box::new(MetricEvaluator::new(evaluated_model, parsed(&texts)?, experiment.seed)))
    }

    /// The metrics of all criteria of the selection, each once.
    pub(super) fn criteria(&self) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        let selection = self.setting.experiment.selection.iter();
        for text in selection.flat_map(|part| &part.criteria).flat_map(|(_, metrics)| metrics) {
            if !texts.contains(text) {
                texts.push(text.clone());
            }
        }
        texts
    }

    fn compared(&self, compared: &[Compared]) -> Result<Vec<Candidate>> {
        let all: Vec<&Candidate> = self.choices.iter().flat_map(|choice| &choice.candidates).collect();
        let one = |Compared { index, note }: &Compared| match all.get(*index) {
            Some(&candidate) => Ok(Candidate { note: note.clone(), ..candidate.clone() }),
            None => Err(monosplit_graph::Error::argument(format!(
                "there is no candidate {index} of {}",
                all.len()
            ))),
        };
        compared.iter().map(one).collect()
    }

    pub(super) fn all_fixed(&self, key: &str, of: &[Fixed]) -> Result<Vec<Candidate>> {
        let mut all = Vec::new();
        for (part, number) in of.iter().zip(1..) {
            let found = fixed(part, "", None, self.setting.catalogue, self.setting.evaluated_model.graph());
            all.extend(found.map_err(|error| inside(&format!("{key}[{number}]"), &error))?);
        }
        Ok(all)
    }

    pub(super) fn varied(&self, ablation: &AblationPart, value: &str) -> Result<Vec<Candidate>> {
        let Setting { catalogue, evaluated_model, .. } = self.setting;
        let mut all = Vec::new();
        for (part, number) in ablation.of.iter().zip(1..) {
            let further = format!("{}={value}", ablation.vary);
            let found = fixed(part, &further, Some(value), catalogue, evaluated_model.graph());
            all.extend(found.map_err(|error| inside(&format!("of[{number}]"), &error))?);
        }
        Ok(all)
    }

    /// The network of the randomisation check.
    pub(super) fn randomised(&self, sanity: &SanityPart) -> Result<Graph> {
        let Setting { experiment, evaluated_model, .. } = self.setting;
        let graph = evaluated_model.graph();
        let found = randomised_with(graph, sanity.randomise, sanity.deviation, experiment.seed);
        found
            .map(|(graph, _)| graph)
            .map_err(|error| about("sanity.randomise", &sanity.randomise.to_string(), &error))
    }
}

fn parsed(texts: &[String]) -> Result<Vec<Box<dyn Metric>>> {
    texts.iter().map(|text| metrics::parse(text).map_err(|error| about("metric", text, &error))).collect()
}

fn names(metrics: &[Box<dyn Metric>]) -> Vec<(String, Better)> {
    metrics.iter().map(|metric| (metric.name().to_owned(), metric.better())).collect()
}
