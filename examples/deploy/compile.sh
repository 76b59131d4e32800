#!/usr/bin/env bash
# Makes explained.onnx, a small network that knows 37 breeds of cats and dogs, with its SplitCAM map compiled in.
# Uses the program named by MONOSPLIT if there is one, and otherwise builds it.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$here/../.."
[ -f "$here/explained.onnx" ] && exit 0
words=(compile "$root/crates/monosplit/assets/pets-small.onnx" --method splitcam --size input --fp16 -o "$here/explained.onnx")
if [ -n "${MONOSPLIT:-}" ]; then
    "$MONOSPLIT" "${words[@]}"
else
    cargo run --quiet --release --manifest-path "$root/Cargo.toml" -p monosplit-cli -- "${words[@]}"
fi
