#!/bin/bash
# Makes crates/eval/tests/fixtures/store-version-1.sql: a run store of version 1, written by version 0.1.0 of the program, as
# the statements that make it. Needs that program, sqlite3 and a Python with Pillow.
#
#   scripts/make_store_fixture.sh PROGRAM-0.1.0 PYTHON
set -euo pipefail
program=$1 python=$2
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$python" - "$root" <<'P'
import sys
from pathlib import Path
from PIL import Image

root = Path(sys.argv[1])
photograph = Image.open(root / "crates/monosplit/assets/chelsea.png").convert("RGB")
for folder in ("images", "masks"):
    Path("data", folder).mkdir(parents=True)
labels = ["file,class"]
for number in range(4):
    photograph.crop((30 * number, 20 * number, 30 * number + 128, 20 * number + 128)).save(f"data/images/{number}.png")
    mask = Image.new("L", (128, 128))
    mask.paste(255, (30, 30, 70, 90))
    mask.save(f"data/masks/{number}.png")
    labels.append(f"{number}.png,{5 + number}")
Path("data/images/broken.png").write_text("this is no picture")
Path("data/labels.csv").write_text("\n".join(labels + ["broken.png,1"]) + "\n")
Path("experiment.toml").write_text(f'''
name = "small"
[model]
file = "{root}/crates/monosplit/assets/pets-small.onnx"
[data]
folder = "data"
unreadable = "skip"
[[method]]
method = "splitgrad:alpha=0.5"
layers = "image"
[[method]]
method = "gradcam"
[comparison]
metrics = ["attribution-localisation", "attribution-localisation:abs=no,preset=quantus-0.6", "relevance-mass-accuracy",
           "pointing-game"]
''')
P
"$program" evaluate experiment.toml --store store.sqlite
{
    echo "PRAGMA application_id = $(sqlite3 store.sqlite 'PRAGMA application_id');"
    echo "PRAGMA user_version = $(sqlite3 store.sqlite 'PRAGMA user_version');"
    # Paths of this machine are no part of the fixture.
    sqlite3 store.sqlite .dump | sed "s#$root/#/#g; s#$work/#/#g" | grep -v sqlite_sequence
} >"$root/crates/eval/tests/fixtures/store-version-1.sql"
