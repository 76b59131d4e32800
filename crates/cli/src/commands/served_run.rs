//! A run store behind the explorer's page: its tables, its report, and its network and pictures where they still are.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use monosplit::eval::experiment::Experiment;
use monosplit::eval::protocol::{GIVEN_MAPS, Images};
use monosplit::eval::store::{Member, Planned, Stage, Store};
use monosplit::eval::{Better, StageSummary, metric_title};
use monosplit::graph::{Error, Result, open_regular};
use monosplit::{EvaluationContext, Model};
use monosplit_explorer::{ExhibitedRun, RunImage, RunMember, RunMetric, RunStage, RunTables};

use crate::failure::{note, text};
use crate::report::Report;

/// What every SQLite file begins with.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The most values of single images that a stage sends to the page. Of a stage with more, no image is sent.
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
    let read = open_regular(path).map(|mut file| file.read_exact(&mut begun));
    matches!(read, Ok(Ok(()))) && begun == SQLITE
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
        let galleries = galleries(&pictures);
        let stage =
            |stage: &Stage| Ok(tables(&StageSummary::of(&store, &planned, stage)?, &galleries, MOST_VALUES));
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
        Ok(ServedRun { run, network, pictures: pictures.into_iter().map(|picture| picture.path).collect() })
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

/// A picture of a data set that has a file of its own.
struct Picture {
    /// The part of the data set, as stages call it.
    part: &'static str,
    name: String,
    path: PathBuf,
}

/// The numbers of pictures by part and name: two parts may each have a picture of one name.
type Galleries<'p> = HashMap<(&'p str, &'p str), usize>;

fn galleries(pictures: &[Picture]) -> Galleries<'_> {
    pictures
        .iter()
        .enumerate()
        .map(|(number, picture)| ((picture.part, picture.name.as_str()), number))
        .collect()
}

/// The pictures that have files of their own, those of the test set first.
fn pictures_of(experiment: &Experiment, folder: &Path) -> Result<Vec<Picture>> {
    let Images { validation, test, .. } = Images::open(experiment, (folder, "data.folder"))?;
    let parts = [("test", Some(test)), ("validation", validation)];
    let mut found = Vec::new();
    for (part, data) in &parts {
        let Some(data) = data else { continue };
        let files = (0..data.len()).filter_map(|index| Some((data.name(index), data.path(index)?)));
        found.extend(files.map(|(name, path)| Picture {
            part,
            name: name.to_owned(),
            path: path.to_owned(),
        }));
    }
    Ok(found)
}

fn tables(summary: &StageSummary, galleries: &Galleries, most_values: usize) -> RunStage {
    let stage = &summary.stage;
    let is_sent = stage.members.len() * stage.metrics.len() * summary.images.len() <= most_values;
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
    let images = summary.images.iter().filter(|_| is_sent).map(|(_, name, class)| RunImage {
        name: name.clone(),
        class: *class,
        gallery: galleries.get(&(stage.part.as_str(), name.as_str())).copied(),
    });
    RunStage {
        name: format!("{}: {}", stage.name, summary.extent()),
        metrics: metrics.collect(),
        members: members.collect(),
        images: images.collect(),
    }
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

#[cfg(test)]
mod tests {
    use monosplit::eval::MetricSummary;
    use monosplit::eval::store::Configuration;

    use super::*;

    /// One method and one metric over two images `a.png` and `b.png` of a part.
    fn summary(part: &str) -> StageSummary {
        let configuration = Configuration {
            method: "splitcam".to_owned(),
            options: String::new(),
            layer: "conv".to_owned(),
            absolute: false,
        };
        let member = Member {
            id: 1,
            configuration,
            family: String::new(),
            title: "SplitCAM".to_owned(),
            place: String::new(),
            note: String::new(),
        };
        let stage = Stage {
            name: "comparison".to_owned(),
            kind: "comparison".to_owned(),
            part: part.to_owned(),
            members: vec![member],
            metrics: vec![(1, "deletion".to_owned(), Better::Lower)],
        };
        let values =
            MetricSummary { values: HashMap::from([(1, 0.25), (2, 0.5)]), ..MetricSummary::default() };
        let images = vec![(1, "a.png".to_owned(), 0), (2, "b.png".to_owned(), 3)];
        StageSummary { stage, images, seen: 2, rows: vec![vec![values]] }
    }

    #[test]
    fn a_stage_of_too_many_values_sends_no_image() {
        let of = |most_values| tables(&summary("test"), &Galleries::new(), most_values);
        let (whole, cut) = (of(2), of(1));
        assert_eq!(
            (whole.images.len(), &whole.members[0].values[..]),
            (2, &[vec![Some(0.25), Some(0.5)]][..])
        );
        assert_eq!((cut.images.len(), cut.members[0].values.len(), cut.members[0].means.len()), (0, 0, 1));
    }

    #[test]
    fn a_name_in_two_parts_opens_the_picture_of_its_own() {
        let picture = |part, name: &str| Picture { part, name: name.to_owned(), path: PathBuf::new() };
        let pictures = [picture("test", "a.png"), picture("test", "b.png"), picture("validation", "a.png")];
        let galleries = galleries(&pictures);
        let numbers = |part| {
            tables(&summary(part), &galleries, MOST_VALUES).images.into_iter().map(|image| image.gallery)
        };
        assert_eq!(numbers("test").collect::<Vec<_>>(), [Some(0), Some(1)]);
        assert_eq!(numbers("validation").collect::<Vec<_>>(), [Some(2), None]);
    }
}
