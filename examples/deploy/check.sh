#!/usr/bin/env bash
# Starts the three examples with their own commands and compares what they say about a photograph: the same breed. Each scales
# pictures in its own way, so probabilities differ by some percent. PYTHON and MONOSPLIT may name what is already there.
set -euo pipefail
cd "$(dirname "$0")"
picture="$(cd ../../crates/monosplit/assets && pwd)/chelsea.png"
port="${PORT:-8123}"

python="$(python/start.sh "$picture" | tail -1)"
node="$(npm start --silent --prefix node -- "$picture" | tail -1)"

npm run --silent --prefix browser prestart
npm install --prefix browser --no-save --no-audit --no-fund --no-package-lock --silent playwright-core
PORT="$port" node browser/serve.js > /dev/null &
server=$!
trap 'kill $server' EXIT
browser="$(node browser/check.js "http://localhost:$port/" "$picture" | tail -1)"

printf 'python   %s\nnode     %s\nbrowser  %s\n' "$python" "$node" "$browser"
for answer in "$node" "$browser"; do
    [ "${answer#*% }" = "${python#*% }" ] || { echo "they disagree" >&2; exit 1; }
done
for picture in python/explained.png node/explained.png browser/screenshot.png; do
    [ -s "$picture" ] || { echo "there is no $picture" >&2; exit 1; }
done
echo "the three examples agree"
