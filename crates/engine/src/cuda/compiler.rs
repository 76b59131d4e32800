//! The run-time compiler (NVRTC): from the source of a kernel to machine code.

use std::ffi::CString;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cudarc::nvrtc;
use monosplit_graph::{Error, Result};

use super::device::DriverResult;

/// Compiler options of all kernels. Without `fmad` every sum and product rounds by itself, so that results do not depend on
/// which nodes are fused.
pub(super) const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// Applies `work` to every item, on as many threads as the machine has, which end with the call. Results are in the order of
/// the items.
pub(super) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let next = AtomicUsize::new(0);
    let worker = || {
        let indices = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let indices = indices.take_while(|&index| index < items.len());
        indices.map(|index| (index, work(&items[index]))).collect::<Vec<(usize, R)>>()
    };
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Compiles a source to machine code.
pub(super) fn compile(source: &str, architecture: &str) -> Result<Vec<u8>> {
    let text = CString::new(source).map_err(|_| Error::argument("the source of a kernel contains a NUL"))?;
    let program = nvrtc::result::create_program(&text, None).or_failed_to("start the compiler")?;
    // SAFETY: the program was created above and is destroyed once, at the end.
    unsafe {
        let options = [architecture, OPTIONS[0], OPTIONS[1]];
        let compiled = nvrtc::result::compile_program(program, &options);
        let code = match compiled {
            Ok(()) => machine_code(program),
            Err(error) => {
                let log = nvrtc::result::get_program_log(program).unwrap_or_default();
                let log: String = log.iter().map(|&c| c as u8 as char).filter(|&c| c != '\0').collect();
                Err(Error::argument(format!("the compiler of CUDA rejected a kernel ({error:?}): {log}")))
            }
        };
        let _ = nvrtc::result::destroy_program(program);
        code
    }
}

/// # Safety
/// The program is compiled for a real architecture.
unsafe fn machine_code(program: nvrtc::sys::nvrtcProgram) -> Result<Vec<u8>> {
    let mut size = 0;
    // SAFETY: the caller has compiled the program. The buffer has the size that the compiler reported.
    unsafe {
        nvrtc::sys::nvrtcGetCUBINSize(program, &raw mut size)
            .result()
            .or_failed_to("read the size of the compiled code")?;
        let mut code = vec![0u8; size];
        nvrtc::sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast())
            .result()
            .or_failed_to("read the compiled code")?;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 2, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let expected: Vec<usize> = items.iter().map(|item| 3 * item).collect();
            assert_eq!(in_parallel(&items, |item| 3 * item), expected);
        }
    }
}
