//! `monosplit evaluate`: runs or resumes an experiment.

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use monosplit::eval::dataset::ImageIssue;
use monosplit::eval::experiment::Experiment;
use monosplit::eval::protocol::{Images, Observer, Plan, Protocol, Setting, StoredPart, identity_remark};
use monosplit::eval::store::{Stage, Store, Worker};
use monosplit::eval::{Better, EvaluatedModel, MetricSummary, StageSummary, metric_title};
use monosplit::explain::{NoProgress, Progress};
use monosplit::graph::{Error, Hint, Result};
use monosplit::{EvaluationContext, with_target};
use serde::Serialize;

use super::compute::ComputeArgs;
use super::preprocessing::pixel_remark;
use super::progress::{Bar, format_duration};
use super::run::{check_writable, scores_remark};
use crate::failure::{Failure, note};
use crate::json;
use crate::table::{Align, TextTable, grouped, printable};

/// The largest number of skipped images that are named.
const NAMED: usize = 5;

/// Measures which explanations are right, as an experiment file describes it
#[derive(Args)]
#[command(override_usage = "monosplit evaluate EXPERIMENT.toml [OPTIONS]")]
#[command(long_about = "\
Measures which explanations are right, as an experiment file describes it.

  monosplit evaluate experiments/pets-small-quick.toml --data pets
  monosplit evaluate experiments/resnet18-comparison-quick.toml --model resnet18.onnx --data pets
  monosplit report pets-small-quick.sqlite -o report

The file names the network, the images, the methods with everything about them that is to be chosen,
and what is asked: a choice of configurations on validation images, a comparison on others,
ablations, curves over layers, the randomisation check, times. Every number goes into a run store,
one row for each model, method, configuration, layer, image and metric. A run that was killed goes
on where it was when the command is given again, and several processes may work on one store.")]
pub(crate) struct Evaluate {
    /// The file that describes the experiment.
    #[arg(value_name = "EXPERIMENT.toml")]
    experiment: PathBuf,

    /// The network, an ONNX file, instead of the one the experiment names.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// What of the network's outputs is explained instead of what the experiment says, as
    /// `monosplit explain --target` takes it.
    #[arg(long, value_name = "TARGET", verbatim_doc_comment)]
    target: Option<String>,

    /// The folder of the data set instead of the one the experiment names.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,

    /// The run store [default: the experiment's file name with the ending .sqlite, here].
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,

    /// Print where the numbers are as JSON, for programs; `results --json` prints them.
    #[arg(long)]
    json: bool,

    /// Let N threads work on the store beside each other, as several processes would: a GPU
    /// computes for one while the others make ready what comes next [default: 1; on a GPU one
    /// per core, at most 8].
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=64),
        verbatim_doc_comment
    )]
    workers: Option<u32>,

    #[command(flatten)]
    compute: ComputeArgs,
}

/// The number of worker threads that keep a GPU busy.
const ENOUGH: usize = 8;

/// Where the numbers are, for programs.
#[derive(Serialize)]
struct EvaluateOutput<'a> {
    store: String,
    experiment: &'a str,
    seconds: f64,
}

impl Evaluate {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let begun = Instant::now();
        let experiment = with_target(Experiment::open(&self.experiment)?, self.target.as_deref())?;
        let path = self.store_path()?;
        check_writable(&path)?;
        let folder = self.data.as_ref().or(experiment.data.folder.as_ref()).ok_or_else(|| {
            Error::argument("no data set is named: expected data.folder in the experiment, or --data FOLDER")
        })?;
        let named_by = if self.data.is_some() { "--data" } else { "data.folder" };
        let images = Images::open(&experiment, (folder, named_by)).map_err(|error| {
            let is_missing = self.data.is_none() && !folder.is_dir();
            if is_missing { error.hint(Hint::new("data-instead", "--data names another")) } else { error }
        })?;
        let context = EvaluationContext::open(&experiment, self.model.as_deref())?;
        images.remarks.iter().chain(&scores_remark(&context.model)).for_each(|remark| note(remark));
        if experiment.model.preset.is_none() {
            pixel_remark(&context.model)?.iter().for_each(|remark| note(remark));
        }
        let engine = self.compute.engine()?;
        let evaluated_model = EvaluatedModel::new(context.graph(), &*engine)?;
        let is_new = !path.exists();
        let mut store = Store::open(&path)?;
        let worker = Worker::start(&store)?;
        let ids = context.enter(&store, &experiment, folder, self.compute.precision().other_name())?;
        let mut nowhere = std::io::sink();
        let lines: &mut dyn Write = if self.json { &mut nowhere } else { &mut *out };
        let reporter = ProgressReporter { out: RefCell::new(lines) };
        let setting = |experiment| Setting {
            experiment,
            evaluated_model: &evaluated_model,
            engine: &*engine,
            catalogue: &context,
            preprocess: &context.preprocess,
        };
        // One worker measures times alone after the others are done, so that they do not disturb it.
        let mut untimed = experiment.clone();
        untimed.timing = None;
        let done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.workers())
                .map(|_| {
                    scope.spawn(|| {
                        let mut store = Store::open(&path)?;
                        let worker = Worker::start(&store)?;
                        let plan = Plan::new(setting(&untimed))?;
                        let begun = Protocol::begin(plan, images.clone(), ids, &mut store, &NoObserver);
                        begun?.run(&mut store, &worker, &NoObserver)
                    })
                })
                .collect();
            let plan = Plan::new(setting(&experiment))?;
            let begun = Protocol::begin(plan, images.clone(), ids, &mut store, &reporter);
            begun?.run(&mut store, &worker, &reporter)?;
            others.into_iter().try_for_each(|other| {
                other
                    .join()
                    .unwrap_or_else(|_| Err(Error::argument("a worker ended before its work was done")))
            })
        });
        if let Err(error) = done {
            // A refused experiment leaves no file behind.
            drop(worker);
            if is_new {
                store.discard_if_empty();
            }
            return Err(error.into());
        }
        if let Some(remark) = identity_remark(&store.identities((ids.0, experiment.seed))?) {
            reporter.remark(&remark);
        }
        let lines = reporter.out.into_inner();
        let planned = store.planned(Some(&experiment.name))?;
        for stage in planned.stages.iter().filter(|stage| stage.kind != "selection") {
            print(lines, &StageSummary::of(&store, &planned, stage)?)?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        if self.json {
            let store = path.display().to_string();
            return json::print(&EvaluateOutput { store, experiment: &experiment.name, seconds }, out);
        }
        let shown = printable(&path.display().to_string());
        writeln!(out, "\n{shown}: complete after {}", format_duration(seconds))?;
        Ok(())
    }

    fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.workers {
            Some(count) => count as usize,
            None if self.compute.is_gpu() => cores().min(ENOUGH),
            None => 1,
        }
    }

    fn store_path(&self) -> Result<PathBuf> {
        if let Some(path) = &self.store {
            return Ok(path.clone());
        }
        let stem = self.experiment.file_stem().ok_or_else(|| {
            Error::argument(format!("{}: expected the name of a file", self.experiment.display()))
        })?;
        Ok(Path::new(stem).with_extension("sqlite"))
    }
}

/// Reports nothing: one worker reports for all.
struct NoObserver;

impl Observer for NoObserver {
    fn part(&self, _part: &StoredPart) {}

    fn stage(&self, _name: &str, _configurations: usize, _images: usize, _rows: usize) -> Box<dyn Progress> {
        Box::new(NoProgress)
    }

    fn remark(&self, _said: &str) {}

    fn chosen(&self, _title: &str, _criterion: &str, _configuration: &str) {}
}

/// Reports the progress of a run.
struct ProgressReporter<'o> {
    out: RefCell<&'o mut dyn Write>,
}

impl ProgressReporter<'_> {
    /// Prints a line. A failed write is ignored here and reported when the result is written.
    fn print_line(&self, line: &str) {
        if let Ok(mut out) = self.out.try_borrow_mut() {
            let _ = writeln!(out, "{}", printable(line));
            let _ = out.flush();
        }
    }
}

impl Observer for ProgressReporter<'_> {
    fn remark(&self, said: &str) {
        note(said);
    }

    fn part(&self, part: &StoredPart) {
        let count = |count: usize, what: &str| match count {
            0 => String::new(),
            count => format!(", {count} {what}"),
        };
        let of = |trouble: ImageIssue| part.unmasked.iter().filter(|one| one.issue == trouble).count();
        let unmasked = count(of(ImageIssue::MissingMask), "of them without a mask");
        let empty = count(of(ImageIssue::EmptyMask), "of them with an empty mask");
        let out = count(part.excluded.len(), "left out");
        self.print_line(&format!("{} images for {}{unmasked}{empty}{out}", part.images.len(), part.name));
        for out in part.excluded.iter().take(NAMED) {
            self.print_line(&format!("  {} {out}", out.name));
        }
        if part.excluded.len() > NAMED {
            let more = part.excluded.len() - NAMED;
            self.print_line(&format!("  and {more} more, which `monosplit report` names"));
        }
    }

    fn stage(&self, name: &str, configurations: usize, images: usize, rows: usize) -> Box<dyn Progress> {
        self.print_line(&format!(
            "{name}: {configurations} configurations, {images} images, {} rows",
            grouped(rows)
        ));
        Box::new(Bar::resumed(name))
    }

    fn chosen(&self, title: &str, criterion: &str, configuration: &str) {
        self.print_line(&format!("  {title}: best by {criterion} is {configuration}"));
    }
}

/// A stage as a table of means.
fn print(out: &mut dyn Write, summary: &StageSummary) -> Result<(), Failure> {
    let StageSummary { stage, rows, .. } = summary;
    writeln!(out, "\n{} ({}, {})", stage.name, summary.extent(), stage.part)?;
    let titles: Vec<String> = stage
        .metrics
        .iter()
        .map(|(_, name, better)| {
            let arrow = if *better == Better::Higher { "↑" } else { "↓" };
            format!("{} {arrow}", metric_title(name))
        })
        .collect();
    let mut columns = vec![("method", Align::Left, 32), ("at", Align::Left, 28), ("abs", Align::Left, 3)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Align::Right, 40)));
    let mut table = TextTable::new(&columns);
    let ranked = |row: usize| is_ranked(stage, row);
    for (index, (member, row)) in stage.members.iter().zip(rows).enumerate() {
        let configuration = &member.configuration;
        let layer = if configuration.layer.is_empty() { "image" } else { &configuration.layer };
        let at = match stage.kind.as_str() {
            "ablation" => format!("{layer}, {}", member.place),
            _ => layer.to_owned(),
        };
        let mut cells =
            vec![member.title.clone(), at, if configuration.absolute { "yes" } else { "no" }.to_owned()];
        cells.extend(row.iter().enumerate().map(|(metric, found)| match found.estimate {
            Some(estimate) => {
                let mark = if summary.is_best(index, metric, ranked) { "*" } else { " " };
                format!("{:.4}{mark}{}", estimate.mean, shortfall(found))
            }
            None => format!("– {}", shortfall(found)),
        }));
        table.row(cells);
    }
    for line in table.lines() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The number of images behind a mean, where some have no value.
fn shortfall(found: &MetricSummary) -> String {
    let valued = found.values.len();
    if found.undefined == 0 { String::new() } else { format!(" ({valued} of {})", valued + found.undefined) }
}

/// Whether a row is ranked. Controls are not.
pub(crate) fn is_ranked(stage: &Stage, row: usize) -> bool {
    !["random", "image", "mask"].contains(&stage.members[row].configuration.method.as_str())
}
