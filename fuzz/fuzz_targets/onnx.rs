//! The ONNX reader, writer and the passes that run nothing.

#![no_main]

#[path = "../../crates/graph/tests/journey/mod.rs"]
mod journey;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    journey::travel(bytes);
});
