//! What the libraries log, on the error stream: warnings as the program's own remarks, and with `-v`, `-vv` or the environment
//! variable `MONOSPLIT_LOG` what was done, with times. That is what to send with a bug report.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
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

/// So many warnings that one place in the libraries has for different files are printed; the rest are counted.
const WARNINGS: usize = 5;

/// A file of the libraries and a line in it.
type SourceLine = (Option<&'static str>, Option<u32>);

struct StderrLogger {
    filter: Filter,
    begun: Instant,
    /// The warnings so far, by the place in the libraries that they come from.
    warned: Mutex<HashMap<SourceLine, Warnings>>,
}

/// The warnings of one place.
#[derive(Default)]
struct Warnings {
    printed: Vec<String>,
    left_out: usize,
}

impl Warnings {
    /// Whether a warning is to be printed. Nothing is said twice, and not the same of very many files.
    fn admits(&mut self, text: &str) -> bool {
        if self.printed.iter().any(|printed| printed == text) {
            return false;
        }
        if self.printed.len() == WARNINGS {
            self.left_out += 1;
            return false;
        }
        self.printed.push(text.to_owned());
        true
    }
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
            let text = record.args().to_string();
            let mut all = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            let of_place = all.entry((record.file_static(), record.line())).or_default();
            if of_place.admits(&text) || log::log_enabled!(Level::Debug) {
                note(&text);
            }
            return;
        }
        let milliseconds = self.begun.elapsed().as_secs_f64() * 1e3;
        let (level, target) = (record.level().as_str().to_lowercase(), record.target());
        let line = format!("[{milliseconds:>9.1} ms {level} {target}] {}", record.args());
        // A closed error stream cannot be reported anywhere.
        let _ = interrupted(|| writeln!(io::stderr(), "{}", printable(&line)));
    }

    fn flush(&self) {}
}

/// Says at the end of a command how many warnings were left out.
pub(crate) fn report_left_out() {
    let Some(logger) = LOGGER.get().filter(|_| !log::log_enabled!(Level::Debug)) else { return };
    let all = logger.warned.lock().unwrap_or_else(PoisonError::into_inner);
    match all.values().map(|of_place| of_place.left_out).sum::<usize>() {
        0 => {}
        1 => note("one more warning of this kind was left out; -v prints all"),
        left_out => note(&format!("{left_out} more warnings of this kind were left out; -v prints all")),
    }
}

/// From now on, what the libraries log is printed; the first call counts. Without `-v`, `MONOSPLIT_LOG` says what, else only
/// warnings are.
pub(crate) fn install(verbosity: u8) -> Result<(), Error> {
    let said = std::env::var(VARIABLE).ok().filter(|levels| verbosity == 0 && !levels.trim().is_empty());
    let filter = filter(verbosity, said.as_deref())?;
    let logger =
        LOGGER.get_or_init(|| StderrLogger { filter, begun: Instant::now(), warned: Mutex::default() });
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
    fn a_place_warns_of_few_files_and_of_none_twice() {
        let mut warnings = Warnings::default();
        let files: Vec<String> = (0..WARNINGS + 3).map(|number| format!("{number}.png")).collect();
        let printed = files.iter().filter(|file| warnings.admits(file)).count();
        assert_eq!((printed, warnings.left_out), (WARNINGS, 3));
        assert!(!warnings.admits("0.png"));
        assert_eq!(warnings.left_out, 3);
    }

    #[test]
    fn a_level_that_is_none_is_refused_with_those_there_are() {
        for said in ["loud", "monosplit=loud", "info,lout"] {
            let refused = filter(0, Some(said)).err().unwrap().to_string();
            assert!(refused.contains("MONOSPLIT_LOG") && refused.contains("trace"), "{refused}");
        }
    }
}
