#!/usr/bin/env bash
# Builds the engine for WebAssembly, with 128-bit vectors and without, and runs the tests of its kernels and all operators against
# ONNX Runtime's values under Node. Arguments select unit tests by name; without any, all that need no second thread run.
#
# Needs: rustup target add wasm32-wasip1
#        node, version 20 or newer
set -euo pipefail
cd "$(dirname "$0")/.."

target=wasm32-wasip1
command -v node > /dev/null || { echo "$0: node is missing; the head of this script says what it needs" >&2; exit 1; }
export CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $PWD/scripts/run_wasi.mjs"

# There are no threads, and a panic ends the program, so that tests of either cannot run.
cannot_run=(
    cpu::core_affinity
    cpu::handover
    cpu::thread_pool
    cpu::unwinding
    cpu::program::tests::no_optimisation_changes_a_bit
)
skipped=()
for name in "${cannot_run[@]}"; do skipped+=(--skip "$name"); done

for features in +simd128 -simd128; do
    echo "== target-feature=$features"
    export RUSTFLAGS="-C target-feature=$features"
    # Flags change what is compiled: each set has a folder of its own.
    folder="target/wasm-tests/$features"
    cargo test --locked --target "$target" --target-dir "$folder" -p monosplit-engine --lib -- "${skipped[@]}" "$@"
    if [ $# -eq 0 ]; then
        cargo test --locked --target "$target" --target-dir "$folder" -p monosplit-engine --test it -- operators
    fi
done
