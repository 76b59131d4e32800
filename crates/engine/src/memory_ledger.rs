//! What all programs under one budget hold together: what they keep between runs, what runs in progress take, and memory that is
//! only kept for the next run, which is given up as soon as somebody else needs room.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::memory_budget::limit_beside;

/// Memory that is kept for the next run and can be given up.
pub(crate) trait IdleMemory: Send + Sync {
    /// The bytes it takes now.
    fn bytes(&self) -> usize;

    /// Gives it up.
    fn release(&self);
}

/// The account of what the programs of an engine and its clones hold.
#[derive(Default)]
pub(crate) struct MemoryLedger {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes that are held until their owner is dropped: constants, packed weights, activations of a baseline, runs in progress.
    held: usize,
    idle: Vec<Weak<dyn IdleMemory>>,
}

impl State {
    fn idle(&mut self) -> Vec<Arc<dyn IdleMemory>> {
        self.idle.retain(|memory| memory.strong_count() > 0);
        self.idle.iter().filter_map(Weak::upgrade).collect()
    }
}

impl std::fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryLedger")
    }
}

impl MemoryLedger {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes that programs may hold together: `given`, or else what they hold now and a share of what is free.
    pub(crate) fn limit(&self, given: Option<usize>) -> usize {
        given.unwrap_or_else(|| limit_beside(self.held()))
    }

    /// What is held, memory that is kept for the next run included.
    fn held(&self) -> usize {
        let mut state = self.state();
        let idle = state.idle().iter().map(|memory| memory.bytes()).fold(0, usize::saturating_add);
        state.held.saturating_add(idle)
    }

    /// What could be held besides under this limit if all idle memory were given up.
    pub(crate) fn left(&self, limit: usize) -> usize {
        limit.saturating_sub(self.state().held)
    }

    /// Counts `memory` as long as it exists.
    pub(crate) fn add_idle(&self, memory: Weak<dyn IdleMemory>) {
        let mut state = self.state();
        if !state.idle.iter().any(|other| other.ptr_eq(&memory)) {
            state.idle.push(memory);
        }
    }

    /// Counts `bytes` as held until the reservation is dropped. Idle memory is given up where both are more than `limit`.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize, limit: usize) -> Reservation {
        self.hold_reusing(bytes, 0, limit)
    }

    /// The same where `reused` of the bytes are idle memory that is going to be used again: it counts once, and is not given up
    /// for itself.
    pub(crate) fn hold_reusing(self: &Arc<Self>, bytes: usize, reused: usize, limit: usize) -> Reservation {
        let idle = {
            let mut state = self.state();
            state.held = state.held.saturating_add(bytes);
            state.idle()
        };
        let mut total = self.held().saturating_sub(reused);
        for memory in idle {
            if total <= limit {
                break;
            }
            total = total.saturating_sub(memory.bytes());
            memory.release();
        }
        Reservation { account: Some((self.clone(), bytes)) }
    }
}

/// Bytes that count as held until it is dropped.
#[derive(Debug, Default)]
pub struct Reservation {
    account: Option<(Arc<MemoryLedger>, usize)>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((ledger, bytes)) = self.account.take() {
            let mut state = ledger.state();
            state.held = state.held.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Kept(AtomicUsize);

    impl IdleMemory for Kept {
        fn bytes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }

        fn release(&self) {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    #[test]
    fn idle_memory_is_given_up_only_where_room_is_needed() {
        let ledger: Arc<MemoryLedger> = Arc::default();
        let kept: Arc<dyn IdleMemory> = Arc::new(Kept(AtomicUsize::new(60)));
        ledger.add_idle(Arc::downgrade(&kept));
        let first = ledger.hold(30, 100);
        assert_eq!((kept.bytes(), ledger.left(100), ledger.held()), (60, 70, 90));
        let second = ledger.hold(20, 100);
        assert_eq!((kept.bytes(), ledger.left(100)), (0, 50));
        drop((first, second));
        assert_eq!((ledger.left(100), ledger.held()), (100, 0));
    }

    #[test]
    fn idle_memory_that_is_used_again_counts_once() {
        let ledger: Arc<MemoryLedger> = Arc::default();
        let kept: Arc<dyn IdleMemory> = Arc::new(Kept(AtomicUsize::new(60)));
        ledger.add_idle(Arc::downgrade(&kept));
        drop(ledger.hold_reusing(100, 60, 100));
        assert_eq!(kept.bytes(), 60);
        drop(ledger.hold_reusing(100, 50, 100));
        assert_eq!(kept.bytes(), 0);
    }
}
