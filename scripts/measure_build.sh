#!/usr/bin/env bash
# Prints what the two commands of a newcomer cost from a fresh clone: `cargo build --release`, which `cargo run --release -- demo`
# starts with, and `cargo test --workspace`. Processor time is what counts; elapsed time depends on other load.
#
#     scripts/measure_build.sh [FOLDER]
#
# The commit that is checked out is cloned into FOLDER/monosplit (a temporary folder by default, removed at the end). The folder
# `shared`, where it lies beside this repository, is linked beside the clone. Downloads are not counted.
set -euo pipefail
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
if [ $# -gt 0 ]; then
    folder=$1
    mkdir -p "$folder"
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
git clone --quiet "$root" "$folder/monosplit"
shared=${MONOSPLIT_SHARED:-$root/../shared}
[ ! -d "$shared" ] || ln -sfn "$(realpath "$shared")" "$folder/shared"
cd "$folder/monosplit"
unset CARGO_TARGET_DIR
cargo fetch --locked --quiet

TIMEFORMAT='%U + %S s of processor time, %R s elapsed'
measure() {
    echo "== $*"
    time "$@" > "$folder/output.txt" 2>&1 || { tail -n 40 "$folder/output.txt"; exit 1; }
}

measure cargo build --release --locked
measure cargo test --workspace --locked --no-run
# The tests are built by now: this is what running them costs.
measure cargo test --workspace --locked
