//! A progress bar of training with its loss and accuracy, on the error stream of a terminal.

use monosplit::train::{Epoch, Trainer, TrainingProgress};

use super::progress::{Bar, interrupted};
use crate::output_style::is_watched;

/// A progress bar of training.
#[derive(Default)]
pub(super) struct TrainingBar(Option<Bar>);

impl TrainingBar {
    pub(super) fn show(&mut self, trainer: &Trainer<'_>, progress: &TrainingProgress, epoch: Option<&Epoch>) {
        if !is_watched() {
            return;
        }
        let settings = trainer.settings();
        let name =
            format!("{} {} seed {}", settings.architecture.name(), settings.restriction, settings.seed);
        if let Some(epoch) = epoch {
            let number = trainer.epochs().len();
            let line = format!(
                "{name}, epoch {number}: loss {:.4}, training {:.2} %, test {:.2} %, {:.1} s",
                epoch.train_loss,
                100.0 * epoch.train_accuracy,
                100.0 * epoch.test_accuracy,
                epoch.seconds
            );
            interrupted(|| eprintln!("{line}"));
        }
        let bar = self.0.get_or_insert_with(|| Bar::training(&name));
        let (epoch, epochs) = (progress.epoch + 1, settings.epochs);
        bar.describe(format!(
            " steps, epoch {epoch} of {epochs}, loss {:.4}, {:.2} %",
            progress.loss,
            100.0 * progress.accuracy
        ));
        let total = settings.epochs * progress.steps;
        let done =
            if trainer.is_finished() { total } else { progress.epoch * progress.steps + progress.step };
        bar.show(done, total);
    }
}
