//! The explorer's session as WebAssembly. `worker.js` of the page runs it away from the page's own thread.
//! `scripts/build_web.sh` builds it; on targets that are not WebAssembly the crate is empty.
//!
//! Built with atomics it has a memory that workers share. Those that call [`lend_thread`] are the threads of the session's engine;
//! the page starts them, because a worker that computes starts none.
#![cfg(target_arch = "wasm32")]

use monosplit_explorer::{Interruption, Session};
use wasm_bindgen::prelude::wasm_bindgen;

#[cfg(target_feature = "atomics")]
pub mod threads;

/// The networks, pictures and compiled explanations of a page.
#[wasm_bindgen]
#[derive(Default)]
pub struct Explorer(Session);

#[wasm_bindgen]
impl Explorer {
    /// Nothing is open yet.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Explorer {
        Explorer::default()
    }

    /// The bytes of the answer to a request in JSON, as [`monosplit_explorer::Response::encode`] writes them. Requests that open a
    /// file come with its bytes.
    pub fn handle(&mut self, request: &[u8], payload: &[u8]) -> Vec<u8> {
        #[cfg(target_feature = "atomics")]
        let interruption = Interruption::new(&threads::is_interrupted);
        #[cfg(not(target_feature = "atomics"))]
        let interruption = Interruption::NEVER;
        self.0.handle_until(request, payload, interruption).encode()
    }
}
