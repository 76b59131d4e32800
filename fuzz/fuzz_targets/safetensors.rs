//! The reader of safetensors files; what it reads is written and read again.

#![no_main]

use monosplit_graph::weights::Weights;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(weights) = Weights::from_safetensors(bytes) {
        let written = weights.to_safetensors().expect("what was read can be written");
        let again = Weights::from_safetensors(&written).expect("what is written can be read");
        assert_eq!(again.to_safetensors().expect("what was read can be written"), written);
    }
});
