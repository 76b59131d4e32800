//! A line on the error stream that says how far long work has come, where somebody is watching.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use monosplit_explain::Progress;

/// How often the line is written anew.
const PERIOD: Duration = Duration::from_millis(200);
/// Work that is done sooner needs no line.
const PATIENCE: Duration = Duration::from_millis(700);
/// The length of the bar.
const WIDTH: usize = 24;

/// A bar for the steps of one batch.
pub(crate) struct Bar {
    shown: bool,
    samples: usize,
    begun: Instant,
    written: Mutex<Option<Instant>>,
}

impl Bar {
    /// A bar for work on some samples; silent where the error stream is no terminal.
    pub(crate) fn new(samples: usize) -> Self {
        let shown = std::io::stderr().is_terminal();
        Bar { shown, samples, begun: Instant::now(), written: Mutex::new(None) }
    }
}

impl Progress for Bar {
    fn advance(&self, done: usize, total: usize) {
        let Ok(mut written) = self.written.lock() else { return };
        let elapsed = self.begun.elapsed();
        let due = written.map_or(elapsed > PATIENCE, |last| last.elapsed() > PERIOD);
        if !self.shown || (!due && done < total) {
            return;
        }
        let mut errors = std::io::stderr();
        if done >= total {
            if written.take().is_some() {
                let _ = write!(errors, "\r\u{1b}[K");
            }
            return;
        }
        let left = elapsed.as_secs_f64() / done.max(1) as f64 * (total - done) as f64;
        let filled = WIDTH * done / total.max(1);
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
        let samples = if self.samples == 1 { String::new() } else { format!(" for {} inputs", self.samples) };
        let _ = write!(errors, "\r{bar} {done} of {total}{samples}, {left:.0} s left\u{1b}[K");
        *written = Some(Instant::now());
    }
}
