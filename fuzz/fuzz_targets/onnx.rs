//! The ONNX reader, writer and the passes that run nothing.

#![no_main]

#[path = "../../crates/graph/tests/round_trip/mod.rs"]
mod round_trip;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    round_trip::read_and_write(bytes);
});
