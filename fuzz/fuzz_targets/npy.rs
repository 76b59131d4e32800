//! The reader of NumPy arrays; what it reads is written and read again.

#![no_main]

use monosplit_graph::npy;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(array) = npy::read(bytes) {
        let written = npy::write(&array);
        let again = npy::read(&written).expect("what is written can be read");
        assert_eq!(npy::write(&again), written);
    }
});
