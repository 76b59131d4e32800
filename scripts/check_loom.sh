#!/usr/bin/env bash
# Model-checks the handover protocol of the thread pool (crates/engine/src/cpu/handover.rs) with loom: every order of its
# atomic accesses that the memory model allows, for a few threads and items.
#
# Needs nothing but a stable toolchain. Takes a minute or two.
set -euo pipefail
cd "$(dirname "$0")/.."
# Kernels are compiled but not run, so they need no optimisation.
RUSTFLAGS="--cfg loom" cargo test -p monosplit-engine --lib --target-dir target/loom \
    --config 'profile.dev.package.monosplit-engine.opt-level=0' \
    loom_model "$@"
