"""Times metrics by monosplit and by Quantus with PyTorch on the same NVIDIA GPU: the entries of `comparison/metrics.py`, on
randomly initialised networks and images. Quantus gets all images in one batch, monosplit one after the other; both run one
repeat each in turn, and elapsed time counts. Needs what `gpu.py` needs, and Quantus:

    cargo build --release -p monosplit-bench --features cuda
    python3 benches/gpu_metrics.py --worker target/release/bench-worker
"""

import argparse
import pathlib
import sys
import tempfile
import time

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from gpu import exported
from comparison import guard, metrics, network, turns
from comparison.methods import Job


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(worker, number, made, arguments):
    """Ratios of an entry, fastest to fastest and median to median, and whether values agree."""
    entry = metrics.METRICS[number]
    path, first = made[entry.network]
    x = np.random.default_rng(3).standard_normal((arguments.images, 3, 224, 224)).astype(np.float32)
    input = path.with_name("x.npy")
    np.save(input, x)
    module = network.read(str(path)).cuda()
    theirs = metrics.job(Job(module, torch.from_numpy(x), torch.zeros(len(x), dtype=torch.long), {}), number)
    where = [f"layers={first}"] if entry.method == "splitgrad" else []
    common = [f"input={input}", "engine=cuda", f"precision={arguments.precision}", f"metric={entry.ours}", "class=0"]
    with turns.Competitor([worker], ["metric", path, *common, f"name={entry.method}", *where]) as ours:
        # Programs are recorded at their second run.
        for _ in range(2):
            ours.go()
        results = [path.with_name("ours"), path.with_name("theirs")]
        for folder in results:
            folder.mkdir(exist_ok=True)
        ours.save(results[0])
        np.save(results[1] / "values.npy", theirs()["values"])
        agreement = guard.compare_values(*results, entry.tolerance)
        times = turns.take_turns(arguments.repeats, 0, ours.go, lambda: timed(theirs))
    return *turns.ratios(*times), agreement


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--only", default="", help="part of the title of what is wanted")
    arguments = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "tf32"
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {arguments.precision}, {arguments.images} images, {arguments.repeats} repeats")
    print("| metric | network | ratio of minima | of medians | target | values |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        made = {name: exported(name, pathlib.Path(folder))[1:3] for name in ("resnet18", "vgg16")}
        for number, entry in enumerate(metrics.METRICS):
            if arguments.only in entry.title:
                least, median, agreement = compare(arguments.worker, number, made, arguments)
                print(f"| {entry.title} | {entry.network} | {least:.3f} | {median:.3f} | {entry.target} | {agreement} |", flush=True)


if __name__ == "__main__":
    main()
