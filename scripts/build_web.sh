#!/usr/bin/env bash
# Builds the explorer as a folder of static files: the page, the engine as WebAssembly, and the network and photograph the page
# opens with. Any web server can send target/explorer; nothing in it asks for anything from elsewhere.
#
#     scripts/build_web.sh [FOLDER]      FOLDER is target/explorer without one
#
# Needs: rustup target add wasm32-unknown-unknown
# wasm-bindgen is installed into target/tools if it is missing there; the exit code is 3 where that fails. Where wasm-opt (the package binaryen of npm or Debian) is
# found, it makes the module a few per cent smaller. MONOSPLIT_WEB_SIMD=no builds for browsers without 128-bit vectors.
set -euo pipefail
cd "$(dirname "$0")/.."

folder="${1:-target/explorer}"
target=wasm32-unknown-unknown
if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
    echo "$0: Rust's target $target is missing; run: rustup target add $target" >&2
    exit 1
fi
# The library and the program must be of one version.
version="$(sed -n 's/^wasm-bindgen = "=\(.*\)"$/\1/p' crates/web/Cargo.toml)"
bindgen="$PWD/target/tools/bin/wasm-bindgen"
if [ "$("$bindgen" --version 2> /dev/null)" != "wasm-bindgen $version" ]; then
    if ! cargo install wasm-bindgen-cli --version "$version" --debug --no-default-features --root target/tools --quiet; then
        echo "$0: wasm-bindgen $version could not be installed" >&2
        exit 3
    fi
fi

flags=""
if [ "${MONOSPLIT_WEB_SIMD:-yes}" = yes ]; then flags="-C target-feature=+simd128"; fi
RUSTFLAGS="$flags" cargo build --locked --profile web --target "$target" -p monosplit-web
built="target/$target/web/monosplit_web.wasm"

rm -rf "$folder.new"
mkdir -p "$folder.new"
"$bindgen" --target web --no-typescript --remove-name-section --out-dir "$folder.new" "$built"
if optimise="$(command -v wasm-opt)"; then
    module="$folder.new/monosplit_web_bg.wasm"
    "$optimise" -O2 --all-features "$module" -o "$module.smaller"
    mv "$module.smaller" "$module"
fi
cp crates/explorer/page/* "$folder.new/"
cp crates/monosplit/assets/pets-small.onnx crates/monosplit/assets/chelsea.png "$folder.new/"
rm -rf "$folder"
mv "$folder.new" "$folder"
size="$(wc -c < "$folder/monosplit_web_bg.wasm")"
packed="$(gzip -9 -c "$folder/monosplit_web_bg.wasm" | wc -c)"
echo "$folder: the module has $size bytes, $packed compressed"
