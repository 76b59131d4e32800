//! What becomes of kernels that cannot go on. One without memory unwinds to the step it belongs to, whose caller gets an error;
//! so does one that finds its operands inconsistent, which shape inference should have refused.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use monosplit_graph::{Error, Result};

/// What a kernel unwinds with when there is no memory for this many bytes.
pub(crate) struct OutOfMemory(pub(crate) usize);

impl OutOfMemory {
    /// Unwinds to the step; nothing is printed, since this is not a fault of the program.
    pub(crate) fn unwind(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

/// A vector of this many elements, all `value`; unwinds to the step if there is no memory for it.
pub(crate) fn filled<T: Clone>(value: T, length: usize) -> Vec<T> {
    // Tried first, because `vec!` ends the process. Of zeros it takes pages that the system has cleared and touches none.
    if Vec::<T>::new().try_reserve_exact(length).is_err() {
        OutOfMemory(length.saturating_mul(size_of::<T>())).unwind();
    }
    vec![value; length]
}

/// What `work` returns; an error if it unwinds.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| Err(error_of(&*cause)))
}

fn error_of(cause: &(dyn Any + Send)) -> Error {
    if let Some(OutOfMemory(bytes)) = cause.downcast_ref::<OutOfMemory>() {
        return Error::memory(format!(
            "there is no memory for {} MiB more; use a smaller batch",
            bytes >> 20
        ));
    }
    let words = cause.downcast_ref::<&str>().copied();
    let words = words.or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    Error::internal(words.unwrap_or("a kernel stopped"))
}

#[cfg(test)]
mod tests {
    use monosplit_graph::ErrorKind;
    use rayon::prelude::*;

    use super::*;
    use crate::cpu::thread_pool::{ThreadPool, parallel_for};

    #[test]
    fn a_lack_of_memory_and_a_panic_are_errors_wherever_they_happen() {
        let pool = ThreadPool::start(3, false).unwrap();
        let alone = || drop(filled(0f32, usize::MAX / 8));
        fn answered(work: impl FnOnce()) -> Result<()> {
            caught(|| {
                work();
                Ok(())
            })
        }
        let lack = |error: Error| assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
        for _ in 0..20 {
            lack(pool.install(|| answered(alone)).unwrap_err());
            lack(pool.run_steps(100, || answered(|| parallel_for(64, |_| alone()))).unwrap_err());
            let spread = || (0..64).into_par_iter().for_each(|_| alone());
            lack(pool.run_steps(100, || answered(spread)).unwrap_err());
        }
        let bug = pool.install(|| caught(|| -> Result<()> { panic!("injected") })).unwrap_err();
        assert_eq!(bug.kind(), ErrorKind::Internal);
        assert!(bug.to_string().contains("please report it: injected"), "{bug}");
        assert_eq!(pool.install(|| caught(|| Ok(5))).unwrap(), 5);
    }
}
