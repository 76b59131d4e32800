//! Ctrl-C, a polite end from outside, and a file that is gone while it is read: what is being written at that moment is
//! removed before the process ends.

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
            monosplit::graph::abandon_unfinished_files();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
}

/// From now on, a file that can no longer be read where it is mapped ends the process with a word of why.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) fn say_what_is_gone() {
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicBool, Ordering};
    const SAID: &[u8] =
        b"monosplit: a file was shortened while it was in use, or its disk no longer answers; \
        replace files by moving new ones in their place\n";
    extern "C" fn leave(_: c_int, why: *mut libc::siginfo_t, _: *mut c_void) {
        static LEAVING: AtomicBool = AtomicBool::new(false);
        // SAFETY: the system hands over a description of the signal; the calls have no other conditions.
        unsafe {
            // Several threads may read what is gone, and one of them says it.
            while LEAVING.swap(true, Ordering::Relaxed) {
                libc::pause();
            }
            // From the thread that read the file, at that moment: it holds none of the locks that are needed here. A signal
            // that somebody sent may come at any moment.
            if (*why).si_code > 0 {
                monosplit::graph::abandon_unfinished_files();
            }
            libc::write(libc::STDERR_FILENO, SAID.as_ptr().cast(), SAID.len());
            libc::_exit(c_int::from(crate::failure::FAILED));
        }
    }
    // SAFETY: the action is complete, and its function has the signature that its flag promises.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = leave as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
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

/// Elsewhere the system says it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn say_what_is_gone() {}

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
