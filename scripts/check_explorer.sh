#!/usr/bin/env bash
# Builds the explorer and checks it in Chromium, see the head of scripts/check_explorer.mjs, whose options can be given here too.
#
#     scripts/check_explorer.sh [--times] [--models FOLDER] [--hostile FOLDER] [--onnxruntime PYTHON] [--python PYTHON] [--rust] [--screenshots FOLDER]
#
# MONOSPLIT_WEB_BUILDS names the builds of the engine that are made and checked: simd unless it is set, at most simd,plain,threads.
#
# Needs: what scripts/build_web.sh needs; chromium; node, version 20 or newer, with npm; the program as built by
#        cargo build -p monosplit-cli (MONOSPLIT_PROGRAM names another)
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in chromium node npm; do
    command -v "$tool" > /dev/null || { echo "$0: $tool is missing; the head of this script says what it needs" >&2; exit 1; }
done
built=0
scripts/build_web.sh --builds "${MONOSPLIT_WEB_BUILDS:-simd}" || built=$?
if [ "$built" = 3 ]; then
    echo "the tools that build the page could not be installed; the page is not checked" >&2
    exit 0
fi
[ "$built" = 0 ] || exit "$built"
packages="target/tools/node"
mkdir -p "$packages"
if [ ! -d "$packages/node_modules/playwright-core" ] || [ ! -d "$packages/node_modules/onnxruntime-web" ]; then
    echo '{"private": true}' > "$packages/package.json"
    if ! (cd "$packages" && npm install --no-audit --no-fund --ignore-scripts --silent playwright-core@1 onnxruntime-web@1); then
        echo "playwright-core and onnxruntime-web could not be installed; the page is not checked" >&2
        exit 0
    fi
fi
program="${MONOSPLIT_PROGRAM:-target/debug/monosplit}"
[ -x "$program" ] || cargo build --locked -p monosplit-cli
exec node scripts/check_explorer.mjs --program "$program" --packages "$packages" "$@"
