#!/usr/bin/env bash
# Prints what dependencies cost: lines of Rust of our own, crates from the registry, the time of a release build from nothing, and
# the size of the program. docs/src/dependencies.md quotes the numbers.
#
#     scripts/measure_dependencies.sh [--counts]
#
# The commit that is checked out is cloned into a temporary folder and built there; with --counts nothing is built. Downloads are
# not counted. Elapsed time depends on other load; processor time is what counts.
set -euo pipefail
root=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
cd "$root"

# The crates from the registry that a package compiles here, without dev-dependencies. Those of build scripts and procedural macros
# are counted too: they are compiled.
crates() { cargo tree --locked -e normal,build --prefix none "$@" | cut -d' ' -f1,2 | sort -u | grep -v "^monosplit"; }
direct() {
    cargo tree --locked -e normal,build --prefix depth -p monosplit-cli | sed -E 's/^([0-9]+)/\1 /' |
        awk '{ depth = $1; name = $2; ours[depth] = (name ~ /^monosplit/); if (depth > 0 && ours[depth - 1] && !ours[depth]) print name }' | sort -u
}

files=$(git ls-files '*.rs' | grep -vE '(^|/)(tests|benches|fuzz|examples)/')
echo "lines of Rust in src: $(xargs cat <<< "$files" | wc -l), without tests at the foot of files: $(
    for file in $files; do sed '/^#\[cfg(test)\]/,$d' "$file"; done | wc -l)"
echo "direct dependencies of the program: $(direct | wc -l) ($(direct | paste -sd ' '))"
echo "crates from the registry, program: $(crates -p monosplit-cli | wc -l)"
echo "crates from the registry, library alone: $(crates -p monosplit | wc -l)"
[ "${1:-}" != --counts ] || exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone --quiet "$root" "$folder/monosplit"
cd "$folder/monosplit"
unset CARGO_TARGET_DIR
cargo fetch --locked --quiet
TIMEFORMAT='release build from nothing: %U + %S s of processor time, %R s elapsed'
time cargo build --release --locked -p monosplit-cli > "$folder/output.txt" 2>&1 || { tail -n 40 "$folder/output.txt"; exit 1; }
echo "size of the program: $(wc -c < target/release/monosplit) bytes"
