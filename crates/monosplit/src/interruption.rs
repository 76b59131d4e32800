//! Ctrl-C and a polite end from outside: what is being written at that moment is removed before the process ends.

/// From now on, a signal to end removes unfinished files first. Then it does what it does to any program.
#[cfg(unix)]
pub(crate) fn leave_nothing_behind() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    // Without the signals a half-written file may remain, under a hidden name: no reason not to work.
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            monosplit_graph::abandon_unfinished_files();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
}

/// Elsewhere a half-written file may remain, under a hidden name.
#[cfg(not(unix))]
pub(crate) fn leave_nothing_behind() {}
