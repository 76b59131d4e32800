//! The clocks that time a repeat: elapsed time, or the processor time of its threads, which does not depend on other programs.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use monosplit::{Error, Result};

/// A clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Clock {
    /// Elapsed time.
    #[default]
    Wall,
    /// Processor time of all threads of this process (Linux only).
    Processor,
}

impl Clock {
    /// Time since a fixed moment.
    pub(crate) fn now(self) -> Result<Duration> {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        match self {
            Clock::Wall => Ok(BEGUN.get_or_init(Instant::now).elapsed()),
            Clock::Processor => on_processor(),
        }
    }
}

/// User and system time of this process, in hundredths of a second.
fn on_processor() -> Result<Duration> {
    let path = Path::new("/proc/self/stat");
    let account = std::fs::read_to_string(path).map_err(|cause| Error::io(path, cause))?;
    // The second field is the program's name in parentheses and may hold anything.
    let fields = account.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    match ticks[..] {
        [user, system] => Ok(Duration::from_millis(10 * (user + system))),
        _ => Err(Error::argument("the system does not report the processor time of this process")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_takes_elapsed_time_only() -> Result<()> {
        if !Path::new("/proc/self/stat").exists() {
            return Ok(());
        }
        let before = [Clock::Wall.now()?, Clock::Processor.now()?];
        std::thread::sleep(Duration::from_millis(200));
        assert!(Clock::Wall.now()? - before[0] >= Duration::from_millis(200));
        assert!(Clock::Processor.now()? - before[1] < Duration::from_millis(100));
        Ok(())
    }
}
