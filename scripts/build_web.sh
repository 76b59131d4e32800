#!/usr/bin/env bash
# Builds the explorer as a folder of static files: the page, the engine as WebAssembly, and the network and photograph the page
# opens with. Any web server can send target/explorer; nothing in it asks for anything from elsewhere.
#
#     scripts/build_web.sh [--builds simd,plain,threads] [FOLDER]      FOLDER is target/explorer without one
#
# The page chooses the fastest build that the browser can run:
#     simd      128-bit vectors, one thread
#     plain     neither, for browsers without vectors
#     threads   vectors and as many threads as the machine has cores. For pages that their server isolates from others (the headers
#               Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp), as monosplit serve does
# Without --builds there are the first two. The third compiles Rust's standard library anew, with atomics, which no stable compiler
# offers: it takes MONOSPLIT_WEB_TOOLCHAIN (nightly unless said otherwise) with the component rust-src.
#
# Needs: rustup target add wasm32-unknown-unknown
#        for threads: rustup toolchain install nightly --profile minimal --component rust-src --target wasm32-unknown-unknown
# wasm-bindgen is installed into target/tools if it is missing there; the exit code is 3 where that fails. Where wasm-opt (the package
# binaryen of npm or Debian) is found, it makes the module a few per cent smaller.
set -euo pipefail
cd "$(dirname "$0")/.."

builds=simd,plain
folder=target/explorer
while [ $# -gt 0 ]; do
    case "$1" in
        --builds) builds="${2:?"--builds needs a list, as simd,plain"}"; shift 2 ;;
        --builds=*) builds="${1#*=}"; shift ;;
        -*) echo "$0: $1 is no option; the head of this script has them" >&2; exit 1 ;;
        *) folder="$1"; shift ;;
    esac
done
toolchain="${MONOSPLIT_WEB_TOOLCHAIN:-nightly}"
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

# compile BUILD TARGET_FOLDER: a target folder for each, because the file has the same name in all.
compile() {
    case "$1" in
        simd) RUSTFLAGS="-C target-feature=+simd128" cargo build --locked --profile web --target "$target" --target-dir "$2" -p monosplit-web ;;
        plain) RUSTFLAGS="" cargo build --locked --profile web --target "$target" --target-dir "$2" -p monosplit-web ;;
        threads)
            if [ ! -d "$(rustc "+$toolchain" --print sysroot 2> /dev/null)/lib/rustlib/src/rust/library" ]; then
                echo "$0: threads need Rust's $toolchain with the sources of its library; run: rustup toolchain install $toolchain --profile minimal --component rust-src --target $target" >&2
                exit 1
            fi
            local flags="-C target-feature=+simd128,+atomics,+bulk-memory,+mutable-globals"
            for argument in --shared-memory --max-memory=4294967296 --import-memory \
                --export=__wasm_init_tls --export=__tls_size --export=__tls_align --export=__tls_base; do
                flags="$flags -C link-arg=$argument"
            done
            RUSTFLAGS="$flags" cargo "+$toolchain" build -Z build-std=std,panic_abort --locked --profile web --target "$target" \
                --target-dir "$2" -p monosplit-web
            ;;
        *) echo "$0: there is no build $1; there are simd, plain and threads" >&2; exit 1 ;;
    esac
}

rm -rf "$folder.new"
mkdir -p "$folder.new"
cp crates/explorer/page/* "$folder.new/"
cp crates/monosplit/assets/pets-small.onnx crates/monosplit/assets/chelsea.png "$folder.new/"
for build in ${builds//,/ }; do
    case "$build" in
        simd) compiled=target; into="$folder.new" ;;
        *) compiled="target/web-$build"; into="$folder.new/$build" ;;
    esac
    compile "$build" "$compiled"
    "$bindgen" --target web --no-typescript --remove-name-section --out-dir "$into" "$compiled/$target/web/monosplit_web.wasm"
    module="$into/monosplit_web_bg.wasm"
    if optimise="$(command -v wasm-opt)"; then
        "$optimise" -O2 --all-features "$module" -o "$module.smaller"
        mv "$module.smaller" "$module"
    fi
    echo "$build: the module has $(wc -c < "$module") bytes, $(gzip -9 -c "$module" | wc -c) compressed"
done
printf '// Written by scripts/build_web.sh: the builds of the engine that there are.\nexport default { backend: "worker", builds: ["%s"] };\n' \
    "${builds//,/\", \"}" > "$folder.new/config.js"
# Hosts that read this file (Netlify, Cloudflare) isolate the page, so that memory can be shared between threads.
printf '/*\n  Cross-Origin-Opener-Policy: same-origin\n  Cross-Origin-Embedder-Policy: require-corp\n  Cross-Origin-Resource-Policy: same-origin\n' \
    > "$folder.new/_headers"
rm -rf "$folder"
mv "$folder.new" "$folder"
echo "$folder has the explorer: $builds"
