"""How far gradients in single precision are from double precision, with and without --accurate.

    python scripts/measure_rounding.py --binary target/release/monosplit --pictures FOLDER MODEL.onnx…

Prints, for Input × Gradient of the best class, the median and the largest relative distance over the pictures, as Markdown.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np


def maps(binary, model, pictures, folder, *options):
    raw = Path(folder) / "maps.npy"
    command = [binary, "explain", model, *pictures, "--method", "input-x-gradient", "--channels", "keep"]
    subprocess.run([*map(str, command), "--raw", raw, "--out", f"{folder}/pictures", "--quiet", *options], check=True, stdout=subprocess.DEVNULL)
    return np.load(raw).astype(np.float64)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--binary", type=Path, default=Path("target/release/monosplit"))
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20)
    arguments = parser.parse_args()
    pictures = sorted(path for path in arguments.pictures.iterdir() if path.suffix in (".jpg", ".png"))[: arguments.count]
    print("| network | usual: median, largest | `--accurate`: median, largest |\n|---|--:|--:|")
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            exact = maps(arguments.binary, model, pictures, folder, "--precision", "f64")
            cells = []
            for options in ([], ["--accurate"]):
                apart = maps(arguments.binary, model, pictures, folder, *options) - exact
                norm = lambda x: np.sqrt((x.reshape(len(x), -1) ** 2).sum(1))
                distance = norm(apart) / norm(exact)
                cells.append(f"{np.median(distance):.0e}, {distance.max():.0e}")
            print(f"| {model.stem} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
