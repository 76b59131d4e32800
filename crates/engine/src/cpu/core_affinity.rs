//! Which core a thread runs on. A thread that is woken often starts on the core of the thread that woke it, and shares that core
//! for milliseconds before the system moves it to an idle one. A pool with a thread for every core pins each thread to its own.
#![allow(unsafe_code)]

/// The core that the calling thread runs on, where the system tells.
#[cfg(target_os = "linux")]
pub(super) fn current_core() -> Option<usize> {
    // SAFETY: the call has no arguments and changes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Moves the calling thread to another core if it runs on this one and may run elsewhere. Its affinity is the same afterwards.
#[cfg(target_os = "linux")]
pub(super) fn leave(core: usize) {
    if current_core() != Some(core) {
        return;
    }
    let Some(allowed) = Cores::allowed() else { return };
    let others = Cores::of(allowed.numbers().filter(|&other| other != core));
    if others.numbers().next().is_some() && others.confine() {
        allowed.confine();
    }
}

/// The core that a thread is pinned to, and the cores that it could run on before.
#[cfg(target_os = "linux")]
pub(super) struct Pinning {
    own: Cores,
    all: Cores,
}

#[cfg(target_os = "linux")]
impl Pinning {
    /// Pins the calling thread, the `index`-th of `threads`, to a core of its own, if it may run on exactly as many cores.
    pub(super) fn begin(index: usize, threads: usize) -> Option<Self> {
        let all = Cores::allowed()?;
        let core = all.numbers().nth(index).filter(|_| all.numbers().count() == threads)?;
        let own = Cores::of([core]);
        own.confine();
        Some(Pinning { own, all })
    }

    /// Lets the calling thread, which is that of [`Pinning::begin`], run on all cores, or on its own only.
    pub(super) fn release(&self, released: bool) {
        if released {
            self.all.confine()
        } else {
            self.own.confine()
        };
    }
}

/// A set of cores.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy)]
struct Cores(libc::cpu_set_t);

#[cfg(target_os = "linux")]
impl Cores {
    /// The cores of these numbers; each is less than `CPU_SETSIZE`.
    fn of(numbers: impl IntoIterator<Item = usize>) -> Self {
        // SAFETY: a set is an array of whole numbers; zeros are the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for number in numbers {
            // SAFETY: the function sets a bit of the array, whose bounds it checks.
            unsafe { libc::CPU_SET(number, &mut set) };
        }
        Cores(set)
    }

    /// The cores that the calling thread may run on.
    fn allowed() -> Option<Self> {
        let mut cores = Cores::of([]);
        // SAFETY: the system writes no more than the size it is told; thread 0 is the calling one.
        let answer = unsafe { libc::sched_getaffinity(0, size_of_val(&cores.0), &raw mut cores.0) };
        (answer == 0).then_some(cores)
    }

    /// Lets the calling thread run on these cores only; false if the system refuses.
    fn confine(&self) -> bool {
        // SAFETY: the system reads no more than the size it is told; a set that it refuses changes nothing.
        unsafe { libc::sched_setaffinity(0, size_of_val(&self.0), &raw const self.0) == 0 }
    }

    /// The numbers of the cores, in order.
    fn numbers(&self) -> impl Iterator<Item = usize> {
        // SAFETY: the function reads a bit of the array; numbers are less than the size of a set.
        (0..libc::CPU_SETSIZE as usize).filter(|&number| unsafe { libc::CPU_ISSET(number, &self.0) })
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn current_core() -> Option<usize> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn leave(_: usize) {}

/// Other systems place threads well, or do not let them be placed.
#[cfg(not(target_os = "linux"))]
pub(super) struct Pinning;

#[cfg(not(target_os = "linux"))]
impl Pinning {
    pub(super) fn begin(_: usize, _: usize) -> Option<Self> {
        None
    }

    pub(super) fn release(&self, _: bool) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn cores() -> Vec<usize> {
        Cores::allowed().unwrap().numbers().collect()
    }

    #[test]
    fn leaving_a_core_keeps_the_affinity() {
        let (before, here) = (cores(), current_core().unwrap());
        assert!(before.contains(&here));
        leave(here);
        assert_eq!(cores(), before);
    }

    #[test]
    fn a_thread_is_pinned_only_where_there_is_one_for_every_core() {
        let all = cores().len();
        let pinned = |index: usize, threads: usize| {
            let thread = std::thread::spawn(move || {
                Pinning::begin(index, threads);
                (cores().len(), current_core())
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
