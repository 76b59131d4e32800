//! The threads of an engine, for what is to be done between runs of its programs.

use std::sync::Arc;

use rayon::ThreadPool;

use super::gang::share_chunks;

/// Threads that work is shared out to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crew(Option<Arc<ThreadPool>>);

impl Crew {
    pub(super) fn new(pool: Option<Arc<ThreadPool>>) -> Self {
        Crew(pool)
    }

    /// Does `work` on one of the threads, and on all what it shares out.
    pub(crate) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.0 {
            Some(pool) => pool.install(work),
            None => rayon::scope(|_| work()),
        }
    }

    /// Does `work` to each of the items, in no particular order. To be called from within [`Crew::install`].
    pub(crate) fn each<T: Send>(&self, items: &mut [T], work: impl Fn(&mut T) + Sync) {
        share_chunks(items, 1, |_, item| item.iter_mut().for_each(&work));
    }
}

#[cfg(test)]
mod tests {
    use crate::Cpu;

    #[test]
    fn every_item_is_worked_on_once() {
        for threads in [0, 1, 3] {
            let crew = Cpu::default().threads(threads).crew().unwrap();
            let mut items: Vec<usize> = (0..100).collect();
            crew.install(|| crew.each(&mut items, |item| *item += 1));
            assert!(items.into_iter().eq(1..101));
        }
    }
}
