//! Threads that something else has started and lends to the engines of the process: the workers of a browser, where a program can
//! start none itself. A thread that was lent works for one pool at a time, until the pool ends.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use monosplit_graph::{Error, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The threads that the process was lent.
#[cfg(target_arch = "wasm32")]
pub(super) static LENT: LentThreads = LentThreads::new();

type Job = Box<dyn FnOnce() + Send>;
/// What a thread calls with its number when it begins to belong to a pool.
pub(super) type Enter = dyn Fn(usize) + Send + Sync;

/// Threads that wait for pools.
pub(super) struct LentThreads {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Threads that work for no pool and were not promised to one.
    idle: usize,
    /// What threads were promised for.
    jobs: VecDeque<Job>,
}

impl LentThreads {
    pub(super) const fn new() -> Self {
        let state = State { idle: 0, jobs: VecDeque::new() };
        LentThreads { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Works for pools on the calling thread and never returns.
    pub(super) fn lend(&self) -> ! {
        let mut state = self.lock();
        loop {
            state.idle += 1;
            self.changed.notify_all();
            let job = loop {
                match state.jobs.pop_front() {
                    Some(job) => break job,
                    None => state = self.wait(state),
                }
            };
            drop(state);
            job();
            state = self.lock();
        }
    }

    /// Threads that a pool could have now.
    pub(super) fn idle(&self) -> usize {
        self.lock().idle
    }

    /// Waits until so many threads are idle.
    pub(super) fn wait_for(&self, count: usize) {
        let mut state = self.lock();
        while state.idle < count {
            state = self.wait(state);
        }
    }

    /// A pool of at most so many threads, each of which has called `enter` with its number; none where fewer than two are idle.
    pub(super) fn pool(&'static self, count: usize, enter: &Arc<Enter>) -> Result<Option<ThreadPool>> {
        let promised = self.promise(count);
        if promised == 0 {
            return Ok(None);
        }
        let enter = enter.clone();
        let built = ThreadPoolBuilder::new()
            .num_threads(promised)
            .start_handler(move |index| enter(index))
            .spawn_handler(|thread| {
                self.lock().jobs.push_back(Box::new(|| thread.run()));
                self.changed.notify_all();
                Ok(())
            })
            .build();
        built.map(Some).map_err(|cause| {
            Error::internal(format!("no pool of {promised} lent threads: {cause}")).caused_by(cause)
        })
    }

    /// Takes up to `count` idle threads for a pool: two at least, or none.
    fn promise(&self, count: usize) -> usize {
        let mut state = self.lock();
        let promised = Some(state.idle.min(count)).filter(|&count| count > 1).unwrap_or(0);
        state.idle -= promised;
        promised
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    /// Threads that are lent to nobody else.
    fn lent(count: usize) -> &'static LentThreads {
        let lent: &'static LentThreads = Box::leak(Box::new(LentThreads::new()));
        for _ in 0..count {
            thread::spawn(|| lent.lend());
        }
        lent.wait_for(count);
        lent
    }

    #[test]
    fn a_pool_has_the_threads_that_were_lent_and_gives_them_back() {
        let lent = lent(3);
        let nothing: Arc<Enter> = Arc::new(|_| {});
        let ids = |pool: &ThreadPool| -> HashSet<_> {
            pool.broadcast(|_| thread::current().id()).into_iter().collect()
        };
        let first = lent.pool(8, &nothing).unwrap().unwrap();
        let before = ids(&first);
        assert_eq!((first.current_num_threads(), before.len(), lent.idle()), (3, 3, 0));
        // Nothing is left for another pool.
        assert!(lent.pool(2, &nothing).unwrap().is_none());
        drop(first);
        lent.wait_for(3);
        let second = lent.pool(2, &nothing).unwrap().unwrap();
        let after = ids(&second);
        assert!(after.len() == 2 && after.is_subset(&before));
    }

    #[test]
    fn one_thread_is_no_pool() {
        let nothing: Arc<Enter> = Arc::new(|_| {});
        assert!(lent(1).pool(4, &nothing).unwrap().is_none());
        let two = lent(2);
        assert!(two.pool(1, &nothing).unwrap().is_none());
        assert_eq!(two.idle(), 2);
    }

    #[test]
    fn each_thread_enters_with_its_number() {
        let entered: Arc<Mutex<HashSet<usize>>> = Arc::default();
        let kept = entered.clone();
        let enter: Arc<Enter> = Arc::new(move |index| assert!(kept.lock().unwrap().insert(index)));
        let pool = lent(4).pool(4, &enter).unwrap().unwrap();
        pool.broadcast(|_| ());
        assert_eq!(*entered.lock().unwrap(), (0..4).collect());
    }
}
