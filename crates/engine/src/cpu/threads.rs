//! Where the threads of a pool come from: rayon starts them. Where there are no threads to start (WebAssembly), the calling
//! thread takes the place of the only one as long as it works for the pool.

pub(super) use platform::Threads;

#[cfg(not(target_arch = "wasm32"))]
mod platform {
    use monosplit_graph::{Error, Result};

    /// Threads of which each has called `enter` with its number.
    pub(in crate::cpu) struct Threads(rayon::ThreadPool);

    impl Threads {
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
    use monosplit_graph::Result;

    use crate::cpu::thread_pool::Membership;

    /// The calling thread, which calls `enter` with 0 whenever it begins to work for the pool.
    pub(in crate::cpu) struct Threads(Box<dyn Fn(usize) + Send + Sync>);

    impl Threads {
        pub(in crate::cpu) fn start(_: usize, enter: impl Fn(usize) + Send + Sync + 'static) -> Result<Self> {
            Ok(Threads(Box::new(enter)))
        }

        pub(in crate::cpu) fn count(&self) -> usize {
            1
        }

        pub(in crate::cpu) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
            let _before = Membership::kept();
            (self.0)(0);
            work()
        }

        /// There is no other thread that could be idle.
        pub(in crate::cpu) fn broadcast(&self, _: impl Fn() + Send + Sync + 'static) {}
    }
}
