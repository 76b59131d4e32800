//! Progress on the error stream: in a terminal a bar that fits its width, says how much time is left, and is gone when the work is
//! done; elsewhere, for long work, a line a minute.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, WeakProgressBar};
use monosplit::Result;
use monosplit::explain::Progress;

use crate::failure::note;
use crate::output_style::{is_watched, terminal_columns};
use crate::table::{grouped, printable};

/// How often the bar is drawn a second.
const RATE: u8 = 5;
/// The time after which the bar appears.
const FIRST_UPDATE: Duration = Duration::from_millis(700);
/// The interval between lines where the error stream is not a terminal.
const LINE_PERIOD: Duration = Duration::from_secs(60);
/// The width of a terminal that has room for everything.
const ROOMY: usize = 80;

/// The bar that is shown now.
static SHOWN: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// Prints something else on the error stream; a bar that is shown makes room for it.
pub(crate) fn interrupted<T>(print: impl FnOnce() -> T) -> T {
    let shown =
        SHOWN.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(WeakProgressBar::upgrade);
    match shown {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// A progress bar.
pub(crate) struct Bar {
    bar: ProgressBar,
    begun: Instant,
    shown: Once,
    /// Whether the count of the first step was done before this process began. Such work is long.
    resumed: bool,
    first: OnceLock<usize>,
    /// When the last line was written.
    line: Mutex<Instant>,
}

impl Bar {
    /// A bar for a number of samples; prints nothing where the error stream is not a terminal.
    pub(crate) fn new(samples: usize) -> Self {
        Bar::with("", if samples == 1 { String::new() } else { format!(" for {samples} inputs") }, false)
    }

    /// A bar for resumed work: the count of the first step is taken as done before. Such work is long, so that it has a line a
    /// minute where the error stream is not a terminal.
    pub(crate) fn resumed(what: &str) -> Self {
        Bar::with(what, " rows".into(), true)
    }

    /// A bar that counts things.
    pub(crate) fn counting(things: &str) -> Self {
        Bar::with("", format!(" {things}"), false)
    }

    /// A bar of a training, which may be resumed.
    pub(super) fn training(name: &str) -> Self {
        Bar::with(name, String::new(), true)
    }

    fn with(before: &str, after: String, resumed: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(after);
        let columns = terminal_columns(&Term::stderr()).unwrap_or(ROOMY);
        bar.set_prefix(shortened(before, columns / 3));
        bar.set_style(style(columns));
        let begun = Instant::now();
        Bar { bar, begun, shown: Once::new(), resumed, first: OnceLock::new(), line: Mutex::new(begun) }
    }

    /// Changes the words after the counts.
    pub(super) fn describe(&self, words: impl Into<Cow<'static, str>>) {
        self.bar.set_message(words);
    }

    /// Shows that `done` of `total` steps are done; the bar disappears with the last one.
    pub(crate) fn show(&self, done: usize, total: usize) {
        let first = *self.first.get_or_init(|| if self.resumed { done } else { 0 });
        if !is_watched() {
            return self.write_line(first, done, total);
        }
        if done >= total {
            return self.bar.finish_and_clear();
        }
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        if self.resumed && done == first {
            self.bar.reset_eta();
        }
        if self.begun.elapsed() > FIRST_UPDATE {
            self.shown.call_once(|| {
                self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(RATE));
                *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.bar.downgrade());
            });
        }
    }
}

impl Bar {
    /// For long work, says once a minute how much is done and how much time is left.
    fn write_line(&self, first: usize, done: usize, total: usize) {
        let mut last = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.resumed || done >= total || last.elapsed() <= LINE_PERIOD {
            return;
        }
        *last = Instant::now();
        let own = done.saturating_sub(first);
        let seconds = self.begun.elapsed().as_secs_f64() / own.max(1) as f64 * (total - done) as f64;
        let left = if own > 0 { format!(", {} left", format_duration(seconds)) } else { String::new() };
        let (before, after) = (self.bar.prefix(), self.bar.message());
        note(&format!("{before}{} of {}{after}{left}", grouped(done), grouped(total)));
    }
}

impl Progress for Bar {
    fn advance(&self, done: usize, total: usize) -> Result<()> {
        self.show(done, total);
        Ok(())
    }
}

/// Everything where there is room, else the bar, the counts and the time left. In less than that, the bar is the part that shrinks.
fn style(columns: usize) -> ProgressStyle {
    let template = match columns >= ROOMY {
        true => "{prefix}{bar:24} {pos} of {len}{msg}{left}",
        false => "{wide_bar} {pos} of {len}{left}",
    };
    // The templates are constants, which the tests parse.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("█░").with_key("left", time_left)
}

/// The time left; nothing while no step of this process says how long one takes.
fn time_left(state: &ProgressState, text: &mut dyn fmt::Write) {
    if state.per_sec() > 0.0 {
        // A text that cannot be written is not shown.
        let _ = write!(text, ", {} left", format_duration(state.eta().as_secs_f64()));
    }
}

/// A name of at most `most` letters and a space after it; nothing for nothing.
fn shortened(name: &str, most: usize) -> String {
    let name = printable(name);
    match name.chars().count() {
        0 => String::new(),
        length if length <= most => format!("{name} "),
        _ => format!("{}… ", name.chars().take(most.saturating_sub(1)).collect::<String>()),
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

#[cfg(test)]
mod tests {
    use indicatif::{InMemoryTerm, TermLike};

    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        let said = [4.4, 75.0, 1260.0, 7500.0].map(format_duration);
        assert_eq!(said, ["4 s", "1 min 15 s", "21 min", "2 h 05 min"]);
    }

    fn drawn(columns: u16, done: u64) -> String {
        let terminal = InMemoryTerm::new(5, columns);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()) as Box<dyn TermLike>);
        let bar = ProgressBar::with_draw_target(Some(12_000), target).with_message(" rows");
        bar.set_prefix(shortened("comparison of everything with everything else", columns as usize / 3));
        bar.set_style(style(columns as usize));
        bar.set_position(done);
        bar.tick();
        terminal.contents()
    }

    #[test]
    fn a_bar_is_one_line_at_any_width() {
        for columns in [24, 40, 60, 79, 80, 100, 200] {
            let line = drawn(columns, 6_000);
            assert!(!line.contains('\n') && line.chars().count() <= columns as usize, "{columns}: {line}");
            assert!(line.contains("6000 of 12000"), "{columns}: {line}");
        }
        assert!(drawn(40, 6_000).contains('█') && drawn(40, 6_000).contains('░'));
        assert!(
            drawn(100, 6_000).starts_with("comparison of everything with ev… █"),
            "{}",
            drawn(100, 6_000)
        );
        assert!(drawn(100, 6_000).contains("6000 of 12000 rows"));
    }
}
