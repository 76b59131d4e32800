//! A progress line of training with its loss and accuracy, on the error stream of a terminal.

use std::io::Write;
use std::time::Instant;

use monosplit::train::{Epoch, Progress, Trainer};

use super::progress::format_duration;
use crate::output_style::is_watched;

/// A progress line of training.
pub(super) struct TrainingBar {
    began: Instant,
    drawn: Option<Instant>,
    /// Steps that were done before this process began.
    before: Option<f64>,
}

impl TrainingBar {
    pub(super) fn new() -> Self {
        TrainingBar { began: Instant::now(), drawn: None, before: None }
    }

    pub(super) fn show(&mut self, trainer: &Trainer<'_>, progress: &Progress, epoch: Option<&Epoch>) {
        let mut errors = std::io::stderr();
        if !is_watched() {
            return;
        }
        let settings = trainer.settings();
        let name =
            format!("{} {} seed {}", settings.architecture.name(), settings.restriction, settings.seed);
        if let Some(epoch) = epoch {
            let number = trainer.epochs().len();
            let _ = writeln!(
                errors,
                "\r{name}, epoch {number}: loss {:.4}, training {:.2} %, test {:.2} %, {:.1} s\u{1b}[K",
                epoch.train_loss,
                100.0 * epoch.train_accuracy,
                100.0 * epoch.test_accuracy,
                epoch.seconds
            );
        }
        if trainer.is_finished() || self.drawn.is_some_and(|at| at.elapsed().as_millis() < 100) {
            return;
        }
        self.drawn = Some(Instant::now());
        let done = progress.epoch as f64 + progress.step as f64 / progress.steps.max(1) as f64;
        let before = *self.before.get_or_insert(done - 1.0 / progress.steps.max(1) as f64);
        let left =
            (settings.epochs as f64 - done) * self.began.elapsed().as_secs_f64() / (done - before).max(1e-9);
        let filled = (20.0 * progress.step as f64 / progress.steps.max(1) as f64) as usize;
        let _ = write!(
            errors,
            "\r{name}, epoch {} of {} [{}{}] loss {:.4}, {:.2} %, {} left\u{1b}[K",
            progress.epoch + 1,
            settings.epochs,
            "█".repeat(filled),
            "·".repeat(20 - filled.min(20)),
            progress.loss,
            100.0 * progress.accuracy,
            format_duration(left)
        );
    }
}
