//! Threads that wait for the next step of a run stay awake: steps follow each other within microseconds, and waking a thread
//! takes longer than many of them.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::Yield;

/// How long a thread stays awake without being given anything.
const PATIENCE: Duration = Duration::from_millis(1);
/// So often it looks for work before it looks at the clock.
const GLANCES: usize = 64;

/// Runs in progress.
static RUNS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static AWAKE: Cell<bool> = const { Cell::new(false) };
}

/// A run in progress, for as long as it lives.
struct Running;

impl Running {
    fn begin() -> Self {
        RUNS.fetch_add(1, Ordering::Relaxed);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does `work`, which shares out many small pieces, in a thread of a pool while the others stay awake.
pub(super) fn kept_awake<T>(work: impl FnOnce() -> T) -> T {
    let here = rayon::current_thread_index();
    let _running = Running::begin();
    if rayon::current_num_threads() > 1 {
        rayon::spawn_broadcast(move |context| {
            if Some(context.index()) != here {
                stay_awake();
            }
        });
    }
    work()
}

/// Takes up what others share out until no run is in progress, or nothing has come for a while.
fn stay_awake() {
    // What is taken up may be another call of this.
    if AWAKE.replace(true) {
        return;
    }
    let mut since = Instant::now();
    while RUNS.load(Ordering::Relaxed) > 0 && since.elapsed() < PATIENCE {
        for _ in 0..GLANCES {
            match rayon::yield_now() {
                Some(Yield::Executed) => since = Instant::now(),
                _ => std::hint::spin_loop(),
            }
        }
    }
    AWAKE.set(false);
}
