//! Run stores, which SQLite reads from a file.

#![no_main]

#[path = "../../crates/eval/tests/stored/mod.rs"]
mod stored;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("fuzzed-{}.sqlite", std::process::id()));
    if std::fs::write(&path, bytes).is_ok() {
        stored::read(&path);
    }
});
