"""Keeps every seventh array of the reference vectors of the split methods, for the tests.

    python scripts/reduce_vectors.py ../shared/vectors --out crates/explain/tests/fixtures/vectors

Seven divides neither the number of maps per layer (10 or 13) nor the number of settings, so that what is kept has every network,
layer, method, map and setting. The script fails if it has not. Only the standard library is needed.
"""

import argparse
import pathlib
import shutil
import zipfile

CASES = ("mlp", "tinyvgg", "tinyresnet", "mobile")
STEP = 7


def features(key):
    """What a key asks for: each setting, and each map of each layer."""
    settings, method, layer, name = key.removesuffix(".npy").split("/")
    return {("settings", settings), ("map", method, layer, name)}


def reduce(source, target):
    with zipfile.ZipFile(source) as full, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept:
        names = sorted(name for name in full.namelist() if "/" in name)
        chosen = names[::STEP]
        missing = set().union(*map(features, names)) - set().union(*map(features, chosen))
        if missing:
            raise SystemExit(f"{target}: nothing is left of {sorted(missing)}")
        for name in ["logits.npy", *chosen]:
            # A fixed date makes the file the same each time.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            kept.writestr(entry, full.read(name))
    print(f"{target}: {len(chosen)} of {len(names)} maps")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    for case in CASES:
        folder = options.out / case
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("model.onnx", "x.npy", "case.json"):
            shutil.copyfile(options.vectors / case / name, folder / name)
        reduce(options.vectors / case / "expected.npz", folder / "expected.npz")


if __name__ == "__main__":
    main()
