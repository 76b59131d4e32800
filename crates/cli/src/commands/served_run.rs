//! A run store behind the explorer's page: its tables, its report, and its network and pictures where they still are.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use monosplit::eval::experiment::Experiment;
use monosplit::eval::protocol::{GIVEN_MAPS, Images};
use monosplit::eval::store::{Member, Planned, Stage, Store};
use monosplit::eval::{Better, StageSummary, metric_title};
use monosplit::graph::{Error, Result};
use monosplit::{EvaluationContext, Model};
use monosplit_explorer::{ExhibitedRun, RunImage, RunMember, RunMetric, RunStage, RunTables};

use crate::failure::{note, text};
use crate::report::Report;

/// What every SQLite file begins with.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The most values of single images that a stage sends to the page.
const MOST_VALUES: usize = 1 << 20;

/// A run with its network and pictures.
pub(super) struct ServedRun {
    pub(super) run: ExhibitedRun,
    /// The network, and its name; none where it has moved or changed.
    pub(super) network: Option<(String, Model)>,
    pub(super) pictures: Vec<PathBuf>,
}

/// Whether a file is a run store, by its first bytes.
pub(super) fn is_run_store(path: &Path) -> bool {
    let mut begun = [0; SQLITE.len()];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begun));
    read.is_ok() && begun == SQLITE
}

impl ServedRun {
    /// Reads an experiment of a store: the one of this name, or the one begun last.
    pub(super) fn open(path: &Path, experiment: Option<&str>, wants_network: bool) -> Result<Self> {
        let store = Store::read(path)?;
        let planned = store.planned(experiment)?;
        let record = &planned.record;
        let parsed = Experiment::parse(&record.text, Path::new(&record.name))?;
        let context = network_of(&store, &planned, &parsed)
            .map_err(|error| note(&format!("without the run's network: {}", text(&error))))
            .ok();
        let pictures = pictures_of(&parsed, Path::new(&record.data_path))
            .map_err(|error| note(&format!("without the run's pictures: {}", text(&error))))
            .unwrap_or_default();
        let preset = match (&context, parsed.model.preset) {
            (_, Some(preset)) => Some(preset),
            (Some(context), None) => Some(context.model.pixel_values()?.preset),
            (None, None) => None,
        };
        let galleries: HashMap<&str, usize> =
            pictures.iter().enumerate().map(|(number, (name, _))| (name.as_str(), number)).collect();
        let stage = |stage: &Stage| tables(&StageSummary::of(&store, &planned, stage)?, &galleries);
        let measured =
            planned.stages.iter().filter(|stage| !stage.members.is_empty() && !stage.metrics.is_empty());
        let tables = RunTables {
            name: record.name.clone(),
            preset: preset.map(|preset| preset.name().to_owned()),
            stages: measured.map(stage).collect::<Result<_>>()?,
        };
        let run = ExhibitedRun { tables, report: Report::files(&store, &planned, None)? };
        let network = context.filter(|_| wants_network).map(|context| {
            let name = context.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, context.model)
        });
        Ok(ServedRun { run, network, pictures: pictures.into_iter().map(|(_, path)| path).collect() })
    }
}

/// The network that was measured.
fn network_of(store: &Store, planned: &Planned, experiment: &Experiment) -> Result<EvaluationContext> {
    let record = &planned.record;
    let instead = experiment.model.architecture.is_none().then_some(Path::new(&record.model_path));
    let context = EvaluationContext::open(experiment, instead)?;
    match context.hash == store.model_hash(record.model)? {
        true => Ok(context),
        false => Err(Error::argument(format!("{} has changed since", context.path.display()))),
    }
}

/// The pictures that have files of their own, by their names.
fn pictures_of(experiment: &Experiment, folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let Images { validation, test, .. } = Images::open(experiment, (folder, "data.folder"))?;
    let parts = [Some(test), validation];
    let mut found = Vec::new();
    for data in parts.iter().flatten() {
        let files = (0..data.len()).filter_map(|index| Some((data.name(index), data.path(index)?)));
        found.extend(files.map(|(name, path)| (name.to_owned(), path.to_owned())));
    }
    Ok(found)
}

fn tables(summary: &StageSummary, galleries: &HashMap<&str, usize>) -> Result<RunStage> {
    let stage = &summary.stage;
    let is_sent = stage.members.len() * stage.metrics.len() * summary.images.len() <= MOST_VALUES;
    let metrics = stage.metrics.iter().map(|(_, name, better)| RunMetric {
        title: metric_title(name),
        is_higher_better: *better == Better::Higher,
    });
    let members = stage.members.iter().zip(&summary.rows).map(|(member, row)| RunMember {
        title: title_of(stage, member),
        method: method_of(member),
        layer: member.configuration.layer.clone(),
        is_absolute: member.configuration.absolute,
        means: row.iter().map(|found| found.estimate.map(|estimate| estimate.mean)).collect(),
        values: row
            .iter()
            .filter(|_| is_sent)
            .map(|found| summary.images.iter().map(|(id, ..)| found.values.get(id).copied()).collect())
            .collect(),
    });
    let images = summary.images.iter().map(|(_, name, class)| RunImage {
        name: name.clone(),
        class: *class,
        gallery: galleries.get(name.as_str()).copied(),
    });
    Ok(RunStage {
        name: format!("{}: {}", stage.name, summary.extent()),
        metrics: metrics.collect(),
        members: members.collect(),
        images: images.collect(),
    })
}

/// The method with its options, where it is one that the page can compute.
fn method_of(member: &Member) -> Option<String> {
    let configuration = &member.configuration;
    let is_computed = ![GIVEN_MAPS, "mask"].contains(&configuration.method.as_str());
    is_computed.then(|| match configuration.options.as_str() {
        "" => configuration.method.clone(),
        options => format!("{}:{options}", configuration.method),
    })
}

fn title_of(stage: &Stage, member: &Member) -> String {
    match stage.kind.as_str() {
        "ablation" => format!("{}, {}", member.title, member.place),
        _ => member.title.clone(),
    }
}
