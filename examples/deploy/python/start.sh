#!/usr/bin/env bash
# Explains a picture: start.sh [PICTURE]. Uses the Python named by PYTHON if there is one, and otherwise an environment of its own.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
"$here/../compile.sh"
if [ -z "${PYTHON:-}" ]; then
    PYTHON="$here/venv/bin/python"
    [ -x "$PYTHON" ] || python3 -m venv "$here/venv"
    "$PYTHON" -m pip install --quiet --requirement "$here/requirements.txt"
fi
exec "$PYTHON" "$here/explain.py" "${1:-$here/../../../crates/monosplit/assets/chelsea.png}"
