//! How long a thread has computed, for limits that other load on the machine must not break.

use std::sync::LazyLock;
use std::time::Instant;

static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Seconds of processor time that the current thread has taken, where the system tells (Linux); elapsed seconds elsewhere. Only
/// differences mean anything.
pub fn thread_seconds() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    // Kernels without statistics of the scheduler write zeros.
    nanoseconds.filter(|&n| n > 0).map_or_else(|| BEGUN.elapsed().as_secs_f64(), |n| n as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_and_time_never_goes_back() {
        let start = thread_seconds();
        let begun = Instant::now();
        let mut sum = 0u64;
        while begun.elapsed().as_millis() < 20 || thread_seconds() == start {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(thread_seconds() > start);
    }
}
