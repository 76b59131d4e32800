#!/usr/bin/env bash
# Runs under Miri what Miri can run: readers of files and elements of tensors (graph), the handover protocol with a few threads,
# and kernels without vector instructions (engine).
#
# Needs a nightly toolchain with the component miri (`rustup toolchain install nightly --component miri`). Takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=target/miri
# Tests open files beside the repository, which isolation forbids.
export MIRIFLAGS="-Zmiri-disable-isolation"
cargo +nightly miri test -p monosplit-graph --lib -- tensor:: element:: npy:: onnx::limits:: onnx::tensor_proto:: weights::pickle:: weights::safetensors:: \
    --skip a_hundred_thousand_levels_are_refused --skip files_of_empty_messages_are_refused \
    --skip nesting_a_million_deep_needs_no_stack # files of many megabytes
cargo +nightly miri test -p monosplit-engine --lib -- handover:: gemm::tests row_loops:: sliding_window::
