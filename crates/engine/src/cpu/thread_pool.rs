//! The threads of an engine. Each engine owns its pool; its clones and programs share it, and it stops with the last of them.
//! All arithmetic of a program runs on these threads, whose denormal mode is a property of the pool: results are the same bits
//! at any number of threads, whatever other engines and threads the process has.
//!
//! During a run the workers spin: the steps of a run follow each other within microseconds, and waking a thread takes longer than
//! many of them. Loops are handed to spinning workers by [`Handover`], and to sleeping ones by rayon's queues.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug, Formatter};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use monosplit_graph::Result;
use rayon::Yield;
use rayon::prelude::*;
use web_time::Instant;

use super::core_affinity::{self, Pinning};
use super::handover::{Handover, SpinningWorker};
use super::kernels::denormal;
use super::kernels::peak::peak;
use super::kernels::scratch::ScratchBuffers;
use super::kernels::simd_level::SimdLevel;
use super::real::Real;
use super::threads::Threads;
use crate::Precision;

/// About how many items a loop over many small ones is cut into.
pub(crate) const TASKS: usize = 32;
/// How long a worker spins without being given work.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1);
/// The number of polls before a spinning worker checks the clock and yields its core.
const SPIN_COUNT: usize = 256;
/// One poll of so many looks at rayon's queues, the others at the handover.
const QUEUE_POLL_INTERVAL: usize = 8;
/// A run of fewer steps is over before sleeping workers are awake.
const MIN_STEPS_TO_SPIN: usize = 8;

/// The threads that run the programs of an engine.
pub(crate) struct ThreadPool {
    threads: Threads,
    level: SimdLevel,
    scratch: Arc<ScratchBuffers>,
    /// The operations per second that the threads reach in single and in double precision, measured when first asked for.
    peaks: [OnceLock<f64>; 2],
}

/// What the threads of a pool share.
struct Shared {
    handover: Handover,
    /// Runs in progress.
    runs: AtomicUsize,
    scratch: Arc<ScratchBuffers>,
}

/// What a thread knows of the pool it belongs to.
struct Worker {
    index: usize,
    shared: Arc<Shared>,
    /// Whether this thread carries out a run, or spins during one. While such a thread waits, rayon may give it the call to spin
    /// for another run; spinning then would delay its own.
    occupied: Cell<bool>,
    /// The core it is pinned to, if it is.
    pinning: Option<Pinning>,
    /// Whether it may run on all cores at the moment.
    released: Cell<bool>,
}

thread_local! {
    /// Set when a thread begins to belong to a pool; empty in all other threads.
    static WORKER: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
}

/// Calls `f` with the calling thread's place in its pool, if it belongs to one.
fn with_worker<T>(f: impl FnOnce(Option<&Worker>) -> T) -> T {
    // A thread may come to belong to another pool while `f` works.
    let worker = WORKER.with_borrow(Clone::clone);
    f(worker.as_deref())
}

/// The pool that the calling thread belonged to, and its instructions, which are put back when this is dropped.
#[cfg(target_arch = "wasm32")]
pub(super) struct Membership {
    worker: Option<Rc<Worker>>,
    level: Option<SimdLevel>,
}

#[cfg(target_arch = "wasm32")]
impl Membership {
    pub(super) fn kept() -> Self {
        Membership { worker: WORKER.with_borrow(Clone::clone), level: SimdLevel::of_this_thread() }
    }
}

#[cfg(target_arch = "wasm32")]
impl Drop for Membership {
    fn drop(&mut self) {
        WORKER.set(self.worker.take());
        SimdLevel::set_in_this_thread(self.level);
    }
}

impl ThreadPool {
    /// Starts `threads` threads, or one per core that the process may use if that is 0.
    #[cfg(test)]
    pub(crate) fn start(threads: usize, flush_denormals: bool) -> Result<Self> {
        ThreadPool::start_with(threads, flush_denormals, SimdLevel::current())
    }

    /// The same, to compute with these instructions.
    pub(crate) fn start_with(threads: usize, flush_denormals: bool, level: SimdLevel) -> Result<Self> {
        let threads = match threads {
            0 => Threads::available(),
            threads => threads,
        };
        let scratch: Arc<ScratchBuffers> = Arc::default();
        let shared = Arc::new(Shared {
            handover: Handover::new(threads),
            runs: AtomicUsize::new(0),
            scratch: scratch.clone(),
        });
        let start = move |index: usize| {
            let pinning = Pinning::begin(index, threads);
            // Also where denormals are kept: a thread inherits the mode of the one that started it.
            denormal::flush_in_this_thread(flush_denormals);
            SimdLevel::set_in_this_thread(Some(level));
            let (occupied, released) = (Cell::new(false), Cell::new(false));
            let worker = Worker { index, shared: shared.clone(), occupied, pinning, released };
            WORKER.set(Some(Rc::new(worker)));
        };
        let threads = Threads::start(threads, start)?;
        log::info!("engine cpu: {} threads, {} instructions", threads.count(), level.name());
        Ok(ThreadPool { threads, level, scratch, peaks: Default::default() })
    }

    /// Memory that kernels use again.
    pub(crate) fn scratch(&self) -> &Arc<ScratchBuffers> {
        &self.scratch
    }

    /// The instructions that the threads compute with.
    pub(crate) fn level(&self) -> SimdLevel {
        self.level
    }

    /// Runs `work` on a thread of the pool; loops within it run on all of them. Called from a thread of the pool, it runs there.
    pub(crate) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.threads.install(work)
    }

    /// Like [`ThreadPool::install`], for the work of others: threads and engines that it starts may use all cores, although the
    /// thread it runs on is pinned to one. (Threads that it starts within a parallel loop may inherit a single core.)
    pub(crate) fn install_released<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.install(|| {
            with_worker(|worker| {
                let _released = worker.map(|worker| AffinityChange::begin(worker, true));
                work()
            })
        })
    }

    /// The operations per second that the threads reach in this precision.
    pub(crate) fn peak<R: Real>(&self) -> f64 {
        let peak_of = match R::PRECISION {
            Precision::F32 => &self.peaks[0],
            Precision::F64 => &self.peaks[1],
        };
        *peak_of.get_or_init(|| self.install(peak::<R>))
    }

    /// Runs `work` for each of the items, in no particular order.
    pub(crate) fn for_each<T: Send>(&self, items: &mut [T], work: impl Fn(&mut T) + Send + Sync) {
        self.install(|| parallel_for_chunks(items, 1, |_, item| item.iter_mut().for_each(&work)));
    }

    /// Runs `work`, which has this many steps, on a thread of the pool while the other threads spin.
    pub(crate) fn run_steps<T: Send>(&self, steps: usize, work: impl FnOnce() -> T + Send) -> T {
        self.install(|| {
            with_worker(|worker| {
                let _run = worker.map(ActiveRun::begin);
                let _pinned = worker.map(|worker| AffinityChange::begin(worker, false));
                if let Some(worker) = worker
                    && steps >= MIN_STEPS_TO_SPIN
                    && self.threads.count() > 1
                {
                    let shared = worker.shared.clone();
                    let busy_core = core_affinity::current_core();
                    self.threads.broadcast(move || spin(&shared, busy_core));
                }
                work()
            })
        })
    }
}

impl Debug for ThreadPool {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads.count()).finish()
    }
}

/// A run in progress on the calling thread.
struct ActiveRun<'a> {
    worker: &'a Worker,
    occupied_before: bool,
}

impl<'a> ActiveRun<'a> {
    fn begin(worker: &'a Worker) -> Self {
        worker.shared.runs.fetch_add(1, Ordering::Relaxed);
        ActiveRun { worker, occupied_before: worker.occupied.replace(true) }
    }
}

impl Drop for ActiveRun<'_> {
    fn drop(&mut self) {
        self.worker.shared.runs.fetch_sub(1, Ordering::Relaxed);
        self.worker.occupied.set(self.occupied_before);
    }
}

/// The time in which the calling thread is released from its core, or pinned to it again.
struct AffinityChange<'a> {
    worker: &'a Worker,
    released_before: bool,
}

impl<'a> AffinityChange<'a> {
    fn begin(worker: &'a Worker, released: bool) -> Self {
        AffinityChange { worker, released_before: worker.release(released) }
    }
}

impl Drop for AffinityChange<'_> {
    fn drop(&mut self) {
        self.worker.release(self.released_before);
    }
}

impl Worker {
    /// Releases the calling thread, which is this one, from its core, or pins it again. Returns whether it was released before.
    fn release(&self, released: bool) -> bool {
        let before = self.released.replace(released);
        if let Some(pinning) = self.pinning.as_ref().filter(|_| before != released) {
            pinning.release(released);
        }
        before
    }
}

/// Takes part in the loops of runs until no run is in progress or no work has come for [`IDLE_TIMEOUT`]. A thread that was woken
/// on the core of the run moves to another one.
fn spin(shared: &Shared, busy_core: Option<usize>) {
    with_worker(|worker| {
        let Some(worker) = worker.filter(|worker| !worker.occupied.replace(true)) else { return };
        let _pinned = AffinityChange::begin(worker, false);
        busy_core.into_iter().for_each(core_affinity::leave);
        let spinning = SpinningWorker::new(&shared.handover, worker.index);
        let mut last_work = Instant::now();
        while shared.runs.load(Ordering::Relaxed) > 0 && last_work.elapsed() < IDLE_TIMEOUT {
            for poll in 0..SPIN_COUNT {
                let worked = match poll % QUEUE_POLL_INTERVAL {
                    0 => matches!(rayon::yield_now(), Some(Yield::Executed)),
                    _ => spinning.poll(),
                };
                match worked {
                    true => last_work = Instant::now(),
                    false => std::hint::spin_loop(),
                }
            }
            std::thread::yield_now();
        }
        worker.occupied.set(false);
    });
}

/// Runs `work(i)` for every `i` below `count`, in no particular order, on the threads of the pool that the calling thread belongs
/// to. On any other thread it is an ordinary loop.
pub(crate) fn parallel_for(count: usize, work: impl Fn(usize) + Sync) {
    parallel_for_dyn(count, &work);
}

/// [`parallel_for`], compiled once.
fn parallel_for_dyn(count: usize, work: &(dyn Fn(usize) + Sync)) {
    with_worker(|worker| match worker {
        Some(worker) if count > 1 && rayon::current_num_threads() > 1 => {
            if !worker.shared.handover.try_run(worker.index, count, work) {
                (0..count).into_par_iter().for_each(work);
            }
        }
        _ => (0..count).for_each(work),
    });
}

/// Runs `work(i, chunk)` for the chunks of `size` elements of a slice, of which the last may be shorter, like [`parallel_for`].
pub(crate) fn parallel_for_chunks<T: Send>(
    all: &mut [T],
    size: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    /// The start of the slice.
    struct Start<T>(*mut T);
    // SAFETY: threads only form disjoint chunks from it.
    unsafe impl<T: Send> Sync for Start<T> {}
    impl<T> Start<T> {
        fn at(&self, element: usize) -> *mut T {
            self.0.wrapping_add(element)
        }
    }
    let (size, length, start) = (size.max(1), all.len(), Start(all.as_mut_ptr()));
    parallel_for(length.div_ceil(size), |index| {
        let first = index * size;
        // SAFETY: chunks do not overlap and lie within the slice, which stays borrowed; each index is asked for once.
        let chunk = unsafe { std::slice::from_raw_parts_mut(start.at(first), size.min(length - first)) };
        work(index, chunk);
    });
}

/// Calls `f` with the scratch buffers of the pool that the calling thread belongs to, if it belongs to one.
pub(crate) fn with_scratch<T>(f: impl FnOnce(Option<&ScratchBuffers>) -> T) -> T {
    with_worker(|worker| f(worker.map(|worker| &*worker.shared.scratch)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn loops_run_every_item_once_on_every_kind_of_thread() {
        let pool = ThreadPool::start(3, false).unwrap();
        let check = || {
            for count in (0..100usize).map(|round| round % 23) {
                let mut numbers = vec![0usize; (7 * count).saturating_sub(3)];
                parallel_for_chunks(&mut numbers, 7, |index, chunk| {
                    chunk.iter_mut().for_each(|number| *number += index + 1);
                });
                assert!(numbers.iter().enumerate().all(|(at, &number)| number == at / 7 + 1));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| pool.run_steps(MIN_STEPS_TO_SPIN, check));
                scope.spawn(|| pool.install(check));
                scope.spawn(check);
            }
        });
    }

    #[test]
    fn loops_within_loops_and_runs_within_runs_end() {
        let pools = [1, 2, 3].map(|threads| ThreadPool::start(threads, false).unwrap());
        let sum = AtomicUsize::new(0);
        for outer in &pools {
            for inner in &pools {
                outer.run_steps(100, || {
                    parallel_for(8, |_| {
                        parallel_for(4, |_| {
                            inner.run_steps(100, || {
                                parallel_for(5, |item| {
                                    sum.fetch_add(item, Ordering::Relaxed);
                                });
                            });
                        });
                    });
                });
            }
        }
        assert_eq!(sum.into_inner(), 9 * 8 * 4 * 10);
    }

    #[test]
    fn a_panic_in_a_loop_reaches_the_caller_and_the_pool_goes_on() {
        let pool = ThreadPool::start(2, false).unwrap();
        for _ in 0..20 {
            let failing = || pool.run_steps(100, || parallel_for(50, |item| assert_ne!(item, 30)));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(failing)).is_err());
            let sum = AtomicUsize::new(0);
            pool.run_steps(100, || {
                parallel_for(50, |item| {
                    sum.fetch_add(item, Ordering::Relaxed);
                });
            });
            assert_eq!(sum.into_inner(), 49 * 25);
        }
    }

    #[test]
    fn every_item_is_worked_on_once() {
        for threads in [0, 1, 3] {
            let mut items: Vec<usize> = (0..100).collect();
            ThreadPool::start(threads, false).unwrap().for_each(&mut items, |item| *item += 1);
            assert!(items.into_iter().eq(1..101));
        }
    }

    #[test]
    fn threads_end_with_their_pool() {
        let pool = ThreadPool::start(3, false).unwrap();
        let shared = pool
            .install(|| with_worker(|worker| worker.map(|worker| Arc::downgrade(&worker.shared))))
            .unwrap();
        pool.run_steps(100, || parallel_for(10, |_| ()));
        drop(pool);
        let begun = Instant::now();
        while shared.upgrade().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(30), "threads outlive their pool");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_belongs_to_no_pool_is_left_alone() {
        let here = std::thread::current().id();
        parallel_for(5, |_| assert_eq!(std::thread::current().id(), here));
    }
}
