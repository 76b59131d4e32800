#!/usr/bin/env python3
"""Times two builds of the bench worker in turn: whether a change made anything slower.

    python3 benches/builds.py BEFORE AFTER [--only WORD…]

BEFORE and AFTER are files `bench-worker` (`cargo build --release -p monosplit-bench`). Prints a Markdown table of ratios, AFTER to BEFORE,
fastest repeat to fastest and median to median; below 1 is faster. Networks are those in `../shared/models` beside the repository, or
in --models. Needs nothing but Python's standard library, and a quiet machine. Exit code 1 if a row is slower by more than --limit by both.
"""

import argparse
import array
import pathlib
import random
import struct
import sys
import tempfile

from comparison.turns import Competitor, Failed, ratios, take_turns

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESNET, VGG, SQUEEZE, SMALL = "resnet18-imagenet", "vgg16-pets", "squeezenet1.1-imagenet", "pets-small"
JOBS = [
    *((f"forward {model}, batch {batch}", "forward", model, batch, {}) for model in (RESNET, VGG, SQUEEZE, SMALL) for batch in (1, 8)),
    *((f"{method} {model}", "method", model, 1, {"name": method}) for model in (RESNET, VGG) for method in (
        "gradient", "splitcam", "splitgrad", "gradcam", "lrp", "integrated-gradients", "occlusion", "feature-ablation")),
    ("splitlrp " + RESNET, "method", RESNET, 1, {"name": "splitlrp"}),
    ("gradient " + SQUEEZE, "method", SQUEEZE, 1, {"name": "gradient"}),
    ("splitcam " + SMALL, "method", SMALL, 1, {"name": "splitcam"}),
    ("pixel flipping " + RESNET, "metric", RESNET, 1, {"metric": "pixel-flipping:auc=20"}),
    ("selectivity, 8×8 " + RESNET, "metric", RESNET, 1, {"metric": "selectivity:patch=8"}),
    ("selectivity, 32×32 " + RESNET, "metric", RESNET, 1, {"metric": "selectivity:patch=32"}),
    ("max sensitivity " + RESNET, "metric", RESNET, 1, {"metric": "max-sensitivity:samples=10"}),
]


def images(folder: pathlib.Path, batch: int, side: int) -> pathlib.Path:
    """Smooth noise as a .npy file."""
    path = folder / f"images-{batch}-{side}.npy"
    if not path.exists():
        source = random.Random(batch)
        coarse = [source.gauss(0, 1) for _ in range(batch * 3 * 16 * 16)]
        scale = side // 16 + 1
        values = array.array("f", (
            coarse[(plane * 16 + y // scale) * 16 + x // scale] for plane in range(batch * 3) for y in range(side) for x in range(side)))
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({batch}, 3, {side}, {side}), }}"
        header += " " * (63 - (10 + len(header)) % 64) + "\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values.tobytes())
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only rows with one of these words")
    parser.add_argument("--models", type=pathlib.Path, default=ROOT.parent / "shared" / "models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=4.0, help="short work is repeated for about this long")
    parser.add_argument("--limit", type=float, default=1.03, help="a row above it fails [1.03]")
    chosen = parser.parse_args()
    slower = []
    print("| work | ratio of minima | ratio of medians |\n|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for title, kind, model, batch, options in JOBS:
            if chosen.only and not any(word in title for word in chosen.only):
                continue
            side = 128 if model == SMALL else 224
            words = {"input": images(pathlib.Path(folder), batch, side), "threads": chosen.threads, **options}
            load = [kind, str(chosen.models / f"{model}.onnx"), *(f"{key}={value}" for key, value in words.items())]
            try:
                with Competitor([str(chosen.before)], load) as before, Competitor([str(chosen.after)], load) as after:
                    before.go(), after.go()
                    old, new = take_turns(chosen.repeats, chosen.seconds, before.go, after.go)
            except Failed as failure:
                print(f"| {title} | failed: {failure} | |", flush=True)
                slower.append(title)
                continue
            least, median = ratios(new, old)
            print(f"| {title} | {least:.3f} | {median:.3f} |", flush=True)
            if min(least, median) > chosen.limit:
                slower.append(title)
    if slower:
        print(f"\nslower than {chosen.limit}, or failed: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
