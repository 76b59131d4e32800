//! Which core a thread runs on. A thread that is woken often starts on the core of the thread that woke it, and shares that core
//! for milliseconds before the system moves it to an idle one. A pool with a thread for every core pins each thread to its own.
#![allow(unsafe_code)]

/// The core that the calling thread runs on, where the system tells.
#[cfg(target_os = "linux")]
pub(super) fn current_core() -> Option<usize> {
    // SAFETY: the call has no arguments and changes nothing.
    usize::try_from(unsafe { system::sched_getcpu() }).ok()
}

/// Moves the calling thread to another core if it runs on this one and may run elsewhere. Its affinity is the same afterwards.
#[cfg(target_os = "linux")]
pub(super) fn leave(core: usize) {
    if current_core() != Some(core) || core >= system::MAX_CORES {
        return;
    }
    let Some(allowed) = system::allowed() else { return };
    let mut others = allowed;
    others.0[core / 64] &= !(1 << (core % 64));
    if others.0.iter().all(|&word| word == 0) {
        return;
    }
    // SAFETY: the system reads no more than the size it is told; a set that it refuses changes nothing.
    unsafe {
        if system::sched_setaffinity(0, size_of_val(&others), &raw const others) == 0 {
            system::sched_setaffinity(0, size_of_val(&allowed), &raw const allowed);
        }
    }
}

/// Pins the calling thread, the `index`-th of `threads`, to a core of its own, if it may run on exactly as many cores.
#[cfg(target_os = "linux")]
pub(super) fn pin(index: usize, threads: usize) {
    let Some(allowed) = system::allowed() else { return };
    let is_allowed = |core: &usize| allowed.0[core / 64] >> (core % 64) & 1 == 1;
    let cores: Vec<usize> = (0..system::MAX_CORES).filter(is_allowed).collect();
    let Some(core) = cores.get(index).filter(|_| cores.len() == threads) else { return };
    let mut own = system::Cores::default();
    own.0[core / 64] |= 1 << (core % 64);
    // SAFETY: as in `leave`.
    unsafe { system::sched_setaffinity(0, size_of_val(&own), &raw const own) };
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::c_int;

    /// The number of cores that a set can hold.
    pub(super) const MAX_CORES: usize = 1024;

    /// A set of cores.
    #[derive(Clone, Copy, Default)]
    #[repr(C)]
    pub(super) struct Cores(pub(super) [u64; MAX_CORES / 64]);

    /// The cores that the calling thread may run on.
    pub(super) fn allowed() -> Option<Cores> {
        let mut cores = Cores::default();
        // SAFETY: the system writes no more than the size it is told; thread 0 is the calling one.
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
pub(super) fn current_core() -> Option<usize> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn leave(_: usize) {}

#[cfg(not(target_os = "linux"))]
pub(super) fn pin(_: usize, _: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn cores() -> usize {
        system::allowed().unwrap().0.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[test]
    fn leaving_a_core_keeps_the_affinity() {
        let (before, here) = (system::allowed().unwrap().0, current_core().unwrap());
        assert!(before[here / 64] >> (here % 64) & 1 == 1);
        leave(here);
        assert_eq!(system::allowed().unwrap().0, before);
    }

    #[test]
    fn a_thread_is_pinned_only_where_there_is_one_for_every_core() {
        let all = cores();
        let pinned = |index: usize, threads: usize| {
            let thread = std::thread::spawn(move || {
                pin(index, threads);
                (cores(), current_core())
            });
            thread.join().unwrap()
        };
        assert_eq!(pinned(0, all + 1).0, all);
        assert_eq!(pinned(all, all).0, all, "there is no core of that number");
        assert_eq!(pinned(0, all).0, 1);
        if all > 1 {
            assert_ne!(pinned(0, all).1, pinned(1, all).1);
        }
    }
}
