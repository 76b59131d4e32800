//! The reader of archives of NumPy arrays: every array of a file.

#![no_main]

use monosplit_graph::npz::Arrays;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(mut arrays) = Arrays::open(bytes) else { return };
    let names: Vec<String> = arrays.names().map(str::to_owned).collect();
    for name in names {
        let _ = arrays.read(&name);
    }
});
