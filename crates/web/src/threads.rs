//! What a memory that workers share makes possible: threads for the engine, and requests that are given up.

use std::sync::atomic::{AtomicU32, Ordering};

use monosplit::engine;
use wasm_bindgen::prelude::wasm_bindgen;

/// Not zero once nobody waits for the request that is computed. The page writes here while the session computes.
static INTERRUPTED: AtomicU32 = AtomicU32::new(0);

pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed) != 0
}

/// Where in the memory the page says with a 1 that nobody waits any more, and with a 0 that somebody does.
#[wasm_bindgen]
pub fn interruption_address() -> u32 {
    INTERRUPTED.as_ptr() as u32
}

/// Lends the worker that calls this to engines, and never returns.
#[wasm_bindgen]
pub fn lend_thread() {
    engine::lend_thread()
}

/// Waits until so many workers have lent themselves.
#[wasm_bindgen]
pub fn wait_for_threads(count: u32) {
    engine::wait_for_lent_threads(count as usize);
}
