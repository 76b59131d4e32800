"""Runs a batch that does not fit the memory of an NVIDIA GPU: SplitCAM and SplitGrad of 64 noise images at all layers of VGG16
in f32, while this process holds more and more of the memory. The maps are compared with those of an otherwise unused GPU.
Smaller batches on the unused GPU show how much of the difference is due to the batch size. Needs what `gpu.py` needs:

    cargo build --release -p monosplit-bench --features cuda
    python3 benches/gpu_memory.py --worker target/release/bench-worker
"""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from gpu import exported
from comparison.turns import Competitor, Failed

PICTURES = 64


def maps(worker, path, layers, x):
    """Every map by name, for all pictures."""
    folder = path.with_name("maps")
    folder.mkdir(exist_ok=True)
    np.save(path.with_name("x.npy"), x)
    wanted = ["name=splitcam,splitgrad", "class=0", f"layers={','.join(layers)}"]
    options = [f"input={path.with_name('x.npy')}", "engine=cuda", "precision=f32", *wanted]
    with Competitor([worker], ["method", path, *options]) as ours:
        ours.go()
        ours.save(folder)
    return {file.name: np.load(file).reshape(len(x), -1).astype(float) for file in folder.glob("*.npy")}


def difference(found, whole):
    """Of all maps the largest over pictures, and the largest median over pictures, of relative distances."""
    def distances(name):
        expected = whole[name][: len(found[name])]
        return np.linalg.norm(found[name] - expected, axis=1) / np.linalg.norm(expected, axis=1).clip(1e-30)

    each = [distances(name) for name in found]
    return f"differ by {max(d.max() for d in each):.1e}, the median picture's by {max(np.median(d) for d in each):.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    arguments = parser.parse_args()
    x = np.random.default_rng(3).standard_normal((PICTURES, 3, 224, 224)).astype(np.float32)
    with tempfile.TemporaryDirectory() as scratch:
        module, path, _, layers = exported("vgg16", pathlib.Path(scratch))
        del module
        torch.cuda.empty_cache()
        whole = maps(arguments.worker, path, layers, x)
        for batch in (16, 4, 1):
            print(f"batch {batch}, unused GPU:", difference(maps(arguments.worker, path, layers, x[:batch]), whole), flush=True)
        for left in (12, 5, 3, 2):
            held = torch.empty(torch.cuda.mem_get_info()[0] - (left << 30), dtype=torch.uint8, device="cuda")
            try:
                said = difference(maps(arguments.worker, path, layers, x), whole)
            except Failed as failure:
                said = f"failed: {failure}"
            print(f"batch {PICTURES}, {left} GiB free:", said, flush=True)
            del held
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
