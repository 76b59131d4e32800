//! What a repeat is timed with: elapsed time, or the time its threads spent on a processor, which other programs on the
//! machine do not add to.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use monosplit::{Error, Result};

/// A way of telling time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Clock {
    /// Elapsed time.
    #[default]
    Wall,
    /// Time on a processor, of all threads of this process (Linux only).
    Processor,
}

impl Clock {
    /// Time since some fixed moment.
    pub(crate) fn now(self) -> Result<Duration> {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        match self {
            Clock::Wall => Ok(BEGUN.get_or_init(Instant::now).elapsed()),
            Clock::Processor => on_processor(),
        }
    }
}

/// User and system time from the system's own account of this process, which counts hundredths of a second.
fn on_processor() -> Result<Duration> {
    let path = Path::new("/proc/self/stat");
    let account = std::fs::read_to_string(path).map_err(|cause| Error::io(path, cause))?;
    // The second field is the program's name in parentheses and may hold anything.
    let fields = account.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    match ticks[..] {
        [user, system] => Ok(Duration::from_millis(10 * (user + system))),
        _ => Err(Error::argument("the system does not say how long this process ran")),
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
