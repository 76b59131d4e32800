//! Random networks, made from bytes: opened, written and read again, run, explained.

#![no_main]

#[path = "../../crates/monosplit/tests/random_networks/mod.rs"]
mod random_networks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    random_networks::check(bytes);
});
