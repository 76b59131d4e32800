#!/usr/bin/env bash
# Builds the engine for 64-bit ARM and runs the tests of its kernels under qemu-user, on any Linux machine.
# Arguments select tests by name; without any, all unit tests of the engine run.
#
# Needs: rustup target add aarch64-unknown-linux-gnu
#        apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross   (Debian)
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do
    command -v "$tool" > /dev/null || { echo "$0: $tool is missing; the head of this script says what it needs" >&2; exit 1; }
done

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc

cargo test --locked --target "$target" -p monosplit-engine --lib -- "$@"
