//! A progress line on the error stream of a terminal.

use std::io::Write;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use monosplit::explain::Progress;

use crate::output_style::is_watched;

/// The interval between updates of the line.
const PERIOD: Duration = Duration::from_millis(200);
/// The time after which the line appears.
const FIRST_UPDATE: Duration = Duration::from_millis(700);
/// The length of the bar.
const WIDTH: usize = 24;

/// A progress bar.
pub(crate) struct Bar {
    shown: bool,
    before: String,
    after: String,
    begun: Instant,
    /// The steps that were done before this process began, where the first step tells.
    start: Option<OnceLock<usize>>,
    written: Mutex<Option<Instant>>,
}

impl Bar {
    /// A bar for a number of samples; prints nothing where the error stream is not a terminal.
    pub(crate) fn new(samples: usize) -> Self {
        let after = if samples == 1 { String::new() } else { format!(" for {samples} inputs") };
        Bar::with(String::new(), after, None)
    }

    /// A bar for resumed work: the count of the first step is taken as done before.
    pub(crate) fn resumed(what: &str) -> Self {
        Bar::with(format!("{what} "), " rows".into(), Some(OnceLock::new()))
    }

    fn with(before: String, after: String, start: Option<OnceLock<usize>>) -> Self {
        let shown = is_watched();
        Bar { shown, before, after, begun: Instant::now(), start, written: Mutex::new(None) }
    }
}

/// A duration in words.
pub(crate) fn format_duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) if minutes < 10 => format!("{minutes} min {seconds:02} s"),
        (0, minutes, _) => format!("{minutes} min"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

impl Progress for Bar {
    fn advance(&self, done: usize, total: usize) {
        let Ok(mut written) = self.written.lock() else { return };
        if let Some(start) = &self.start {
            start.get_or_init(|| done);
        }
        let elapsed = self.begun.elapsed();
        let due = written.map_or(elapsed > FIRST_UPDATE, |last| last.elapsed() > PERIOD);
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
        let start = self.start.as_ref().and_then(|start| start.get().copied()).unwrap_or(0);
        let own = done.saturating_sub(start);
        let left = match own {
            0 if start > 0 => String::new(),
            own => format_duration(elapsed.as_secs_f64() / own.max(1) as f64 * (total - done) as f64),
        };
        let left = if left.is_empty() { left } else { format!(", {left} left") };
        let filled = WIDTH * done / total.max(1);
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
        let Bar { before, after, .. } = self;
        let _ = write!(errors, "\r{before}{bar} {done} of {total}{after}{left}\u{1b}[K");
        *written = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        let said = [4.4, 75.0, 1260.0, 7500.0].map(format_duration);
        assert_eq!(said, ["4 s", "1 min 15 s", "21 min", "2 h 05 min"]);
    }
}
