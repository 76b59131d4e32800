//! What the libraries log, on the error stream: warnings as the program's own remarks, and with `-v`, `-vv` or the environment
//! variable `MONOSPLIT_LOG` what was done, with times. That is what to send with a bug report.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Instant;

use env_filter::Filter;
use log::{Level, LevelFilter, Log, Metadata, Record};
use monosplit::graph::Error;

use crate::commands::progress::interrupted;
use crate::failure::note;
use crate::output_style::is_quiet;
use crate::table::printable;

/// The environment variable with the levels, as `debug` or `info,monosplit_engine=trace`.
const VARIABLE: &str = "MONOSPLIT_LOG";

static LOGGER: OnceLock<StderrLogger> = OnceLock::new();

struct StderrLogger {
    filter: Filter,
    begun: Instant,
}

impl Log for StderrLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.filter.matches(record) || is_quiet() {
            return;
        }
        if record.level() <= Level::Warn {
            return note(&record.args().to_string());
        }
        let milliseconds = self.begun.elapsed().as_secs_f64() * 1e3;
        let (level, target) = (record.level().as_str().to_lowercase(), record.target());
        let line = format!("[{milliseconds:>9.1} ms {level} {target}] {}", record.args());
        // A closed error stream cannot be reported anywhere.
        let _ = interrupted(|| writeln!(io::stderr(), "{}", printable(&line)));
    }

    fn flush(&self) {}
}

/// From now on, what the libraries log is printed; the first call counts. Without `-v`, `MONOSPLIT_LOG` says what, else only
/// warnings are.
pub(crate) fn install(verbosity: u8) -> Result<(), Error> {
    let said = std::env::var(VARIABLE).ok().filter(|levels| verbosity == 0 && !levels.trim().is_empty());
    let filter = filter(verbosity, said.as_deref())?;
    let logger = LOGGER.get_or_init(|| StderrLogger { filter, begun: Instant::now() });
    if log::set_logger(logger).is_ok() {
        log::set_max_level(logger.filter.filter());
    }
    Ok(())
}

/// The levels that options or else the environment name.
fn filter(verbosity: u8, said: Option<&str>) -> Result<Filter, Error> {
    // Targets are compared by their beginning: this holds for all crates of ours and no other.
    let levels = match verbosity {
        0 => said.unwrap_or("monosplit=warn"),
        1 => "monosplit=debug",
        _ => "monosplit=trace",
    };
    // A word alone that is no level would be taken for the name of a part.
    let is_word = |part: &str| {
        let part = part.trim();
        !part.contains('=') && part.parse::<LevelFilter>().is_err() && !part.starts_with("monosplit")
    };
    let mut builder = env_filter::Builder::new();
    if levels.split(',').any(is_word) || builder.try_parse(levels).is_err() {
        return Err(Error::argument(format!(
            "{VARIABLE} is '{levels}', expected a level (error, warn, info, debug, trace, off) or levels of parts, as in \
             info,monosplit_engine=trace"
        )));
    }
    Ok(builder.build())
}

/// What a report about a bug needs to say about program and machine.
pub(crate) fn describe_program(arguments: &[std::ffi::OsString]) {
    if !log::log_enabled!(Level::Info) {
        return;
    }
    let features = [("onnxruntime", cfg!(feature = "onnxruntime")), ("cuda", cfg!(feature = "cuda"))];
    let features: Vec<&str> = features.iter().filter(|(_, built)| *built).map(|(name, _)| *name).collect();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (version, system, machine) =
        (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    log::info!("monosplit {version} on {system} {machine}, {cores} cores, features: {features}");
    let words: Vec<_> = arguments.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    log::info!("arguments: {}", words.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(verbosity: u8, said: Option<&str>, level: Level, target: &str) -> bool {
        let metadata = Metadata::builder().level(level).target(target).build();
        filter(verbosity, said).unwrap().enabled(&metadata)
    }

    #[test]
    fn levels_come_from_the_options_or_the_environment() {
        assert!(passes(0, None, Level::Warn, "monosplit_engine::cuda"));
        assert!(!passes(0, None, Level::Info, "monosplit_engine::cpu"));
        assert!(!passes(2, None, Level::Warn, "rayon_core"));
        assert!(
            passes(1, None, Level::Debug, "monosplit_graph") && !passes(1, None, Level::Trace, "monosplit")
        );
        assert!(passes(2, None, Level::Trace, "monosplit::model"));
        let said = Some("info,monosplit_engine=trace");
        assert!(passes(0, said, Level::Trace, "monosplit_engine::cpu"));
        assert!(
            !passes(0, said, Level::Debug, "monosplit_graph") && passes(0, said, Level::Info, "monosplit")
        );
    }

    #[test]
    fn a_level_that_is_none_is_refused_with_those_there_are() {
        for said in ["loud", "monosplit=loud", "info,lout"] {
            let refused = filter(0, Some(said)).err().unwrap().to_string();
            assert!(refused.contains("MONOSPLIT_LOG") && refused.contains("trace"), "{refused}");
        }
    }
}
