//! Handing small work items to workers that spin. An item may take microseconds, and a queue takes as long to pass it on: here
//! a worker takes an item by incrementing a counter.
//!
//! The items are cut into one share per thread of the pool. A thread always begins with the same share, because it often reads
//! what it wrote the time before, and goes on with the shares of the others.
//!
//! The protocol. A thread claims the handover, writes the work, and opens it ([`OPEN`]). Workers that poll enter while it is
//! open ([`ONE_WORKER`]), take items until none is left, close it, and leave. The publisher takes items too, closes, waits until
//! all workers have left, removes the work, and gives the claim up. The work is therefore written only while nobody is inside.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::sync::{AtomicBool, AtomicUsize, Ordering, UnsafeCell, spin_until};
use super::unwinding::OutOfMemory;

/// The bit of the state that says that workers may enter.
const OPEN: usize = 1;
/// What a worker that takes part adds to the state.
const ONE_WORKER: usize = 2;

type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// Hands the items of one loop at a time to the spinning workers of a thread pool.
pub(super) struct Handover {
    /// Whether a thread has its work published, or is about to.
    claimed: AtomicBool,
    /// Workers that poll.
    spinning: AtomicUsize,
    /// [`OPEN`], and [`ONE_WORKER`] for every worker inside.
    state: AtomicUsize,
    /// For every share, the number of items taken.
    taken: Box<[ItemCounter]>,
    /// Written by the claiming thread while the state is zero, read by workers inside.
    published: UnsafeCell<Option<Published>>,
    /// Whether an item panicked on a worker.
    panicked: AtomicBool,
    /// Bytes that an item on a worker had no memory for; 0 if there was none.
    missing_bytes: AtomicUsize,
}

/// A counter with a cache line (and its prefetched neighbour) of its own, so that counting one share does not slow another.
#[repr(align(128))]
struct ItemCounter(AtomicUsize);

/// A loop whose items are handed over.
#[derive(Clone, Copy)]
struct Published {
    /// Valid while it is published: [`Handover::run_claimed`] removes it before the borrow ends.
    work: &'static Work<'static>,
    count: usize,
}

// SAFETY: all fields but `published` are atomics. `published` is written by the one thread that holds the claim, while the state
// is zero, and read only by threads that the state counts and by the claiming thread.
unsafe impl Sync for Handover {}
// SAFETY: what is published may be called from any thread (`Work` is `Sync`), and is not published while the value is moved.
unsafe impl Send for Handover {}

impl Handover {
    /// A handover between `threads` threads.
    pub(super) fn new(threads: usize) -> Self {
        Handover {
            claimed: AtomicBool::new(false),
            spinning: AtomicUsize::new(0),
            state: AtomicUsize::new(0),
            taken: (0..threads.max(1)).map(|_| ItemCounter(AtomicUsize::new(0))).collect(),
            published: UnsafeCell::new(None),
            panicked: AtomicBool::new(false),
            missing_bytes: AtomicUsize::new(0),
        }
    }

    /// Runs `work(i)` for every `i` below `count`, together with the workers that spin, and returns whether it did. It does not
    /// if fewer spin than could be used, or if the handover is in use. `thread` is the index of the calling thread.
    ///
    /// # Panics
    /// If an item does; every item that was begun has ended by then.
    pub(super) fn try_run(&self, thread: usize, count: usize, work: &Work<'_>) -> bool {
        let wanted = self.taken.len().min(count);
        if self.spinning.load(Ordering::Relaxed) + 1 < wanted || self.claimed.swap(true, Ordering::Acquire) {
            return false;
        }
        self.run_claimed(thread, count, work);
        true
    }

    /// The rest of [`Handover::try_run`], once the calling thread holds the claim.
    fn run_claimed(&self, thread: usize, count: usize, work: &Work<'_>) {
        // SAFETY: only the lifetime changes. The reference is removed below, after all workers have left, and this function
        // neither returns nor unwinds before that.
        let work = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
        // SAFETY: this thread holds the claim and nobody is inside.
        self.published.with_mut(|published| unsafe { *published = Some(Published { work, count }) });
        self.taken.iter().for_each(|taken| taken.0.store(0, Ordering::Relaxed));
        self.panicked.store(false, Ordering::Relaxed);
        self.missing_bytes.store(0, Ordering::Relaxed);
        self.state.store(OPEN, Ordering::Release);
        // SAFETY: the calling thread published the work.
        let done = catch_unwind(AssertUnwindSafe(|| unsafe { self.take_items(thread) }));
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        spin_until(|| self.state.load(Ordering::Acquire) == 0);
        // SAFETY: the handover is closed and all workers have left.
        self.published.with_mut(|published| unsafe { *published = None });
        let panicked = self.panicked.load(Ordering::Relaxed);
        let missing_bytes = self.missing_bytes.load(Ordering::Relaxed);
        self.claimed.store(false, Ordering::Release);
        if let Err(cause) = done {
            resume_unwind(cause);
        }
        assert!(!panicked, "a work item panicked on another thread");
        if missing_bytes > 0 {
            OutOfMemory(missing_bytes).unwind();
        }
    }

    /// Takes items and runs them until none is left.
    ///
    /// # Safety
    /// The calling thread is counted in the state, or is the one that published the work.
    unsafe fn take_items(&self, thread: usize) {
        // SAFETY: nobody writes while a thread is inside.
        let Some(Published { work, count }) = self.published.with(|published| unsafe { *published }) else {
            return;
        };
        let shares = self.taken.len();
        for share in (0..shares).map(|other| (thread + other) % shares) {
            let items = share * count / shares..(share + 1) * count / shares;
            loop {
                let item = items.start + self.taken[share].0.fetch_add(1, Ordering::Relaxed);
                if item >= items.end {
                    break;
                }
                work(item);
            }
        }
    }
}

/// A worker that polls a handover, registered for as long as it lives.
pub(super) struct SpinningWorker<'a> {
    handover: &'a Handover,
    thread: usize,
}

impl<'a> SpinningWorker<'a> {
    /// Registers the calling thread, which has this index in its pool.
    pub(super) fn new(handover: &'a Handover, thread: usize) -> Self {
        handover.spinning.fetch_add(1, Ordering::Relaxed);
        SpinningWorker { handover, thread }
    }

    /// Takes part in the published work, and returns whether there was any.
    pub(super) fn poll(&self) -> bool {
        let handover = self.handover;
        let state = handover.state.load(Ordering::Relaxed);
        let enter = |state: usize| {
            handover
                .state
                .compare_exchange(state, state + ONE_WORKER, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        if state & OPEN == 0 || !enter(state) {
            return false;
        }
        // SAFETY: this thread has entered.
        match catch_unwind(AssertUnwindSafe(|| unsafe { handover.take_items(self.thread) })) {
            Ok(()) => {}
            Err(cause) => match cause.downcast_ref::<OutOfMemory>() {
                Some(OutOfMemory(bytes)) => handover.missing_bytes.store((*bytes).max(1), Ordering::Relaxed),
                None => handover.panicked.store(true, Ordering::Relaxed),
            },
        }
        // No item is left: nobody else need enter.
        handover.state.fetch_and(!OPEN, Ordering::AcqRel);
        handover.state.fetch_sub(ONE_WORKER, Ordering::Release);
        true
    }
}

impl Drop for SpinningWorker<'_> {
    fn drop(&mut self) {
        self.handover.spinning.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Runs `publish` while `workers` threads spin.
    fn with_workers(handover: &Handover, workers: usize, publish: impl FnOnce()) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 1..=workers {
                let over = &over;
                scope.spawn(move || {
                    let worker = SpinningWorker::new(handover, thread);
                    while !over.load(Ordering::Relaxed) {
                        worker.poll();
                        std::thread::yield_now();
                    }
                });
            }
            spin_until(|| handover.spinning.load(Ordering::Relaxed) == workers);
            let done = catch_unwind(AssertUnwindSafe(publish));
            over.store(true, Ordering::Relaxed);
            if let Err(cause) = done {
                resume_unwind(cause);
            }
        });
    }

    #[test]
    fn every_item_runs_once_whoever_publishes() {
        let handover = Handover::new(3);
        let rounds = if cfg!(miri) { 10 } else { 400 };
        with_workers(&handover, 2, || {
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for count in (0..rounds).map(|round| round % 23) {
                            let runs: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                            let done = handover.try_run(0, count, &|item| {
                                runs[item].fetch_add(1, Ordering::Relaxed);
                            });
                            assert!(
                                runs.iter().all(|runs| runs.load(Ordering::Relaxed) == usize::from(done))
                            );
                        }
                    });
                }
            });
        });
    }

    #[test]
    fn a_panicking_item_is_reported_and_the_next_work_is_done() {
        let handover = Handover::new(2);
        with_workers(&handover, 1, || {
            let failing = || handover.try_run(0, 50, &|item| assert_ne!(item, 30));
            assert!(catch_unwind(AssertUnwindSafe(failing)).is_err());
            let sum = AtomicUsize::new(0);
            assert!(handover.try_run(0, 50, &|item| {
                sum.fetch_add(item, Ordering::Relaxed);
            }));
            assert_eq!(sum.into_inner(), 49 * 25);
        });
    }

    #[test]
    fn nothing_is_handed_over_while_workers_sleep() {
        let handover = Handover::new(2);
        assert!(!handover.try_run(0, 2, &|_| unreachable!("the caller is to find another way")));
        let sum = AtomicUsize::new(0);
        assert!(handover.try_run(0, 1, &|item| {
            sum.fetch_add(item + 1, Ordering::Relaxed);
        }));
        assert_eq!(sum.into_inner(), 1, "a single item needs nobody else");
    }
}

/// The protocol in every order that the memory model allows. Run by `scripts/check_loom.sh`.
#[cfg(all(test, loom))]
mod loom_model {
    use loom::cell::UnsafeCell as Tracked;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Orders in which a thread is preempted at most three times: all of them would take hours.
    fn model() -> loom::model::Builder {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model
    }

    /// A worker that polls up to `polls` times.
    fn spawn_worker(handover: &Arc<Handover>, index: usize, polls: usize) -> thread::JoinHandle<()> {
        let handover = handover.clone();
        thread::spawn(move || {
            let worker = SpinningWorker::new(&handover, index);
            for _ in 0..polls {
                worker.poll();
                thread::yield_now();
            }
        })
    }

    /// Publishes `count` items that write to cells of their own, which loom tracks: an item that runs twice at a time, or whose
    /// writes the publisher does not see, fails the model.
    fn publish(handover: &Handover, count: usize) {
        let cells: Vec<Tracked<usize>> = (0..count).map(|_| Tracked::new(0)).collect();
        struct Cells(Vec<Tracked<usize>>);
        // SAFETY: loom checks that accesses to the cells do not conflict.
        unsafe impl Sync for Cells {}
        impl Cells {
            fn increment(&self, item: usize) {
                // SAFETY: as above.
                self.0[item].with_mut(|runs| unsafe { *runs += 1 });
            }
        }
        let cells = Cells(cells);
        // The workers may not have registered yet: the claim is what is to be checked, not the heuristic.
        if !handover.claimed.swap(true, Ordering::Acquire) {
            handover.run_claimed(0, count, &|item| cells.increment(item));
            // SAFETY: as above.
            assert!(cells.0.iter().all(|cell| cell.with(|runs| unsafe { *runs }) == 1));
        }
    }

    #[test]
    fn one_worker_and_work_published_twice() {
        model().check(|| {
            let handover = Arc::new(Handover::new(2));
            let worker = spawn_worker(&handover, 1, 2);
            publish(&handover, 2);
            publish(&handover, 1);
            worker.join().unwrap();
            assert_eq!(handover.state.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn two_workers() {
        model().check(|| {
            let handover = Arc::new(Handover::new(2));
            let workers = [1, 2].map(|index| spawn_worker(&handover, index, 1));
            publish(&handover, 2);
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
    }

    #[test]
    fn two_publishers_and_a_worker() {
        model().check(|| {
            let handover = Arc::new(Handover::new(2));
            let worker = spawn_worker(&handover, 1, 1);
            let other = handover.clone();
            let publisher = thread::spawn(move || publish(&other, 1));
            publish(&handover, 2);
            worker.join().unwrap();
            publisher.join().unwrap();
        });
    }

    #[test]
    fn an_item_that_panics_on_either_thread() {
        loom::model(|| {
            let handover = Arc::new(Handover::new(2));
            let worker = spawn_worker(&handover, 1, 1);
            handover.claimed.store(true, Ordering::Relaxed);
            let failing = || handover.run_claimed(0, 2, &|item| assert_ne!(item, 1));
            assert!(catch_unwind(AssertUnwindSafe(failing)).is_err());
            publish(&handover, 1);
            worker.join().unwrap();
        });
    }
}
