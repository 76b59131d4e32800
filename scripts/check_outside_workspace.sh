#!/usr/bin/env bash
# Builds and runs the example of a backward method (crates/autodiff/examples/own_method.rs) as a package of its own outside the
# workspace, which reaches the crates through their public interface alone. The profile and the target folder are those of the
# workspace, so that dependencies are not built again: about a minute of processor time.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cp crates/autodiff/examples/own_method.rs "$folder/src/main.rs"
cp Cargo.lock "$folder/"
{
    cat << END
[package]
name = "own-method"
version = "0.1.0"
edition = "2024"

[dependencies]
monosplit-autodiff = { path = "$root/crates/autodiff" }
monosplit-engine = { path = "$root/crates/engine" }
monosplit-graph = { path = "$root/crates/graph" }

[workspace]

END
    # Every section whose name begins with profile.dev is copied.
    awk '/^\[/ { copied = /^\[profile\.dev/ } copied' Cargo.toml | grep -v '^#'
} > "$folder/Cargo.toml"
cargo run --manifest-path "$folder/Cargo.toml" --target-dir "$root/target" --quiet
