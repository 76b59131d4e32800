//! The core a thread runs on. A thread that is woken often begins on the core of the one that woke it, and shares it for
//! milliseconds before the system moves it to one that idles.
#![allow(unsafe_code)]

/// The core this thread runs on, where the system tells.
#[cfg(target_os = "linux")]
pub(super) fn current() -> Option<usize> {
    // SAFETY: the call has no arguments and changes nothing.
    usize::try_from(unsafe { system::sched_getcpu() }).ok()
}

/// Moves this thread to another core if it runs on that one and may run elsewhere; it may run wherever it might before.
#[cfg(target_os = "linux")]
pub(super) fn leave(core: usize) {
    if current() != Some(core) || core >= system::MOST {
        return;
    }
    let mut allowed = system::Cores::default();
    // SAFETY: the kernel writes no more than the size it is told; this thread is asked about.
    let known = unsafe { system::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) } == 0;
    let mut others = allowed;
    others.0[core / 64] &= !(1 << (core % 64));
    if !known || others.0.iter().all(|&word| word == 0) {
        return;
    }
    // SAFETY: as above; a set that is refused changes nothing.
    unsafe {
        if system::sched_setaffinity(0, size_of_val(&others), &raw const others) == 0 {
            system::sched_setaffinity(0, size_of_val(&allowed), &raw const allowed);
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::c_int;

    /// Cores that a set tells apart.
    pub(super) const MOST: usize = 1024;

    /// A set of cores.
    #[derive(Clone, Copy, Default)]
    #[repr(C)]
    pub(super) struct Cores(pub(super) [u64; MOST / 64]);

    unsafe extern "C" {
        pub(super) fn sched_getcpu() -> c_int;
        pub(super) fn sched_getaffinity(thread: c_int, size: usize, cores: *mut Cores) -> c_int;
        pub(super) fn sched_setaffinity(thread: c_int, size: usize, cores: *const Cores) -> c_int;
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn current() -> Option<usize> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn leave(_: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn whoever_leaves_a_core_may_run_wherever_he_might_before() {
        let allowed = || {
            let mut cores = system::Cores::default();
            // SAFETY: as in `leave`.
            assert_eq!(unsafe { system::sched_getaffinity(0, size_of_val(&cores), &raw mut cores) }, 0);
            cores.0
        };
        let (before, here) = (allowed(), current().unwrap());
        assert!(before[here / 64] >> (here % 64) & 1 == 1);
        leave(here);
        assert_eq!(allowed(), before);
    }
}
