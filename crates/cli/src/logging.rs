//! What the libraries log, printed as the program's own remarks are.

use log::{LevelFilter, Log, Metadata, Record};

use crate::failure::note;

/// Prints warnings on the error stream, unless only results and errors are wanted.
struct StderrLogger;

impl Log for StderrLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= LevelFilter::Warn && metadata.target().starts_with("monosplit")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            note(&record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// From now on, warnings of the libraries are printed; the first call counts.
pub(crate) fn install() {
    static LOGGER: StderrLogger = StderrLogger;
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}
