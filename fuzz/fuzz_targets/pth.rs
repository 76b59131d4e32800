//! The readers of bare weights: PyTorch's and safetensors.

#![no_main]

use monosplit_graph::weights::Weights;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Weights::from_bytes(bytes);
});
