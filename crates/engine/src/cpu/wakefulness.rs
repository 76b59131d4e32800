//! Threads that wait for the next step of a run stay awake: steps follow each other within microseconds, and waking a thread
//! takes longer than many of them.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::Yield;

use super::gang::Helper;
use super::placement;

/// How long a thread stays awake without being given anything.
const PATIENCE: Duration = Duration::from_millis(1);
/// So often it looks for work before it looks at the clock, and lets others have its core.
const GLANCES: usize = 256;
/// One look of so many goes to what is shared out through queues.
const SELDOM: usize = 8;
/// A run of fewer steps is over before others are awake.
const FEW_STEPS: usize = 8;

/// Runs in progress.
static RUNS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread carries out a run or waits for pieces of one. What a thread takes up while it waits may be the
    /// call to stay awake for another run, which would hold up its own.
    static AWAKE: Cell<bool> = const { Cell::new(false) };
}

/// A run in progress, for as long as it lives.
struct Running {
    awake_before: bool,
}

impl Running {
    fn begin() -> Self {
        RUNS.fetch_add(1, Ordering::Relaxed);
        Running { awake_before: AWAKE.replace(true) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNS.fetch_sub(1, Ordering::Relaxed);
        AWAKE.set(self.awake_before);
    }
}

/// Does `work` of so many steps, which shares out many small pieces, in a thread of a pool while the others stay awake.
pub(super) fn kept_awake<T>(steps: usize, work: impl FnOnce() -> T) -> T {
    let _running = Running::begin();
    if steps >= FEW_STEPS && rayon::current_num_threads() > 1 {
        let here = placement::current();
        rayon::spawn_broadcast(move |_| stay_awake(here));
    }
    work()
}

/// Takes up what others share out until no run is in progress, or nothing has come for a while, on another core than the one
/// that is `taken`.
fn stay_awake(taken: Option<usize>) {
    if AWAKE.replace(true) {
        return;
    }
    taken.into_iter().for_each(placement::leave);
    let helper = Helper::new();
    let mut since = Instant::now();
    while RUNS.load(Ordering::Relaxed) > 0 && since.elapsed() < PATIENCE {
        for glance in 0..GLANCES {
            let worked = match glance % SELDOM {
                0 => matches!(rayon::yield_now(), Some(Yield::Executed)),
                _ => helper.help(),
            };
            match worked {
                true => since = Instant::now(),
                false => std::hint::spin_loop(),
            }
        }
        std::thread::yield_now();
    }
    AWAKE.set(false);
}
