//! `monosplit train`: trains differences of networks on labelled pictures, and repeats the paper's table of them.

use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use monosplit::graph::{Error, Noise, Result};
use monosplit::train::{
    AccuracyCell, Architecture, Epoch, Files, NAMED, Positivity, Restriction, Schedule, TrainingData,
    TrainingRun, TrainingSettings, UpdateRule, files_in, paper_median,
};

use monosplit::render::{LinePlot, Series};
use serde::Serialize;

use super::compute::ComputeArgs;
use super::run::check_writable;
use super::training_bar::TrainingBar;
use crate::failure::{Failure, note};
use crate::json;
use crate::table::{Align, TextTable};

/// The longest description of an architecture that is read.
const MAX_DESCRIPTION: u64 = 1 << 16;

/// Trains a network that explains itself
#[derive(Args)]
#[command(override_usage = "monosplit train DATA --out MODEL.onnx [OPTIONS]
       monosplit train DATA --table --runs FOLDER [OPTIONS]")]
#[command(long_about = "\
Trains a network that explains itself.

  monosplit train mnist/ --arch mlp_maxout --restriction DICIN --seed 3 --out model.onnx
  monosplit train mnist/ --arch small.txt --restriction IC --epochs 5 --out small.onnx
  monosplit train mnist/ --table --runs runs/

DATA is a folder: the idx files of MNIST or Fashion-MNIST, plain or gzipped; or pictures of one
size, in one sub-folder per class or named in a file labels.csv (FILE,CLASS), where sub-folders
`train` and `test` are taken as such and otherwise a tenth is kept for testing.

An architecture is one that goes by a name, or a file with one layer a line:

  conv CHANNELS KERNEL [stride S] [pad P]
  dense WIDTH | norm | maxout RANK | relu | pool SIZE | average SIZE | scores

Beside the network stand a log (.csv), curves (.loss.svg, .error.svg), the result (.result.txt)
and, while it is under way, a checkpoint: a training that was interrupted goes on with --resume and
ends with the same bits.")]
pub(crate) struct Train {
    /// The folder with the pictures.
    #[arg(value_name = "DATA")]
    data: PathBuf,

    /// The layers: mlp_maxout, cnn_maxout, or a file. With --table, several with commas between
    /// [default: mlp_maxout; with --table both].
    #[arg(long, value_name = "NAME", value_delimiter = ',', verbatim_doc_comment)]
    arch: Vec<String>,

    /// What is asked of the weights:
    ///   None       nothing
    ///   IC         input-convex: weights after the first layer or a maximum are not negative
    ///   Mon        monotone: no weight is negative
    ///   Diff_None  g − h of two networks that promise nothing
    ///   DIC, DM    g − h of two input-convex, of two monotone networks
    ///   DICIN, DMIN  the same, h seeing 1 − x
    /// With --table, several with commas between [default: None; with --table all].
    #[arg(long, value_name = "NAME", value_delimiter = ',', verbatim_doc_comment)]
    restriction: Vec<String>,

    /// Decides the first weights and the order of the samples. With --table the first of --seeds.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Write the network to this file.
    #[arg(
        short = 'o',
        long,
        alias = "output",
        value_name = "FILE",
        required_unless_present = "table",
        conflicts_with = "table"
    )]
    out: Option<PathBuf>,

    /// Train what is missing of the paper's table, one after the other, and print it.
    #[arg(long, requires = "runs")]
    table: bool,

    /// The folder of the table's trainings.
    #[arg(long, value_name = "FOLDER")]
    runs: Option<PathBuf>,

    /// How many seeds the table has.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "table", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,

    /// Print the table of what is done, without training.
    #[arg(long, requires = "table")]
    print: bool,

    #[command(flatten)]
    training: TrainingArgs,

    /// Go on from the checkpoint of an interrupted training.
    #[arg(long)]
    resume: bool,

    /// Write a checkpoint every N steps, besides the one after every epoch.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    checkpoint_every: Option<u32>,

    /// Train on N of the samples, drawn at random.
    #[arg(long, value_name = "N")]
    samples: Option<usize>,

    /// Store the network's numbers in half precision: a file of half the size.
    #[arg(long)]
    half: bool,

    #[command(flatten)]
    compute: ComputeArgs,

    /// Print JSON, for programs; of one training, not of the table.
    #[arg(long, conflicts_with = "table")]
    json: bool,
}

/// How a network is trained.
#[derive(Args)]
#[command(next_help_heading = "Training")]
struct TrainingArgs {
    /// How often every sample is seen.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,

    /// Samples a step.
    #[arg(long, value_name = "N", default_value_t = 100)]
    batch: usize,

    /// The learning rate.
    #[arg(long, value_name = "X", default_value_t = 1e-3)]
    rate: f32,

    /// What becomes of the learning rate: constant, cosine, or steps:EPOCHS:FACTOR.
    #[arg(long, value_name = "NAME", default_value = "cosine")]
    schedule: String,

    /// Let the learning rate rise from zero over this many epochs.
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    warmup: f32,

    /// The optimiser: adam, adamw or sgd (with momentum 0.9).
    #[arg(long, value_name = "NAME", default_value = "adam")]
    optimiser: String,

    /// Weight decay.
    #[arg(long, value_name = "X", default_value_t = 1e-3)]
    decay: f32,

    /// How weights are kept from being negative: relu, softplus, exp or square.
    #[arg(long, value_name = "NAME", default_value = "relu")]
    positivity: String,

    /// Factor of the first weights that may not be negative.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    spread: f32,

    /// Keep a tenth of the samples apart and stop if the loss on them has not fallen for N epochs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    patience: Option<u32>,
}

impl TrainingArgs {
    fn settings(
        &self,
        architecture: Architecture,
        restriction: Restriction,
        seed: u64,
    ) -> Result<TrainingSettings> {
        let mut settings = TrainingSettings::new(architecture, restriction);
        settings.positivity = self.positivity.parse::<Positivity>()?;
        settings.seed = seed;
        settings.epochs = self.epochs as usize;
        settings.batch = self.batch;
        settings.rate = positive("--rate", self.rate)?;
        settings.schedule = self.schedule.parse::<Schedule>()?;
        settings.warmup = not_negative("--warmup", self.warmup)?;
        settings.optimiser.rule = self.optimiser.parse::<UpdateRule>()?;
        settings.optimiser.decay = not_negative("--decay", self.decay)?;
        settings.spread = positive("--spread", self.spread)?;
        settings.patience = self.patience.map(|epochs| epochs as usize);
        Ok(settings)
    }
}

fn positive(option: &str, value: f32) -> Result<f32> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(Error::argument(format!("{option} is {value}, expected a number above zero")))
}

fn not_negative(option: &str, value: f32) -> Result<f32> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(Error::argument(format!("{option} is {value}, expected zero or a number above it")))
}

/// A trained network for programs.
#[derive(Serialize)]
struct TrainOutput {
    file: String,
    test_accuracy: f64,
    test_samples: usize,
    parameters: usize,
    epochs: usize,
    seconds: f64,
}

impl Train {
    pub(crate) fn execute(&self, out: &mut dyn Write) -> Result<(), Failure> {
        self.compute.check_training()?;
        let architectures = self.architectures()?;
        let restrictions = self.restrictions()?;
        let data = TrainingData::open(&self.data)?;
        if let unseen @ [first, ..] = &*data.unseen() {
            note(&format!(
                "{} of {} classes have no samples to train on, the first is '{first}'; check the labels if that is not meant",
                unseen.len(),
                data.classes.len()
            ));
        }
        match (&self.out, &self.runs) {
            (_, Some(folder)) if self.table => {
                std::fs::create_dir_all(folder).map_err(|cause| Error::io(folder, cause))?;
                self.fill_table(&architectures, &restrictions, &data, folder, out)
            }
            (Some(path), _) => {
                let ([architecture], &[restriction]) = (&*architectures, &*restrictions) else {
                    return Err(Error::argument("one network has one --arch and one --restriction").into());
                };
                let settings = self.training.settings(architecture.clone(), restriction, self.seed)?;
                self.train_one(settings, &data, path, out)
            }
            _ => Err(Error::argument("name the network with --out, or a folder with --table --runs").into()),
        }
    }

    fn train_one(
        &self,
        settings: TrainingSettings,
        data: &TrainingData,
        path: &Path,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        check_writable(path)?;
        if path.extension().is_none_or(|ending| ending != "onnx") {
            return Err(Error::argument(format!(
                "{}: expected a name that ends with .onnx; the log and the result stand beside it under other endings",
                path.display()
            ))
            .into());
        }
        let files = Files::beside(path);
        match (self.resume, files.checkpoint.is_file()) {
            (true, false) => note("there is no checkpoint to go on from; the training begins anew"),
            (false, true) => note(&format!(
                "the training begins anew; {} is lost, which --resume would go on from",
                files.checkpoint.display()
            )),
            _ => {}
        }
        let outcome = self.train(settings, &self.drawn(data, self.seed), files)?;
        if self.json {
            let trained = TrainOutput {
                file: path.display().to_string(),
                test_accuracy: outcome.test_accuracy,
                test_samples: data.test.len(),
                parameters: outcome.parameters,
                epochs: outcome.epochs,
                seconds: outcome.seconds,
            };
            return json::print(&trained, out);
        }
        writeln!(
            out,
            "{}: {:.2} % of {} test samples, {} parameters, {} epochs, {:.0} s",
            path.display(),
            100.0 * outcome.test_accuracy,
            data.test.len(),
            outcome.parameters,
            outcome.epochs,
            outcome.seconds
        )?;
        Ok(())
    }

    /// The samples of a training with this seed.
    fn drawn<'a>(&self, data: &'a TrainingData, seed: u64) -> Cow<'a, TrainingData> {
        let Some(count) = self.samples.filter(|&count| count < data.train.len()) else {
            return Cow::Borrowed(data);
        };
        let train = data.train.subset(count, Noise::new(seed).stream("samples"));
        Cow::Owned(TrainingData { train, test: data.test.clone(), classes: data.classes.clone() })
    }

    fn architectures(&self) -> Result<Vec<Architecture>> {
        let named: Vec<&str> = match (self.arch.is_empty(), self.table) {
            (false, _) => self.arch.iter().map(String::as_str).collect(),
            (true, true) => NAMED.iter().map(|(name, _)| *name).collect(),
            (true, false) => vec!["mlp_maxout"],
        };
        named.into_iter().map(architecture).collect()
    }

    fn restrictions(&self) -> Result<Vec<Restriction>> {
        match (self.restriction.is_empty(), self.table) {
            (false, _) => self.restriction.iter().map(|name| name.parse()).collect(),
            (true, true) => Ok(Restriction::ALL.to_vec()),
            (true, false) => Ok(vec![Restriction::None]),
        }
    }

    fn train(
        &self,
        settings: TrainingSettings,
        data: &TrainingData,
        files: Files,
    ) -> Result<monosplit::train::TrainingResult> {
        let on_gpu = self.compute.is_gpu();
        let open = || self.compute.engine();
        let run = TrainingRun {
            settings,
            data,
            threads: self.compute.threads(),
            engine: on_gpu.then_some(&open),
            files,
            resume: self.resume || self.table,
            checkpoint_every: self.checkpoint_every.map(|n| n as usize),
            half: self.half,
        };
        let mut bar = TrainingBar::default();
        let (outcome, epochs) =
            run.execute(&mut |trainer, progress, epoch| bar.show(trainer, progress, epoch))?;
        draw_curves(&run, &epochs)?;
        Ok(outcome)
    }

    fn fill_table(
        &self,
        architectures: &[Architecture],
        restrictions: &[Restriction],
        data: &TrainingData,
        folder: &Path,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let seeds: Vec<u64> = (0..self.seeds).map(|i| self.seed.wrapping_add(i)).collect();
        let fingerprints: Vec<String> =
            seeds.iter().map(|&seed| self.drawn(data, seed).fingerprint()).collect();
        let mut table = TextTable::new(&[
            ("network", Align::Left, 24),
            ("restriction", Align::Left, 12),
            ("median", Align::Right, 8),
            ("min", Align::Right, 8),
            ("max", Align::Right, 8),
            ("seeds", Align::Right, 8),
            ("paper", Align::Right, 8),
        ]);
        for architecture in architectures {
            for &restriction in restrictions {
                let trainings: Result<Vec<(TrainingSettings, String)>> = seeds
                    .iter()
                    .zip(&fingerprints)
                    .map(|(&seed, data)| {
                        Ok((self.training.settings(architecture.clone(), restriction, seed)?, data.clone()))
                    })
                    .collect();
                let trainings = trainings?;
                for (settings, fingerprint) in trainings.iter().filter(|_| !self.print) {
                    let files = files_in(folder, settings);
                    if monosplit::train::TrainingResult::read(&files.result, settings, fingerprint)?.is_none()
                    {
                        self.train(settings.clone(), &self.drawn(data, settings.seed), files)?;
                    }
                }
                let cell = AccuracyCell::gather(folder, &trainings)?;
                let percent = |v: Option<f64>| v.map_or("–".to_owned(), |v| format!("{:.2}", 100.0 * v));
                let paper = paper_median(architecture, restriction);
                table.row([
                    architecture.name().to_owned(),
                    restriction.name().to_owned(),
                    percent(cell.median()),
                    percent(cell.accuracies.first().copied()),
                    percent(cell.accuracies.last().copied()),
                    format!("{} of {}", cell.accuracies.len(), trainings.len()),
                    paper.map_or("–".to_owned(), |v| format!("{v:.2}")),
                ]);
            }
        }
        writeln!(out, "Test accuracy in %, median, least and most over seeds, and the paper's median:")?;
        for line in table.lines() {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// Draws losses and errors over epochs.
fn draw_curves(run: &TrainingRun<'_>, epochs: &[Epoch]) -> Result<()> {
    let TrainingSettings { architecture, restriction, seed, .. } = &run.settings;
    let series = |name: &str, value: fn(&Epoch) -> f64| {
        let points: Vec<(f64, f64)> = (1..).map(f64::from).zip(epochs.iter().map(value)).collect();
        let shown = points.iter().any(|(_, y)| y.is_finite());
        shown.then(|| Series { name: name.to_owned(), points, band: Vec::new() })
    };
    let losses = [
        series("training", |e| e.train_loss),
        series("validation", |e| e.validation_loss),
        series("test", |e| e.test_loss),
    ];
    let errors = [
        series("training", |e| 100.0 * (1.0 - e.train_accuracy)),
        series("test", |e| 100.0 * (1.0 - e.test_accuracy)),
    ];
    for (label, series, path) in
        [("loss", losses.to_vec(), &run.files.loss), ("error in %", errors.to_vec(), &run.files.error)]
    {
        let plot = LinePlot {
            title: format!("{} {restriction}, seed {seed}", architecture.name()),
            x_label: "epoch".to_owned(),
            y_label: label.to_owned(),
            series: series.into_iter().flatten().collect(),
            ..LinePlot::default()
        };
        plot.into_scene()?.write(path)?;
    }
    Ok(())
}

fn architecture(name: &str) -> Result<Architecture> {
    let path = Path::new(name);
    if NAMED.iter().any(|(known, _)| *known == name) || !path.is_file() {
        return Architecture::named(name);
    }
    let failed = |cause: std::io::Error| Error::io(path, cause);
    if path.metadata().map_err(failed)?.len() > MAX_DESCRIPTION {
        return Err(Error::argument(format!("{name} is too long to describe an architecture")));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let stem = path.file_stem().map_or("network".into(), |stem| stem.to_string_lossy().into_owned());
    let described = text.parse::<Architecture>();
    described.map(|a| a.with_name(&stem)).map_err(|e| e.context(name))
}
