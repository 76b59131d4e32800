//! Pieces of work shared out among threads that are awake and wait for them. A piece may take microseconds, and handing it
//! over through a queue takes as many: here it is a number that whoever comes next takes. Every thread begins with the same
//! share of the pieces each time, since what it reads is often what it wrote the time before, and helps the others then.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rayon::prelude::*;

/// Tasks that many small pieces are shared out as, about.
pub(crate) const TASKS: usize = 32;
/// How often who waits for the others looks before it lets them have its core.
const GLANCES: usize = 1 << 12;
/// The most shares pieces are divided into.
const MOST_SHARES: usize = 64;
const OPEN: usize = 1;
const ONE_INSIDE: usize = 2;

type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// What is being shared out. One run at a time has it.
struct Gang {
    taken: AtomicBool,
    /// Threads that wait for work.
    ready: AtomicUsize,
    /// Whether there is work, and how many take part in it besides the thread whose work it is.
    state: AtomicUsize,
    /// How many of them may.
    most: AtomicUsize,
    /// How many pieces of each share are taken.
    taken_of: [Counter; MOST_SHARES],
    /// Written while nobody is inside and it is not open.
    work: UnsafeCell<Option<Shared>>,
    failed: AtomicBool,
}

/// Alone in its part of memory, so that who counts here does not hold up who counts elsewhere.
#[repr(align(128))]
struct Counter(AtomicUsize);

/// Work, in so many pieces and shares.
#[derive(Clone, Copy)]
struct Shared {
    work: &'static Work<'static>,
    count: usize,
    shares: usize,
}

// SAFETY: `work` is written by the one thread that has taken the gang, before it opens it and after all have left, and read
// only by those inside.
unsafe impl Sync for Gang {}

static GANG: Gang = Gang {
    taken: AtomicBool::new(false),
    ready: AtomicUsize::new(0),
    state: AtomicUsize::new(0),
    most: AtomicUsize::new(0),
    taken_of: [const { Counter(AtomicUsize::new(0)) }; MOST_SHARES],
    work: UnsafeCell::new(None),
    failed: AtomicBool::new(false),
};

impl Gang {
    /// Does pieces until none is left.
    ///
    /// # Safety
    /// The caller is inside, or it is its work.
    unsafe fn carry_out(&self) {
        // SAFETY: nobody writes it while somebody is inside.
        let Some(Shared { work, count, shares }) = (unsafe { *self.work.get() }) else { return };
        let own = rayon::current_thread_index().unwrap_or(0);
        for share in (0..shares).map(|other| (own + other) % shares) {
            let pieces = share * count / shares..(share + 1) * count / shares;
            loop {
                let piece = pieces.start + self.taken_of[share].0.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces.end {
                    break;
                }
                work(piece);
            }
        }
    }
}

/// Does `work(i)` for every `i` below `count`, in no particular order, each by one of the threads that are awake for the run
/// this is a part of.
pub(crate) fn share(count: usize, work: impl Fn(usize) + Sync) {
    let threads = rayon::current_num_threads();
    if count <= 1 || threads == 1 {
        (0..count).for_each(work);
    } else if GANG.ready.load(Ordering::Relaxed) + 1 < threads.min(count)
        || GANG.taken.swap(true, Ordering::Acquire)
    {
        // Too many of the others sleep, and a queue wakes them, or have other work.
        (0..count).into_par_iter().for_each(&work);
    } else {
        together(count, threads - 1, &work);
    }
}

/// The same for the pieces of `size` elements of a slice; the last may be shorter.
pub(crate) fn share_chunks<T: Send>(all: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    /// Where a slice begins.
    struct Beginning<T>(*mut T);
    // SAFETY: every piece is handed to one thread.
    unsafe impl<T: Send> Sync for Beginning<T> {}
    impl<T> Beginning<T> {
        fn at(&self, element: usize) -> *mut T {
            self.0.wrapping_add(element)
        }
    }
    let (size, length, beginning) = (size.max(1), all.len(), Beginning(all.as_mut_ptr()));
    share(length.div_ceil(size), |index| {
        let first = index * size;
        // SAFETY: pieces do not overlap, lie within the slice, which stays borrowed, and each is asked for once.
        let piece = unsafe { std::slice::from_raw_parts_mut(beginning.at(first), size.min(length - first)) };
        work(index, piece);
    });
}

/// Does the work together with up to so many others. The gang is taken.
fn together(count: usize, others: usize, work: &Work<'_>) {
    // SAFETY: the reference is gone before this function returns, whatever happens in it.
    let work = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
    let shares = (others + 1).min(MOST_SHARES);
    // SAFETY: the gang was taken by this thread, and nobody is inside.
    unsafe { *GANG.work.get() = Some(Shared { work, count, shares }) };
    GANG.taken_of[..shares].iter().for_each(|taken| taken.0.store(0, Ordering::Relaxed));
    GANG.most.store(others, Ordering::Relaxed);
    GANG.failed.store(false, Ordering::Relaxed);
    GANG.state.store(OPEN, Ordering::Release);
    // SAFETY: it is this thread's work.
    let done = catch_unwind(AssertUnwindSafe(|| unsafe { GANG.carry_out() }));
    GANG.state.fetch_and(!OPEN, Ordering::AcqRel);
    let mut glances = 0;
    while GANG.state.load(Ordering::Acquire) != 0 {
        glances += 1;
        if glances % GLANCES == 0 {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
    // SAFETY: all have left.
    unsafe { *GANG.work.get() = None };
    let failed = GANG.failed.load(Ordering::Relaxed);
    GANG.taken.store(false, Ordering::Release);
    if let Err(cause) = done {
        resume_unwind(cause);
    }
    assert!(!failed, "a piece of work failed");
}

/// A thread that waits for work, for as long as it lives.
pub(super) struct Helper(());

impl Helper {
    pub(super) fn new() -> Self {
        GANG.ready.fetch_add(1, Ordering::Relaxed);
        Helper(())
    }

    /// Takes part in what is being shared out; whether there was anything.
    pub(super) fn help(&self) -> bool {
        let state = GANG.state.load(Ordering::Relaxed);
        let full = state / ONE_INSIDE >= GANG.most.load(Ordering::Relaxed);
        let enter = |state: usize| {
            GANG.state
                .compare_exchange(state, state + ONE_INSIDE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        if state & OPEN == 0 || full || !enter(state) {
            return false;
        }
        // SAFETY: this thread is inside.
        if catch_unwind(AssertUnwindSafe(|| unsafe { GANG.carry_out() })).is_err() {
            GANG.failed.store(true, Ordering::Relaxed);
        }
        // Nothing is left to take: nobody need come.
        GANG.state.fetch_and(!OPEN, Ordering::AcqRel);
        GANG.state.fetch_sub(ONE_INSIDE, Ordering::Release);
        true
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        GANG.ready.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that help while `work` is done.
    fn with_helpers(count: usize, work: impl FnOnce()) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    let helper = Helper::new();
                    while !over.load(Ordering::Relaxed) {
                        helper.help();
                    }
                });
            }
            while GANG.ready.load(Ordering::Relaxed) < count {
                std::hint::spin_loop();
            }
            let done = catch_unwind(AssertUnwindSafe(work));
            over.store(true, Ordering::Relaxed);
            if let Err(cause) = done {
                resume_unwind(cause);
            }
        });
    }

    #[test]
    fn every_piece_is_done_once_whoever_does_it_and_however_many_share_out_at_once() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        with_helpers(2, || {
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for count in (0..400).map(|round| round % 23) {
                            let mut numbers = vec![0usize; 7 * count];
                            pool.install(|| {
                                share_chunks(&mut numbers, 7, |index, piece| {
                                    piece.iter_mut().for_each(|number| *number += index + 1);
                                });
                            });
                            assert!(numbers.iter().enumerate().all(|(at, &number)| number == at / 7 + 1));
                        }
                    });
                }
            });
        });
    }

    #[test]
    fn a_piece_that_fails_is_said_and_the_next_work_is_done() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        with_helpers(1, || {
            let failing = || pool.install(|| share(50, |piece| assert_ne!(piece, 30)));
            assert!(catch_unwind(AssertUnwindSafe(failing)).is_err());
            let sum = AtomicUsize::new(0);
            pool.install(|| {
                share(50, |piece| {
                    sum.fetch_add(piece, Ordering::Relaxed);
                });
            });
            assert_eq!(sum.into_inner(), 49 * 25);
        });
    }
}
