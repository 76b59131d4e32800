//! Signals that end the process: Ctrl-C, termination, and a bus error from a mapped file that was truncated. Unfinished files
//! are removed first.

#[cfg(target_os = "linux")]
use std::ffi::c_int;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicI32, Ordering};

/// From now on, a signal that ends the process removes unfinished files before its default action. Signals that the process
/// ignores, as under `nohup`, stay ignored.
#[cfg(unix)]
pub(crate) fn remove_unfinished_files_on_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let handled = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(&status, signal));
    // Without signal handlers an unfinished file may remain, under a hidden name. That is no reason to fail.
    let Ok(mut signals) = signal_hook::iterator::Signals::new(handled) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            monosplit::graph::abandon_unfinished_files();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
}

/// The message for a mapped file that can no longer be read.
#[cfg(target_os = "linux")]
const FILE_LOST: &[u8] =
    b"monosplit: a file was shortened while it was in use, or its disk no longer answers; \
    replace files by moving new ones in their place\n";

/// The end of a pipe that the `SIGBUS` handler writes to; -1 before there is one.
#[cfg(target_os = "linux")]
static BUS_ERROR_PIPE: AtomicI32 = AtomicI32::new(-1);

/// From now on, a bus error, which is what reading a lost part of a mapped file raises, removes unfinished files, prints a
/// message and ends the process.
///
/// The handler only wakes a thread through a pipe and then waits. That thread may take locks, which a handler may not.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) fn report_lost_files() {
    use std::io::Read;
    use std::os::fd::IntoRawFd;
    if let Ok((mut reader, writer)) = std::io::pipe() {
        let watch = move || {
            if reader.read(&mut [0]).is_ok_and(|bytes| bytes > 0) {
                monosplit::graph::abandon_unfinished_files();
                end_with_file_lost();
            }
        };
        if std::thread::Builder::new().name("bus errors".into()).spawn(watch).is_ok() {
            BUS_ERROR_PIPE.store(writer.into_raw_fd(), Ordering::Relaxed);
        }
    }
    // SAFETY: all zeros is a valid `sigaction`. The handler has the signature of one without `SA_SIGINFO`, and calls only
    // functions that are async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as extern "C" fn(c_int) as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// The `SIGBUS` handler. It must be async-signal-safe: it may interrupt a thread that holds any lock, so it neither allocates
/// nor locks, and calls only write(2), pause(2) and _exit(2). It never returns, since the failed access would be repeated.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
extern "C" fn on_bus_error(_: c_int) {
    let pipe = BUS_ERROR_PIPE.load(Ordering::Relaxed);
    // SAFETY: the buffer has one byte. An invalid descriptor makes the call fail.
    if unsafe { libc::write(pipe, [1u8].as_ptr().cast(), 1) } != 1 {
        end_with_file_lost();
    }
    loop {
        // SAFETY: pause(2) has no conditions.
        unsafe { libc::pause() };
    }
}

/// Prints [`FILE_LOST`] and ends the process, without locks, buffers or destructors.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn end_with_file_lost() -> ! {
    // SAFETY: the buffer has as many bytes. Both calls are async-signal-safe.
    unsafe {
        libc::write(libc::STDERR_FILENO, FILE_LOST.as_ptr().cast(), FILE_LOST.len());
        libc::_exit(c_int::from(crate::failure::FAILED))
    }
}

/// Whether a process with this `/proc/self/status` ignores a signal.
#[cfg(unix)]
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// On other systems an unfinished file may remain, under a hidden name.
#[cfg(not(unix))]
pub(crate) fn remove_unfinished_files_on_signals() {}

/// On other systems the system reports the error.
#[cfg(not(target_os = "linux"))]
pub(crate) fn report_lost_files() {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_stay_ignored() {
        let status = "Name:\tmonosplit\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, 1) && is_ignored(status, 13));
        assert!(!is_ignored(status, 2) && !is_ignored(status, 15) && !is_ignored("", 1));
    }
}
