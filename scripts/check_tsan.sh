#!/usr/bin/env bash
# Runs the tests of the thread pool, and of programs on several threads, under ThreadSanitizer.
#
# Needs a nightly toolchain with the component rust-src (`rustup toolchain install nightly --component rust-src`), because the
# standard library has to be instrumented too, and Linux or macOS.
set -euo pipefail
cd "$(dirname "$0")/.."
target="$(rustc +nightly -vV | sed -n 's/^host: //p')"
export RUSTFLAGS="-Zsanitizer=thread" RUSTDOCFLAGS="-Zsanitizer=thread"
# crossbeam orders memory with fences, which ThreadSanitizer does not understand.
export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan_suppressions.txt"
common=(-Zbuild-std --target "$target" --target-dir target/tsan -p monosplit-engine
    --config 'profile.dev.package.monosplit-engine.opt-level=1')
cargo +nightly test "${common[@]}" --lib -- handover thread_pool scratch
cargo +nightly test "${common[@]}" --test it -- threads
