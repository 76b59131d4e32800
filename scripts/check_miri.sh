#!/usr/bin/env bash
# Runs under Miri what Miri can run: the handover protocol with a few threads, and the kernels' paths without vector instructions.
#
# Needs a nightly toolchain with the component miri (`rustup toolchain install nightly --component miri`). Slow: minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
# Threads that end by themselves may outlive the main thread; rayon's queues convert pointers to integers.
export MIRIFLAGS="-Zmiri-ignore-leaks -Zmiri-permissive-provenance"
cargo +nightly miri test --target-dir target/miri -p monosplit-engine --lib -- handover
