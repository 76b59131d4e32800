//! A complete training with its files: the network, a checkpoint while it runs, a log, and the result.

use std::path::{Path, PathBuf};

use monosplit_engine::Engine;
use monosplit_graph::onnx::{self, ExportOptions};
use monosplit_graph::{CsvCell, Error, Result, write_atomically, write_csv};

use crate::data::TrainingData;
use crate::settings::TrainingSettings;
use crate::state::Epoch;
use crate::trainer::{Trainer, TrainingProgress};

/// The files of a training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The network.
    pub network: PathBuf,
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// The log, one line for each epoch.
    pub log: PathBuf,
    /// A plot of the losses.
    pub loss: PathBuf,
    /// A plot of the errors.
    pub error: PathBuf,
    /// The result with the settings.
    pub result: PathBuf,
}

impl Files {
    /// All files beside the network, under its name.
    pub fn beside(network: &Path) -> Self {
        let named = |ending: &str| network.with_extension(ending);
        Files {
            network: network.to_owned(),
            checkpoint: named("checkpoint.safetensors"),
            log: named("csv"),
            loss: named("loss.svg"),
            error: named("error.svg"),
            result: named("result.txt"),
        }
    }
}

/// The result of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingResult {
    /// Test accuracy.
    pub test_accuracy: f64,
    /// Its epochs.
    pub epochs: usize,
    /// Number of trained parameters.
    pub parameters: usize,
    /// The fingerprint of the data, see [`TrainingData::fingerprint`](crate::TrainingData::fingerprint).
    pub data: String,
    /// Seconds it took.
    pub seconds: f64,
}

/// A training with its data, engine and files.
pub struct TrainingRun<'a> {
    /// The settings.
    pub settings: TrainingSettings,
    /// The data.
    pub data: &'a TrainingData,
    /// Threads; 0 for one per core.
    pub threads: usize,
    /// The engine that computes and keeps the state; none is the CPU.
    pub engine: Option<&'a dyn Fn() -> Result<Box<dyn Engine>>>,
    /// The files.
    pub files: Files,
    /// Whether to resume from the checkpoint if there is one.
    pub resume: bool,
    /// The number of steps between checkpoints within an epoch. One is always written after an epoch.
    pub checkpoint_every: Option<usize>,
    /// Whether to store the network in half precision.
    pub half: bool,
}

impl TrainingRun<'_> {
    /// Trains to the end. `watch` is called after every step and every epoch. Returns the result and the epochs.
    pub fn execute(
        &self,
        watch: &mut dyn FnMut(&Trainer<'_>, &TrainingProgress, Option<&Epoch>),
    ) -> Result<(TrainingResult, Vec<Epoch>)> {
        let settings = self.settings.clone();
        let mut trainer = match self.engine {
            None => Trainer::new(settings, self.data, self.threads)?,
            Some(open) => Trainer::resident(settings, self.data, open()?)?,
        };
        if self.resume && self.files.checkpoint.is_file() {
            trainer.resume(&self.files.checkpoint)?;
        }
        while !trainer.is_finished() {
            let epoch = trainer.advance()?;
            let progress = trainer.progress();
            let due = self.checkpoint_every.is_some_and(|every| progress.step.is_multiple_of(every.max(1)));
            if epoch.is_some() || due {
                trainer.save(&self.files.checkpoint)?;
            }
            if let Some(epoch) = &epoch {
                let Epoch { train_loss, test_accuracy, seconds, .. } = epoch;
                log::info!("epoch of {seconds:.1} s: loss {train_loss:.4}, test accuracy {test_accuracy:.4}");
                write_atomically(&self.files.log, log(trainer.epochs())?.as_bytes())?;
            }
            watch(&trainer, &progress, epoch.as_ref());
        }
        onnx::save(&trainer.network()?, &self.files.network, &ExportOptions::default().half(self.half))?;
        let outcome = trainer.outcome();
        write_atomically(&self.files.result, outcome.text(&self.settings).as_bytes())?;
        // The checkpoint of a finished training is not needed; it does not matter whether it can be removed.
        let _ = std::fs::remove_file(&self.files.checkpoint);
        Ok((outcome, trainer.epochs().to_vec()))
    }
}

const COLUMNS: [&str; 7] =
    ["epoch", "train_loss", "train_accuracy", "validation_loss", "test_loss", "test_accuracy", "seconds"];

fn log(epochs: &[Epoch]) -> Result<String> {
    let row = |(index, epoch): (usize, &Epoch)| {
        let Epoch { train_loss, train_accuracy, validation_loss, test_loss, test_accuracy, seconds } = epoch;
        let validation =
            if validation_loss.is_nan() { CsvCell::Empty } else { CsvCell::number(validation_loss) };
        vec![
            CsvCell::number(index + 1),
            CsvCell::number(train_loss),
            CsvCell::number(train_accuracy),
            validation,
            CsvCell::number(test_loss),
            CsvCell::number(test_accuracy),
            CsvCell::Plain(format!("{seconds:.3}")),
        ]
    };
    write_csv(&COLUMNS, epochs.iter().enumerate().map(row))
}

impl TrainingResult {
    fn text(&self, settings: &TrainingSettings) -> String {
        let TrainingResult { test_accuracy, epochs, parameters, data, seconds } = self;
        format!(
            "test_accuracy = {test_accuracy}\nepochs_done = {epochs}\nparameters = {parameters}\nseconds = {seconds:.3}\ndata = {data}\n{settings}"
        )
    }

    /// Reads the result of a training with these settings and data of this fingerprint; `None` if there is no file.
    pub fn read(path: &Path, settings: &TrainingSettings, data: &str) -> Result<Option<Self>> {
        if !path.is_file() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(path).map_err(|cause| Error::io(path, cause))?;
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.ok_or_else(|| Error::malformed(format!("{}: there is no '{key}'", path.display())))
        };
        let number = |key: &str| {
            value(key)?
                .parse::<f64>()
                .map_err(|_| Error::malformed(format!("{}: '{key}' is no number", path.display())))
        };
        if !text.ends_with(&format!("data = {data}\n{settings}")) {
            return Err(Error::argument(format!(
                "{} is the result of a training with other settings or on other data; name another folder",
                path.display()
            )));
        }
        Ok(Some(TrainingResult {
            test_accuracy: number("test_accuracy")?,
            epochs: number("epochs_done")? as usize,
            parameters: number("parameters")? as usize,
            data: data.to_owned(),
            seconds: number("seconds")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Restriction};

    #[test]
    fn results_read_back_under_the_same_settings_alone() {
        let folder = std::env::temp_dir().join(format!("monosplit-train-result-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.result.txt");
        let mut settings =
            TrainingSettings::new(Architecture::named("mlp_maxout").unwrap(), Restriction::None);
        let outcome = TrainingResult {
            test_accuracy: 0.9839,
            epochs: 3,
            parameters: 12,
            data: "a".to_owned(),
            seconds: 1.5,
        };
        assert_eq!(TrainingResult::read(&path, &settings, "a").unwrap(), None);
        std::fs::write(&path, outcome.text(&settings)).unwrap();
        assert_eq!(TrainingResult::read(&path, &settings, "a").unwrap(), Some(outcome));
        assert!(TrainingResult::read(&path, &settings, "b").is_err());
        settings.seed = 1;
        assert!(TrainingResult::read(&path, &settings, "a").is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
