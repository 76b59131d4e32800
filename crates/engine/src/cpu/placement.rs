//! The core a thread runs on. A thread that is woken often begins on the core of the one that woke it, and shares it for
//! milliseconds before the system moves it to one that idles. Where there is a thread for every core, each keeps to its own.
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
    let Some(allowed) = system::allowed() else { return };
    let mut others = allowed;
    others.0[core / 64] &= !(1 << (core % 64));
    if others.0.iter().all(|&word| word == 0) {
        return;
    }
    // SAFETY: the kernel reads no more than the size it is told; a set that is refused changes nothing.
    unsafe {
        if system::sched_setaffinity(0, size_of_val(&others), &raw const others) == 0 {
            system::sched_setaffinity(0, size_of_val(&allowed), &raw const allowed);
        }
    }
}

/// Keeps this thread, one of `threads`, to a core of its own, if there are as many cores it may run on.
#[cfg(target_os = "linux")]
pub(super) fn settle(number: usize, threads: usize) {
    let Some(allowed) = system::allowed() else { return };
    let is_allowed = |core: &usize| allowed.0[core / 64] >> (core % 64) & 1 == 1;
    let cores: Vec<usize> = (0..system::MOST).filter(is_allowed).collect();
    let Some(core) = cores.get(number).filter(|_| cores.len() == threads) else { return };
    let mut own = system::Cores::default();
    own.0[core / 64] |= 1 << (core % 64);
    // SAFETY: as in `leave`.
    unsafe { system::sched_setaffinity(0, size_of_val(&own), &raw const own) };
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

    /// Where this thread may run.
    pub(super) fn allowed() -> Option<Cores> {
        let mut cores = Cores::default();
        // SAFETY: the kernel writes no more than the size it is told; this thread is asked about.
        let answer = unsafe { sched_getaffinity(0, size_of_val(&cores), &raw mut cores) };
        (answer == 0).then_some(cores)
    }

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

#[cfg(not(target_os = "linux"))]
pub(super) fn settle(_: usize, _: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn cores() -> usize {
        system::allowed().unwrap().0.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[test]
    fn whoever_leaves_a_core_may_run_wherever_he_might_before() {
        let (before, here) = (system::allowed().unwrap().0, current().unwrap());
        assert!(before[here / 64] >> (here % 64) & 1 == 1);
        leave(here);
        assert_eq!(system::allowed().unwrap().0, before);
    }

    #[test]
    fn a_thread_settles_only_where_there_is_one_for_every_core() {
        let all = cores();
        let settled = |number: usize, threads: usize| {
            let thread = std::thread::spawn(move || {
                settle(number, threads);
                (cores(), current())
            });
            thread.join().unwrap()
        };
        assert_eq!(settled(0, all + 1).0, all);
        assert_eq!(settled(all, all).0, all, "there is no core of that number");
        assert_eq!(settled(0, all).0, 1);
        if all > 1 {
            assert_ne!(settled(0, all).1, settled(1, all).1);
        }
    }
}
