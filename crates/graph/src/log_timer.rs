//! The duration of a stage for the log.

use std::fmt;

use log::Level;
use web_time::Instant;

/// The time since a stage began, to be written with `{}`. The clock is not read unless messages of the level are logged.
#[derive(Clone, Copy, Debug)]
pub struct LogTimer(Option<Instant>);

impl LogTimer {
    /// A stage that begins now and is logged at this level.
    pub fn start(level: Level) -> Self {
        LogTimer((level <= log::max_level()).then(Instant::now))
    }
}

impl fmt::Display for LogTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(begun) => write!(f, "{:.1} ms", begun.elapsed().as_secs_f64() * 1e3),
            None => f.write_str("unmeasured time"),
        }
    }
}
