//! Ctrl-C and a polite end from outside: what is being written at that moment is removed before the process ends.

/// From now on, a signal to end removes unfinished files first. Then it does what it does to any program. Signals that the
/// process was told to ignore, as `nohup` does, stay ignored.
#[cfg(unix)]
pub(crate) fn leave_nothing_behind() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(&status, signal));
    // Without the signals a half-written file may remain, under a hidden name: no reason not to work.
    let Ok(mut signals) = signal_hook::iterator::Signals::new(heard) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            monosplit_graph::abandon_unfinished_files();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
}

/// Whether a process of this status, as Linux tells it, ignores a signal.
#[cfg(unix)]
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Elsewhere a half-written file may remain, under a hidden name.
#[cfg(not(unix))]
pub(crate) fn leave_nothing_behind() {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_stays_ignored() {
        let status = "Name:\tmonosplit\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, 1) && is_ignored(status, 13));
        assert!(!is_ignored(status, 2) && !is_ignored(status, 15) && !is_ignored("", 1));
    }
}
