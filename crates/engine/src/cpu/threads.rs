//! Where the threads of a pool come from: rayon starts them. WebAssembly starts none: there they are threads that were lent
//! ([`LentThreads`](super::lent_threads)), and without any the calling thread takes the place of the only one as long as it works
//! for the pool.

pub(super) use platform::Threads;

#[cfg(not(target_arch = "wasm32"))]
mod platform {
    use monosplit_graph::{Error, Result};

    /// Threads of which each has called `enter` with its number.
    pub(in crate::cpu) struct Threads(rayon::ThreadPool);

    impl Threads {
        /// How many threads there should be where nobody said.
        pub(in crate::cpu) fn available() -> usize {
            std::thread::available_parallelism().map_or(1, usize::from)
        }

        /// Starts so many threads.
        pub(in crate::cpu) fn start(
            count: usize,
            enter: impl Fn(usize) + Send + Sync + 'static,
        ) -> Result<Self> {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(count).start_handler(enter);
            let pool = builder.build().map_err(|e| {
                Error::argument(format!("{count} threads could not be started ({e}); ask for fewer"))
                    .caused_by(e)
            })?;
            Ok(Threads(pool))
        }

        pub(in crate::cpu) fn count(&self) -> usize {
            self.0.current_num_threads()
        }

        /// Runs `work` on one of the threads: on the calling one if it is among them.
        pub(in crate::cpu) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
            self.0.install(work)
        }

        /// Has every thread call `work` when it is idle.
        pub(in crate::cpu) fn broadcast(&self, work: impl Fn() + Send + Sync + 'static) {
            self.0.spawn_broadcast(move |_| work());
        }
    }
}

#[cfg(target_arch = "wasm32")]
mod platform {
    use std::sync::Arc;

    use monosplit_graph::Result;

    use crate::cpu::lent_threads::{Enter, LENT};
    use crate::cpu::thread_pool::Membership;

    /// Threads that were lent, or the calling thread, which calls `enter` with 0 whenever it begins to work for the pool.
    pub(in crate::cpu) enum Threads {
        Lent(rayon::ThreadPool),
        Calling(Arc<Enter>),
    }

    impl Threads {
        pub(in crate::cpu) fn available() -> usize {
            LENT.idle().max(1)
        }

        pub(in crate::cpu) fn start(
            count: usize,
            enter: impl Fn(usize) + Send + Sync + 'static,
        ) -> Result<Self> {
            let enter: Arc<Enter> = Arc::new(enter);
            Ok(match LENT.pool(count, &enter)? {
                Some(pool) => Threads::Lent(pool),
                None => Threads::Calling(enter),
            })
        }

        pub(in crate::cpu) fn count(&self) -> usize {
            match self {
                Threads::Lent(pool) => pool.current_num_threads(),
                Threads::Calling(_) => 1,
            }
        }

        pub(in crate::cpu) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
            match self {
                Threads::Lent(pool) => pool.install(work),
                Threads::Calling(enter) => {
                    let _before = Membership::kept();
                    enter(0);
                    work()
                }
            }
        }

        /// Has every other thread call `work` when it is idle.
        pub(in crate::cpu) fn broadcast(&self, work: impl Fn() + Send + Sync + 'static) {
            if let Threads::Lent(pool) = self {
                pool.spawn_broadcast(move |_| work());
            }
        }
    }
}
